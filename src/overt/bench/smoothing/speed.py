"""How long smoothers take on series of growing length."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from overt.bench.smoothing.accuracy import noisy
from overt.bench.smoothing.peers import Smoother
from overt.bench.smoothing.signals import sampled
from overt.smoothing.data.series import Floats

SIZES = (10**4, 10**5, 10**6)
RUNS = 3  # of each smoother at each length
_LONGEST = 60.0  # seconds for one run


@dataclass(frozen=True)
class Speed:
    """The least seconds a smoother took, by length; a length that would have taken too long has none, but a reason."""

    seconds: dict[int, float] = field(default_factory=dict)
    unable: str = ""


def measure(takes_part: Smoother, sizes: Sequence[int], tell: Callable[[str], None] = lambda doing: None) -> Speed:
    """Time one smoother on the doppler signal at SNR 3, at each length until a minute would not do.

    The first call, on a hundred points, is not counted: packages load in it.
    """
    found: dict[int, float] = {}
    try:
        takes_part.smooth(noisy(sampled("doppler", 100), 3, 0))
        last = (0, 0.0)
        for size in sizes:
            # Nothing here takes less than time proportional to the length.
            if last[0] and last[1] * size / last[0] > _LONGEST:
                return Speed(found, f"{size:,} points would take over {_LONGEST:.0f} s")
            tell(f"{size:,} points")
            found[size] = _least_seconds(takes_part.smooth, noisy(sampled("doppler", size), 3, 0))
            last = (size, found[size])
    except Exception as error:  # whatever goes wrong in another library is told, and ends only its own part
        return Speed(found, f"{type(error).__name__}: {error}")
    return Speed(found)


def _least_seconds(curve: Callable[[Floats], Floats], x: Floats) -> float:
    took: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        curve(x)
        took.append(time.perf_counter() - start)
    return min(took)
