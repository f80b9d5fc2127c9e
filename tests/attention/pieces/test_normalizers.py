"""Normalizers: laws of each, exactness against a second algorithm, closed-form gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch.autograd import gradcheck, gradgradcheck

import oracle
import overt
from overt.errors import InputError, KindError

SUMMING = {
    "softmax": overt.Softmax(),
    "hot": overt.Softmax(temperature=3.0),
    "sparsemax": overt.Sparsemax(),
    "entmax": overt.Entmax(),
    "entmax 1.2": overt.Entmax(1.2),
    "entmax 3": overt.Entmax(3.0),
}
rows = some.lists(some.floats(-30, 30), min_size=1, max_size=40)


def normalized(normalizer, scores):
    scores = torch.as_tensor(scores, dtype=torch.float64)
    return normalizer(scores, torch.ones_like(scores, dtype=torch.bool))


@pytest.mark.parametrize("name", SUMMING)
@settings(max_examples=50, deadline=None)
@given(row=rows)
def test_rows_sum_to_one_and_are_not_negative(name, row):
    weights = normalized(SUMMING[name], [row])
    assert (weights >= 0).all()
    assert abs(float(weights.sum()) - 1) < 1e-12


@pytest.mark.parametrize("name", SUMMING)
@settings(max_examples=50, deadline=None)
@given(row=rows, shift=some.floats(-1e3, 1e3))
def test_adding_a_constant_to_all_scores_changes_nothing(name, row, shift):
    result = normalized(SUMMING[name], [[number + shift for number in row]])
    np.testing.assert_allclose(result, normalized(SUMMING[name], [row]), atol=1e-10)


@pytest.mark.parametrize("alpha", [1.05, 1.5, 1.9, 2.0, 2.5])
@settings(max_examples=50, deadline=None)
@given(row=rows)
@pytest.mark.few_cases(2)
def test_entmax_equals_bisection(alpha, row):
    wanted = oracle._simplex(np.array(row), alpha)
    np.testing.assert_allclose(normalized(overt.Entmax(alpha), [row])[0], wanted, atol=1e-12)


def test_sparsemax_is_the_projection_onto_the_simplex():
    scores = torch.randn(200, 17, dtype=torch.float64)
    weights = normalized(overt.Sparsemax(), scores)
    # The projection is the only point of the simplex whose residual s − p is largest, and constant, on the support.
    residual = scores - weights
    highest = residual.amax(-1, keepdim=True)
    assert torch.allclose(weights.sum(-1), torch.ones(200, dtype=torch.float64))
    assert ((weights == 0) | ((highest - residual).abs() < 1e-12)).all()


@pytest.mark.parametrize("normalizer", [overt.Sparsemax(), overt.Entmax()])
def test_long_rows_in_float32_keep_their_digits(normalizer):
    scores = torch.randn(4, 8192, generator=torch.Generator().manual_seed(0)) * 0.01
    result = normalizer(scores, torch.ones_like(scores, dtype=torch.bool)).double()
    wanted = normalized(normalizer, scores.double())
    assert float((result - wanted).abs().max() / wanted.max()) < 1e-5


@pytest.mark.parametrize("name", SUMMING)
def test_first_and_second_derivatives_are_exact(name):
    scores = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    assert gradcheck(lambda s: normalized(SUMMING[name], s), scores)
    assert gradgradcheck(lambda s: normalized(SUMMING[name], s), scores)


@pytest.mark.parametrize("make", [lambda t: overt.Softmax(temperature=t), lambda t: overt.Entmax(t)])
def test_temperature_and_alpha_may_be_learned_beside_barred_keys(make):
    x = torch.randn(4, 3, dtype=torch.float64)
    learned = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda t: overt.attend(x, x, x, normalizer=make(t), mask=overt.Causal()), learned)
    assert gradgradcheck(lambda t: overt.attend(x, x, x, normalizer=make(t), mask=overt.Causal()), learned)


def test_a_sink_takes_its_share_and_one_a_head():
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    sink = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    steps = overt.steps(x, x, x, normalizer=overt.Softmax(sink=sink))
    for head in range(3):
        wanted = torch.exp(steps.scores[:, head]) / (torch.exp(steps.scores[:, head]).sum(-1, keepdim=True) + sink[head].exp())
        torch.testing.assert_close(steps.weights[:, head], wanted)
    assert gradcheck(lambda s: overt.attend(x, x, x, normalizer=overt.Softmax(sink=s)), sink)


def test_a_query_that_may_attend_to_nothing_leaves_all_to_the_sink():
    x = torch.randn(2, 3)
    steps = overt.steps(x, x, x, mask=torch.zeros(2, 2, dtype=torch.bool), normalizer=overt.Softmax(sink=torch.tensor(0.0)))
    assert (steps.weights == 0).all()


def test_sigmoid_weights_do_not_compete():
    scores = torch.randn(3, 4, dtype=torch.float64)
    alone = normalized(overt.normalizers.Sigmoid(), scores[:, :1])
    torch.testing.assert_close(normalized(overt.normalizers.Sigmoid(), scores)[:, :1], alone)
    torch.testing.assert_close(alone, 1 / (1 + torch.exp(-scores[:, :1])))


def test_the_plain_sum_divides_by_the_allowed_scores_only():
    scores = torch.tensor([[1.0, 2.0, 5.0]])
    steps = overt.steps(
        torch.ones(1, 1),
        scores.T,
        scores.T,
        score=overt.Dot(1.0),
        normalizer=overt.normalizers.Sum(),
        mask=torch.tensor([True, True, False]),
    )
    torch.testing.assert_close(steps.weights, torch.tensor([[1 / 3, 2 / 3, 0.0]]))


def test_entmax_comes_close_to_softmax_as_alpha_falls_to_one():
    scores = torch.randn(1, 5, dtype=torch.float64)
    np.testing.assert_allclose(normalized(overt.Entmax(1.0001), scores), torch.softmax(scores, -1), atol=1e-3)


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: overt.Softmax(temperature=0.0), InputError, "the temperature of overt.Softmax to be above 0, got 0.0"),
        (lambda: overt.Softmax(temperature=math.nan), InputError, "the temperature of overt.Softmax to be above 0, got nan"),
        (
            lambda: overt.Softmax(sink=0.5),
            KindError,
            "the sink of overt.Softmax to be a floating-point tensor, a scalar or (H,), got 0.5",
        ),
        (lambda: overt.Entmax(0.5), InputError, "the alpha of overt.Entmax to be above 1, got 0.5"),
        (lambda: overt.Entmax(float("nan")), InputError, "the alpha of overt.Entmax to be above 1, got nan"),
        (lambda: overt.Entmax(1.0), InputError, "the alpha of overt.Entmax to be above 1, got 1.0. Fix: use overt.Softmax()"),
    ],
)
def test_what_is_no_normalizer_is_refused(make, kind, text):
    with pytest.raises(kind) as error:
        make()
    assert str(error.value).startswith(f"Expected {text}")
