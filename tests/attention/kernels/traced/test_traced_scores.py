"""Scores of a caller's own run as traced programs in the native core, and give the numbers and gradients of float64 dense attention."""

import math
import time

import pytest
import torch

import overt
from caller_scores import DEVELOPMENT, HELD_OUT, AdditiveModule, difference
from compare import GRADIENT, OUTPUT, close
from everyday import DIRECTIONS
from overt.attention.expressions import tracing
from overt.attention.normalizers import Entmax, Sigmoid, Sparsemax, Sum

EVERY = {**DEVELOPMENT, **HELD_OUT}


def made(name, heads, features, dtype, seed=7):
    """A score and its parameters, the same numbers in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return EVERY[name](heads, features, lambda *shape: torch.randn(shape, generator=generator).to(dtype))


def leaves(*shapes, dtype=torch.float64, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def repeated(tensor, heads):
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3) if tensor.ndim > 3 and tensor.shape[-3] != heads else tensor


def dense(score, query, key, value, *, mask=None, bias=None, temperature=1.0):
    """softmax((score + bias) / temperature) over the keys that a bool tensor allows, times the values; zeros in rows without keys."""
    heads = query.shape[-3] if query.ndim > 3 else 1
    key, value = repeated(key, heads), repeated(value, heads)
    scores = score(query, key)
    scores = (scores if bias is None else scores + bias) / temperature
    if mask is None:
        return scores.softmax(-1) @ value
    scores = torch.where(mask, scores, -torch.inf)
    weights = torch.where(mask.any(-1, keepdim=True), scores, 0).softmax(-1)
    return torch.where(mask, weights, 0) @ value


def compared(name, shapes, dtype=torch.float32, allowed=None, options=None, **dense_options):
    """Check output and every gradient of one score against float64, by the native path alone."""
    heads, features = shapes[0][-3] if len(shapes[0]) > 2 else 1, shapes[0][-1]
    results = []
    for number, path in ((torch.float64, None), (dtype, "native")):
        score, parameters = made(name, heads, features, number)
        inputs = leaves(*shapes, dtype=number)
        if path is None:
            output = dense(score, *inputs, mask=allowed, **dense_options)
        else:
            with overt.use_path(path):
                output = overt.attend(*inputs, score=score, **(options or {}))
        upstream = leaves(output.shape, dtype=number, seed=5)[0].detach()
        gradients = torch.autograd.grad(output, [*inputs, *parameters], upstream, allow_unused=True)
        results.append((output, gradients))
    (wanted, wanted_gradients), (result, gradients) = results
    close(result.detach(), wanted.detach(), OUTPUT[dtype], f"{name}: output")
    for index, (first, second) in enumerate(zip(gradients, wanted_gradients, strict=True)):
        first, second = (torch.zeros(()) if one is None else one for one in (first, second))
        close(first, second, GRADIENT[dtype], f"{name}: gradient {index}")


@pytest.mark.each_pair
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_score_gives_the_numbers_and_gradients_of_float64(level, name, dtype):
    compared(name, ((2, 3, 37, 8), (2, 3, 70, 8), (2, 3, 70, 5)), dtype)


@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [1, 63, 65, 257])
@pytest.mark.parametrize("keys", [1, 63, 65, 257])
@pytest.mark.parametrize("name", ["manhattan", "additive module", "polynomial", "mixture", "max plus", "hyperbolic"])
def test_lengths_round_the_edges_of_tiles_give_the_same(level, name, queries, keys):
    compared(name, ((1, 1, queries, 5), (1, 1, keys, 5), (1, 1, keys, 3)))


SOME = [
    "manhattan",
    "rational quadratic",
    "concatenated",
    "per head",
    "gated",
    "thresholded",
    "learned power",
    "low rank module",
]


def causal(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.each_value
def test_masks_and_rows_without_keys_give_the_same(level, name):
    shapes = (2, 3, 70, 6), (2, 3, 90, 6), (2, 3, 90, 4)
    compared(name, shapes, allowed=causal(70, 90), options={"mask": "causal"})
    scattered = torch.rand((2, 1, 70, 90), generator=torch.Generator().manual_seed(1)) < 0.4
    scattered[:, :, 5] = False
    compared(name, shapes, allowed=scattered, options={"mask": scattered})
    lengths = torch.arange(90) < torch.tensor([17, 0])[:, None, None, None]
    compared(name, shapes, allowed=lengths, options={"mask": overt.Lengths(torch.tensor([17, 0]))})


@pytest.mark.parametrize("name", SOME)
@pytest.mark.each_value
def test_grouped_heads_and_shared_entries_give_the_same(level, name):
    compared(name, ((2, 6, 20, 6), (2, 2, 30, 6), (2, 2, 30, 4)))
    if name != "concatenated":  # which itself takes entries of one number only
        compared(name, ((1, 3, 20, 6), (2, 3, 30, 6), (2, 3, 30, 4)))
    compared(name, ((3, 9, 6), (3, 70, 6), (3, 70, 4)))


@pytest.mark.parametrize("name", ["manhattan", "mixture", "gated"])
def test_a_bias_and_a_temperature_give_the_same(level, name):
    shapes = (2, 3, 40, 6), (2, 3, 70, 6), (2, 3, 70, 4)
    bias = torch.randn((3, 40, 70), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    options = {"bias": bias.float(), "normalizer": overt.Softmax(temperature=0.7)}
    compared(name, shapes, options=options, bias=bias, temperature=0.7)


def gradients_of(attention, *inputs):
    leaves_of = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = attention(*leaves_of)
    return output.detach(), torch.autograd.grad(output.square().sum(), leaves_of)


def test_learned_temperatures_sinks_and_biases_have_the_gradients_of_the_blocks(level):
    query, key, value = leaves((2, 3, 40, 6), (2, 3, 70, 6), (2, 3, 70, 4))
    temperature, sink, bias = torch.rand(3, 1, 1).double() + 0.5, torch.randn(3).double(), torch.randn(3, 40, 70).double()

    def score(q, k):
        return -difference(q, k).abs().sum(-1)

    def tempered(query, key, value, temperature, sink):
        return overt.attend(query, key, value, score=score, normalizer=overt.Softmax(temperature=temperature, sink=sink))

    def biased(query, key, value, bias, sink):
        return overt.attend(query, key, value, score=score, bias=bias, normalizer=overt.Softmax(sink=sink))

    for attention, learned in ((tempered, temperature), (biased, bias)):
        results = []
        for path in ("native", "blocked"):
            with overt.use_path(path):
                results.append(gradients_of(attention, query, key, value, learned, sink))
        assert_same(*results)


ALPHAS = torch.tensor([1.2, 1.5, 2.0], dtype=torch.float64)[:, None, None]
NORMALIZERS = {
    "sigmoid": lambda _: Sigmoid(),
    "sum": lambda _: Sum(),
    "sparsemax": lambda _: Sparsemax(),
    "entmax 1.5": lambda _: Entmax(1.5),
    "entmax, learned": lambda alpha: Entmax(alpha),
}


@pytest.mark.each_pair
@pytest.mark.parametrize("sizes", [(40, 70), (1, 70), (65, 9)], ids=str)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("name", ["manhattan", "polynomial", "mixture"])
def test_other_normalizers_have_the_gradients_of_the_blocks(level, name, normalizer, sizes):
    queries, keys = sizes
    inputs = [tensor.detach() * 0.5 for tensor in leaves((2, 3, queries, 6), (2, 3, keys, 6), (2, 3, keys, 4))]
    score, _ = made(name, 3, 6, torch.float64)
    # Under a sum, a large bias, so that no row's sum is near 0; rows of scattered masks, one of them without keys.
    bias = torch.randn(3, queries, keys).double() + (60 if normalizer == "sum" else 0)
    allowed = torch.rand((2, 1, queries, keys), generator=torch.Generator().manual_seed(1)) < 0.7
    allowed[:, :, 0] = queries == 1

    for mask in (None, allowed, overt.Causal()):

        def attention(query, key, value, bias, alpha, mask=mask):
            return overt.attend(query, key, value, score=score, bias=bias, mask=mask, normalizer=NORMALIZERS[normalizer](alpha))

        results = []
        for path in ("native", "blocked"):
            with overt.use_path(path):
                leaves_of = [tensor.clone().requires_grad_() for tensor in (*inputs, bias, ALPHAS)]
                output = attention(*leaves_of)
                upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(5)).double()
                gradients = torch.autograd.grad(output, leaves_of, upstream, allow_unused=True)
                results.append((output.detach(), [torch.zeros(()) if one is None else one for one in gradients]))
        assert_same(*results, tolerance=1e-9)


@pytest.mark.parametrize("normalizer", [name for name in NORMALIZERS if name != "entmax, learned"])
def test_float32_under_other_normalizers_is_near_float64(level, normalizer):
    shapes, score = ((1, 3, 100, 6), (1, 3, 300, 6), (1, 3, 300, 4)), made("manhattan", 3, 6, torch.float64)[0]
    inputs, bias = [tensor.detach() for tensor in leaves(*shapes)], 60.0 * torch.ones(1, 1) if normalizer == "sum" else None
    options = {"score": score, "normalizer": NORMALIZERS[normalizer](None)}
    with overt.use_path("native"):
        result = overt.attend(*(tensor.float() for tensor in inputs), bias=bias, **options)
    with overt.use_path("blocked"):
        close(
            result,
            overt.attend(*inputs, bias=None if bias is None else bias.double(), **options),
            OUTPUT[torch.float32],
            "output",
        )


def assert_same(first, second, tolerance=1e-10):
    close(first[0], second[0], tolerance, "output")
    for index, pair in enumerate(zip(first[1], second[1], strict=True)):
        close(*pair, tolerance, f"gradient {index}")


@DIRECTIONS
def test_dropout_has_the_gradients_of_what_it_drops(level, fast):
    query, key, value = leaves((1, 2, 3, 2), (1, 2, 70, 2), (1, 2, 70, 1))

    def attention(*inputs):
        torch.manual_seed(3)
        with overt.use_path("native"):
            return overt.attend(*inputs, score=lambda q, k: -difference(q, k).abs().sum(-1), dropout=0.3)

    assert torch.autograd.gradcheck(attention, (query, key, value), fast_mode=fast)


@DIRECTIONS
def test_second_derivatives_are_those_of_the_formula(level, fast):
    query, key, value = leaves((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 3))
    weight = torch.randn(4).double().requires_grad_()

    def attention(query, key, value, weight):
        with overt.use_path("native"):
            return overt.attend(query, key, value, score=lambda q, k: (torch.tanh(difference(q, k)) * weight).sum(-1))

    assert torch.autograd.gradgradcheck(attention, (query, key, value, weight), fast_mode=fast)


def test_inputs_that_are_not_contiguous_give_the_same(level):
    query, key, value = leaves((2, 20, 3, 6), (2, 30, 3, 6), (2, 6, 3, 30))
    score, _ = made("additive module", 3, 6, torch.float64)

    def attention(query, key, value):
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2).mT
        return overt.attend(query, key, value, score=score)

    with overt.use_path("native"):
        native = gradients_of(attention, query, key, value)
    with overt.use_path("blocked"):
        assert_same(native, gradients_of(attention, query, key, value))


@pytest.mark.parametrize("name", ["manhattan", "concatenated", "polynomial"])
def test_masked_keys_that_are_not_finite_reach_nothing(name):
    score, parameters = made(name, 3, 6, torch.float64)
    results = []
    for poison in (0.0, torch.nan, torch.inf):
        query, key, value = (tensor.detach() for tensor in leaves((1, 3, 20, 6), (1, 3, 30, 6), (1, 3, 30, 4)))
        key[..., 25:, :], value[..., 25:, :] = poison, poison
        inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
        output = overt.attend(*inputs, score=score, mask=overt.Lengths(25))
        results.append((output.detach(), torch.autograd.grad(output.square().sum(), [*inputs, *parameters])))
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_computed_in_float32(dtype):
    query, key, value = (tensor.detach().to(dtype) for tensor in leaves((1, 2, 40, 8), (1, 2, 70, 8), (1, 2, 70, 4)))
    score = DEVELOPMENT["manhattan"](2, 8, None)[0]
    with overt.use_path("native"):
        output = overt.attend(query, key, value, score=score)
    assert output.dtype == dtype
    close(output.double(), dense(score, query.double(), key.double(), value.double()), OUTPUT[dtype], "output")


# What plan says, and what cannot be traced.


def planned(score, *shapes, **options):
    shapes = shapes or ((1, 2, 9, 4), (1, 2, 12, 4), (1, 2, 12, 3))
    return overt.plan(*(torch.randn(shape) for shape in shapes), score=score, **options)


def test_the_plan_says_how_much_a_traced_score_computes():
    plan = planned(lambda q, k: -difference(q, k).abs().sum(-1))
    assert plan.path == "native"
    assert plan.reason.startswith("traced score, 4 operations a pair and 4 a pair and feature")


def sorted_features(q, k):
    return difference(q, k).sort(dim=-1).values[..., 0]


def branching(q, k):
    return q @ k.mT if q.sum() > 0 else -(q @ k.mT)


def branching_on_scores(q, k):
    scores = q @ k.mT
    return scores if scores.amax() > 0 else 2 * scores


def random_scores(q, k):
    return q @ k.mT + torch.rand(())


def dropped_scores(q, k):
    return torch.dropout(q @ k.mT, 0.5, True)


def detached_by_mode(q, k):
    with torch.no_grad():
        return q @ k.mT


def in_numpy(q, k):
    return torch.as_tensor(q.detach().numpy() @ k.detach().numpy().swapaxes(-1, -2))


def over_keys(q, k):
    return (q @ k.mT).softmax(-1)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (sorted_features, "sort of pairs"),
        (branching, "its control flow depends on numbers"),
        (branching_on_scores, "over all pairs"),
        (random_scores, "draws random numbers"),
        (dropped_scores, "draws random numbers"),
        (detached_by_mode, "switches gradients off"),
        (in_numpy, "control flow depends on numbers (numpy)"),
        (over_keys, "amax over queries or keys"),
    ],
)
def test_what_cannot_be_traced_takes_the_blocks_with_the_reason(score, reason):
    plan = planned(score)
    assert plan.path == "blocked"
    assert reason in plan.refused["native"]


def test_a_score_of_another_shape_or_dtype_is_refused_as_ever():
    query, key, value = (torch.randn(1, 5, 4) for _ in range(3))
    with pytest.raises(overt.errors.InputError, match=r"the score to return \(\.\.\., Q, K\)"):
        overt.attend(query, key, value, score=lambda q, k: difference(q, k).abs())


def test_a_score_that_writes_into_its_inputs_is_an_error():
    def score(q, k):
        q *= 0.5
        return q @ k.mT

    with pytest.raises(overt.errors.InputError, match="leaves its query and key as they are"):
        planned(score)


def test_a_custom_function_keeps_its_gradient():
    class StraightThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, upstream):
            return upstream

    inputs = leaves((1, 9, 4), (1, 12, 4), (1, 12, 3))
    results = []
    for path in (None, "blocked"):
        with overt.use_path(*([path] if path else ["native", "blocked"])):
            results.append(
                gradients_of(lambda q, k, v: overt.attend(q, k, v, score=lambda q, k: StraightThrough.apply(q) @ k.mT), *inputs)
            )
    assert_same(*results)


def test_numbers_and_tensors_of_a_closure_are_those_of_each_call():
    settings = {"scale": 1.0, "weight": torch.ones(4)}

    def score(q, k):
        return -(difference(q, k).abs() * settings["weight"]).sum(-1) * settings["scale"]

    query, key, value = (torch.randn(1, 9, 4) for _ in range(3))
    for scale, weight in ((1.0, torch.ones(4)), (0.2, torch.ones(4)), (0.2, torch.arange(4.0))):
        settings.update(scale=scale, weight=weight)
        close(overt.attend(query, key, value, score=score), dense(score, query, key, value), 1e-5, f"{scale}, {weight}")


def test_what_a_branch_on_shapes_or_settings_chooses_is_traced_again():
    settings = {"kind": "dot"}

    def score(q, k):
        scores = q @ k.mT if settings["kind"] == "dot" else -difference(q, k).abs().sum(-1)
        return scores / 2 if q.shape[-2] > 5 else scores

    for length in (3, 9):
        query, key, value = (torch.randn(1, length, 4) for _ in range(3))
        for kind in ("dot", "distance", "dot"):
            settings["kind"] = kind
            close(overt.attend(query, key, value, score=score), dense(score, query, key, value), 1e-5, kind)


def test_programs_that_are_known_are_bounded():
    for power in range(tracing.MAX_KNOWN + 5):
        planned(lambda q, k, power=power: -(difference(q, k).abs() + 0.1).pow(1.01 + power / 1000).sum(-1), *[(1, 3, 2)] * 3)
    assert len(tracing.known) <= tracing.MAX_KNOWN


def test_the_first_call_does_not_wait():
    score, _ = made("concatenated", 2, 16, torch.float32)
    query, key = torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)
    tracing.traced(made("manhattan", 2, 16, torch.float32)[0], query, key)  # what torch itself does once
    before = time.process_time()
    assert not isinstance(tracing.traced(score, query, key), str)
    assert time.process_time() - before < 0.25  # 0.05 where nothing else runs


def test_gradients_are_the_same_bits_in_every_run(level):
    query, key, value = leaves((2, 3, 130, 8), (2, 3, 200, 8), (2, 3, 200, 8), dtype=torch.float32)
    score, parameters = made("additive module", 3, 8, torch.float32)
    runs = []
    for _ in range(2):
        output = overt.attend(query, key, value, score=score)
        runs.append(torch.autograd.grad(output.sum(), [query, key, value, *parameters]))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def test_modules_and_parameters_train():
    module, parameters = made("additive module", 2, 6, torch.float32)
    assert isinstance(module, AdditiveModule)
    query, key, value = (tensor.detach().float() for tensor in leaves((1, 2, 20, 6), (1, 2, 30, 6), (1, 2, 30, 6)))
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (overt.attend(query, key, value, score=module) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert math.isfinite(losses[-1])


FUNCTIONS = {
    **{
        name: getattr(torch, name)
        for name in ("exp", "exp2", "expm1", "tanh", "sigmoid", "sin", "cos", "tan", "sinh", "cosh", "asinh")
    },
    **{name: getattr(torch, name) for name in ("atan", "erf", "erfc", "relu", "abs", "square", "neg", "sign", "positive")},
    **{
        name: getattr(torch.nn.functional, name)
        for name in ("leaky_relu", "softplus", "gelu", "elu", "silu", "mish", "logsigmoid")
    },
    **{name: getattr(torch.nn.functional, name) for name in ("relu6", "hardtanh", "softsign")},
    **{
        f"{name} of a positive": lambda x, name=name: getattr(torch, name)(x.abs() + 0.3)
        for name in ("log", "log2", "log10", "sqrt")
    },
    **{
        f"{name} of a positive": lambda x, name=name: getattr(torch, name)(x.abs() + 0.3)
        for name in ("rsqrt", "log1p", "reciprocal")
    },
    **{
        f"{name} of a fraction": lambda x, name=name: getattr(torch, name)(0.9 * torch.tanh(x))
        for name in ("asin", "acos", "atanh")
    },
    "acosh": lambda x: torch.acosh(1.2 + x.abs()),
    "gelu by tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    **{f"power {p}": lambda x, p=p: (x.abs() + 0.1) ** p for p in (-2, -0.5, 0, 0.5, 1, 1.3, 2.5, 3, 5)},
    "cube of any sign": lambda x: x**3,
    "minimum": lambda x: torch.minimum(x, 0.5 * x + 0.1),
    "maximum": lambda x: torch.maximum(x, 1 - x),
    "comparison": lambda x: torch.where((x > 0) & ~(x > 1), x, x.abs() / 3),
    "clamp": lambda x: x.clamp(-0.4, 0.7),
    "clip above": lambda x: x.clamp(max=0.2),
    "hypot": lambda x: torch.hypot(x, 1 - x),
    "reflected": lambda x: 2 - 1 / (3 + x.square()),
    "masked": lambda x: x.masked_fill(x < -0.5, -0.5),
}


@pytest.mark.each_value
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_function_of_pairs_and_features_gives_the_same(level, name, dtype):
    function = FUNCTIONS[name]
    for score in (lambda q, k: function(q @ k.mT / 2), lambda q, k: function(difference(q, k) / 2).sum(-1)):
        inputs = leaves((1, 2, 33, 5), (1, 2, 66, 5), (1, 2, 66, 3), dtype=dtype)
        with overt.use_path("native"):
            result = gradients_of(lambda *inputs: overt.attend(*inputs, score=score), *inputs)
        wanted = gradients_of(lambda *inputs: dense(score, *inputs), *(tensor.double() for tensor in inputs))
        close(result[0], wanted[0], OUTPUT[dtype], f"{name}: output")
        for index, pair in enumerate(zip(result[1], wanted[1], strict=True)):
            close(*pair, GRADIENT[dtype], f"{name}: gradient {index}")


@pytest.mark.each_value
@pytest.mark.parametrize("keys", [1, 3, 66])
@pytest.mark.parametrize("shape", ["plain", "abs", "square", "relu"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("meets", ["difference", "sum", "product"])
def test_simple_sums_and_their_gradients_give_the_same(level, keys, shape, weighted, meets):
    functions = {"plain": lambda x: x, "abs": torch.abs, "square": torch.square, "relu": torch.relu}
    together = {"difference": torch.sub, "sum": torch.add, "product": torch.mul}[meets]

    def score(q, k, weight):
        features = functions[shape](together(q[..., :, None, :], k[..., None, :, :]))
        return (features * weight if weighted else features).sum(-1)

    inputs = leaves((1, 2, 70, 9), (1, 2, keys, 9), (1, 2, keys, 3), (9,))
    with overt.use_path("native"):
        native = gradients_of(lambda q, k, v, w: overt.attend(q, k, v + 0 * w[:3], score=lambda q, k: score(q, k, w)), *inputs)
    assert_same(native, gradients_of(lambda q, k, v, w: dense(lambda q, k: score(q, k, w), q, k, v + 0 * w[:3]), *inputs))
