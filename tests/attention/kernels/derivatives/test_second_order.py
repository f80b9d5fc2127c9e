"""The kernels of forward mode and of the backward pass' derivative against the reference, pair by pair, in float64.

Of dot products, and of additive scores, which are programs there.
"""

import pytest
import torch

import flat_reference as reference
from compare import GRADIENT, OUTPUT, close
from overt.attention.kernels.flat.additive import AdditiveInputs, additive
from overt.attention.kernels.flat.derivatives import Dual, Flat, Second, TensorIndices
from overt.attention.kernels.flat.dot import DotInputs, dot
from overt.attention.kernels.flat.mask_program import BOTH, DENSE, INVERSE, RANGES
from overt.attention.kernels.flat.normalizer import NormalizerForm

OPERATORS = {"dot": dot, "tanh": additive, "sigmoid": additive, "relu": additive, "leaky_relu": additive}
NAMES = ("query", "key", "value", "weight", "bias", "sink")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def causal(queries, keys, offset=None):
    """Ranges of keys; with a small offset the first rows have none."""
    offset = keys - queries if offset is None else offset
    rows = torch.arange(queries)
    return {"program": [RANGES], "arrays": [torch.zeros_like(rows), (rows + offset + 1).clamp(0, keys)]}


def dense(queries, keys):
    """Pairs here and there, and a row without any."""
    allowed = torch.rand((2, queries, keys), generator=torch.Generator().manual_seed(7)) < 0.6
    allowed[:, queries // 2] = False
    return {"program": [DENSE], "arrays": [allowed]}


def mixed(queries, keys):
    ranges, pairs = causal(queries, keys), dense(queries, keys)
    return {"program": [RANGES, DENSE, INVERSE, BOTH], "arrays": ranges["arrays"] + pairs["arrays"]}


OPTIONS = {
    "plain": lambda Q, K: {},
    "causal": causal,
    "rows without keys": lambda Q, K: causal(Q, K, -3),
    "dense": dense,
    "program": mixed,
    "bias": lambda Q, K: {"bias": (Q, K)},
    "bias of keys": lambda Q, K: {"bias": (2, 1, K), **causal(Q, K)},
    "bias by distance": lambda Q, K: {"bias": (Q + K - 1,), "by_distance": True, **causal(Q, K)},
    "sink": lambda Q, K: {"sink": (2,)},
    "shared sink": lambda Q, K: {"sink": (1,), **dense(Q, K)},
    "temperature": lambda Q, K: {"temperature": (2,), "bias": (1, Q, K)},
    "softcap": lambda Q, K: {"softcap": 1.5},
    "dropout": lambda Q, K: {"dropout": 0.4},
    "all dropped": lambda Q, K: {"dropout": 1.0},
    "everything": lambda Q, K: {
        "softcap": 1.5, "temperature": (2,), "bias": (Q, K), "sink": (2,), "dropout": 0.3, **dense(Q, K)
    },
}  # fmt: skip


def made(kind, queries, keys, batch=(2,), shared=None, widths=(6, 5), dtype=torch.float64, **options):
    """The operator's inputs; additive scores have no soft cap."""
    number = torch.promote_types(dtype, torch.float32)
    query = normal(*batch, queries, widths[0], seed=1, dtype=dtype)
    key, value = (
        normal(*(shared or batch), keys, width, seed=width + index, dtype=dtype) for index, width in enumerate(widths)
    )
    bias = normal(*options["bias"], seed=3, dtype=dtype) if "bias" in options else None
    sink = normal(*options["sink"], seed=4, dtype=number) if "sink" in options else None
    inverse = normal(*options["temperature"], seed=5).exp() if "temperature" in options else None
    dropout = options.get("dropout", 0.0)
    others = (
        list(batch), options.get("program", []), options.get("arrays", []), bias, options.get("by_distance", False), sink, inverse,
        *NormalizerForm(), dropout, torch.tensor(2**61 + 5) if dropout else None,
    )  # fmt: skip
    if kind == "dot":
        return DotInputs(query, key, value, 0.7, options.get("softcap", 0.0), *others)
    return AdditiveInputs(query, key, value, normal(*batch[-1:], widths[0], seed=6, dtype=number), kind, *others)


MOVES = [("query",), ("key",), ("value",), ("weight",), ("query", "value"), ("bias",), ("sink",), ("key", "bias", "sink")]


def named(operator, *names):
    """The positions of tensors among the operator's."""
    leaves = (*operator.direct, "bias", "sink")
    return TensorIndices(leaves.index(name) for name in names if name in leaves)


def judged(operator, inputs, which, directions, upstream):
    """By the reference in float64: output, its tangent, and how the gradient of each tensor moves."""
    exact = inputs._replace(**{
        name: tensor.double() for name, tensor in inputs._asdict().items() if name in NAMES and tensor is not None
    })  # fmt: skip
    call, tensors = Flat.split(operator, exact)
    count = operator.moves
    leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in tensors[:count]]
    present = [leaf for leaf in leaves if leaf is not None]
    upstream = upstream.double().clone().requires_grad_()
    output = getattr(reference, operator.name)(*call.inputs((*leaves, *tensors[count:])))
    gradients = torch.autograd.grad(output, [leaves[index] for index in which], upstream, create_graph=True)
    product = sum((gradient * towards.double()).sum() for gradient, towards in zip(gradients, directions, strict=True))
    *moved, tangent = torch.autograd.grad(product, [*present, upstream], materialize_grads=True)
    return output.detach(), tangent.detach(), [tensor.detach() for tensor in moved]


def check(kind, which=None, dtype=torch.float64, **options):
    operator, inputs = OPERATORS[kind], made(kind, dtype=dtype, **options)
    call, tensors = Flat.split(operator, inputs)
    present = TensorIndices(index for index in range(operator.moves) if tensors[index] is not None)
    which = present if which is None else named(operator, *which)
    directions = [normal(*tensors[index].shape, seed=20 + index, dtype=tensors[index].dtype) for index in which]
    output, sums = operator.outputs(inputs)
    upstream = normal(*output.shape, seed=9, dtype=output.dtype)
    wanted_output, wanted_tangent, wanted_moves = judged(operator, inputs, which, directions, upstream)
    *moves, of_upstream = Second.apply(call, present, which, output, sums, upstream, *tensors, *directions)
    for index, result, wanted in zip(present, moves, wanted_moves, strict=True):
        close(result.double(), wanted, GRADIENT[dtype], f"the move of gradient {index}")
    in_one_pass, same_sums, tangent = Dual.apply(call, which, *tensors, *directions)
    close(operator.lse(same_sums).exp().double(), operator.lse(sums).exp().double(), OUTPUT[dtype], "sums of exponentials")
    close(in_one_pass.double(), wanted_output, OUTPUT[dtype], "output")
    for result in (tangent, of_upstream):
        close(result.double(), wanted_tangent, OUTPUT[dtype], "tangent")


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.each_pair
def test_every_option_gives_the_references_tangent_and_second_derivative(level, name, dtype):
    for queries, keys in ((3, 5), (65, 130)):
        check("dot", queries=queries, keys=keys, dtype=dtype, **OPTIONS[name](queries, keys))


@pytest.mark.parametrize("name", OPTIONS)
def test_additive_scores_give_the_references_under_every_option(name):
    for queries, keys in ((3, 5), (65, 130)):
        check("tanh", queries=queries, keys=keys, **OPTIONS[name](queries, keys))


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.each_pair
def test_every_activation_gives_the_references_tangent_and_second_derivative(level, kind, dtype):
    check(kind, queries=65, keys=130, dtype=dtype, **OPTIONS["everything"](65, 130))


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [1, 63, 65, 257])
@pytest.mark.parametrize("keys", [1, 63, 65, 257])
def test_lengths_round_the_edges_of_tiles_give_the_references_numbers(level, kind, queries, keys):
    for name in ("plain", "rows without keys"):
        check(kind, queries=queries, keys=keys, **OPTIONS[name](queries, keys))


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize("which", MOVES, ids="-".join)
@pytest.mark.each_pair
def test_any_of_the_inputs_may_move(level, kind, which):
    if not named(OPERATORS[kind], *which):
        return
    check(kind, which, queries=33, keys=70, **OPTIONS["everything"](33, 70))
    if not {"bias", "sink"} & set(which):
        check(kind, which, queries=33, keys=70)


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize("widths", [(1, 1), (16, 16), (17, 3), (3, 40), (130, 7)], ids=str)
@pytest.mark.each_pair
def test_widths_round_those_of_vectors_give_the_references_numbers(level, kind, widths):
    check(kind, queries=20, keys=70, widths=widths, **causal(20, 70))


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize(("batch", "shared"), [((1, 4), (1, 2)), ((2, 3), (1, 3)), ((2, 6), (2, 1)), ((), ())], ids=str)
def test_grouped_heads_and_shared_inputs_give_the_references_numbers(kind, batch, shared):
    sink = {"sink": batch[-1:]} if batch else {}
    check(kind, queries=9, keys=70, batch=batch, shared=shared, **sink)


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.each_value
def test_half_inputs_are_computed_in_single_precision(level, kind, dtype):
    for name in ("plain", "everything"):
        check(kind, queries=33, keys=70, dtype=dtype, **OPTIONS[name](33, 70))


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_references_numbers(kind, threads, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(kind, queries=200, keys=150, batch=(2,), **OPTIONS["bias by distance"](200, 150))
        check(kind, queries=200, keys=150, batch=(2, 4), widths=(16, 16))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["dot", "tanh"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["causal", "dense", "program"])
@pytest.mark.each_pair
def test_what_a_masked_key_holds_is_not_felt(level, kind, wrong, name):
    queries, keys, hidden = 70, 90, 40
    options = OPTIONS[name](queries, keys)
    options = {
        "program": [*options["program"], DENSE, BOTH],
        "arrays": [*options["arrays"], (torch.arange(keys) != hidden).expand(queries, keys)],
    }
    call, clean = Flat.split(OPERATORS[kind], made(kind, queries, keys, **options))
    spoilt = [tensor if tensor is None else tensor.clone() for tensor in clean]
    directions = [[normal(*clean[index].shape, seed=20 + index) for index in range(3)] for _ in range(2)]
    for tensors in (spoilt, directions[1]):
        tensors[1][:, hidden], tensors[2][:, hidden] = wrong, wrong
    which, results = TensorIndices(range(3)), []
    for tensors, moving in ((clean, directions[0]), (spoilt, directions[1])):
        output, sums, tangent = Dual.apply(call, which, *tensors, *moving)
        upstream = normal(*output.shape, seed=9)
        results.append((output, tangent, *Second.apply(call, which, which, output, sums, upstream, *tensors, *moving)))
    for result, wanted in zip(*reversed(results), strict=True):
        close(result, wanted, 1e-12, "a result")
