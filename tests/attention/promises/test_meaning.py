"""One meaning: what a mask says holds whatever a masked key holds, forward and backward, on every path."""

import numpy as np
import pytest
import torch

import overt
from compare import close

PATHS = ["torch", "blocked"]
NASTY = [float("nan"), float("inf"), -float("inf")]


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mask", [overt.Lengths(torch.tensor([0, 4])), overt.masks.Keys(torch.zeros(7, dtype=torch.bool))])
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_zero_gradients(path, mask):
    leaves = tensors((2, 5, 4), (2, 7, 4), (2, 7, 4))
    with overt.use_path(path):
        output = overt.attend(*leaves, mask=mask)
    assert (output[0] == 0).all()
    for gradient in torch.autograd.grad(output.sum(), leaves):
        assert (gradient[0] == 0).all()
        assert gradient.isfinite().all()


def test_weights_of_a_query_that_may_attend_to_nothing_are_zeros():
    steps = overt.steps(*tensors((3, 4), (7, 4), (7, 4)), mask=torch.tensor([[True], [False], [True]]).expand(3, 7))
    assert (steps.weights[1] == 0).all()
    assert (steps.masked[1] == -torch.inf).all()
    assert (steps.output[1] == 0).all()


@pytest.mark.each_pair
@pytest.mark.parametrize(
    "normalizer", [overt.Softmax(), overt.Sparsemax(), overt.Entmax(1.3), overt.normalizers.Sigmoid(), overt.normalizers.Sum()]
)
@pytest.mark.parametrize("nasty", [*NASTY, 1e300, 7.0])
@pytest.mark.parametrize(
    ("score", "paths"),
    [
        *((score, ["torch", "native", "blocked"]) for score in ("dot", "additive", "gaussian", "cosine")),
        ("additive", ["blocked"]),
    ],
)
def test_a_masked_key_is_as_good_as_deleted_whatever_it_holds(score, paths, nasty, normalizer):
    query, key, value = tensors((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    weight = torch.ones(4, dtype=torch.float64)
    pieces = {"dot": overt.Dot(), "additive": overt.Additive(weight), "gaussian": overt.Gaussian(1.0), "cosine": overt.Cosine()}
    remaining = torch.tensor([0, 2, 3, 5, 6])
    wanted = overt.attend(query, key[..., remaining, :], value[..., remaining, :], score=pieces[score], normalizer=normalizer)
    wanted_gradients = torch.autograd.grad(wanted.square().sum(), (query, key, value))
    spoiled = []
    for tensor in (key, value):
        copy = tensor.detach().clone()
        copy[..., [1, 4], :] = nasty
        spoiled.append(copy.requires_grad_())
    mask = torch.isin(torch.arange(7), remaining)
    with overt.use_path(*paths):
        result = overt.attend(query, *spoiled, score=pieces[score], normalizer=normalizer, mask=mask)
    close(result.detach(), wanted.detach(), 1e-12, "output")
    for gradient, wanted_gradient in zip(
        torch.autograd.grad(result.square().sum(), (query, *spoiled)), wanted_gradients, strict=True
    ):
        close(gradient, wanted_gradient, 1e-10, "gradient")


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("storages_of", ["key", "value", "query"])
def test_nan_and_infinity_reach_the_queries_that_may_attend_to_them_and_no_others(storages_of, nasty):
    clean = dict(zip(("query", "key", "value"), tensors((2, 9, 4), (2, 9, 4), (2, 9, 4)), strict=True))
    spoiled = {name: tensor.detach().clone() for name, tensor in clean.items()}
    spoiled[storages_of][:, 5] = nasty
    leaves = [tensor.requires_grad_() for tensor in spoiled.values()]
    mask = overt.Window(1, 0)  # query i may attend to keys i − 1 and i
    output, wanted = overt.attend(*leaves, mask=mask), overt.attend(*clean.values(), mask=mask)
    touched = [5] if storages_of == "query" else [5, 6]
    near = [4, 5] if storages_of == "query" else [4, 5, 6]
    rows, keys = ([i for i in range(9) if i not in of] for of in (touched, near))
    if storages_of == "value" or np.isnan(nasty):
        assert not output[:, touched].isfinite().any()
    torch.testing.assert_close(output[:, rows], wanted[:, rows])
    result = torch.autograd.grad(output.sum(), leaves)
    sought = torch.autograd.grad(wanted.sum(), list(clean.values()))
    for name, untouched, gradient, clean_gradient in zip(clean, (rows, keys, keys), result, sought, strict=True):
        torch.testing.assert_close(gradient[:, untouched], clean_gradient[:, untouched], msg=f"gradient of {name}")


def test_nan_in_an_attended_value_stays_nan_and_infinity_stays_infinity():
    value = torch.tensor([[1.0], [float("inf")]])
    keys = torch.zeros(2, 3)
    assert overt.attend(keys, keys, value, mask=overt.Causal()).tolist() == [[1.0], [float("inf")]]


def test_a_bias_of_minus_infinity_bars_a_key():
    query, key, value = tensors((5, 4), (7, 4), (7, 4))
    bias = torch.zeros(7, dtype=torch.float64)
    bias[2] = -torch.inf
    remaining = [0, 1, 3, 4, 5, 6]
    torch.testing.assert_close(
        overt.attend(query, key, value, bias=bias), overt.attend(query, key[remaining], value[remaining])
    )
    assert (overt.attend(query, key, value, bias=torch.tensor(-torch.inf, dtype=torch.float64)) == 0).all()


@pytest.mark.parametrize("queries", [1, 3, 7])
def test_a_causal_mask_is_aligned_at_the_end_as_a_cache_needs(queries):
    whole = tensors((2, 3, 7, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    wanted = overt.attend(*whole, mask=overt.Causal())[..., -queries:, :]
    result = overt.attend(whole[0][..., -queries:, :], *whole[1:], mask=overt.Causal())
    torch.testing.assert_close(result, wanted)


def test_another_alignment_is_asked_for_with_an_offset_also_one_for_each_batch_entry():
    query, key, value = tensors((2, 3, 4), (2, 7, 4), (2, 7, 4))
    start = overt.steps(query, key, value, mask=overt.Causal(offset=0)).weights
    assert (start[:, 0, 1:] == 0).all()
    apart = overt.steps(query, key, value, mask=overt.Causal(offset=torch.tensor([0, 4]))).weights
    torch.testing.assert_close(apart[0], start[0])
    torch.testing.assert_close(apart[1], overt.steps(query, key, value, mask=overt.Causal()).weights[1])


def test_torch_is_not_asked_where_it_would_leak_a_masked_nan():
    query, key, value = (tensor.detach() for tensor in tensors((1, 2, 9, 4), (1, 2, 9, 4), (1, 2, 9, 4)))
    with overt.use_path("torch", "blocked"):
        assert overt.plan(query, key, value, mask=overt.Causal()).path == "torch"
        value[0, 0, 8] = torch.nan
        plan = overt.plan(query, key, value, mask=overt.Causal())
    assert plan.path == "blocked"
    assert plan.refused["torch"] == "torch would leak NaN or infinity from masked keys"


def test_padding_may_hold_nan_under_torch_compile_too():
    query, key, value = (tensor.detach() for tensor in tensors((2, 5, 4), (2, 7, 4), (2, 7, 4)))
    wanted = overt.attend(query, key, value, mask=overt.Lengths(torch.tensor([3, 0])))
    key[0, 3:], value[0, 3:], value[1] = torch.nan, torch.nan, torch.inf
    compiled = torch.compile(lambda q, k, v, n: overt.attend(q, k, v, mask=overt.Lengths(n)), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(query, key, value, torch.tensor([3, 0])), wanted)


def test_what_cannot_be_inspected_is_said_by_the_plan():
    x = torch.randn(1, 2, 9, 4)
    reasons = []

    def look(x):
        with overt.use_path("torch", "blocked"):
            reasons.append(overt.plan(x, x, x, mask=overt.Causal()).reason)
        return x.sum()

    torch.func.vmap(look)(x)
    assert "values are not inspected here" in reasons[0]
