"""Waves: sinusoids that stand out in the spectrum of a series. Quick ones look like noise in its differences."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import constant_level

# Longer series are searched in parts, so that a wave may change slowly; so many at a time.
LONGEST, TOGETHER = 4096, 64
# The lowest frequencies, in cycles of a part, hold trends and slow signals, which differences do not see.
LOWEST = 8
# Of noise alone, this share of parts seems to have a wave. The spectrum's level is that of few frequencies, and may be a seventh too low.
FALSE_WAVES, MARGIN = 1e-4, 1.15
# At most so many waves of a part, harmonics included, and one for so many points: each takes three degrees of freedom.
MOST, POINTS_OF_EACH = 24, 40
# The level of the spectrum at a frequency is the median of about so many next to it; of half as many in short series, where it may fall.
BLOCK = 48
# Times on a grid of more positions than this for each value are uneven. These are counted in cells, so many a point.
SPARSEST, CELLS = 2.0, 8
# Where times have a wave of their own, of this share of the power that equal times have, waves half as quick look like others.
CLUSTERED = 0.02
# Of random sets of times, this share seem to recur.
RECUR_BY_CHANCE = 1e-3
# Jumps are no sum of few waves, and what is left of them is rougher. Waves without which differences are a quarter smaller are quick.
ROUGHER, QUICK = 1.01, 0.75
# Smaller waves, as a part of the values, are those of their rounding to 16 digits.
ROUNDING = 1e-12
# The power falls by no more than this power of the frequency towards the lowest ones: a path of smooth slopes.
STEEPEST = 4.0


@dataclass(frozen=True)
class SpectrumPart:
    """Where the points of a part lie in its time, in cycles, and in the cells that its spectrum is taken of."""

    at: Floats  # (m,) from 0 to below 1
    cells: NDArray[np.int64]  # (m,)
    size: int  # how many cells
    highest: int  # frequency that is searched, in cycles of the part
    step: float  # of a cell, in the units of the times

    def windowed(self, values: Floats) -> Floats:
        """Values (m,) under Hann's window."""
        return _hann(self.size, self.at * self.size) * values

    def spectrum(self, windowed: Floats) -> Floats:
        """The absolute values at all frequencies, from 0 on (frequencies,)."""
        return np.abs(np.fft.rfft(np.bincount(self.cells, windowed, self.size)))[: self.highest + 1]

    def rotation(self, cycles: float) -> NDArray[np.complex128]:
        """exp(−2πi at cycles) (m,)."""
        return np.exp(-2j * np.pi * cycles * self.at)


def find_waves(times: Floats | None, values: Floats) -> Floats:
    """The sum of all waves of a series (n,): zeros where none stands out.

    The periodogram of each part of at most `LONGEST` positions, under Hann's window, is compared with its running median: that of noise
    has an exponential distribution around its level (Priestley 1981, section 6.1.3), so that of N frequencies one in 10,000 series has
    one above log(10,000 N) levels. There a sinusoid is fitted by least squares and taken off, and the rest is searched for another.
    The few strongest waves of jumps ring: where the rest is rougher than the values, there are none.

    Uneven times tell more waves apart than equal ones, up to one cycle a point, unless they cluster at equal distances themselves, as
    nights do: then up to half of what tells the clusters apart. Their trend, lines between 17 points, is taken off first, since it
    leaks into all frequencies.

    times (n,) ascending, None for equal steps; values (n,) without NaN.

    >>> points, draw = np.arange(1000), np.random.default_rng(0)
    >>> wave = np.sin(2 * np.pi * points / 5.3)
    >>> bool(np.abs(find_waves(None, wave + draw.normal(size=1000)) - wave).mean() < 0.1)
    True
    >>> bool(find_waves(None, draw.normal(size=1000)).any())
    False
    """
    if values.size < 2:
        return np.zeros(values.size)
    positions = np.arange(values.size) if times is None else _grid(times)
    result = _waves_at_uneven_times(np.asarray(times), values) if positions is None else _waves_on_a_grid(positions, values)
    rounding = np.abs(result).max() <= ROUNDING * np.abs(values).max()
    return np.zeros(values.size) if rounding or roughness(times, values, result) > ROUGHER else result


def is_quick(times: Floats | None, values: Floats, waves: Floats) -> bool:
    """Whether the waves (n,) of values are so quick that they pass for noise."""
    return roughness(times, values, waves) < QUICK


def roughness(times: Floats | None, values: Floats, waves: Floats) -> float:
    """The level of differences without the waves over that with them."""
    if not waves.any():
        return 1.0
    without, with_them = (constant_level(times, part, np.ones(values.size)) for part in (values - waves, values))
    return without / max(with_them, np.finfo(float).tiny)


def have_waves(values: Floats) -> NDArray[np.bool_]:
    """Whether `find_waves` is not 0, of several short series at equal steps, values (series, n) (series,)."""
    return _have_waves(values, np.ones(values.shape))


def roughest_period(times: Floats, waves: Floats) -> float:
    """The period, in the units of the times (n,), of the wave that moves most from point to point; waves (n,) are those of `find_waves`.

    >>> round(roughest_period(np.arange(500.0), np.sin(np.arange(500) * 2 * np.pi / 6.5) + 3 * np.cos(np.arange(500) / 20)), 1)
    6.5
    """
    positions = _grid(times)
    part = _uneven(times) if positions is None else _grid_part(positions, int(positions[-1]) + 1, float(np.diff(times).min()))
    windowed = part.windowed(waves)
    spectrum = part.spectrum(windowed)
    alternating = (times.size if positions is None else part.size) / 2  # the frequency that changes sign from point to point
    movement = np.sin(np.pi / 2 * np.minimum(np.arange(spectrum.size) / alternating, 1.0)) * spectrum
    return part.step * part.size / _refined(part, windowed, int(movement.argmax()))


def recur(times: Floats, marked: NDArray[np.bool_]) -> bool:
    """Whether some (n,) of uneven times (n,) come at equal intervals: by Rayleigh's test of their phases, once in 1,000 sets at random.

    >>> times = np.sort(np.random.default_rng(0).uniform(0, 1000, 1000))
    >>> recur(times, times % 37 < 1), recur(times, np.random.default_rng(1).random(1000) < 0.03)
    (True, False)
    """
    part, count = _uneven(times), int(marked.sum())
    phases = replace(part, at=part.at[marked], cells=part.cells[marked]).spectrum(np.ones(count))[LOWEST:]
    time_spectrum = part.spectrum(np.ones(times.size))[LOWEST:] / times.size
    chance = np.log(max(phases.size, 1) / RECUR_BY_CHANCE)
    return bool((phases**2 > chance * (count + (count * time_spectrum) ** 2)).any())


def uneven_period(times: Floats, values: Floats) -> float | None:
    """`roughest_period` of values at uneven times; None on a grid, where times cluster, and where no wave stands out."""
    if values.size < 2 or _grid(times) is not None or _uneven(times).highest < times.size:
        return None
    waves = find_waves(times, values)
    return roughest_period(times, waves) if waves.any() else None


def _grid(times: Floats) -> NDArray[np.int64] | None:
    """The positions of times on a grid of equal steps (n,); None where they are on none."""
    steps = np.diff(times)
    if steps.min() <= 0 or times[-1] - times[0] >= SPARSEST * times.size * steps.min():
        return None
    positions = (times - times[0]) / steps.min()
    on_grid = np.abs(positions - np.rint(positions)).max() < 1e-6
    return np.rint(positions).astype(np.int64) if on_grid else None


def _grid_part(positions: NDArray[np.int64], size: int, step: float = 1.0) -> SpectrumPart:
    return SpectrumPart(positions / size, positions, size, size // 2, step)


def _uneven(times: Floats) -> SpectrumPart:
    """A part at uneven times (m,), and up to which frequency they tell waves apart."""
    size, span = CELLS * times.size, float(times[-1] - times[0]) / (1 - 1 / times.size)
    at = (times - times[0]) / max(span, np.finfo(float).tiny)
    part = SpectrumPart(at, np.minimum(np.rint(at * size).astype(np.int64), size - 1), size, 2 * times.size, span / size)
    clusters, count = _periodogram(part, np.ones(times.size)), float(part.windowed(np.ones(times.size)).sum())
    clustered = np.flatnonzero(clusters > np.maximum(_least(clusters), CLUSTERED * count**2))
    return replace(part, highest=min(times.size, (LOWEST + int(clustered[0])) // 2 if clustered.size else times.size))


def _waves_on_a_grid(positions: NDArray[np.int64], values: Floats) -> Floats:
    """The waves of each part of a grid (n,)."""
    result = np.zeros(values.size)
    span = int(positions[-1]) + 1
    parts = -(-span // LONGEST)
    size = span // parts
    inside = positions < size * parts  # fewer points than parts may be left
    full, known = np.zeros((2, parts, size))
    full.flat[positions[inside]], known.flat[positions[inside]] = values[inside], 1.0
    for row in np.flatnonzero(_have_waves(full, known)).tolist():
        first, stop = np.searchsorted(positions, (row * size, (row + 1) * size))
        part = _grid_part(positions[first:stop] - row * size, size)
        result[first:stop] = _waves_of_part(part, _detrended(full[row], known[row])[part.cells])
    return result


def _waves_at_uneven_times(times: Floats, values: Floats) -> Floats:
    """The waves of each part of as many points (n,)."""
    waves = []
    for points in np.array_split(np.arange(values.size), -(-values.size // LONGEST)):
        part = _uneven(times[points])
        knots = np.linspace(0, 1, 2 * LOWEST + 1)
        hats = np.maximum(1 - 2 * LOWEST * np.abs(part.at[:, None] - knots), 0)
        waves.append(_waves_of_part(part, values[points] - hats @ np.linalg.lstsq(hats, values[points], rcond=None)[0]))
    return np.concatenate(waves)


def _have_waves(parts: Floats, known: Floats) -> NDArray[np.bool_]:
    """Which parts of series (parts, n) have a wave; known (parts, n) is 1 where there is a value, and else 0."""
    window = _hann(parts.shape[1], np.arange(parts.shape[1]))
    standing = np.zeros(len(parts), dtype=bool)
    for start in range(0, len(parts), TOGETHER):
        rows = slice(start, start + TOGETHER)
        power = np.abs(np.fft.rfft(window * _detrended(parts[rows], known[rows])))[..., LOWEST:] ** 2
        standing[rows] = np.any(power > _least(power), axis=-1)
    return standing & (known.mean(axis=1) >= 1 / SPARSEST)


def _waves_of_part(part: SpectrumPart, signal: Floats) -> Floats:
    """The sum of the waves of one part (m,), of its values without their trend (m,)."""
    rest = signal
    power = _periodogram(part, rest)
    least = _least(power)
    for _ in range(min(MOST, part.at.size // POINTS_OF_EACH)):
        standing = power > least
        if not standing.any():  # waves raise the level that those next to them must exceed
            least = _least(power)
            standing = power > least
        if not standing.any():
            break
        frequency = _refined(part, part.windowed(rest), LOWEST + int(np.where(standing, power, 0.0).argmax()))
        rotation = part.rotation(frequency)
        basis = np.stack([rotation.real, rotation.imag])
        weighted = part.windowed(basis)
        rest = rest - np.linalg.lstsq(weighted @ basis.T, weighted @ rest, rcond=None)[0] @ basis
        power = _periodogram(part, rest)
    return signal - rest


def _hann(count: int, at: Floats) -> Floats:
    return np.sin(np.pi * (at + 1) / (count + 1)) ** 2


def _detrended(values: Floats, known: Floats) -> Floats:
    """Values (…, n) without their line, and 0 where they are not known (…, n)."""
    points = np.arange(values.shape[-1])
    counts = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    centred = known * (points - (known @ points)[..., None] / counts)
    means = (known * values).sum(axis=-1, keepdims=True) / counts
    squares = np.maximum((centred**2).sum(axis=-1, keepdims=True), 1.0)
    return known * (values - means) - (values * centred).sum(axis=-1, keepdims=True) / squares * centred


def _periodogram(part: SpectrumPart, values: Floats) -> Floats:
    """At the frequencies from `LOWEST` on (frequencies,)."""
    return part.spectrum(part.windowed(values))[LOWEST:] ** 2


def _least(power: Floats) -> Floats:
    """The least power of a wave at each frequency of periodograms (…, frequencies): none in few frequencies."""
    count = power.shape[-1]
    if count < BLOCK // 3:
        return np.full(power.shape, np.inf)
    return _level(power) * MARGIN * np.log(count / FALSE_WAVES)


def _level(power: Floats) -> Floats:
    """The expected periodogram without waves: medians of blocks, joined by powers of the frequency (…, frequencies)."""
    count = power.shape[-1]
    blocks = max(count // BLOCK, min(2 * count // BLOCK, 2), 1)
    size = count // blocks
    medians = np.median(power[..., : blocks * size].reshape(*power.shape[:-1], blocks, size), axis=-1) / np.log(2)
    if medians.shape[-1] == 1:
        return np.broadcast_to(medians, power.shape)
    logs = np.log(np.maximum(medians, np.finfo(float).tiny))
    middles, frequencies = (np.log(LOWEST + part) for part in (size * (np.arange(blocks) + 0.5), np.arange(count) + 0.5))
    levels = np.stack([np.interp(frequencies, middles, item) for item in logs.reshape(-1, middles.size)]).reshape(power.shape)
    slopes = np.clip((logs[..., 1] - logs[..., 0]) / (middles[1] - middles[0]), -STEEPEST, 0.0)
    return np.exp(levels + slopes[..., None] * np.minimum(frequencies - middles[0], 0.0))


def _refined(part: SpectrumPart, windowed: Floats, frequency: float) -> float:
    """The frequency of the largest power near one, in cycles, by parabolas through three powers, half a cycle apart and then a tenth."""
    for step in (0.5, 0.1):
        turned, further = part.rotation(frequency) * windowed, part.rotation(step)
        below, here, above = np.abs([further.conj() @ turned, turned.sum(), further @ turned])
        curvature = below - 2 * here + above
        if curvature < 0:
            frequency += float(np.clip(step / 2 * (below - above) / curvature, -step, step))
    return frequency
