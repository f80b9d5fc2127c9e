"""Blocks of rows, the convolution, and their memory."""

import tracemalloc

import numpy as np
import pytest

from overt.smoothing.even import attend_even, serves
from overt.smoothing.head import Head
from overt.smoothing.keys import BothKeys, DotKeys, TimeKeys, ValueKeys
from overt.smoothing.rows import attend_directly
from overt.smoothing.series import arrange

HEADS = [
    TimeKeys(2.0),
    TimeKeys(1e6),
    ValueKeys(0.3),
    BothKeys(TimeKeys(4.0), ValueKeys(0.3)),
    DotKeys(1.5),
    DotKeys(1.0, True),
]


def holey(n, seed=0, even=True):
    generator = np.random.default_rng(seed)
    x = np.cumsum(generator.normal(size=n)) + 10.0
    x[generator.random(n) < 0.1] = np.nan
    return arrange(x, np.arange(float(n)) if even else np.sort(generator.uniform(0, n, n)))


@pytest.mark.parametrize("keys", HEADS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cells", [1, 4000, 40_000])
def test_blocks_give_what_the_whole_gives(keys, causal, cells):
    series, rows = holey(500, even=False), np.arange(500)
    whole = attend_directly(series, Head(keys, window=100.0, causal=causal), rows, cells=10**9)
    blocks = attend_directly(series, Head(keys, window=100.0, causal=causal), rows, cells=cells)
    np.testing.assert_allclose(blocks.values, whole.values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(blocks.slopes, whole.slopes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bandwidth", [0.3, 5.0, 77.0, 3000.0])
@pytest.mark.parametrize("window", [np.inf, 20.0, 1.5])
@pytest.mark.parametrize("causal", [False, True])
def test_the_convolution_gives_what_the_rows_give(bandwidth, window, causal):
    series, head = holey(3000), Head(TimeKeys(bandwidth), window, causal)
    assert serves(series, head)
    fast, slow = attend_even(series, head), attend_directly(series, head, np.arange(3000))
    trusted = ~np.isnan(fast.values)
    assert trusted[series.present].all()
    np.testing.assert_allclose(fast.values[trusted], slow.values[trusted], atol=1e-13)
    np.testing.assert_allclose(fast.slopes[series.present], slow.slopes[series.present], atol=1e-13)


def test_a_grid_with_holes_and_repeats_is_still_even():
    times = np.array([0.0, 0.1, 0.1, 0.3, 0.4, 0.7])
    series = arrange(np.arange(6.0), times)
    head = Head(TimeKeys(1.0))
    assert serves(series, head)
    fast, slow = attend_even(series, head), attend_directly(series, head, np.arange(6))
    np.testing.assert_allclose(fast.values, slow.values, atol=1e-12)


def test_uneven_times_and_other_keys_are_left_to_the_rows():
    assert not serves(holey(50, even=False), Head(TimeKeys(1.0)))
    assert not serves(holey(50), Head(ValueKeys(1.0)))


@pytest.mark.parametrize("keys", HEADS)
def test_memory_is_linear_in_the_number_of_points(keys):
    n = 8000
    series = holey(n, even=False)
    tracemalloc.start()
    attend_directly(series, Head(keys), np.arange(0, n, 8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 16
