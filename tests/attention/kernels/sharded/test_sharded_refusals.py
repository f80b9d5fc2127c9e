"""What a layout of DTensors rules out is refused on every process alike, by the same sentence, so that none waits for another."""

import json
import os
import random
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch

import overt
from overt.errors import OvertError

LAYOUTS = 120
KINDS = ("replicate", "shard 0", "shard 1", "shard 2", "shard 3", "partial")


def layouts(count):
    """Shapes, placements along a mesh of one or two dimensions, and options, the same list on every process."""
    draw = random.Random(54 + count)
    grouped = [(heads, keys) for heads, keys in product(range(1, 13), repeat=2) if heads % keys == 0]
    for _ in range(LAYOUTS):
        mesh = draw.choice([(count,), (count,), (1, count), (count, 1)])
        usual = [draw.choice(KINDS[:4]) for _ in mesh]
        placements = [
            [draw.choice(KINDS) if draw.random() < 0.06 else draw.choice(("replicate", each)) for each in usual] for _ in "qkv"
        ]
        if draw.random() < 0.7:
            placements = [usual] * 3
        batch, keys_batch = draw.choice([(2, 2), (3, 3), (1, 1), (3, 1), (1, 3)])
        heads, key_heads = draw.choice(grouped)
        lengths = draw.choice([(5, 5), (4, 7), (1, 6), (7, 2)])
        yield {
            "mesh": mesh,
            "placements": placements,
            "shapes": [(batch, heads, lengths[0], 4), *[(keys_batch, key_heads, lengths[1], 4)] * 2],
            "normalizer": draw.choice(["softmax", "softmax", "sparsemax"]),
            "mask": draw.choice(["none", "causal", "dense", "dense, as a DTensor", "bias, as a DTensor"]),
            "mask placement": draw.choice(KINDS[:4]),
            "call": draw.choice(["attend", "attend", "summarize"]),
        }


def results(count):
    """What this process has of each layout: the sentence of a refusal, or that it computed what plain tensors give."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    def placed(name):
        return Partial() if name == "partial" else Replicate() if name == "replicate" else Shard(int(name[-1]))

    def spread(tensor, mesh, names):
        if "partial" in names:
            return DTensor.from_local(tensor, mesh, [Partial() if name == "partial" else Replicate() for name in names])
        whole = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return whole.redistribute(placements=[placed(name) for name in names])

    meshes = {shape: init_device_mesh("cpu", shape) for shape in ((count,), (1, count), (count, 1))}
    for layout in layouts(count):
        torch.manual_seed(0)
        mesh, tensors = meshes[tuple(layout["mesh"])], [torch.randn(shape) for shape in layout["shapes"]]
        sizes = layout["shapes"][0][2], layout["shapes"][1][2]
        allowed, added = torch.rand(1, 1, *sizes) < 0.7, torch.randn(1, 1, *sizes)
        options = {"normalizer": overt.Sparsemax() if layout["normalizer"] == "sparsemax" else overt.Softmax()}
        plain = {"causal": {"mask": overt.Causal()}, "none": {}}.get(
            layout["mask"], {"bias": added} if layout["mask"][:4] == "bias" else {"mask": allowed}
        )
        names = [layout["mask placement"]] * mesh.ndim if mesh.ndim == 1 else [layout["mask placement"], "replicate"]
        divided = {key: spread(each, mesh, names) if "DTensor" in layout["mask"] else each for key, each in plain.items()}
        # Placed first, since a tensor that cannot be placed is torch's error and not of the call.
        inputs = [spread(tensor, mesh, names) for tensor, names in zip(tensors, layout["placements"], strict=True)]
        try:
            if layout["call"] == "attend":
                whole = overt.attend(*inputs, **divided, **options).full_tensor()
                wanted = overt.attend(*tensors, **plain, **options)
            else:
                whole = overt.summarize(*inputs[:2], value=inputs[2], map_size=None, **divided, **options).entropy.full_tensor()
                wanted = overt.summarize(*tensors[:2], value=tensors[2], map_size=None, **plain, **options).entropy
            torch.testing.assert_close(whole, wanted, rtol=0, atol=1e-4)
            yield "computed"
        except OvertError as error:
            yield f"refused: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_every_process_computes_or_every_process_refuses_in_the_same_sentence(count, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(count), tmp_path], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(count)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), errors
    of_each = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(count)]
    assert all(len(each) == LAYOUTS for each in of_each)
    for layout, *answers in zip(layouts(count), *of_each, strict=True):
        assert len({*answers}) == 1, (layout, answers)
    refused = sum(answer != "computed" for answer in of_each[0])
    assert LAYOUTS / 5 < refused < LAYOUTS * 4 / 5


if __name__ == "__main__":
    import datetime

    import torch.distributed as dist

    rank, count = map(int, sys.argv[1:3])
    dist.init_process_group("gloo", rank=rank, world_size=count, timeout=datetime.timedelta(seconds=60))
    Path(sys.argv[3], f"{rank}.json").write_text(json.dumps([*results(count)]))
    dist.barrier()
    os._exit(0)
