"""attend by the native kernels gives the oracle's output and gradients: every activation, dtype, bias, shape and extreme, at every level."""

import numpy as np
import pytest
import torch

import oracle
import overt
from compare import GRADIENT, KERNELS, OUTPUT, check, close, inputs
from everyday import INTERPRETED, everyday_where_interpreted

# Of these Triton's interpreter takes minutes, the native core no time.
slow_where_interpreted = pytest.mark.slow if INTERPRETED else ()
ACTIVATIONS = ["tanh", "sigmoid", "relu", "leaky_relu"]


def weight(features, seed=9):
    return torch.tensor(np.random.default_rng(seed).normal(size=features))


def against_oracle(arrays, activation="tanh", more=None, **options):
    """The check of every path, by the native kernels alone."""
    params = {"weight": weight(arrays[0].shape[-1]), "activation": activation, **(more or {})}
    with overt.use_path(KERNELS):
        check(arrays, score="additive", params=params, **options)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_in_every_dtype_gives_the_oracles_numbers(level, activation, dtype):
    against_oracle(inputs((2, 33, 9), (2, 70, 9), (2, 70, 5)), activation, dtype=dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("queries", [1, 31, 33])
@pytest.mark.parametrize("keys", [1, 63, 65, 257])
def test_lengths_round_the_edges_of_tiles_give_the_oracles_numbers(level, queries, keys):
    against_oracle(inputs((queries, 3), (keys, 3), (keys, 17)))


@pytest.mark.each_value
@pytest.mark.parametrize("features", [1, 2, 4, 7, 8, 15, 16, 17, 33])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_widths_round_those_of_vectors_give_the_oracles_numbers(level, features, activation):
    arrays = inputs((5, features), (6, features), (6, features))
    for dtype in (torch.float64, torch.float32):
        against_oracle(arrays, activation, dtype=dtype)


@pytest.mark.parametrize(
    "shape",
    everyday_where_interpreted(
        [(9, 11), (9, 1), (1, 11), (1, 1), (11,), (), (3, 9, 11), (3, 1, 1), (2, 1, 9, 11), (2, 3, 1, 11)],
        (9, 11),
        (3, 1, 1),
        (2, 3, 1, 11),
    ),
)
def test_a_bias_that_broadcasts_gives_the_oracles_numbers_and_gradient(shape):
    arrays = inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4))
    against_oracle(arrays, bias=np.random.default_rng(3).normal(size=shape))


@pytest.mark.parametrize("layout", ["transposed", "expanded", "every other"])
def test_a_bias_in_any_layout_gives_the_oracles_numbers_and_gradient(layout):
    query, key, value = (torch.tensor(array) for array in inputs((3, 9, 5), (3, 11, 5), (3, 11, 4)))
    wide = torch.randn(11, 18, dtype=torch.float64)
    bias = {"transposed": wide[:, :9].T, "expanded": wide[:, :1].T.expand(3, 9, 11), "every other": wide[:, ::2].T}[layout]
    bias = bias.requires_grad_()
    dense = bias.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    result, wanted = (attended([query, key, value], bias=each) for each in (bias, dense))
    close(result.detach(), answer([query, key, value], bias=dense.detach()), 1e-12, "output")
    (gradient,), (dense_gradient,) = (torch.autograd.grad(o.square().sum(), b) for o, b in ((result, bias), (wanted, dense)))
    close(gradient, dense_gradient, 1e-12, "gradient")


def attended(leaves, activation="tanh", **options):
    """The output of the native kernel."""
    score = overt.Additive(options.pop("weight", weight(leaves[0].shape[-1]).to(leaves[0].dtype)), activation)
    with overt.use_path(KERNELS):
        return overt.attend(*leaves, score=score, **options)


def answer(tensors, activation="tanh", allowed=None, bias=None, parameter=None):
    """The oracle's output, entry by entry."""
    query, key, value = (np.asarray(tensor.detach().double()) for tensor in tensors)
    batch, sizes = query.shape[:-2], (query.shape[-2], key.shape[-2])
    arguments = weight(query.shape[-1]) if parameter is None else parameter
    params = {"weight": np.asarray(arguments.detach().double()), "activation": activation}
    result = np.zeros((*batch, sizes[0], value.shape[-1]))
    for index in np.ndindex(*batch):
        full = {
            name: None if array is None else np.broadcast_to(np.asarray(array), (*batch, *sizes))[index]
            for name, array in (("allowed", allowed), ("bias", bias))
        }
        parts = (np.broadcast_to(x, (*batch, *x.shape[-2:]))[index] for x in (query, key, value))
        result[index] = oracle.attention(*parts, score="additive", params=params, normalizer="softmax", **full).output
    return result


@pytest.mark.parametrize(
    "offset", [pytest.param(offset, marks=slow_where_interpreted) for offset in (2, None, torch.tensor([0, 3]))]
)
def test_learned_slopes_and_tables_over_distances_get_their_gradients(offset):
    leaves = [torch.tensor(array) for array in inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4))]
    slopes, table = torch.rand(3, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    buckets = torch.randn(8, dtype=torch.float64)
    made = {
        "slopes": (slopes, lambda parameter: overt.ALiBi(parameter, offset=offset)),
        "clipped": (table, lambda parameter: overt.RelativePositionBias(parameter, offset=offset)),
        "logarithmic": (
            buckets,
            lambda parameter: overt.RelativePositionBias(parameter, buckets="log", max_distance=6, offset=offset),
        ),
    }
    for name, (parameter, make) in made.items():
        parameter = parameter.requires_grad_()
        result = attended(leaves, bias=make(parameter))
        bound = make(parameter).bind(2, 9, 11).block(torch.arange(9), torch.arange(11))
        close(result.detach(), answer(leaves, bias=bound.detach()), 1e-12, name)
        (gradient,) = torch.autograd.grad(result.square().sum(), parameter)
        # The same bias, written out: its own gradient was compared with the oracle's above.
        (wanted,) = torch.autograd.grad(attended(leaves, bias=bound).square().sum(), parameter)
        close(gradient, wanted, 1e-10, f"gradient of {name}")


@pytest.mark.each_value
@pytest.mark.parametrize("sink", [torch.tensor(0.4), torch.tensor([0.4, -2.0, 30.0])])
@pytest.mark.parametrize("temperature", [1.0, 1.7, torch.tensor(0.6)])
def test_sinks_and_temperatures_give_the_oracles_numbers_and_gradients(sink, temperature):
    arrays = inputs((2, 3, 9, 5), (2, 3, 70, 5), (2, 3, 70, 4))
    if sink.ndim == 0:
        against_oracle(arrays, more={"sink": sink.double(), "temperature": temperature})
        return
    for head in range(3):  # the oracle has one sink
        one = [torch.tensor(array[:, head : head + 1]) for array in arrays]
        normalizer = overt.Softmax(temperature, sink.double())
        whole = attended([torch.tensor(array) for array in arrays], normalizer=normalizer)
        alone = attended(one, normalizer=overt.Softmax(temperature, sink.double()[head]))
        close(whole[:, head : head + 1], alone, 1e-12, "head")


def test_a_fixed_temperature_a_head_and_a_bias_are_divided_by_it():
    leaves = [torch.tensor(array) for array in inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4))]
    temperature, bias = torch.tensor([0.5, 1.0, 3.0]).reshape(3, 1, 1), torch.randn(9, 11, dtype=torch.float64)
    result = attended(leaves, normalizer=overt.Softmax(temperature), bias=bias)
    for head in range(3):
        score = overt.Additive(weight(5) / temperature[head, 0])
        with overt.use_path(KERNELS):
            wanted = overt.attend(*(x[:, head] for x in leaves), score=score, bias=bias / temperature[head, 0].double())
        close(result[:, head], wanted, 1e-12, "output")


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 6, 9, 4), (2, 2, 11, 4), (2, 2, 11, 4)],
        [(2, 6, 9, 4), (2, 1, 11, 4), (2, 3, 11, 4)],
        [(2, 1, 5, 4), (3, 7, 4), (2, 3, 7, 4)],
        [(1, 3, 5, 4), (2, 1, 7, 4), (1, 1, 7, 4)],
        [(2, 1, 3, 5, 4), (1, 2, 3, 7, 4), (7, 4)],
        pytest.param([(40, 1, 4), (40, 66, 4), (1, 66, 4)], marks=slow_where_interpreted),
    ],
)
def test_grouped_heads_and_leading_dimensions_that_broadcast_give_the_oracles_numbers(shapes):
    against_oracle(inputs(*shapes))


def test_each_head_may_have_its_own_weight():
    leaves = [torch.tensor(array).requires_grad_() for array in inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4))]
    parameter = weight((3, 5)).requires_grad_()
    result = attended(leaves, weight=parameter)
    heads = [attended([x[:, h] for x in leaves], weight=parameter[h]) for h in range(3)]
    close(result.detach(), torch.stack(heads, 1).detach(), 1e-12, "output")
    gradients = (torch.autograd.grad(o.square().sum(), parameter)[0] for o in (result, torch.stack(heads, 1)))
    close(*gradients, 1e-10, "gradient")


def test_inputs_need_not_be_contiguous():
    query, key, value = (torch.tensor(np.swapaxes(x, -1, -2)) for x in inputs((2, 5, 9), (2, 5, 11), (2, 4, 11)))
    against_oracle([query, key, value])
    wide = [torch.tensor(x)[:, ::2, ::2].requires_grad_() for x in inputs((2, 18, 10), (2, 22, 10), (2, 22, 8))]
    close(attended(wide).detach(), answer(wide), 1e-12, "output")


def test_expanded_inputs_get_the_sum_of_their_copies_gradients():
    row = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    key, value = (torch.tensor(x) for x in inputs((2, 11, 5), (2, 11, 4)))
    result = attended([row.expand(2, 9, 5), key, value])
    (gradient,) = torch.autograd.grad(result.sum(), row)
    copies = row.detach().repeat(2, 9, 1).requires_grad_()
    (wanted,) = torch.autograd.grad(attended([copies, key, value]).sum(), copies)
    close(gradient, wanted.sum((0, 1))[None], 1e-10, "gradient")


@pytest.mark.each_value
@pytest.mark.parametrize("shapes", [(0, 3, 4, 4), (3, 0, 4, 4), (3, 3, 0, 4), (3, 3, 4, 0)])
@pytest.mark.parametrize("batch", [(2,), (0,), ()])
def test_empty_dimensions_give_empty_or_zero_outputs_and_gradients(level, shapes, batch):
    queries, keys, features, values = shapes
    leaves = [
        torch.ones(*batch, *shape, requires_grad=True) for shape in ((queries, features), (keys, features), (keys, values))
    ]
    for options in ({}, {"mask": overt.Causal()}, {"bias": overt.ALiBi(torch.ones(1))}, {"bias": torch.zeros(queries, keys)}):
        options = options if batch else {name: value for name, value in options.items() if not isinstance(value, overt.ALiBi)}
        output = attended(leaves, **options)
        assert output.shape == (*batch, queries, values)
        assert torch.allclose(output, torch.tensor(0.0 if keys == 0 else 1.0)) or "mask" in options
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(output.sum(), leaves))


# Both sides of each bound of the reciprocal form: q + k itself, and q and k that only together stay in range.
EXTREMES = [
    (1e-30, 1e-30),
    (2.5, 2.5),
    (6.0, 6.0),
    (22.5, 22.5),
    (60.0, -58.0),
    (-60.0, 58.0),
    (300.0, -299.0),
    (1e4, 1e4),
    (1e4, -1e4),
]


# Huge scores, which have no upper bound under the last two, have no digits in float32 that a softmax could see.
SATURATING = [(activation, torch.float32) for activation in ACTIVATIONS[:2]]


@pytest.mark.each_value
@pytest.mark.parametrize(("activation", "dtype"), [*SATURATING, *((each, torch.float64) for each in ACTIVATIONS)])
@pytest.mark.parametrize("extreme", EXTREMES, ids=str)
def test_tiny_huge_and_out_of_range_features_give_the_oracles_numbers(level, extreme, activation, dtype):
    random = np.random.default_rng(0)
    query, key = (base * (1 + 0.01 * random.normal(size=(rows, 5))) for base, rows in zip(extreme, (7, 9), strict=True))
    query, key = (torch.tensor(array).to(dtype).double().numpy() for array in (query, key))
    query[3], key[2] = 0.3, -0.2  # ordinary ones beside them
    with np.errstate(over="ignore"):
        against_oracle([query, key, random.normal(size=(9, 4))], activation, dtype=dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("nasty", [float("inf"), -float("inf")])
@pytest.mark.parametrize("storages_of", ["query", "key"])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_infinite_features_saturate_as_the_formula_does(level, storages_of, nasty, activation):
    tensors = [torch.tensor(array) for array in inputs((5, 4), (7, 4), (7, 3))]
    tensors[storages_of == "key"][2, 1] = nasty
    leaves = [tensor.requires_grad_() for tensor in tensors]
    result = attended(leaves, activation)
    with np.errstate(over="ignore"):
        close(result.detach(), answer(leaves, activation), 1e-12, "output")
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), leaves))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("nasty", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_masked_key_is_as_good_as_deleted_whatever_it_holds(level, nasty, activation, dtype):
    visible = torch.randperm(70)[:50].sort().values
    mask = torch.isin(torch.arange(70), visible)
    tensors = [torch.tensor(array).to(dtype) for array in inputs((2, 33, 5), (2, 70, 5), (2, 70, 4))]
    clean = [tensors[0].clone(), tensors[1][:, visible], tensors[2][:, visible]]
    for tensor in tensors[1:]:
        tensor[:, ~mask] = nasty
    for leaf in (*tensors, *clean):
        leaf.requires_grad_()
    result, wanted = attended(tensors, activation, mask=mask), attended(clean, activation)
    close(result.detach(), answer(clean, activation), OUTPUT[dtype], "output")
    gradients = torch.autograd.grad(result.square().sum(), tensors)
    sought = torch.autograd.grad(wanted.square().sum(), clean)
    close(gradients[0], sought[0], GRADIENT[dtype], "gradient of query")
    for name, gradient, other in zip(("key", "value"), gradients[1:], sought[1:], strict=True):
        close(gradient[:, visible], other, GRADIENT[dtype], f"gradient of {name}")
        assert (gradient[:, ~mask] == 0).all()


@pytest.mark.each_value
@pytest.mark.parametrize("nasty", [float("nan"), float("inf")])
@pytest.mark.parametrize("storages_of", ["query", "key", "value"])
def test_nan_and_infinity_reach_the_queries_that_may_attend_to_them_and_no_others(level, storages_of, nasty):
    names = ("query", "key", "value")
    clean = [torch.tensor(array) for array in inputs((2, 40, 4), (2, 40, 4), (2, 40, 4))]
    spoiled = [tensor.clone() for tensor in clean]
    spoiled[names.index(storages_of)][:, 33] = nasty
    for leaf in (*clean, *spoiled):
        leaf.requires_grad_()
    mask = overt.Window(1, 0)  # query i may attend to keys i − 1 and i
    output, wanted = (attended(leaves, mask=mask) for leaves in (spoiled, clean))
    touched = [33] if storages_of == "query" else [33, 34]
    near = [32, 33] if storages_of == "query" else [32, 33, 34]
    rows, keys = ([i for i in range(40) if i not in of] for of in (touched, near))
    if np.isnan(nasty):
        assert not output[:, touched].isfinite().any()
    close(output[:, rows].detach(), wanted[:, rows].detach(), 1e-12, "output")
    result, sought = (torch.autograd.grad(o.sum(), leaves) for o, leaves in ((output, spoiled), (wanted, clean)))
    for name, untouched, gradient, other in zip(names, (rows, keys, keys), result, sought, strict=True):
        close(gradient[:, untouched], other[:, untouched], 1e-10, f"gradient of {name}")


def test_a_bias_of_minus_infinity_bars_and_a_row_of_it_gets_zeros():
    leaves = [torch.tensor(array).requires_grad_() for array in inputs((5, 4), (7, 4), (7, 3))]
    bias = torch.zeros(5, 7, dtype=torch.float64)
    bias[2], bias[:, 4] = -torch.inf, -torch.inf
    result = attended(leaves, bias=bias)
    wanted = attended(leaves, mask=bias == 0)
    close(result.detach(), wanted.detach(), 1e-12, "output")
    assert (result[2] == 0).all()
    for gradient, other in zip(
        torch.autograd.grad(result.square().sum(), leaves), torch.autograd.grad(wanted.square().sum(), leaves), strict=True
    ):
        close(gradient, other, 1e-10, "gradient")
