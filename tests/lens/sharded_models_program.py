"""What each process of test_sharded_models.py runs: a Hugging Face model whose parameters are spread over processes, recorded."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

import overt

TOKENS = torch.arange(12)[None]
SIZES = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2)).eval()


def recorded(model):
    with torch.no_grad(), overt.lens.record(model) as recording:
        logits = model(TOKENS).logits
    return recording, logits


def fully_sharded(mesh):
    sharded = model()
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(sharded, mesh=mesh)


def tensor_parallel(mesh):
    plan = {}
    for layer in (f"model.layers.{index}." for index in range(2)):
        plan |= {f"{layer}self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
        plan |= {f"{layer}self_attn.o_proj": RowwiseParallel(), f"{layer}mlp.down_proj": RowwiseParallel()}
        plan |= {f"{layer}mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    return parallelize_module(model(), mesh, plan)


class Attends(torch.nn.Module):
    def forward(self, x):
        return overt.attend(x, x, x)


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    whole, expected = recorded(model())
    for make, heads in ((fully_sharded, range(4)), (tensor_parallel, range(2 * rank, 2 * rank + 2))):
        recording, logits = recorded(make(mesh))
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        assert torch.allclose(logits, expected, atol=1e-5), make.__name__
        assert recording.missing == []
        assert recording.verify().holds, f"{make.__name__}: {recording.missing}"
        for layer in range(2):
            for mine, head in enumerate(heads):
                difference = (recording[layer, mine].weights() - whole[layer, head].weights()).abs().max()
                assert difference < 1e-5, f"{make.__name__}, layer {layer}, head {head}: {difference:.1e}"
    attends = Attends()
    with overt.lens.record(attends) as recording:
        attends(distribute_tensor(torch.randn(1, 4, 12, 8), mesh, [Shard(2)]))
    assert "it ran on DTensors, of which this process has a part" in recording.missing[0][1]
    Path(folder, f"{rank}.done").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), sys.argv[2])
