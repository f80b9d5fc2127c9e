"""The time of smoothers on series of growing length."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.denoising.accuracy import noisy
from benchmarks.denoising.peers import Smoother, ours
from benchmarks.denoising.signals import sampled
from overt.smoothing.data.series import Floats

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
RUNS = 3  # of each smoother at each length
_LONGEST = 60.0  # seconds for one run


def _with_gaps(x: Floats) -> Floats:
    x = x.copy()
    x[np.random.default_rng(0).permutation(x.size)[: x.size // 10]] = np.nan
    return ours(x)


WITH_GAPS = Smoother("overt, a tenth missing", "the default, single values missing at random", (), _with_gaps, fills=True)


@dataclass(frozen=True)
class Speed:
    """The smallest seconds of a smoother, by length; `unable` says why a length is missing."""

    seconds: dict[int, float] = field(default_factory=dict)
    unable: str = ""


def measure(timed: Smoother, sizes: Sequence[int], notify: Callable[[str], None] = lambda doing: None) -> Speed:
    """Time one smoother on the doppler signal at SNR 3, at each length up to one that would take over a minute.

    The first call, on a hundred points, is not counted: it loads packages.
    """
    seconds: dict[int, float] = {}
    try:
        timed.smooth(noisy(sampled("doppler", 100), 3, 0))
        last, growth = (0, 0.0), 1.0
        for size in sizes:
            # The time of every smoother grows at least in proportion to the length, and as much as from the length before to the last.
            if last[0] and last[1] * max(size / last[0], growth) > _LONGEST:
                return Speed(seconds, f"{size:,} points would take over {_LONGEST:.0f} s")
            notify(f"{size:,} points")
            seconds[size] = _min_seconds(timed.smooth, noisy(sampled("doppler", size), 3, 0))
            growth = seconds[size] / last[1] if last[1] else 1.0
            last = (size, seconds[size])
    except Exception as error:  # any error of another library is reported, and the others go on
        return Speed(seconds, f"{type(error).__name__}: {error}")
    return Speed(seconds)


def _min_seconds(curve: Callable[[Floats], Floats], x: Floats) -> float:
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        curve(x)
        times.append(time.perf_counter() - start)
    return min(times)
