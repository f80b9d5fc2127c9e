"""Nothing to attend with, or to: an empty batch, no heads, queries, keys or features gives the empty or the zero result, everywhere."""

import itertools
from contextlib import nullcontext

import pytest
import torch

import overt

# (batch, heads, queries, keys, features, value features)
EMPTY = {
    "batch": (0, 2, 5, 5, 4, 3),
    "heads": (2, 0, 5, 5, 4, 3),
    "queries": (2, 2, 0, 5, 4, 3),
    "keys": (2, 2, 5, 0, 4, 3),
    "queries and keys": (2, 2, 0, 0, 4, 3),
    "features": (2, 2, 5, 5, 0, 3),
    "value features": (2, 2, 5, 5, 4, 0),
    "all features": (2, 2, 5, 5, 0, 0),
}
SCORES = {
    "dot": lambda d: overt.Dot(scale=0.5),
    "scaled dot": lambda d: None,
    "softcap": lambda d: overt.Dot(softcap=2.0),
    "bilinear": lambda d: overt.Bilinear(torch.randn(d, d, requires_grad=True)),
    "additive": lambda d: overt.Additive(torch.randn(d, requires_grad=True)),
    "cosine": lambda d: overt.Cosine(),
    "gaussian": lambda d: overt.Gaussian(1.0),
    "learned gaussian": lambda d: overt.Gaussian(torch.tensor(1.0, requires_grad=True)),
    "own": lambda d: lambda query, key: query @ key.mT,
}
NORMALIZERS = {
    "softmax": overt.Softmax(),
    "sink": overt.Softmax(sink=torch.tensor(0.3, requires_grad=True)),
    "temperature": overt.Softmax(temperature=torch.tensor(2.0, requires_grad=True)),
    "sparsemax": overt.Sparsemax(),
    "entmax": overt.Entmax(1.5),
    "bisected entmax": overt.Entmax(1.3),
    "sigmoid": overt.normalizers.Sigmoid(),
}
MASKS = {
    "none": lambda b, h, q, k: None,
    "causal": lambda b, h, q, k: overt.Causal(),
    "window": lambda b, h, q, k: overt.Window(2, 0),
    "lengths": lambda b, h, q, k: overt.Lengths(torch.full((b,), min(2, k))),
    "dense": lambda b, h, q, k: torch.arange(q * k).reshape(q, k).expand(b, h, q, k) % 3 > 0,
    "keys": lambda b, h, q, k: (torch.arange(k) % 2 > 0).expand(b, 1, 1, k),
}
BIASES = {
    "none": lambda h, q, k: None,
    "tensor": lambda h, q, k: torch.zeros(1, h, q, k),
    "alibi": lambda h, q, k: overt.ALiBi(torch.ones(h)),
}


def drawn(shape, dtype=torch.float32):
    batch, heads, queries, keys, features, value_features = shape
    sizes = ((queries, features), (keys, features), (keys, value_features))
    return [torch.randn(batch, heads, *size, dtype=dtype, requires_grad=True) for size in sizes]


def calls(shape, masks=tuple(MASKS)):
    """Every score with every normalizer, the masks in turn, and with every bias and dropout."""
    batch, heads, queries, keys, features, _ = shape
    turns = itertools.cycle(masks)
    for score in SCORES.values():
        for normalizer in NORMALIZERS.values():
            mask = MASKS[next(turns)](batch, heads, queries, keys)
            yield {"score": score(features), "normalizer": normalizer, "mask": mask}
        for bias in BIASES.values():
            yield {"score": score(features), "bias": bias(heads, queries, keys), "dropout": 0.5}


def check_output(shape, output):
    batch, heads, queries, keys, _, value_features = shape
    assert output.shape == (batch, heads, queries, value_features)
    assert torch.isfinite(output).all()
    assert keys or not output.any(), "without a key there is nothing but zeros"


@pytest.mark.parametrize("path", [None, "blocked"])
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.few_cases(4)
def test_every_call_on_nothing_gives_nothing_or_zeros_forward_and_backward(name, path):
    for options in itertools.chain(calls(EMPTY[name]), calls(EMPTY[name], ("causal", "dense", "none", "lengths", "keys"))):
        inputs = drawn(EMPTY[name])
        with overt.use_path(path) if path else nullcontext():
            output = overt.attend(*inputs, **options)
            check_output(EMPTY[name], output)
            gradients = torch.autograd.grad(output.sum(), inputs)
        for gradient, tensor in zip(gradients, inputs, strict=True):
            assert gradient.shape == tensor.shape
            assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.few_cases(2)
def test_the_default_path_agrees_with_the_blocks_where_there_is_something_to_give(name):
    for options in calls(EMPTY[name]):
        if "dropout" in options:
            continue
        inputs = drawn(EMPTY[name], torch.float64)
        fast = overt.attend(*inputs, **options)
        with overt.use_path("blocked"):
            torch.testing.assert_close(fast, overt.attend(*inputs, **options))


@pytest.mark.parametrize("path", [None, "blocked"])
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.few_cases(4)
def test_steps_plans_and_summaries_of_nothing_are_whole_too(name, path):
    batch, heads, queries, keys, _, _ = EMPTY[name]
    for options in calls(EMPTY[name]):
        query, key, value = (tensor.detach() for tensor in drawn(EMPTY[name]))
        with overt.use_path(path) if path else nullcontext():
            assert overt.plan(query, key, value, **options).path
            steps = overt.steps(query, key, value, **options)
            options = {each: option for each, option in options.items() if each != "dropout"}
            summary = overt.summarize(query, key, value=value, **options, top=2, map_size=2)
        assert steps.weights.shape == (batch, heads, queries, keys)
        check_output(EMPTY[name], steps.output)
        check_output(EMPTY[name], summary.output)
        assert summary.top_weights.shape == (batch, heads, queries, min(2, keys))
        assert summary.map_mean.shape[-2:] == (min(2, queries), min(2, keys))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", EMPTY)
def test_in_every_dtype(name, dtype):
    for score in SCORES.values():
        made = score(EMPTY[name][4])
        if isinstance(made, overt.Bilinear | overt.Additive):
            made = type(made)(made.weight.detach().to(dtype))
        inputs = drawn(EMPTY[name], dtype)
        output = overt.attend(*inputs, score=made)
        check_output(EMPTY[name], output)
        output.sum().backward()


@pytest.mark.parametrize("score", ["dot", "additive", "gaussian"])
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.few_cases(2)
def test_compiled(name, score):
    made = SCORES[score](EMPTY[name][4])
    inputs = drawn(EMPTY[name])
    output = torch.compile(lambda q, k, v: overt.attend(q, k, v, score=made), backend="eager")(*inputs)
    check_output(EMPTY[name], output)
    output.sum().backward()


def test_a_batch_of_none_against_a_key_that_all_share():
    query, key = torch.randn(0, 2, 5, 4), torch.randn(1, 2, 5, 4)
    assert overt.attend(query, key, key, score=overt.Gaussian(1.0)).shape == (0, 2, 5, 4)
