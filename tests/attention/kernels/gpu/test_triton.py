"""The kernels for GPUs, in Triton's interpreter: what they share with the native ones is tested by those tests, run with TRITON_INTERPRET=1."""

import numpy as np
import pytest
import torch

import overt
from compare import check, close
from overt.attention.kernels.triton import launch as triton_launch
from overt.attention.kernels.triton import packing as triton_packing
from overt.attention.kernels.triton import run_additive
from overt.attention.kernels.triton.additive_scores import CAPPED, PLAIN, SHARED

assert triton_packing.triton.knobs.runtime.interpret, "these tests run with TRITON_INTERPRET=1"


def drawn(*shapes, seed=0):
    random = np.random.default_rng(seed)
    return [torch.tensor(random.normal(size=shape)) for shape in shapes]


def test_the_plan_names_them():
    x = torch.randn(1, 9, 4)
    plan = overt.plan(x, x, x, score=overt.Additive(torch.ones(4)))
    assert plan.path == "triton"
    assert plan.reason == "additive attention under a softmax, fused with it in Triton's kernels, in linear memory"
    assert plan.refused["native"] == "with TRITON_INTERPRET=1 Triton's interpreter runs in place of the native core"


def test_a_call_by_this_path_launches_them_in_both_passes(monkeypatch):
    launched = []
    for name in ("additive", "additive_gradients"):
        run = getattr(run_additive, name)
        monkeypatch.setattr(run_additive, name, lambda *inputs, run=run, name=name: launched.append(name) or run(*inputs))
    x = torch.randn(1, 9, 4, requires_grad=True)
    overt.attend(x, x, x, score=overt.Additive(torch.ones(4))).sum().backward()
    assert launched == ["additive", "additive_gradients"]


# Lengths round a program's block of 128 queries and tiles of 32 keys, or of 128 keys and 32 queries.
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (127, 33), (129, 31), (33, 129)])
def test_lengths_round_the_edges_of_blocks_give_the_oracles_numbers(queries, keys):
    with overt.use_path("triton"):
        check(
            drawn((queries, 5), (keys, 5), (keys, 3)), score="additive", params={"weight": torch.ones(5), "activation": "tanh"}
        )


@pytest.mark.parametrize("width", [1, 64, 65, 130])
def test_values_wider_than_a_program_holds_give_the_oracles_numbers(width):
    with overt.use_path("triton"):
        check(drawn((9, 5), (11, 5), (11, width)), score="additive", params={"weight": torch.ones(5), "activation": "sigmoid"})


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("query", "key", "least", "wanted"),
    [
        (2.0, 2.0, 1.0, SHARED),
        (2.0, 2.0, 0.0, SHARED),
        (22.0, 22.0, 1.0, CAPPED),
        (90.0, 2.0, 1.0, PLAIN),
        (2.0, -INF, 1.0, PLAIN),
        (NAN, 2.0, 1.0, PLAIN),
        (2.0, 2.0, INF, PLAIN),
    ],
)
def test_the_range_of_features_chooses_how_they_are_computed(query, key, least, wanted):
    queries, keys = torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)
    queries[1, 2], keys[2, 2] = query, key
    pack = triton_packing.packed(queries, keys, torch.tensor([1.0, 1.0, least, 1.0]), "tanh")
    assert pack.ways.tolist() == [wanted.value]


@pytest.mark.parametrize("shift", [0.0, 50.0, 1000.0])
def test_features_far_from_0_are_shifted_to_their_middle(shift):
    query, key, _value = drawn((7, 4), (9, 4), (9, 3))
    pack = triton_packing.packed((query + shift).float(), (key - shift).float(), torch.ones(4), "tanh")
    assert pack.ways.tolist() == [SHARED.value]
    assert pack.query.isfinite().all()
    assert pack.key.isfinite().all()


def test_programs_say_which_ranges_bound_them():
    RANGES, DENSE, DOCUMENTS, BOTH, EITHER, INVERSE = range(6)
    assert triton_launch.steps([]) == ((), (), ())
    assert triton_launch.steps([RANGES, DENSE, BOTH])[1:] == ((0, 2, -1), (0,))
    assert triton_launch.steps([DOCUMENTS, RANGES, BOTH])[1:] == ((0, 2, -1), (2,))
    assert triton_launch.steps([RANGES, INVERSE])[2] == ()
    assert triton_launch.steps([RANGES, DENSE, EITHER])[2] == ()
    assert triton_launch.steps([RANGES, RANGES, EITHER, RANGES, BOTH])[2] == (4,)


def test_each_entry_finds_its_own_part_of_grouped_shared_and_strided_tensors():
    batch = (2, 6)
    whole, shared, grouped = torch.empty(2, 6, 9, 4), torch.empty(9, 4), torch.empty(2, 3, 4, 9).mT
    arrays = [torch.empty(2, 1, 9).expand(2, 1, 9)]
    positions, width = triton_launch.table(
        batch, {"query": (whole, 2), "key": (grouped, 2), "value": (shared, 2)}, arrays * 2, [0]
    )
    rows = dict(zip(triton_launch.COLUMNS, positions.tolist(), strict=False))
    assert width == 12
    assert rows["query"] == [36 * entry for entry in range(12)]
    assert rows["key"] == [36 * (entry // 2) for entry in range(12)]
    assert rows["value"] == rows["bias"] == [0] * 12
    assert positions[len(triton_launch.COLUMNS)].tolist() == [0] * 6 + [9] * 6


@pytest.mark.parametrize(
    "mask",
    [
        overt.Window(3, 2),
        overt.Causal() & overt.Documents(torch.arange(300) // 50),
        pytest.param(~overt.Causal(), marks=pytest.mark.slow),
    ],
)
def test_long_rows_under_masks_that_leave_most_tiles_out_give_the_oracles_numbers(mask):
    arrays = drawn((300, 3), (300, 3), (300, 2))
    allowed = mask.bind(0, 300, 300).block(torch.arange(300), torch.arange(300))
    with overt.use_path("triton"):
        check(arrays, score="additive", params={"weight": torch.ones(3), "activation": "relu"}, mask=mask, allowed=allowed)


def test_dropout_keeps_what_the_plain_formula_keeps_in_both_passes():
    leaves = [tensor.requires_grad_() for tensor in drawn((2, 33, 4), (2, 40, 4), (2, 40, 3))]

    def run():
        torch.manual_seed(3)
        with overt.use_path("triton"):
            return overt.attend(*leaves, score=overt.Additive(torch.ones(4).double()), dropout=0.3)

    output = run()
    result = torch.autograd.grad(output.square().sum(), leaves)
    # Twice differentiable gradients are those of the plain formula.
    wanted = torch.autograd.grad(run().square().sum(), leaves, create_graph=True)
    for gradient, other in zip(result, wanted, strict=True):
        close(gradient, other.detach(), 1e-10, "gradient")
    assert float((output - overt.attend(*leaves, score=overt.Additive(torch.ones(4).double()))).abs().max().detach()) > 0


def test_the_same_call_gives_the_same_bits():
    leaves = [tensor.float().requires_grad_() for tensor in drawn((2, 70, 6), (2, 90, 6), (2, 90, 5))]
    runs = []
    for _ in range(2):
        with overt.use_path("triton"):
            output = overt.attend(*leaves, score=overt.Additive(torch.ones(6)))
        runs.append([output, *torch.autograd.grad(output.sin().sum(), leaves)])
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def test_compiled_without_a_break_it_runs_them_and_gives_the_same_numbers():
    leaves = [tensor.float().requires_grad_() for tensor in drawn((2, 9, 4), (2, 11, 4), (2, 11, 3))]
    weight = torch.ones(4, requires_grad=True)

    def run(query, key, value):
        return overt.attend(query, key, value, score=overt.Additive(weight), mask=overt.Causal())

    with overt.use_path("triton"):
        output = torch.compile(run, fullgraph=True, backend="aot_eager")(*leaves)
        wanted = run(*leaves)
    close(output.detach(), wanted.detach(), 1e-6, "output")
    pairs = (torch.autograd.grad(each.square().sum(), [*leaves, weight]) for each in (output, wanted))
    for gradient, other in zip(*pairs, strict=True):
        close(gradient, other, 1e-6, "gradient")


def test_vmap_is_one_call_that_gives_what_a_loop_gives():
    query, key, value = drawn((3, 9, 4), (3, 11, 4), (3, 11, 2))
    score = overt.Additive(torch.ones(4).double())
    with overt.use_path("triton"):
        result = torch.func.vmap(lambda *inputs: overt.attend(*inputs, score=score))(query, key, value)
        wanted = torch.stack([overt.attend(q, k, v, score=score) for q, k, v in zip(query, key, value, strict=True)])
    close(result, wanted, 1e-12, "output")


SUMMARIES = {
    "dot": {"score": overt.Dot(softcap=2.0), "mask": overt.Causal(), "map_size": (3, 7), "top": 5},
    "fine map": {"map_size": (11, 1000), "normalizer": overt.Softmax(0.7, torch.tensor([0.3, -9.0]).double())},
    "additive": {"score": overt.Additive(torch.linspace(-1, 1, 8).double()), "bias": overt.ALiBi(torch.ones(2)), "map_size": 2},
    "cosine": {"score": overt.Cosine(3.0), "mask": overt.Lengths(torch.tensor([[0], [20]])), "top": 40},
    "bilinear": {"score": overt.Bilinear(torch.eye(8).double()), "bias": torch.linspace(-1, 1, 45).double()},
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_summaries_are_those_of_the_blocks(name):
    query, key, value = drawn((2, 2, 40, 8), (2, 1, 45, 8), (2, 1, 45, 3))
    result = []
    for path in ("triton", "blocked"):
        with overt.use_path(path):
            result.append(overt.summarize(query, key, value=value, **SUMMARIES[name]))
    for part in ("lse", "entropy", "received", "top_weights", "map_mean", "map_max", "sink", "output"):
        one, other = (getattr(each, part) for each in result)
        assert (one is None) == (other is None), part
        if one is not None:
            with np.errstate(invalid="ignore"):  # of queries that see nothing the log-sum-exp is -inf
                close(one, other, 1e-12, part)
    assert torch.equal(result[0].top_keys, result[1].top_keys)


def test_a_summary_of_half_precision_is_computed_in_float32():
    query, key = (tensor.bfloat16() for tensor in drawn((9, 8), (12, 8)))
    with overt.use_path("triton"):
        result = overt.summarize(query, key, top=2)
    wanted = overt.summarize(query.double(), key.double(), top=2)
    assert result.lse is not None
    assert result.lse.dtype == torch.float32
    close(result.lse, wanted.lse, 1e-5, "lse")


@pytest.mark.parametrize("nasty", [float("nan"), float("inf")])
def test_masked_values_and_keys_that_hold_no_numbers_are_not_felt_in_a_summary(nasty):
    query, key, value = drawn((5, 4), (40, 4), (40, 3))
    clean = overt.summarize(query, key[:30], value=value[:30], top=3)
    key[30:], value[30:] = nasty, nasty
    with overt.use_path("triton"):
        result = overt.summarize(query, key, value=value, mask=overt.Lengths(30), top=3)
    for part in ("lse", "entropy", "top_weights", "output"):
        close(getattr(result, part), getattr(clean, part), 1e-12, part)
    close(result.received[:30], clean.received, 1e-12, "received")


def test_rows_of_nan_say_so():
    query, key = drawn((5, 4), (7, 4))
    query[2] = float("nan")
    with overt.use_path("triton"):
        result = overt.summarize(query, key, top=2, map_size=5)
    assert result.lse is not None
    assert result.map_max is not None
    assert result.lse.isnan().tolist() == [False, False, True, False, False]
    assert result.top_weights[2].isnan().all()
    assert result.map_max[2].isnan().all()
    assert result.received.isnan().all()
