"""The native core's summaries are those of the weights written out in float64, at every SIMD level of the machine."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overt import native

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
RANGES, DENSE, DOCUMENTS, BOTH, EITHER, INVERSE = range(6)
ACTIVATIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
}


pytestmark = pytest.mark.usefixtures("level")


def drawn(*shape, dtype="float32"):
    return np.random.standard_normal(shape).astype(dtype)


def summarised(query, key, value=None, *, weight=None, activation="tanh", scale: Any = 1.0, softcap=0.0, program=(), arrays=(),
               bias=None, by_distance=False, sink=None, inverse_temperature=None, normalizer=0, alpha=0.0, top=3, edges=(None, None),
               sets=(), threads=1):  # fmt: skip
    """What the kernel writes over memory that holds NaN."""
    number = np.float64 if query.dtype == np.float64 else np.float32
    *batch, queries, _ = query.shape
    keys, cells = key.shape[-2], [0 if each is None else len(each) - 1 for each in edges]
    shapes = {} if normalizer else {"lse": [queries]}
    shapes |= {"entropy": [queries], "received": [keys], "top_weights": [queries, top]}
    shapes |= {} if edges[0] is None else {"map_mean": cells, "map_max": cells}
    shapes |= {} if value is None else {"output": [queries, value.shape[-1]]}
    shapes |= {"masses": [queries, len(sets)]} if sets else {}
    result: dict[str, np.ndarray] = {name: np.full([*batch, *shape], np.nan, number) for name, shape in shapes.items()}
    result["top_keys"] = np.full([*batch, queries, top], -7, np.int32)
    result |= {"support": np.full([*batch, queries], -7, np.int32)} if normalizer else {}
    numbers = [None if each is None else np.asarray(each, np.float64) for each in (scale, sink, inverse_temperature)]
    native.module().summary(
        query, key, value, weight, list(ACTIVATIONS).index(activation), numbers[0], softcap, list(program), list(arrays),
        bias, by_distance, numbers[1], numbers[2], normalizer, alpha, None, threads, result.get("lse"), result["entropy"], result["received"], result["top_weights"],
        result["top_keys"], *edges, result.get("map_mean"), result.get("map_max"), result.get("output"),
        [len(each) == 4 for each in sets], [array for each in sets for array in each], result.get("masses"),
        result.get("support"),
    )  # fmt: skip
    return SimpleNamespace(**result)


def written_out(total, value=None, *, sink=None, weigh=None, top=3, edges=(None, None)):
    """The same of one head's total scores (Q, K), −inf where barred, from weights that are held: of a softmax, or what `weigh` says."""
    total = np.asarray(total, np.float64)
    columns = total if sink is None else np.column_stack([total, np.full(len(total), sink)])
    with np.errstate(divide="ignore"):
        lse = np.logaddexp.reduce(columns, axis=1, initial=-np.inf)
    weights = np.zeros_like(total)
    allowed = total > -np.inf
    weights[allowed] = np.exp(total - np.where(lse == -np.inf, 0, lse)[:, None])[allowed]
    if weigh is not None:
        weights = np.array([weigh(row, mask) for row, mask in zip(total, allowed, strict=True)]).reshape(total.shape)
    sums = weights.sum(1, keepdims=True)
    scaled = weights / np.where(sums == 0, 1, sums)
    order = np.argsort(-np.where(allowed, weights, -np.inf), axis=1, kind="stable")[:, :top]
    there = np.take_along_axis(allowed, order, 1)
    answer = SimpleNamespace(
        **{"lse": lse} if weigh is None else {"support": (weights != 0).sum(1)},
        weights=weights,
        received=weights.sum(0) / max(allowed.any(1).sum(), 1),
    )
    answer.entropy = -(scaled * np.log(np.where(scaled > 0, scaled, 1))).sum(1)
    answer.entropy[(weights < 0).any(1)] = np.nan
    answer.top_weights = np.where(there, np.take_along_axis(weights, order, 1), 0)
    answer.top_keys = np.where(there, order, -1)
    if value is not None:
        answer.output = weights @ value.astype(np.float64)
    if edges[0] is not None:
        cells = [[weights[a:b, c:d] for c, d in pairwise(edges[1])] for a, b in pairwise(edges[0])]
        answer.map_mean = np.array([[cell.mean() for cell in row] for row in cells])
        answer.map_max = np.array([[cell.max() for cell in row] for row in cells])
    return answer


def assert_same(result, wanted):
    """Everything that is wanted was found; which of nearly equal weights comes first may differ."""
    for name in ("lse", "entropy", "received", "top_weights", "map_mean", "map_max", "output"):
        if not hasattr(wanted, name):
            continue
        actual, other = getattr(result, name), getattr(wanted, name)
        assert actual.shape == other.shape, name
        finite = np.isfinite(other)
        assert np.array_equal(actual[~finite], other[~finite], equal_nan=True), name
        error = np.abs(actual[finite] - other[finite]).max(initial=0)
        assert error <= TOLERANCE[str(actual.dtype)] * max(1, np.abs(other[finite]).max(initial=0)), (name, error)
    assert ((result.top_keys < 0) == (wanted.top_keys < 0)).all()
    for keys, weights, row in zip(result.top_keys, result.top_weights, wanted.weights, strict=True):
        entered = keys[keys >= 0]
        assert len(set(entered)) == len(entered)
        assert np.allclose(row[entered], weights[: len(entered)], rtol=0, atol=TOLERANCE[str(weights.dtype)])


def of_entmax(alpha):
    """The weights of a row under entmax, whose threshold is bisected."""

    def weigh(row, allowed):
        weights = np.zeros_like(row)
        if allowed.any():
            scaled = (alpha - 1) * row[allowed]
            low, high = scaled.max() - 1, scaled.max()
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (
                    (middle, high) if (np.maximum(scaled - middle, 0) ** (1 / (alpha - 1))).sum() >= 1 else (low, middle)
                )
            weights[allowed] = np.maximum(scaled - low, 0) ** (1 / (alpha - 1))
        return weights

    return weigh


def of_sum(row, allowed):
    return np.where(allowed, row, 0) / (np.where(allowed, row, 0).sum() if allowed.any() else 1)


# Their numbers, alphas and weights.
NORMALIZERS = {
    "sigmoid": (1, 0.0, lambda row, allowed: np.where(allowed, 1 / (1 + np.exp(-row)), 0)),
    "sum": (2, 0.0, of_sum),
    "sparsemax": (3, 2.0, of_entmax(2.0)),
    "entmax 1.5": (3, 1.5, of_entmax(1.5)),
    "entmax 1.25": (3, 1.25, of_entmax(1.25)),
    "entmax 1.3": (3, 1.3, of_entmax(1.3)),
}


def members(sets, keys):
    """Which keys each query has in each set, (sets, Q, K), in plain words."""
    positions = np.arange(keys)
    answer = []
    for low, high, *ids in sets:
        some = (positions >= low[:, None]) & (positions < high[:, None])
        if ids:
            some &= (ids[0][:, None] == ids[1]) & (ids[0][:, None] >= 0) & (ids[0][:, None] < 2**31)
        answer.append(some)
    return np.array(answer)


def dots(query, key, scale=1.0):
    return scale * query.astype(np.float64) @ key.astype(np.float64).T


def edges_of(length, cells):
    return np.arange(cells + 1) * length // cells


SIZES = [(1, 1), (31, 64), (32, 65), (33, 63), (63, 257), (64, 31), (65, 32), (257, 33), (1, 257), (257, 1), (40, 1100)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_lengths_round_the_edges_of_blocks_make_no_difference(queries, keys, dtype):
    query, key, value = drawn(queries, 5, dtype=dtype), drawn(keys, 5, dtype=dtype), drawn(keys, 3, dtype=dtype)
    edges = (edges_of(queries, min(queries, 5)), edges_of(keys, min(keys, 7)))
    result = summarised(query, key, value, edges=edges, top=min(keys, 3))
    assert_same(result, written_out(dots(query, key), value, edges=edges))


@pytest.mark.parametrize("features", [1, 2, 7, 8, 9, 16, 31, 64, 100, 130, 260])
def test_features_and_values_of_any_width(features):
    query, key, value = drawn(35, features), drawn(70, features), drawn(70, features + 1)
    result = summarised(query, key, value, scale=features**-0.5)
    assert_same(result, written_out(dots(query, key, features**-0.5), value))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_values_of_a_few_numbers_each(width, dtype):
    query, key, value = (drawn(40, 3, 8, dtype=dtype), drawn(300, 3, 8, dtype=dtype), drawn(300, 3, width, dtype=dtype))
    result = summarised(*(np.moveaxis(each, 1, 0) for each in (query, key, value)))
    for head in range(3):
        expected = written_out(dots(query[:, head], key[:, head]), value[:, head])
        assert np.abs(result.output[head] - expected.output).max() < TOLERANCE[str(result.output.dtype)]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_additive_scores_are_summarised_likewise(activation):
    query, key, value, weight = drawn(40, 9), drawn(90, 9), drawn(90, 4), drawn(9)
    edges = edges_of(40, 6), edges_of(90, 8)
    total = ACTIVATIONS[activation](query[:, None].astype(np.float64) + key) @ weight
    result = summarised(query, key, value, weight=weight, activation=activation, scale=None, edges=edges)
    assert_same(result, written_out(total, value, edges=edges))


def test_scores_under_a_soft_cap_bend_towards_it():
    for dtype in ("float32", "float64"):
        query, key = drawn(33, 8, dtype=dtype), drawn(65, 8, dtype=dtype)
        query[:11] *= 1e-3
        query[22:] *= 30
        result = summarised(query, key, softcap=4.0)
        assert_same(result, written_out(4 * np.tanh(dots(query, key) / 4)))


def test_bias_comes_before_heat_and_the_sink_after_it():
    query, key, bias = drawn(33, 8), drawn(65, 8), drawn(33, 65)
    result = summarised(query, key, bias=bias, inverse_temperature=0.5, sink=1.25)
    assert_same(result, written_out(0.5 * (dots(query, key) + bias), sink=1.25))


@pytest.mark.parametrize("shape", [(33, 1), (1, 65), (1, 1)])
def test_a_bias_broadcasts(shape):
    query, key, bias = drawn(33, 8), drawn(65, 8), drawn(*shape, dtype="float16")
    result = summarised(query, key, bias=bias)
    assert_same(result, written_out(dots(query, key) + bias.astype(np.float64)))


def test_a_bias_by_distance_is_read_off_the_diagonals():
    query, key, bias = drawn(70, 8), drawn(65, 8), drawn(70 + 65 - 1)
    distances = np.arange(65) - np.arange(70)[:, None] + 70 - 1
    result = summarised(query, key, bias=bias, by_distance=True)
    assert_same(result, written_out(dots(query, key) + bias[distances]))


def test_half_precision_is_widened_and_summed_in_single():
    query, key, value = (drawn(70, 9, dtype="float16") for _ in range(3))
    assert_same(summarised(query, key, value), written_out(dots(query, key), value))


def masked(program, arrays, allowed, queries=70, keys=300):
    query, key, value = drawn(queries, 6), drawn(keys, 6), drawn(keys, 7)
    edges = edges_of(queries, 9), edges_of(keys, 11)
    result = summarised(query, key, value, program=program, arrays=arrays, edges=edges)
    assert_same(result, written_out(np.where(allowed, dots(query, key), -np.inf), value, edges=edges))


def test_keys_outside_of_a_row_s_range_get_nothing():
    stop = np.arange(70) * 4 + 1
    first = np.maximum(stop - 50, 0)
    masked([RANGES], [first, stop], (np.arange(300) >= first[:, None]) & (np.arange(300) < stop[:, None]))


def test_a_dense_mask_bars_key_by_key():
    allowed = np.random.random((70, 300)) < 0.3
    masked([DENSE], [allowed], allowed)


def test_tiles_between_documents_are_left_out():
    queries, keys = np.arange(70) // 20, np.arange(300) // 45 - 1
    masked([DOCUMENTS], [queries, keys], (queries[:, None] == keys) & (queries[:, None] >= 0))


def test_masks_are_joined_and_inverted():
    stop, dense, other = np.arange(70) * 4 + 1, np.random.random((1, 300)) < 0.5, np.random.random((70, 1)) < 0.2
    causal = np.arange(300) < stop[:, None]
    arrays = [np.zeros(70, np.int64), stop, dense, other]
    masked([RANGES, DENSE, INVERSE, BOTH, DENSE, EITHER], arrays, (causal & ~dense) | other)


def test_a_query_that_may_attend_to_nothing_counts_for_nothing():
    allowed = np.ones((40, 70), bool)
    allowed[[0, 5, 31, 32, 39]] = False
    query, key, value = drawn(40, 6), drawn(70, 6), drawn(70, 4)
    result = summarised(query, key, value, program=[DENSE], arrays=[allowed])
    wanted = written_out(np.where(allowed, dots(query, key), -np.inf), value)
    assert_same(result, wanted)
    assert result.lse[5] == -np.inf
    assert result.entropy[5] == 0
    assert result.top_weights[5].tolist() == [0, 0, 0]
    assert result.top_keys[5].tolist() == [-1, -1, -1]
    assert result.output[5].tolist() == [0, 0, 0, 0]


def test_a_sink_takes_all_of_a_query_that_may_attend_to_nothing():
    allowed = np.arange(3)[:, None] > np.zeros(5)
    query, key = drawn(3, 6), drawn(5, 6)
    result = summarised(query, key, program=[DENSE], arrays=[allowed], sink=0.75)
    assert_same(result, written_out(np.where(allowed, dots(query, key), -np.inf), sink=0.75))
    assert result.lse[0] == 0.75


@pytest.mark.parametrize("width", [4, 6], ids=["narrow values", "wide values"])
def test_what_masked_keys_and_values_hold_is_not_felt(width):
    query, key, value = drawn(40, 6), drawn(130, 6), drawn(130, width)
    barred = np.random.random(130) < 0.3
    wanted = written_out(np.where(barred, -np.inf, dots(query, key)), value, edges=(edges_of(40, 6), edges_of(130, 9)))
    key[barred], value[barred] = np.nan, np.inf
    edges = edges_of(40, 6), edges_of(130, 9)
    result = summarised(
        query, key, np.where(barred[:, None], np.nan, value), program=[DENSE], arrays=[~barred[None]], edges=edges
    )
    wanted.output = wanted.weights @ np.where(barred[:, None], 0, value)
    assert_same(result, wanted)


@pytest.mark.parametrize("width", [4, 6], ids=["narrow values", "wide values"])
def test_a_bias_of_minus_infinity_bars_as_a_mask_does(width):
    query, key, value = drawn(40, 6), drawn(130, 6), drawn(130, width)
    barred = np.random.random((40, 130)) < 0.3
    barred[:, 7] = True
    bias = np.where(barred, -np.inf, 0).astype(np.float32)
    wanted = written_out(dots(query, key) + bias, value)
    value[7] = np.nan
    assert_same(summarised(query, key, value, bias=bias), wanted)


@pytest.mark.parametrize("width", [4, 6], ids=["narrow values", "wide values"])
def test_nan_stays_with_the_queries_that_may_attend_to_it(width):
    query, key, value = drawn(40, 6), drawn(130, 6), drawn(130, width)
    allowed = np.random.random((40, 130)) < 0.5
    allowed[:, 70], allowed[3, 70] = False, True
    edges = edges_of(40, 20), edges_of(130, 13)
    clean = summarised(query, key, value, program=[DENSE], arrays=[allowed], edges=edges)
    key[70] = np.nan
    result = summarised(query, key, value, program=[DENSE], arrays=[allowed], edges=edges)
    others, visible = np.arange(40) != 3, allowed[3]
    for name in ("lse", "entropy", "top_weights", "output"):
        assert np.isnan(getattr(result, name)[3]).all(), name
        assert np.array_equal(getattr(result, name)[others], getattr(clean, name)[others]), name
    assert result.top_keys[3].tolist() == np.flatnonzero(visible)[:3].tolist()
    assert (np.isnan(result.received) == visible).all()
    assert (np.isnan(result.map_max[1]) == visible.reshape(13, 10).any(1)).all()
    assert np.isfinite(np.delete(result.map_mean, 1, 0)).all()


def test_a_value_that_is_nan_reaches_those_who_may_attend_to_it():
    query, key, value = drawn(40, 6), drawn(130, 6), drawn(130, 4)
    causal = np.tri(40, 130, dtype=bool)
    value[20] = np.nan
    result = summarised(query, key, value, program=[RANGES], arrays=[np.zeros(40, np.int64), np.arange(40) + 1])
    assert (np.isnan(result.output).all(1) == causal[:, 20]).all()
    assert np.isfinite(result.output[~causal[:, 20]]).all()


def test_an_infinite_score_leaves_no_weights_that_are_numbers():
    query, key = drawn(3, 6), drawn(70, 6)
    bias = np.zeros((3, 70), np.float32)
    bias[1, 66] = np.inf
    result = summarised(query, key, bias=bias)
    assert result.lse[1] == np.inf
    assert np.isnan(result.top_weights[1]).all()
    assert np.isfinite(result.top_weights[[0, 2]]).all()


def test_scores_far_apart_neither_overflow_nor_lose_the_small():
    query, key = drawn(35, 6), drawn(700, 6)
    bias = (np.linspace(-3000, 3000, 700, dtype=np.float32) + np.float32(1e6))[None]
    total = (dots(query, key) + bias).astype(np.float32)
    result = summarised(np.zeros_like(query), key, bias=total)
    assert_same(result, written_out(total))


def test_more_keys_than_are_kept_between_the_passes_are_scored_again():
    query, key, value = drawn(3, 2), drawn(16384 + 700, 2), drawn(16384 + 700, 2)
    edges = edges_of(3, 2), edges_of(len(key), 100)
    result = summarised(query, key, value, edges=edges, sink=3.0)
    assert_same(result, written_out(dots(query, key), value, edges=edges, sink=3.0))


def test_equal_weights_are_told_by_the_earliest_keys():
    result = summarised(np.zeros((2, 4), np.float32), drawn(200, 4), top=5)
    assert result.top_keys.tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("top", [1, 2, 8, 16, 17])
def test_of_a_few_different_scores_the_earliest_keys_come_first(top, dtype):
    query = np.ones((3, 1), dtype)
    key = np.random.randint(0, 6, (1500, 1)).astype(dtype)
    wanted = np.argsort(-key[:, 0], kind="stable")[:top]
    assert summarised(query, key, top=top).top_keys.tolist() == [wanted.tolist()] * 3


def test_all_keys_may_be_asked_for_in_order():
    query, key = drawn(2, 4, dtype="float64"), drawn(600, 4, dtype="float64")
    result, wanted = summarised(query, key, top=600), written_out(dots(query, key), top=600)
    assert_same(result, wanted)
    assert np.array_equal(result.top_keys, wanted.top_keys)


def test_no_top_may_be_asked_for():
    query, key = drawn(20, 4), drawn(30, 4)
    assert summarised(query, key, top=0).top_weights.shape == (20, 0)


def test_cells_of_the_map_may_be_of_any_size():
    query, key = drawn(257, 6), drawn(300, 6)
    edges = np.array([0, 1, 2, 40, 41, 200, 257]), np.array([0, 3, 64, 65, 66, 67, 128, 299, 300])
    for threads in (1, 3):
        result = summarised(query, key, edges=edges, threads=threads)
        assert_same(result, written_out(dots(query, key), edges=edges))


def test_threads_share_one_entry_and_its_cells():
    query, key, value = drawn(257, 16), drawn(300, 16), drawn(300, 5)
    stop = np.arange(257) + 44
    total = np.where(np.arange(300) < stop[:, None], dots(query, key), -np.inf)
    for cells in (1, 3, 257):
        edges = edges_of(257, cells), edges_of(300, 10)
        result = summarised(query, key, value, program=[RANGES], arrays=[stop * 0, stop], edges=edges, threads=3)
        assert_same(result, written_out(total, value, edges=edges))


def test_batches_broadcast_and_heads_share_keys():
    query, key, weight = drawn(2, 6, 33, 8), drawn(2, 3, 40, 8), drawn(6, 1)
    sink, inverse_temperature = np.arange(6.0), np.array([[1.0], [0.5]])
    value, transposed = drawn(2, 40, 3, 4).swapaxes(1, 2), np.ascontiguousarray(query.swapaxes(1, 2)).swapaxes(1, 2)
    result = summarised(
        transposed, key, value, scale=weight[:, 0], sink=sink, inverse_temperature=inverse_temperature, threads=2
    )
    for b, h in np.ndindex(2, 6):
        actual = SimpleNamespace(**{name: each[b, h] for name, each in vars(result).items()})
        total = inverse_temperature[b, 0] * dots(query[b, h], key[b, h // 2], weight[h, 0])
        assert_same(actual, written_out(total, value[b, h // 2], sink=sink[h]))


@pytest.mark.parametrize(("batch", "queries", "keys", "features"), [(0, 3, 4, 2), (2, 0, 4, 2), (2, 3, 0, 2), (2, 3, 4, 0)])
def test_a_dimension_may_be_empty(batch, queries, keys, features):
    query, key, value = drawn(batch, queries, features), drawn(batch, keys, features), drawn(batch, keys, 5)
    edges = edges_of(queries, min(queries, 2) or 1)[: min(queries, 2) + 1], np.arange(keys + 1)
    result = summarised(query, key, value, edges=edges, top=min(keys, 3))
    for b in range(batch):
        actual = SimpleNamespace(**{name: each[b] for name, each in vars(result).items()})
        wanted = written_out(dots(query[b], key[b]), value[b])
        assert_same(actual, wanted)
        assert not np.isnan(actual.map_mean).any()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_come_out_every_time(threads):
    query, key, value, edges = drawn(257, 16), drawn(300, 16), drawn(300, 5), (edges_of(257, 20), edges_of(300, 20))
    first = summarised(query, key, value, edges=edges, threads=threads)
    for _ in range(5):
        second = summarised(query, key, value, edges=edges, threads=threads)
        for name, each in vars(first).items():
            assert np.array_equal(each, getattr(second, name)), name


def key_sets(queries, keys):
    """Sets of every kind: one key, a range, everything, nothing, ids, and ids in a range."""
    positions, words = np.arange(queries), np.random.randint(-1, 5, queries)
    others, nothing, everything = np.random.randint(-1, 5, keys), np.zeros(queries, np.int64), np.full(queries, keys)
    large = np.where(others == 2, 2**31, np.where(others == 3, -(2**40), others))
    return [
        (positions - 1, positions),
        (positions + 1, positions + 2),
        (np.full(queries, 3), np.full(queries, 4)),
        (positions - 20, positions + 7),
        (nothing, everything),
        (positions + 5, positions),
        (nothing, everything, words, others),
        (nothing, positions, words, others),
        (positions + 1, everything, words, others),
        (nothing, everything, np.where(words == 2, 2**31, words), large),
        (np.full(queries, -(2**62)), np.full(queries, 2**62)),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_sets_of_keys_get_their_weights(queries, keys, dtype):
    query, key, sets = drawn(queries, 5, dtype=dtype), drawn(keys, 5, dtype=dtype), key_sets(queries, keys)
    result = summarised(query, key, sets=sets, top=1)
    weights = written_out(dots(query, key)).weights
    expected = (members(sets, keys) * weights).sum(-1).T
    assert np.abs(result.masses - expected).max() < TOLERANCE[dtype]


@pytest.mark.parametrize("threads", [1, 3])
def test_sets_of_keys_under_a_mask_and_a_sink_in_every_head(threads):
    query, key, stop = drawn(3, 70, 8), drawn(3, 300, 8), np.arange(70) * 4 + 1
    allowed = np.arange(300) < stop[:, None]
    sets = key_sets(70, 300)
    result = summarised(
        query, key, program=[RANGES], arrays=[np.zeros(70, np.int64), stop], sets=sets, sink=0.5, threads=threads
    )
    for head in range(3):
        weights = written_out(np.where(allowed, dots(query[head], key[head]), -np.inf), sink=0.5).weights
        expected = (members(sets, 300) * weights).sum(-1).T
        assert np.abs(result.masses[head] - expected).max() < TOLERANCE["float32"]


def test_sets_of_keys_beyond_the_exponentials_that_are_kept():
    query, key, sets = drawn(3, 4), drawn(20000, 4), key_sets(3, 20000)
    result = summarised(query, key, sets=sets)
    expected = (members(sets, 20000) * written_out(dots(query, key)).weights).sum(-1).T
    assert np.abs(result.masses - expected).max() < TOLERANCE["float32"]


def test_a_set_gets_nan_where_a_query_s_weights_are():
    query, key = drawn(40, 6), drawn(90, 6)
    query[7, 2] = np.nan
    result = summarised(query, key, sets=[(np.arange(40), np.arange(40) + 1), (np.zeros(40, np.int64), np.zeros(40, np.int64))])
    assert np.isnan(result.masses[7, 0])
    assert not np.isnan(np.delete(result.masses, 7, 0)).any()
    assert (result.masses[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("sets", "have_ids", "message"),
    [
        ([np.zeros(40, np.int64)], [False], "2 arrays for these sets of keys, got 1 arrays"),
        ([np.zeros(40, np.int64)] * 2, [True], "4 arrays for these sets of keys, got 2 arrays"),
        ([np.zeros(40, np.int64), np.zeros(39, np.int64)], [False], "a set's stops of shape"),
        ([np.zeros(40, np.int64)] * 4, [True], "a set's ids of keys of shape"),
        ([], [], "masses for sets of keys, got one without the other"),
    ],
)
def test_sets_of_keys_that_do_not_fit_are_refused(sets, have_ids, message):
    query, key, rows = drawn(40, 6), drawn(90, 6), np.zeros(40, np.float32)
    results = rows.copy(), rows.copy(), np.zeros(90, np.float32), np.zeros((40, 1), np.float32), np.zeros((40, 1), np.int32)
    with pytest.raises(ValueError, match=message):
        native.module().summary(
            query, key, None, None, 0, np.ones(()), 0.0, [], [], None, False, None, None, 0, 0.0, None, 1, *results, None, None, None, None, None,
            have_ids, sets, np.zeros((40, 1), np.float32), None,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.each_pair
def test_other_normalizers_have_weights_of_their_own(name, queries, keys, dtype):
    kind, alpha, weigh = NORMALIZERS[name]
    query, key, value = drawn(queries, 5, dtype=dtype), drawn(keys, 5, dtype=dtype), drawn(keys, 3, dtype=dtype)
    bias = drawn(queries, keys, dtype=dtype) + (0 if kind != 2 else 9)
    allowed = np.random.random((queries, keys)) < 0.8
    allowed[queries // 2] = False
    edges = (edges_of(queries, min(queries, 5)), edges_of(keys, min(keys, 7)))
    sets = key_sets(queries, keys)
    options = {"bias": bias, "edges": edges, "top": min(keys, 3), "normalizer": kind, "alpha": alpha, "sets": sets}
    result = summarised(query, key, value, program=[DENSE], arrays=[allowed], **options)
    total = np.where(allowed, dots(query, key) + bias, -np.inf)
    wanted = written_out(total, value, weigh=weigh, top=min(keys, 3), edges=edges)
    assert_same(result, wanted)
    masses = (members(sets, keys) * np.abs(wanted.weights)).sum(-1).T
    assert np.allclose(result.masses, masses, rtol=10 * TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
    if kind != 3:  # a weight that is 0 by its threshold may be one rounding above it
        assert (result.support == wanted.support).all()
    assert (np.abs(result.support - wanted.support) <= 2).all()


def test_a_sum_of_zero_and_scores_that_are_nan_have_no_statistics():
    query, key = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
    query[0], key[1] = 0, -1
    assert (summarised(query, key, normalizer=2).support < 0).tolist() == [True, False, False]
    query[2] = np.nan
    assert (summarised(query, key, normalizer=3, alpha=1.5).support < 0).tolist() == [False, False, True]
