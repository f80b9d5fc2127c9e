"""Single heads with fixed bandwidths: the cost of the arithmetic without any selection."""

from functools import cache
from importlib import import_module

import numpy as np

from benchmarks.denoising.peers import Smoother
from overt.smoothing import analyze, smooth
from overt.smoothing.data.series import Floats

_BANDWIDTH = 50.0  # of time, in steps
_WINDOW = 200  # steps to either side


@cache
def uneven_times(points: int) -> Floats:
    """Times at random, one step apart on average, with a gap of a hundred steps in the middle."""
    steps = np.random.default_rng(0).exponential(size=points)
    steps[points // 2] = 100.0
    return np.cumsum(steps)


def _value(x: Floats) -> Floats:
    return smooth(x, keys="value", bandwidth=x.std() / 3)


def _time(x: Floats) -> Floats:
    analysis = analyze(x, times=uneven_times(x.size), keys="time", bandwidth=_BANDWIDTH)
    assert analysis.lower is None or analysis.lower.size == x.size  # computes the band, which is lazy
    return analysis.values


def _lowess(x: Floats) -> Floats:
    fraction = min(1.0, 6 * _BANDWIDTH / x.size)  # the neighbours within three bandwidths on either side
    model = import_module("fastlowess").Lowess(fraction=fraction, iterations=0, delta=0.0)
    return np.asarray(model.fit(uneven_times(x.size), x).y)


def _both(x: Floats) -> Floats:
    return smooth(x, keys="both", bandwidth=(_BANDWIDTH, x.std() / 3), window=_WINDOW)


def _patch(x: Floats) -> Floats:
    return smooth(x, keys="patch", bandwidth=x.std() / 3, window=_WINDOW)


HEADS = [
    Smoother("value", "every value attends to every other", (), _value),
    Smoother("time", "uneven times with a gap, curve and band", (), _time),
    Smoother("fastlowess", "the same times, equally many neighbours", ("fastlowess",), _lowess),
    Smoother("both", "bilateral, 200 steps on either side", (), _both),
    Smoother("patch", "non-local means, 200 steps on either side", (), _patch),
]
