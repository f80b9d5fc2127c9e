"""Additive attention of NumPy arrays on the native path is the oracle's, at every SIMD level of the machine, and refuses what does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from additive_of_arrays import additive
from overt import native
from overt.errors import InputError, KindError

# DESIGN section 5: relative to the oracle, by dtype.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}


def drawn(*shape, dtype="float64"):
    return np.random.standard_normal(shape).astype(dtype)


def answer(query, key, value, weight, activation="tanh", *, allowed=None, bias=None, sink=None):
    params = {"weight": weight, "activation": activation} | ({} if sink is None else {"sink": sink})
    options = {"score": "additive", "params": params, "normalizer": "softmax"}
    with np.errstate(over="ignore"):  # the oracle works out every activation, and e^1000 is infinite in float64 too
        return oracle.attention(query, key, value, allowed=allowed, bias=bias, **options).output


def assert_close(result, wanted, dtype="float64"):
    assert result.shape == wanted.shape
    assert np.abs(result - wanted).max(initial=0) <= TOLERANCE[dtype] * max(1, np.abs(wanted).max(initial=0))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("activation", native.ACTIVATIONS)
@pytest.mark.each_pair
def test_it_is_the_oracles_in_every_dtype_and_activation(level, activation, dtype):
    query, key, value, weight = (drawn(*shape, dtype=dtype) for shape in [(37, 20), (70, 20), (70, 9), (20,)])
    result = additive(query, key, value, weight, activation=activation)
    assert result.dtype == dtype
    assert_close(result, answer(query, key, value, weight, activation), dtype)


@pytest.mark.parametrize("queries", [1, 31, 32, 33])
@pytest.mark.parametrize("keys", [1, 63, 64, 65, 129])
def test_lengths_around_every_edge_of_a_tile(level, queries, keys):
    query, key, value, weight = drawn(queries, 17), drawn(keys, 17), drawn(keys, 5), drawn(17)
    assert_close(additive(query, key, value, weight), answer(query, key, value, weight))


def test_a_range_of_keys_for_each_query(level):
    query, key, value, weight = drawn(40, 8), drawn(90, 8), drawn(90, 4), drawn(8)
    first, stop = np.random.randint(0, 60, 40), np.random.randint(30, 91, 40)
    allowed = (first[:, None] <= np.arange(90)) & (np.arange(90) < stop[:, None])
    result = additive(query, key, value, weight, first=first, stop=stop)
    assert_close(result, answer(query, key, value, weight, allowed=allowed))


def test_booleans_and_a_range_bar_together(level):
    query, key, value, weight, allowed = drawn(40, 8), drawn(90, 8), drawn(90, 4), drawn(8), np.random.rand(40, 90) < 0.5
    result = additive(query, key, value, weight, allowed=allowed, stop=70)
    assert_close(result, answer(query, key, value, weight, allowed=allowed & (np.arange(90) < 70)))


def test_a_query_that_may_attend_to_nothing_gets_zeros(level):
    allowed = np.array([[True, True], [False, False]])
    result = additive(drawn(2, 3), drawn(2, 3), drawn(2, 4), drawn(3), allowed=allowed)
    assert np.abs(result[0]).max() > 0
    assert np.array_equal(result[1], np.zeros(4))


def test_what_a_barred_key_holds_reaches_nothing(level):
    query, key, value, weight = drawn(5, 3), drawn(6, 3), drawn(6, 4), drawn(3)
    wanted = additive(query, key[:4], value[:4], weight)
    key[4:], value[4:] = np.nan, np.inf
    assert_close(additive(query, key, value, weight, stop=4), wanted)


def test_a_bias_and_a_sink(level):
    query, key, value, weight, bias = drawn(40, 8), drawn(90, 8), drawn(90, 4), drawn(8), drawn(40, 90)
    result = additive(query, key, value, weight, bias=bias, sink=0.3)
    assert_close(result, answer(query, key, value, weight, bias=bias, sink=0.3))


def test_one_row_of_bias_serves_all_queries(level):
    query, key, value, weight, bias = drawn(4, 8), drawn(9, 8), drawn(9, 4), drawn(8), drawn(9)
    result = additive(query, key, value, weight, bias=bias)
    assert_close(result, answer(query, key, value, weight, bias=np.tile(bias, (4, 1))))


def test_leading_dimensions_broadcast(level):
    query, key, value, weight = drawn(3, 1, 7, 6), drawn(2, 11, 6), drawn(11, 5), drawn(2, 6)
    result = additive(query, key, value, weight, stop=np.full((3, 1, 7), 9))
    assert result.shape == (3, 2, 7, 5)
    for b in range(3):
        for h in range(2):
            assert_close(result[b, h], answer(query[b, 0], key[h, :9], value[:9], weight[h]))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["transposed", "every other", "backwards", "one row for all"],
)
def test_any_layout_in_memory(level, other):
    query, key, value, weight = other(drawn(7, 6)), other(drawn(11, 6)), other(drawn(11, 5)), drawn(6)
    assert_close(additive(query, key, value, weight), answer(query, key, value, weight))


def test_arrays_that_may_not_be_written_are_read():
    query, key, value, weight = drawn(7, 6), drawn(11, 6), drawn(11, 5), drawn(6)
    for array in (query, key, value, weight):
        array.setflags(write=False)
    assert_close(additive(query, key, value, weight), answer(query, key, value, weight))


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)], ids=["Q", "K", "D", "E"])
def test_any_dimension_may_be_empty(level, shape):
    Q, K, D, E = shape
    query, key, value, weight = drawn(Q, D), drawn(K, D), drawn(K, E), drawn(D)
    assert_close(additive(query, key, value, weight), answer(query, key, value, weight))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 50.0, 1e4, 1e30])
def test_features_of_any_size(level, scale):
    query, key, value, weight = scale * drawn(40, 9), scale * drawn(70, 9), drawn(70, 4), drawn(9)
    for dtype in ("float64", "float32"):
        arrays = [array.astype(dtype) for array in (query, key, value, weight)]
        assert_close(additive(*arrays), answer(*arrays), dtype)


def test_large_query_and_key_that_cancel_are_not_cut_off(level):
    # tanh(60 - 58) is not 1: each alone is far outside of where tanh changes, their sum is not.
    query, key, value, weight = drawn(5, 4) + 60, drawn(9, 4) - 58, drawn(9, 3), drawn(4)
    for dtype in ("float64", "float32"):
        arrays = [array.astype(dtype) for array in (query, key, value, weight)]
        assert_close(additive(*arrays), answer(*arrays), dtype)


def test_the_number_of_threads_changes_no_bit(level, monkeypatch):
    arrays = drawn(3, 70, 8), drawn(3, 90, 8), drawn(3, 90, 4), drawn(8)
    monkeypatch.setattr(native, "threads", lambda: 1)
    alone = additive(*arrays)
    monkeypatch.setattr(native, "threads", lambda: 3)
    assert np.array_equal(additive(*arrays), alone)


@given(st.integers(1, 70), st.integers(1, 140), st.integers(1, 40), st.integers(1, 20), st.sampled_from(native.ACTIVATIONS))
@settings(max_examples=30)
def test_any_shape_at_the_best_level(Q, K, D, E, activation):
    query, key, value, weight = drawn(Q, D), drawn(K, D), drawn(K, E), drawn(D)
    assert_close(additive(query, key, value, weight, activation=activation), answer(query, key, value, weight, activation))


def refused(error, match, *arrays, **options):
    with pytest.raises(error, match=match):
        additive(*arrays, **options)


def test_other_kinds_of_arrays_are_refused():
    ones, weight = np.ones((2, 3)), np.ones(3)
    refused(KindError, "floating-point.*got query of dtype torch.int64", np.ones((2, 3), int), ones, ones, weight)
    refused(KindError, "one dtype.*got query torch.float64, key torch.float32", ones, ones.astype("float32"), ones, weight)
    refused(KindError, "bool.*got a torch.float64 tensor", ones, ones, ones, weight, allowed=np.ones((2, 2)))


def test_shapes_that_do_not_fit_are_refused():
    ones, weight = np.ones((2, 3)), np.ones(3)
    refused(InputError, r"\(length, features\).*query \(3,\)", np.ones(3), ones, ones, weight)
    refused(InputError, r"last dimension D.*got query \(2, 3\), key \(2, 4\)", ones, np.ones((2, 4)), ones, weight)
    refused(InputError, r"same length K.*key \(2, 3\), value \(5, 3\)", ones, ones, np.ones((5, 3)), weight)
    refused(InputError, "leading dimensions", np.ones((2, 2, 3)), np.ones((4, 2, 3)), ones, weight)
    refused(InputError, r"one weight for each feature.*weight \(4,\)", ones, ones, ones, np.ones(4))
    refused(InputError, r"bias.*\(2, 2\).*\(3, 2\)", ones, ones, ones, weight, bias=np.ones((3, 2)))


def test_an_unknown_activation_is_refused():
    ones = np.ones((2, 3))
    refused(InputError, "tanh, sigmoid, relu, leaky_relu, got 'gelu'", ones, ones, ones, np.ones(3), activation="gelu")
