"""Wide heads of a long series: interpolated between few points, they are the heads at every point."""

import numpy as np
import pytest

from overt import native
from overt.smoothing.heads.local.direct_sums import WeightedPoints, attend_directly, find_targets
from overt.smoothing.selection.bank import candidates
from overt.smoothing.selection.bank import stages as bank
from overt.smoothing.selection.bank.coarse import coarse_heads
from overt.smoothing.selection.bank.noisy_series import NoisySeries

pytestmark = pytest.mark.skipif(not native.available(), reason="without the native core all points are computed")
N = 2000
TIMES = np.arange(N) * 0.5


def weights_of(kind):
    weights = np.ones(N)
    match kind:
        case "missing":
            weights[np.random.default_rng(1).random(N) < 0.3] = weights[:20] = weights[-7:] = weights[900:1000] = 0
        case "weights":
            weights = np.random.default_rng(1).uniform(0.2, 2.0, N)
    return weights


@pytest.mark.parametrize("kind", ["all", "missing", "weights"])
@pytest.mark.parametrize("scale", [128.0, 500.0, 8.0 * N])
@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.each_pair
def test_they_are_the_sums_key_by_key(kind, scale, degree):
    values, weights = 1e3 + np.random.default_rng(0).normal(size=N), weights_of(kind)
    values[weights == 0] = np.nan
    is_key = weights > 0
    (head,) = coarse_heads(TIMES, values, weights, ((0.5 * scale, degree, "both"),))
    points = WeightedPoints(TIMES[is_key], values[is_key], weights[is_key])
    expected = attend_directly(points, find_targets(points.times, TIMES, 0.5 * scale, np.inf, "both"), 0.5 * scale, degree)
    for part in (slice(0, N), slice(640, 1280), slice(1, 18), slice(777, N - 3), slice(N - 1, N)):
        columns = np.empty((3, part.stop - part.start))
        head.write(part, columns)
        there = is_key[part]
        np.testing.assert_allclose(columns[0], expected[0, part], rtol=0, atol=1e-8)
        np.testing.assert_allclose(columns[1, there], expected[1, part][there], rtol=2e-6)
        np.testing.assert_allclose(columns[2], expected[2, part], rtol=1e-6)


def test_they_are_computed_at_every_point_where_a_line_could_take_the_place_of_a_parabola():
    heads, values, weights = ((100.0, 2, "both"),), np.zeros(N), weights_of("all")
    assert coarse_heads(TIMES, values, weights, heads)
    assert coarse_heads(TIMES + (TIMES == 5), values, weights, heads) is None
    assert coarse_heads(TIMES, values, weights, ((100.0, 1, "past"),)) is None
    weights[300:498] = 0
    assert coarse_heads(TIMES, values, weights, heads)
    weights[498:500] = 0
    assert coarse_heads(TIMES, values, weights, heads) is None


@pytest.mark.parametrize("kind", ["all", "missing", "weights"])
def test_a_bank_does_not_depend_on_the_way(monkeypatch, kind):
    draw, levels = np.random.default_rng(0), np.linspace(0.5, 1.0, N)
    series = NoisySeries.single(TIMES, np.sin(TIMES / 200) + levels * draw.normal(size=N), weights_of(kind), levels)
    for name, points in (("BLOCK", 100), ("STRETCH", 600), ("MARGIN", 500)):
        monkeypatch.setattr(bank, name, points)
    taken, written = [], candidates._write_coarse
    monkeypatch.setattr(candidates, "_write_coarse", lambda *inputs: (taken.append(inputs), written(*inputs))[1])
    interpolated = bank.attend_bank(series)
    assert len(taken) == 4
    monkeypatch.setattr(candidates, "coarse_heads", lambda *_: None)
    for column, same in zip(interpolated[:3], bank.attend_bank(series)[:3], strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-7, atol=1e-8)
