"""What each process of test_sharded.py runs: the comparison with the oracle, where attend gets DTensors, of every case."""

import json
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import compare
import overt
from compare import check, inputs, parameters

ATTEND, STEPS = overt.attend, overt.steps
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def spread(tensor, mesh, placements):
    """A DTensor of a tensor that each process has, whose gradient comes back whole to each."""
    whole = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return whole.redistribute(placements=placements)


class distributed:
    """Within it the comparison's attend is that of DTensors, laid out like this: placements of query, key and value."""

    def __init__(self, query, key=None, value=None, mesh=None):
        self.placements = (query, query if key is None else key, value or (query if key is None else key))
        self.mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))

    def __enter__(self):
        def attend(query, key, value, **options):
            tensors = zip((query, key, value), self.placements, strict=True)
            return ATTEND(*(spread(tensor, self.mesh, placements) for tensor, placements in tensors), **options).full_tensor()

        compare.overt.attend = attend

    def __exit__(self, *error):
        compare.overt.attend = ATTEND


SEQUENCE = [Shard(2)]  # of (B, H, length, features)


def qkv(queries=33, keys=33, heads=(4, 4), features=(8, 8), seed=0):
    return inputs(
        (2, heads[0], queries, features[0]), (2, heads[1], keys, features[0]), (2, heads[1], keys, features[1]), seed=seed
    )


def causal(queries, keys):
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


@case
def dot_products_of_every_dtype():
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        with distributed(SEQUENCE):
            check(qkv(), dtype=dtype)
            check(qkv(), dtype=dtype, mask=overt.Causal(), allowed=causal(33, 33))


@case
def additive_scores():
    random = np.random.default_rng(1)
    for dtype in (torch.float64, torch.float32):
        params = parameters("additive", "softmax", 8, random)
        with distributed(SEQUENCE):
            check(qkv(), score="additive", params=params, dtype=dtype)
            check(qkv(), score="additive", params=params, dtype=dtype, mask=overt.Causal(), allowed=causal(33, 33))


@case
def every_score_with_learned_parameters_a_temperature_and_a_sink():
    random = np.random.default_rng(2)
    for score in ("dot", "bilinear", "additive", "cosine", "gaussian"):
        with distributed(SEQUENCE):
            params = parameters(score, "softmax", 8, random)
            check(qkv(), score=score, params=params, mask=overt.Causal(), allowed=causal(33, 33))


@case
def the_blocks_where_the_native_core_is_forbidden():
    random = np.random.default_rng(3)
    for score in ("dot", "additive"):
        with distributed(SEQUENCE), overt.use_path("blocked"):
            params = parameters(score, "softmax", 8, random)
            check(qkv(), score=score, params=params, mask=overt.Causal(), allowed=causal(33, 33))


@case
def parts_by_the_flash_kernels_of_torch():
    random, length = np.random.default_rng(3), 32  # pieces of one length, each all visible or causal from its start
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        with distributed(SEQUENCE), overt.use_path("torch"):
            compare.overt.steps = steps_by_any_path
            for heads in ((4, 4), (4, 2)):
                check(qkv(length, length, heads), dtype=dtype)
                check(qkv(length, length, heads), dtype=dtype, mask=overt.Causal(), allowed=causal(length, length))
            params = {"weight": torch.tensor(random.normal(size=(8, 8)) / 8)}
            check(qkv(length, length), score="bilinear", params=params, dtype=dtype, normalizer="softmax")


def steps_by_any_path(*tensors, **options):
    with overt.use_path("native", "blocked"):
        return STEPS(*tensors, **options)


@case
def every_normalizer():
    for normalizer in ("sparsemax", "entmax", "sigmoid", "sum"):
        with distributed(SEQUENCE):
            check(qkv(), normalizer=normalizer, mask=overt.Causal(), allowed=causal(33, 33))


@case
def lengths_that_do_not_divide():
    for queries, keys in ((1, 1), (1, 7), (3, 3), (5, 2), (63, 65), (257, 257)):
        allowed = causal(queries, keys)
        with distributed(SEQUENCE):
            check(qkv(queries, keys, (2, 2)), mask=overt.Causal(), allowed=allowed)
            check(
                qkv(queries, keys, (2, 2)),
                mask=overt.Window(2, 1, offset=0),
                allowed=np.abs(np.arange(keys) - np.arange(queries)[:, None] - 0)
                <= np.where(np.arange(keys) > np.arange(queries)[:, None], 1, 2),
            )


@case
def masks_of_every_kind():
    n, random = 33, np.random.default_rng(4)
    rows, keys = np.arange(n)[:, None], np.arange(n)
    ids = torch.tensor(np.sort(random.integers(-1, 3, size=(2, n))))
    mixed = torch.tensor(random.integers(-1, 3, size=n))
    dense = torch.tensor(random.random((2, 1, n, n)) < 0.3)
    lengths = torch.tensor([n, 5])
    offsets = torch.tensor([0, -7])
    low = torch.tensor(random.integers(0, n, size=n))
    visible = torch.tensor(random.random((2, n)) < 0.5)
    same = (ids[:, None, :, None] == ids[:, None, None, :]) & (ids[:, None, None, :] >= 0)
    masks = [
        (overt.Window(4, 0), (keys <= rows) & (keys >= rows - 4)),
        (overt.Causal() & overt.Window(9, None), (keys <= rows) & (keys >= rows - 9)),
        (overt.Lengths(lengths), (keys < lengths.numpy()[:, None, None, None])),
        (overt.Lengths(lengths, lengths) & overt.Causal(), (keys < lengths.numpy()[:, None, None, None])
         & (rows < lengths.numpy()[:, None, None, None]) & (keys <= rows)),
        (overt.Causal(offset=offsets), keys <= rows + offsets.numpy()[:, None, None, None]),
        (overt.Causal(offset=-40), np.zeros((n, n), dtype=bool)),
        (overt.Documents(ids), same.numpy()),
        (overt.Documents(ids) & overt.Causal(), same.numpy() & (keys <= rows)),
        (overt.Documents(mixed), ((mixed[:, None] == mixed) & (mixed >= 0)).numpy()),
        (dense, dense.numpy()),
        (dense | overt.Causal(), dense.numpy() | (keys <= rows)),
        (~overt.Causal(), keys > rows),
        (overt.masks.Keys(visible), visible.numpy()[:, None, None, :]),
        (overt.masks.Ranges(low, low + 5), (keys >= low.numpy()[:, None]) & (keys < low.numpy()[:, None] + 5)),
        (Even(), (rows + keys) % 2 == 0),
        (overt.Causal() & Even(), ((rows + keys) % 2 == 0) & (keys <= rows)),
    ]  # fmt: skip
    for score in ("dot", "additive"):
        params = parameters(score, "softmax", 8, random)
        for mask, allowed in masks:
            with distributed(SEQUENCE):
                try:
                    check(qkv(n, n), score=score, params=params, mask=mask, allowed=np.broadcast_to(allowed, (2, 4, n, n)))
                except Exception as error:
                    raise AssertionError(f"{score} under {mask}") from error


class Even:
    """A mask of a caller's own."""

    def block(self, rows, keys):
        return (rows[:, None] + keys) % 2 == 0


@case
def biases_learn_from_all_processes():
    n, random = 33, np.random.default_rng(5)
    for shape in ((4, n, n), (n, n), (2, 1, 1, n), (1, n, 1), (1,)):
        for path in ("native", "blocked"):
            with distributed(SEQUENCE), overt.use_path(path):
                check(qkv(n, n), bias=random.normal(size=shape), mask=overt.Causal(), allowed=causal(n, n))


def learned(make, table, mesh, placements, **options):
    """Output and gradients of a bias's table and of the inputs, of one process and of all."""
    results = []
    for distribute in (False, True):
        table = table.detach().requires_grad_()
        tensors = [torch.tensor(array).requires_grad_() for array in qkv()]
        spreads = [spread(tensor, mesh, placements) for tensor in tensors] if distribute else tensors
        output = ATTEND(*spreads, bias=make(table), **options)
        output = output.full_tensor() if distribute else output
        upstream = torch.tensor(np.random.default_rng(9).normal(size=output.shape))
        results.append([output, *torch.autograd.grad(output, [table, *tensors], upstream)])
    for single, several in zip(*results, strict=True):
        compare.close(several.detach(), single.detach(), 1e-10, "the same as on one process")


@case
def biases_by_distance_learn_from_all_processes():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for placements in (SEQUENCE, [Shard(1)], [Shard(0)]):
        for path in ("native", "blocked"):
            with overt.use_path(path):
                learned(overt.ALiBi, torch.rand(4).double(), mesh, placements, mask=overt.Causal())
                table = torch.randn(4, 17).double()
                learned(overt.RelativePositionBias, table, mesh, placements, mask=overt.Causal())
                learned(lambda table: overt.RelativePositionBias(table, buckets="log"), table, mesh, placements)


@case
def parameters_that_are_tensors_of_all_processes():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    slopes = torch.rand(4, generator=torch.Generator().manual_seed(1)).double()
    whole = slopes.clone().requires_grad_()
    spreads = [spread(torch.tensor(array), mesh, SEQUENCE) for array in qkv()]
    ATTEND(*spreads, bias=overt.ALiBi(whole)).full_tensor().sum().backward()
    for placement in (Replicate(), Shard(0)):
        parameter = distribute_tensor(slopes, mesh, [placement]).requires_grad_()
        ATTEND(*spreads, bias=overt.ALiBi(parameter)).full_tensor().sum().backward()
        assert parameter.grad.placements == (placement,)
        compare.close(parameter.grad.full_tensor(), whole.grad, 1e-10, "the gradient of a DTensor")


@case
def batch_and_heads_and_sequence_at_once():
    count = dist.get_world_size()
    random = np.random.default_rng(6)
    params = parameters("additive", "softmax", 8, random)
    layouts = [((count,), [Shard(0)]), ((count,), [Shard(1)]), ((count,), [Replicate()])]
    if count == 4:
        layouts += [((2, 2), [Shard(0), Shard(2)]), ((2, 2), [Shard(2), Shard(1)]), ((2, 2), [Shard(0), Shard(1)]),
                    ((2, 2), [Replicate(), Shard(2)]), ((2, 2), [Shard(1), Shard(1)])]  # fmt: skip
    ids = torch.tensor(np.sort(random.integers(0, 3, size=(2, 33))))
    same = (ids[:, None, :, None] == ids[:, None, None, :]).numpy()
    for sizes, placements in layouts:
        with distributed(placements, mesh=init_device_mesh("cpu", sizes)):
            check(
                qkv(), score="additive", params=params, mask=overt.Documents(ids), allowed=np.broadcast_to(same, (2, 4, 33, 33))
            )
            check(qkv(), bias=random.normal(size=(4, 33, 33)), mask=overt.Causal(), allowed=causal(33, 33))


@case
def grouped_heads_and_shared_inputs():
    with distributed(SEQUENCE):
        check(qkv(heads=(4, 2), features=(8, 5)), mask=overt.Causal(), allowed=causal(33, 33))
        check(qkv(heads=(4, 1)), mask=overt.Causal(), allowed=causal(33, 33))
    if dist.get_world_size() == 2:
        with distributed([Shard(1)]):
            check(qkv(heads=(4, 2)), mask=overt.Causal(), allowed=causal(33, 33))
    with distributed([Shard(1)], [Replicate()]):
        check(qkv(heads=(4, 1)), mask=overt.Causal(), allowed=causal(33, 33))
    with distributed([Shard(0)]):
        query, key, value = inputs((5, 9, 8), (5, 11, 8), (5, 11, 4))
        check((query, key, value))


@case
def queries_or_keys_on_every_process():
    random = np.random.default_rng(7)
    for normalizer in ("softmax", "sparsemax"):
        params = parameters("additive", normalizer, 8, random)
        for layout in (([Shard(2)], [Replicate()]), ([Replicate()], [Shard(2)])):
            with distributed(*layout):
                check(
                    qkv(5, 33),
                    score="additive",
                    normalizer=normalizer,
                    params=params,
                    mask=overt.Causal(),
                    allowed=causal(5, 33),
                )
                check(qkv(5, 33), normalizer=normalizer, bias=random.normal(size=(5, 33)))


@case
def what_is_masked_may_be_nan():
    n = 33
    query, key, value = (torch.tensor(array) for array in qkv(n, n))
    mask, hidden = overt.Causal() & overt.Lengths(20), torch.arange(n) >= 20
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for score in (None, overt.Additive(torch.ones(8, dtype=torch.float64))):
        for path in ("native", "blocked"):
            results = []
            for poison in (0.0, torch.nan, torch.inf):
                leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
                with_poison = [leaves[0], *(torch.where(hidden[:, None], poison, leaf) for leaf in leaves[1:])]
                with overt.use_path(path):
                    output = ATTEND(
                        *(spread(tensor, mesh, SEQUENCE) for tensor in with_poison), score=score, mask=mask
                    ).full_tensor()
                gradients = torch.autograd.grad(output.square().sum(), leaves)
                results.append([output.detach(), *gradients])
            for other in results[1:]:
                for clean, poisoned in zip(results[0], other, strict=True):
                    compare.close(poisoned, clean, 1e-12, "unmoved by what is masked")


@case
def a_summary_is_that_of_one_process():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensors = [torch.tensor(array) for array in qkv(heads=(4, 2))]
    options = {"mask": overt.Causal(offset=-3), "bias": overt.ALiBi(torch.rand(4).double()), "top": 3}
    dist.broadcast(options["bias"].slopes, 0)
    for normalizer in (overt.Softmax(sink=torch.ones(4).double()), overt.Sparsemax()):
        query, key, value = tensors
        whole = overt.summarize(query, key, value=value, normalizer=normalizer, **options)
        for placement in ([Shard(2)], [Shard(0)], [Replicate()]):
            query, key, value = (spread(tensor, mesh, placement) for tensor in tensors)
            parts = overt.summarize(query, key, value=value, normalizer=normalizer, **options)
            for name in ("lse", "entropy", "received", "top_weights", "top_keys", "sink", "output"):
                single, several = getattr(whole, name), getattr(parts, name)
                assert (single is None) == (several is None), name
                if single is not None:
                    compare.close(several.full_tensor(), single, 1e-12, name)
        bare = overt.summarize(query, key, **options)
        assert bare.output is None


@case
def work_is_balanced_and_keys_that_nobody_sees_do_not_travel():
    from overt.attention.kernels.sharded.layout import Sequence
    from overt.attention.kernels.sharded.schedule import ring_schedule

    chunks = [(1000 * rank, 1000 * rank + 1000) for rank in range(8)]
    sequence = Sequence(None, 0, chunks, chunks, True, True)
    balanced = ring_schedule(sequence, overt.Causal(offset=0), 8000)
    work = [sum((stop - first) * (first + stop) / 2 for first, stop in rows) for rows in balanced.rows]
    assert max(work) / min(work) < 1.001, work
    for step in balanced.passes:
        pairs = [
            sum(1 for r in balanced.rows[rank] for k in balanced.keys[(rank - step) % 8] if balanced.sees(r, k))
            for rank in range(8)
        ]
        assert len(set(pairs)) == 1, (step, pairs)
    window = ring_schedule(sequence, overt.Causal(offset=0) & overt.Window(700, 0, offset=0), 8000)
    assert window.passes == [0, 1]
    assert ring_schedule(sequence, None, 8000).passes == list(range(8))


@case
def what_it_cannot_do_it_says():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    query, key, value = (spread(torch.tensor(array), mesh, SEQUENCE) for array in qkv())

    def refused(*tensors, function=ATTEND, **options):
        try:
            function(*tensors, **options)
        except overt.errors.OvertError as error:
            return str(error)
        raise AssertionError("it was not refused")

    assert "DTensors" in refused(query, key.full_tensor(), value)
    assert "no dropout" in refused(query, key, value, dropout=0.1)
    assert "@piece" in refused(query, key, value, score=lambda query, key: query @ key.mT)
    features = [Shard(3)]
    assert "not the features" in refused(*(tensor.redistribute(placements=features) for tensor in (query, key, value)))
    assert "divided alike" in refused(query, key, value.redistribute(placements=[Replicate()]))
    groups = dist.get_world_size() + 1
    heads = [spread(torch.tensor(array), mesh, [Shard(1)]) for array in qkv(heads=(2 * groups, groups))]
    assert "whole groups of heads" in (message := refused(*heads)), message
    assert overt.plan(query, key, value).path == "sharded"
    assert "full_tensor()" in refused(query, key, value, function=overt.steps)
    assert "full_tensor()" in refused(query, key, function=overt.summarize, map_size=4)


def main(rank, count, folder, names):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    results = {}
    for name in names or CASES:
        try:
            CASES[name]()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
            Path(folder, f"{rank}.json").write_text(json.dumps(results))
            raise
    Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
