"""Second and third derivatives and forward mode of attend, by autograd, against finite differences and against other paths."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import overt
from compare import close
from everyday import DIRECTIONS
from overt.attention.normalizers import Entmax, Sigmoid, Sum


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def leaves(queries=2, keys=3):
    return normal(2, queries, 2), normal(2, keys, 2, seed=1), normal(2, keys, 2, seed=2)


def followed(name):
    """The tensors that a call holds beside query, key and value, and the call's options as a function of them."""
    return {
        "dot": ((), dict),
        "causal": ((), lambda: {"mask": "causal"}),
        "rows without keys": ((), lambda: {"mask": overt.Causal(offset=-1)}),
        "softcap, scale": ((normal(2, 1, 1, seed=3),), lambda scale: {"score": overt.Dot(scale, softcap=1.5)}),
        "bias, sink": (
            (normal(2, 3, seed=3), normal(2, seed=4)),
            lambda bias, sink: {"bias": bias, "normalizer": overt.Softmax(1.3, sink), "mask": "causal"},
        ),
        "alibi, temperature": (
            (normal(2, seed=3), torch.tensor(1.3, dtype=torch.float64, requires_grad=True)),
            lambda slopes, temperature: {"bias": overt.ALiBi(slopes), "normalizer": overt.Softmax(temperature)},
        ),
        "bilinear": ((normal(2, 2, seed=3),), lambda weight: {"score": overt.Bilinear(weight)}),
        "cosine": ((normal(seed=3),), lambda scale: {"score": overt.Cosine(scale)}),
        "gaussian": ((torch.tensor(1.7, dtype=torch.float64, requires_grad=True),), lambda h: {"score": overt.Gaussian(h)}),
        "additive": ((normal(2, seed=3),), lambda weight: {"score": overt.Additive(weight), "mask": "causal"}),
        "sigmoid, bias": ((normal(2, 3, seed=3),), lambda bias: {"normalizer": Sigmoid(), "bias": bias, "mask": "causal"}),
        "sum": ((), lambda: {"normalizer": Sum(), "bias": torch.full((2, 3), 5.0, dtype=torch.float64)}),
        "entmax": (
            (torch.tensor([[[1.4]], [[1.7]]], dtype=torch.float64, requires_grad=True),),
            lambda alpha: {"normalizer": Entmax(alpha), "score": overt.Dot(0.3)},
        ),
        "additive, sparsemax": (
            (normal(2, seed=3),),
            lambda weight: {"score": overt.Additive(weight), "normalizer": overt.Sparsemax()},
        ),
    }[name]


NAMES = [
    "dot", "causal", "rows without keys", "softcap, scale", "bias, sink", "alibi, temperature", "bilinear", "cosine", "gaussian",
    "additive", "sigmoid, bias", "sum", "entmax", "additive, sparsemax",
]  # fmt: skip


def attended(name, path="native"):
    _, options = followed(name)

    def call(query, key, value, *parameters):
        with overt.use_path(path):
            return overt.attend(query, key, value, **options(*parameters))

    return call


@DIRECTIONS
@pytest.mark.parametrize("name", NAMES)
def test_all_derivatives_of_second_order_are_those_of_finite_differences(name, fast):
    inputs = (*leaves(), *followed(name)[0])
    assert gradcheck(attended(name), inputs, check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(attended(name), inputs, check_fwd_over_rev=True, fast_mode=fast)


@pytest.mark.parametrize("name", ["causal", "bias, sink", "additive"])
def test_gradients_that_autograd_maps_over_are_differentiable_too(name):
    inputs = (*leaves(), *followed(name)[0])
    assert gradcheck(attended(name), inputs, check_batched_grad=True)
    assert gradgradcheck(attended(name), inputs, check_batched_grad=True)


@pytest.mark.parametrize("name", ["causal", "bias, sink", "additive"])
@DIRECTIONS
def test_third_derivatives_are_those_of_finite_differences(name, fast):
    inputs = (*leaves(), *followed(name)[0])

    def second(*inputs):
        output = attended(name)(*inputs)
        first = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(gradient.square().sum() for gradient in first), inputs, create_graph=True)

    assert gradcheck(second, inputs, fast_mode=fast)


def test_dropout_is_the_same_in_every_derivative():
    def call(*inputs):
        torch.manual_seed(3)
        with overt.use_path("native"):
            return overt.attend(*inputs, dropout=0.4, mask="causal")

    assert gradcheck(call, leaves(), check_forward_ad=True)
    assert gradgradcheck(call, leaves(), check_fwd_over_rev=True)


@pytest.mark.parametrize("score", [None, overt.Additive(torch.ones(2).double())], ids=["dot", "additive"])
def test_the_gradient_of_a_tangent_of_autograd_is_that_of_torch_func(score):
    query, key, value = leaves()
    towards = torch.ones_like(query)

    def tangent(query):
        return torch.func.jvp(lambda query: overt.attend(query, key, value, score=score, mask="causal"), (query,), (towards,))[
            1
        ]

    with overt.use_path("blocked"):
        (wanted,) = torch.autograd.grad(tangent(query).square().sum(), query)
    with overt.use_path("native"), forward_ad.dual_level():
        output = overt.attend(forward_ad.make_dual(query, towards), key, value, score=score, mask="causal")
        (result,) = torch.autograd.grad(forward_ad.unpack_dual(output).tangent.square().sum(), query)
    close(result, wanted, 1e-12, "the gradient of a tangent")


def test_a_training_step_with_a_gradient_penalty_is_that_of_the_blocks():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(8, 24).double(), normal(2, 40, 8)
    results = {}
    for path in ("native", "blocked"):
        with overt.use_path(path):
            output = overt.attend(*layer(x).chunk(3, dim=-1), mask="causal")
            (gradient,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
            loss = output.square().mean() + (gradient.square().sum(-1).sqrt() - 1).square().mean()
            results[path] = torch.autograd.grad(loss, list(layer.parameters()))
    for result, wanted in zip(results["native"], results["blocked"], strict=True):
        close(result, wanted, 1e-10, "gradient")


@pytest.mark.parametrize("score", [None, overt.Additive(torch.ones(8))], ids=["dot", "additive"])
def test_rows_without_keys_have_zero_derivatives(score):
    query, key, value = (normal(2, 5, 8, seed=seed, dtype=torch.float32) for seed in range(3))
    output = overt.attend(query, key, value, score=score, mask=overt.Causal(offset=-2))
    (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
    second = torch.autograd.grad(first.square().sum(), (query, key, value))
    assert all(bool(torch.isfinite(tensor).all()) for tensor in (first, *second))
    assert bool((first[:, :2] == 0).all())
    assert bool((second[0][:, :2] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_second_derivatives_have_the_dtypes_of_the_inputs(dtype):
    inputs = [normal(2, 20, 8, seed=seed, dtype=torch.float32).detach().to(dtype).requires_grad_() for seed in range(3)]
    with overt.use_path("native"):
        output = overt.attend(*inputs)
        first = torch.autograd.grad(output.float().square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(gradient.float().square().sum() for gradient in first), inputs)
    assert [tensor.dtype for tensor in (*first, *second)] == [dtype] * 6


def test_second_derivatives_of_grouped_heads_and_shared_inputs_are_exact():
    query, key, value = normal(1, 4, 3, 2), normal(2, 2, 5, 2, seed=1), normal(1, 1, 5, 2, seed=2)

    def call(*inputs):
        with overt.use_path("native"):
            return overt.attend(*inputs)

    assert gradgradcheck(call, (query, key, value), check_fwd_over_rev=True)


def test_a_tensor_that_is_query_key_and_value_at_once_has_its_second_derivatives():
    assert gradgradcheck(lambda x: overt.attend(x, x, x, mask="causal"), (normal(2, 4, 3),), check_fwd_over_rev=True)
