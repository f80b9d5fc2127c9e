"""Many threads call the native core at once, with Python's global lock and without it."""

import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import overt
from overt import native

UNLOCKED = sysconfig.get_config_var("Py_GIL_DISABLED") == 1


def test_series_that_are_smoothed_in_threads_are_those_that_are_smoothed_alone():
    draw = np.random.default_rng(0)
    series = [np.sin(np.arange(60 + 7 * number) / 9) + 0.3 * draw.normal(size=60 + 7 * number) for number in range(8)]
    expected = [overt.smooth(each) for each in series]
    with ThreadPoolExecutor(8) as threads:
        result = list(threads.map(overt.smooth, series * 2))
    assert all(np.array_equal(*pair) for pair in zip(result, expected * 2, strict=True))


@pytest.mark.skipif(not native.available(), reason="there is no native core here")
def test_attention_in_threads_is_attention_alone():
    draw = np.random.default_rng(1)
    inputs = [tuple(draw.normal(size=(90, 5)) for _ in range(3)) for _ in range(8)]

    def attended(tensors):
        output, sums = np.full((90, 5), np.nan), np.full(90, np.nan)
        none = ([], [], None, False, None, None, 0, 0.0, None, 0.0, 0)
        native.module().additive(*tensors, np.ones(5), 0, *none, 2, output, sums)
        return output

    expected = [attended(each) for each in inputs]
    with ThreadPoolExecutor(8) as threads:
        result = list(threads.map(attended, inputs * 20))
    assert all(np.array_equal(*pair) for pair in zip(result, expected * 20, strict=True))
    assert np.isfinite(expected).all()


def test_a_thread_with_a_limit_runs_its_calls_on_no_more():
    with ThreadPoolExecutor(1, initializer=native.limit_threads, initargs=(3,)) as thread:
        assert thread.submit(native.threads).result() == 3
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(native.threads).result() == native.threads()


@pytest.mark.skipif(not UNLOCKED, reason="this Python has its global lock")
def test_the_native_core_leaves_the_global_lock_away():
    assert native.available()
    assert not sys._is_gil_enabled()
