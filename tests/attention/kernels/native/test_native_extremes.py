"""Where native kernels could go wrong unseen: threads, far strides, ends of number ranges, results that share memory."""

import ctypes
import mmap
import threading

import numpy as np
import pytest

import oracle
from additive_of_arrays import additive
from overt import native
from overt.errors import InputError

DENSE = 1
FAR = 2**31 + 2**20  # elements from one row to the next
SOFTMAX = (0, 0.0, None)  # the kind of normalizer, its alpha, and those of the heads


def drawn(*shape, dtype="float32"):
    return np.random.standard_normal(shape).astype(dtype)


def poisoned(*shape, dtype="float32"):
    return np.full(shape, np.nan, dtype)


def both_passes(
    query, key, value, weight, upstream, *, allowed=None, bias=None, sink=None, dropout=0.0, threads=2, activation="tanh"
):
    """Results of both passes by name, each in memory that held NaN."""
    mask = ([], []) if allowed is None else ([DENSE], [allowed])
    dtype, batch, (Q, D), (K, E) = query.dtype, query.shape[:-2], query.shape[-2:], value.shape[-2:]
    shapes = {"output": (Q, E), "lse": (Q,), "query": (Q, D), "key": (K, D), "value": (K, E), "weight": (D,), "delta": (Q,)}
    result = {name: poisoned(*batch, *shape, dtype=dtype) for name, shape in shapes.items()}
    inputs = query, key, value, weight, native.ACTIVATIONS.index(activation), *mask, bias, False
    inputs = *inputs, None if sink is None else np.array(sink), None, *SOFTMAX, dropout, 7, threads
    native.module().additive(*inputs, result["output"], result["lse"])
    if bias is not None:
        result["bias"] = np.zeros_like(bias)
    native.module().additive_gradients(
        *inputs, result["output"], result["lse"], upstream, *list(result.values())[2:7], result.get("bias")
    )
    return result


def answer(query, key, value, weight, upstream, **options):
    params = {"weight": weight, "activation": "tanh"}
    result = oracle.attention(
        query, key, value, score="additive", params=params, normalizer="softmax", upstream=upstream, **options
    )
    return {"output": result.output} | {name: result.gradients[name] for name in ("query", "key", "value", "weight")}


def assert_close(result, wanted, tolerance=1e-4):
    for name, expected in wanted.items():
        scale = max(1, np.abs(expected).max(initial=0))
        assert np.abs(result[name] - expected).max(initial=0) <= tolerance * scale, name


def one_case(Q=40, K=200, D=20, E=9):
    return drawn(Q, D), drawn(K, D), drawn(K, E), drawn(D), drawn(Q, E)


def dot_summary(query, key, threads):
    queries, keys = query.shape[0], key.shape[0]
    lse, entropy, received, top = poisoned(queries), poisoned(queries), poisoned(keys), poisoned(queries, 3)
    top_keys = np.zeros((queries, 3), np.int32)
    settings = None, None, 0, np.array(0.05), 0.0, [], [], None, False, None, None, *SOFTMAX, threads
    native.module().summary(query, key, *settings, lse, entropy, received, top, top_keys, *[None] * 5, [], [], None, None)
    return lse


def test_threads_do_not_share_what_half_precision_is_widened_in(level):
    query, key = drawn(33, 512, dtype="float16"), drawn(8192, 512, dtype="float16")
    alone = dot_summary(query, key, threads=1)
    for _ in range(5):
        assert np.abs(dot_summary(query, key, threads=4) - alone).max() < 1e-4


@pytest.mark.parametrize("shape", [(3, 700), (70, 70), (1100, 65)], ids=str)
@pytest.mark.parametrize("bias", ["pairs", "keys", "queries", "one"])
@pytest.mark.few_cases(4)
def test_any_number_of_threads_gives_the_oracles_numbers_and_the_same_bits_each_time(level, shape, bias):
    Q, K = shape
    case = one_case(Q, K, 5, 3)
    layout = {"pairs": (Q, K), "keys": (1, K), "queries": (Q, 1), "one": (1, 1)}[bias]
    options = {"allowed": np.random.rand(Q, K) < 0.7, "bias": drawn(*layout)}
    wanted = answer(*case, allowed=options["allowed"], bias=np.broadcast_to(options["bias"], shape))
    for threads in (1, 2, 3, 5):
        first, second = (both_passes(*case, **options, threads=threads) for _ in range(2))
        assert_close(first, wanted)
        assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "spread", [1.0, 8.0, 60.0]
)  # divisions are shared, terms are held below a limit, exponentials would overflow
@pytest.mark.parametrize("features", [1, 3, 4, 17, 63, 130])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.each_pair
def test_few_and_many_queries_get_the_same_output(level, dtype, features, spread):
    query, key = (spread * drawn(length, features, dtype=dtype) for length in (150, 67))
    value, weight, upstream = drawn(67, 5, dtype=dtype), drawn(features, dtype=dtype), drawn(150, 5, dtype=dtype)
    wanted = answer(query, key, value, weight, upstream)["output"]
    for queries in (3, 65, 150):
        result = both_passes(query[:queries], key, value, weight, upstream[:queries])
        assert_close(result, {"output": wanted[:queries]}, 1e-5 if dtype == "float32" else 1e-12)


def test_python_threads_at_once_give_what_one_gives():
    case = one_case(100, 300)
    wanted, result = both_passes(*case), [{}] * 4

    def work(which):
        for _ in range(10):
            result[which] = both_passes(*case)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(one[name], wanted[name]) for one in result for name in wanted)


def far_apart(rows):
    """The same rows, FAR elements apart, in memory of which only the pages that are touched exist."""
    size = (FAR * (len(rows) - 1) + rows.shape[1]) * rows.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    flat = np.frombuffer(memory, rows.dtype, size // rows.itemsize)
    view = np.lib.stride_tricks.as_strided(flat, rows.shape, (FAR * rows.itemsize, rows.itemsize))
    view[...] = rows
    return view


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) < 8, reason="addresses have 32 bits")
def test_rows_further_apart_than_32_bits_count(level):
    query, key, value, weight, upstream = one_case(4, 6, 9, 5)
    allowed, bias = np.random.rand(4, 6) < 0.7, drawn(4, 6)
    near = both_passes(query, key, value, weight, upstream, allowed=allowed, bias=bias)
    inputs = far_apart(query), far_apart(key), far_apart(value), weight
    far = additive(*inputs, allowed=far_apart(allowed), bias=far_apart(bias))
    assert np.array_equal(far, near["output"])
    gradients = both_passes(*inputs, upstream, allowed=far_apart(allowed), bias=bias)
    assert all(np.array_equal(gradients[name], near[name]) for name in near)


@pytest.mark.parametrize("turned", [0, 1, 2])
def test_rows_may_run_backwards_or_repeat(level, turned):
    case = list(one_case())
    case[turned] = case[turned][::-1]
    assert_close(both_passes(*case), answer(*case))
    case[turned] = np.broadcast_to(case[turned][:1], case[turned].shape)
    assert_close(both_passes(*case), answer(*case))


def test_a_range_may_begin_and_end_at_any_integer(level):
    query, key, value, weight, _ = one_case(5, 70)
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    first, stop = np.array([lowest, 65, highest, lowest, 3]), np.array([highest, highest, highest, lowest, 69])
    allowed = (first[:, None] <= np.arange(70)) & (np.arange(70) < stop[:, None])
    result = additive(query, key, value, weight, first=first, stop=stop)
    assert np.array_equal(result, additive(query, key, value, weight, allowed=allowed))


def test_a_sink_that_is_nan_is_refused(level):
    query, key, value, weight, _ = one_case()
    with pytest.raises(InputError, match="the sink of overt.Softmax to be a finite number"):
        additive(query, key, value, weight, sink=np.nan)


def test_one_weight_among_a_thousand_zeros_counts_alone(level):
    query, key, value, _, upstream = one_case(D=1024)
    weight = np.zeros(1024, np.float32)
    weight[77] = 50
    result = both_passes(query, key, value, weight, upstream)
    assert_close(result, answer(query, key, value, weight, upstream))
    scores = poisoned(40, 200)
    native.module().additive_scores(query, key, weight, 0, 2, scores)
    wanted = 50 * np.tanh(query[:, None, 77].astype(np.float64) + key[:, 77])
    assert np.abs(scores - wanted).max() <= 1e-6 * 50


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e6, 1e9, 1e30])
def test_gradients_of_scores_whose_log_sum_exp_has_no_digits_left(level, size, dtype):
    query, key, value, weight, upstream = (one.astype(dtype) for one in one_case(K=100))
    key = np.concatenate([key, key])  # so that no weight is above a half
    case = query, key, np.concatenate([value, value]), weight * weight.dtype.type(size), upstream
    assert_close(both_passes(*case), answer(*case), 1e-4 if dtype == "float32" else 1e-10)


def dropped_by(dropout, seed=0, keys=512, queries=512, batch=()):
    """Which weights dropout keeps: all scores are 0 and values the unit vectors, so that outputs are the weights."""
    query, key, weight = np.zeros((*batch, queries, 1), np.float32), np.zeros((keys, 1), np.float32), np.ones(1, np.float32)
    output, lse = poisoned(*batch, queries, keys), poisoned(*batch, queries)
    values = np.eye(keys, dtype=np.float32)
    native.module().additive(
        query, key, values, weight, 0, [], [], None, False, None, None, *SOFTMAX, dropout, seed, 2, output, lse
    )
    return output * keys


def test_dropout_keeps_its_share_of_every_row_and_key_and_scales_it(level):
    survived = dropped_by(0.3)
    assert ((survived == 0) | (survived == np.float32(1 / 0.7))).all()
    share = (survived > 0) - 0.7
    deviation = np.sqrt(0.3 * 0.7)
    assert abs(share.mean()) < 5 * deviation / 512
    for axis in (0, 1):
        assert np.abs(share.mean(axis)).max() < 5 * deviation / np.sqrt(512)


def test_dropout_draws_neighbours_heads_and_seeds_independently(level):
    survived = dropped_by(0.5, batch=(2,)) > 0
    other = dropped_by(0.5, seed=1, batch=(2,)) > 0
    pairs = [
        (survived[0], survived[1]),
        (survived, other),
        (survived[:, 1:], survived[:, :-1]),
        (survived[..., 1:], survived[..., :-1]),
        (survived[0], survived[0].T),
    ]
    for one, two in pairs:
        assert abs((one == two).mean() - 0.5) < 5 * 0.5 / np.sqrt(one.size)


@pytest.mark.parametrize(("dropout", "share"), [(0.0, 1), (1e-9, 1), (1.0, 0)])
def test_dropout_of_nothing_or_everything(level, dropout, share):
    assert (dropped_by(dropout, keys=64) == share).all()  # a seed of 0 too


def test_both_passes_drop_the_same(level):
    query, key, _, weight, upstream = one_case(E=200)
    result = both_passes(query, key, np.eye(200, dtype=np.float32), weight, upstream, dropout=0.4)
    assert_close(result, {"value": result["output"].T @ upstream})


def test_results_that_share_memory_are_refused():
    query, key, value, weight, _ = one_case()
    memory = poisoned(40 * 9 + 20)
    inputs = query, key, value, weight, 0, [], [], None, False, None, None, *SOFTMAX, 0.0, 0, 1
    with pytest.raises(ValueError, match="Expected log_sum_exp not to overlap other results"):
        native.module().additive(*inputs, memory[:360].reshape(40, 9), memory[340:])


@pytest.mark.parametrize("name", ["output", "lse"])
def test_a_result_whose_rows_are_one_is_refused(name):
    query, key, value, weight, _ = one_case()
    results = {"output": poisoned(40, 9), "lse": poisoned(40)}
    whole = results[name]
    results[name] = np.lib.stride_tricks.as_strided(whole, whole.shape, (0, *whole.strides[1:]))
    with pytest.raises(ValueError, match=f"{'log_sum_exp' if name == 'lse' else name} to be contiguous"):
        native.module().additive(
            query, key, value, weight, 0, [], [], None, False, None, None, *SOFTMAX, 0.0, 0, 1, *results.values()
        )


@pytest.mark.parametrize("top_keys", [np.zeros((3, 5), np.int32), np.zeros((5, 6), np.int32)[:, ::2]], ids=["shape", "strides"])
def test_top_keys_of_another_shape_or_stride_are_refused(top_keys):
    results = poisoned(5), poisoned(5), poisoned(7), poisoned(5, top_keys.shape[1])
    settings = None, None, 0, np.array(1.0), 0.0, [], [], None, False, None, None, *SOFTMAX, 1
    with pytest.raises(ValueError, match="top_keys (of shape|to be contiguous)"):
        native.module().summary(drawn(5, 4), drawn(7, 4), *settings, *results, top_keys, *[None] * 5, [], [], None, None)


def test_an_expanded_array_larger_than_any_memory_is_refused():
    query, _, _, weight, _ = one_case(33)
    endless = np.lib.stride_tricks.as_strided(drawn(1, 20), (2**46, 20), (0, 4))
    inputs = query, endless, endless, weight, 0, [], [], None, False, None, None, *SOFTMAX, 0.0, 0, 1
    with pytest.raises(ValueError, match="key with fewer than 2\\^31 columns and 2\\^50 numbers"):
        native.module().additive(*inputs, poisoned(33, 20), poisoned(33))
