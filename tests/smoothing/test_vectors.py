"""The literal recipe on vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from overt.errors import InputError, KindError
from overt.smoothing import reweight, smooth

vectors = arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=st.floats(-3, 3))


@settings(max_examples=50, deadline=None)
@given(vectors, st.sampled_from([{"score": "dot"}, {"score": "gaussian", "bandwidth": 0.7}]))
def test_rows_sum_to_one_and_the_output_is_the_weighted_sum(x, way):
    result = reweight(x, **way)
    np.testing.assert_allclose(result.weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(result.output, sum(result.weights[:, [j]] * x[j] for j in range(len(x))), atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.data(), vectors)
def test_permuting_the_vectors_permutes_the_output(data, x):
    order = data.draw(st.permutations(range(len(x))).map(list))
    np.testing.assert_allclose(reweight(x[order]).output, reweight(x).output[order], atol=1e-12)


def test_the_scores_are_every_dot_product_times_the_scale():
    x = np.random.default_rng(0).normal(size=(4, 3))
    expected = [[0.5 * sum(a * b for a, b in zip(row, key, strict=True)) for key in x] for row in x]
    np.testing.assert_allclose(reweight(x, scale=0.5).scores, expected)


def test_equal_vectors_get_equal_weights_wherever_they_stand():
    weights = reweight([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]]).weights
    np.testing.assert_array_equal(weights[:, 0], weights[:, 2])
    np.testing.assert_array_equal(weights[0], weights[2])


def test_gaussian_and_dot_agree_on_vectors_of_one_length():
    x = np.random.default_rng(0).normal(size=(6, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(reweight(x, score="gaussian", bandwidth=0.5).weights, reweight(x, scale=4.0).weights, rtol=1e-12)


def test_the_plain_sum_divides_each_score_by_its_row():
    result = reweight([[1.0, 1.0], [2.0, -1.0]], normalizer="sum")
    np.testing.assert_allclose(result.scores, [[2.0, 1.0], [1.0, 5.0]])
    np.testing.assert_allclose(result.weights, [[2 / 3, 1 / 3], [1 / 6, 5 / 6]])


def test_on_single_numbers_it_is_the_smoother():
    x = np.array([1.0, 2.5, -0.5, 0.3])
    np.testing.assert_allclose(reweight(x[:, None]).output[:, 0], smooth(x, keys="value", score="dot"), rtol=1e-12)
    gaussian = reweight(x[:, None], score="gaussian", bandwidth=0.6).output[:, 0]
    np.testing.assert_allclose(gaussian, smooth(x, keys="value", bandwidth=0.6), rtol=1e-12)


def test_large_scores_do_not_overflow():
    np.testing.assert_allclose(reweight([[1e3], [-1e3]]).output, [[1e3], [-1e3]])


@pytest.mark.parametrize(
    ("x", "way", "message"),
    [
        (
            [1.0, 2.0],
            {},
            r"vectors of shape \(n, d\), got shape \(2,\). Fix: pass one vector per row; pass single numbers as x\[:, None\]",
        ),
        ([[1.0, float("nan")]], {}, r"finite vectors, got NaN at \[0, 1\]"),
        ([[1.0, float("inf")]], {}, r"numbers up to 1e\+150.*got inf at \[0, 1\]"),
        (np.zeros((0, 3)), {}, r"with n of at least 1, got shape \(0, 3\)"),
        ([[1.0], [0.0]], {"normalizer": "sum"}, r"nonzero sum in each row, to divide by, got a row whose sum is 0"),
        ([[1.0]], {"normalizer": "mean"}, r'normalizer="softmax" or "sum", got \'mean\''),
        ([[1.0]], {"score": "cosine"}, r'score="gaussian" or "dot", got \'cosine\''),
        ([[1.0]], {"score": "gaussian"}, r"a bandwidth above 0 with the Gaussian score, got None"),
        ([[1.0]], {"score": "gaussian", "bandwidth": 1.0, "scale": 2.0}, r"no scale with the Gaussian score, got 2.0"),
        ([[1.0]], {"score": "gaussian", "bandwidth": 1.0, "normalizer": "sum"}, r"score=.dot. with normalizer=.sum."),
        ([[1.0]], {"bandwidth": 1.0}, r"no bandwidth with the dot score, got 1.0"),
        ([[1.0]], {"scale": float("nan")}, r"a finite scale, got nan"),
    ],
)
def test_what_cannot_be_done_is_said(x, way, message):
    with pytest.raises(InputError, match=message):
        reweight(x, **way)


def test_words_are_no_vectors():
    with pytest.raises(KindError, match="a series of real numbers, got dtype <U3"):
        reweight([["sky"]])
