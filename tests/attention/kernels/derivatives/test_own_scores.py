"""Scores of a caller's own have their derivatives of second order by the native core: those of float64 attention by torch itself."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap

import overt
from caller_scores import DEVELOPMENT, HELD_OUT
from compare import GRADIENT, OUTPUT, close
from overt.attention.kernels.flat import formula

EVERY = {**DEVELOPMENT, **HELD_OUT}
del EVERY["mixture"]  # by torch.cdist, which torch itself cannot differentiate twice
LENGTHS, FEATURES = (19, 70), 6


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def made(name, dtype):
    """A score and its parameters, and query, key and value; the same numbers in every dtype."""
    generator = torch.Generator().manual_seed(7)
    score, parameters = EVERY[name](2, FEATURES, lambda *shape: torch.randn(shape, generator=generator).to(dtype))
    shapes = [(1, 2, LENGTHS[0], FEATURES), (1, 2, LENGTHS[1], FEATURES), (1, 2, LENGTHS[1], 5)]
    return score, [*(normal(*shape, seed=seed, dtype=dtype).requires_grad_() for seed, shape in enumerate(shapes)), *parameters]


def twice(output, leaves):
    """Every leaf's gradient of the squared gradients, which are the tangents of these gradients in their own directions."""
    upstream = normal(*output.shape, seed=5, dtype=output.dtype).requires_grad_()
    first = torch.autograd.grad(output, leaves, upstream, create_graph=True, materialize_grads=True)
    product = sum((gradient * normal(*gradient.shape, seed=9, dtype=output.dtype)).sum() for gradient in first)
    return torch.autograd.grad(product, [upstream, *leaves], materialize_grads=True)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.each_value
def test_second_derivatives_are_those_of_torch(name, dtype, monkeypatch):
    score, leaves = made(name, torch.float64)
    query, key, value = leaves[:3]
    allowed = torch.ones(LENGTHS, dtype=torch.bool).tril(30)
    weights = torch.where(allowed, score(query, key), -torch.inf).softmax(-1)
    wanted = twice(weights @ value, leaves)
    score, leaves = made(name, dtype)
    monkeypatch.setattr(formula, "_attention", None)  # the blocks, which are differentiated where there is no kernel
    with overt.use_path("native"):
        output = overt.attend(*leaves[:3], score=score, mask=overt.masks.Dense(allowed))
    for index, (result, expected) in enumerate(zip(twice(output, leaves), wanted, strict=True)):
        close(result.double(), expected, (OUTPUT if index == 0 else GRADIENT)[dtype], f"result {index}")


def rates(query, key, weight):
    return (torch.tanh(query[..., :, None, :] - key[..., None, :, :]) * weight).sum(-1)


INPUTS = [normal(2, 5, 4), normal(2, 7, 4, seed=1), normal(2, 7, 3, seed=2), normal(4, seed=3)]
TOWARDS = tuple(normal(*tensor.shape, seed=9 + index) for index, tensor in enumerate(INPUTS))


def by_the_core(query, key, value, weight):
    with overt.use_path("native"):
        return overt.attend(query, key, value, score=lambda q, k: rates(q, k, weight), mask="causal").square().sum()


def by_torch(query, key, value, weight):
    scores = torch.where(torch.ones(5, 7, dtype=torch.bool).tril(2), rates(query, key, weight), -torch.inf)
    return (scores.softmax(-1) @ value).square().sum()


def in_forward_mode(function):
    with forward_ad.dual_level():
        return tuple(
            forward_ad.unpack_dual(function(*(forward_ad.make_dual(*pair) for pair in zip(INPUTS, TOWARDS, strict=True))))
        )


ALL = (0, 1, 2, 3)
TRANSFORMS = {
    "jvp": lambda f: jvp(f, tuple(INPUTS), TOWARDS),
    "forward mode": in_forward_mode,
    "grad": lambda f: grad(f, argnums=ALL)(*INPUTS),
    "hessian": lambda f: hessian(f, argnums=ALL)(*INPUTS),
    "jvp of grad": lambda f: jvp(grad(f, argnums=ALL), tuple(INPUTS), TOWARDS),
    "grad of jvp": lambda f: grad(lambda *inputs: jvp(f, inputs, TOWARDS)[1], argnums=ALL)(*INPUTS),
    "vmap of jvp": lambda f: vmap(lambda t: jvp(lambda q: f(q, *INPUTS[1:]), (INPUTS[0],), (t,)))(torch.stack(TOWARDS[:1] * 2)),
    "vmap over what it captured": lambda f: vmap(lambda weight: f(*INPUTS[:3], weight))(torch.stack([INPUTS[3], TOWARDS[3]])),
}  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_trace_a_score_and_what_it_captured(transform):
    results = [torch.utils._pytree.tree_leaves(TRANSFORMS[transform](f)) for f in (by_the_core, by_torch)]
    for result, wanted in zip(*results, strict=True):
        close(result, wanted, 1e-11, transform)


def test_a_program_with_its_tangent_that_is_too_long_is_differentiated_in_blocks():
    x = normal(6, 3).requires_grad_()

    def score(query, key):  # 120 functions of one another, whose tangents and gradients are more than a program may hold
        scores = query @ key.mT
        for _ in range(120):
            scores = torch.sin(scores)
        return scores

    assert overt.plan(x, x, x, score=score).path == "native"
    results = [twice(output, [x]) for output in (overt.attend(x, x, x, score=score), score(x, x).softmax(-1) @ x)]
    for result, wanted in zip(*results, strict=True):
        close(result, wanted, 1e-11, "a second derivative")
