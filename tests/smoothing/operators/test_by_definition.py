"""Attention by its definition, in blocks of rows, and what is quicker beside it."""

import tracemalloc

import numpy as np
import pytest

from overt.smoothing.data.series import arrange
from overt.smoothing.heads.by_definition import attend_by_definition, interpolation
from overt.smoothing.heads.dispatch import attend_head
from overt.smoothing.heads.head import SeriesHead
from overt.smoothing.heads.keys import BothKeys, DotKeys, TimeKeys, ValueKeys

DOT = [DotKeys(1.5), DotKeys(1.0, plain_sum=True)]
OTHERS = [TimeKeys(2.0), TimeKeys(1e6), ValueKeys(0.3), BothKeys(TimeKeys(4.0), ValueKeys(0.3))]


def holey(n, seed=0, even=False):
    generator = np.random.default_rng(seed)
    x = np.cumsum(generator.normal(size=n)) + 10.0
    x[generator.random(n) < 0.1] = np.nan
    return arrange(x, np.arange(float(n)) if even else np.sort(generator.uniform(0, n, n)))


@pytest.mark.parametrize("keys", DOT)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cells", [1, 4000, 40_000])
def test_blocks_give_what_the_whole_gives(keys, causal, cells):
    series, head = holey(500), SeriesHead(keys, window=100.0, causal=causal)
    whole = attend_by_definition(series, head, keys, series.present, cells=10**9)
    blocks = attend_by_definition(series, head, keys, series.present, cells=cells)
    np.testing.assert_allclose(blocks.values, whole.values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(blocks.leverages, whole.leverages, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keys", [*OTHERS, DOT[0]])
@pytest.mark.parametrize("window", [np.inf, 60.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("even", [False, True])
def test_what_is_quicker_gives_what_the_rows_give(keys, window, causal, even):
    series, head = holey(500, even=even), SeriesHead(keys, window, causal)
    outputs, rows = attend_head(series, head), attend_by_definition(series, head, keys, series.present)
    np.testing.assert_allclose(outputs.values[series.present], rows.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(outputs.leverages[series.present], rows.leverages, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("keys", DOT)
def test_memory_is_linear_in_the_number_of_points(keys):
    n = 8000
    series = holey(n)
    tracemalloc.start()
    attend_by_definition(series, SeriesHead(keys), keys, series.present[::8])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 16


def test_a_missing_point_lies_between_its_neighbours_by_its_time():
    series = arrange(np.array([1.0, np.nan, 2.0, np.nan, np.nan]), np.array([0.0, 1.0, 4.0, 5.0, 6.0]))
    mix = interpolation(series, SeriesHead(ValueKeys(1.0)), np.array([1, 3, 4]))
    np.testing.assert_array_equal([mix.left, mix.right], [[0, 2, 2], [2, -1, -1]])
    np.testing.assert_array_equal(mix.share, [0.25, 0.0, 0.0])


def test_a_missing_point_sees_no_neighbour_beyond_its_window_or_in_its_future():
    series = arrange(np.array([1.0, np.nan, np.nan, 2.0]), np.array([0.0, 1.0, 3.0, 4.0]))
    narrow = interpolation(series, SeriesHead(ValueKeys(1.0), window=1.0), np.array([1, 2]))
    np.testing.assert_array_equal([narrow.left, narrow.right], [[0, -1], [-1, 3]])
    causal = interpolation(series, SeriesHead(ValueKeys(1.0), causal=True), np.array([1, 2]))
    np.testing.assert_array_equal([causal.left, causal.right], [[0, 0], [-1, -1]])
