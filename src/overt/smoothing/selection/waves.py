"""Waves: sinusoids with a significant peak in the spectrum of a series. Quick waves look like noise in its differences."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import constant_level

# LONGEST: positions of a part; longer series are searched in parts, so that a wave may change slowly. TOGETHER: parts searched at a time.
LONGEST, TOGETHER = 4096, 64
# LOWEST: lowest frequency searched, in cycles per part: lower ones are trends and slow signals, which differences do not contain.
LOWEST = 8
# FALSE_WAVES: share of parts of pure noise that seem to have a wave; MARGIN: factor on the spectrum's level, which comes from few
# frequencies and may be a seventh too low.
FALSE_WAVES, MARGIN = 1e-4, 1.15
# MOST: most waves of a part, harmonics included; POINTS_OF_EACH: fewest points per wave, which takes three degrees of freedom.
MOST, POINTS_OF_EACH = 24, 40
# BLOCK: frequencies, about, whose median is the level of the spectrum; half as many in short series, where the level may fall.
BLOCK = 48
# SPARSEST: most grid positions per value; with more, the times count as uneven. CELLS: cells per point in the spectrum of uneven times.
SPARSEST, CELLS = 2.0, 8
# CLUSTERED: if the times themselves have a wave of this share of the power of equal times, waves above half its frequency are ambiguous.
CLUSTERED = 0.02
# RECUR_BY_CHANCE: share of random sets of times that seem to recur.
RECUR_BY_CHANCE = 1e-3
# ROUGHER: waves that leave rougher values are refused: jumps are no sum of few waves. QUICK: waves are quick if differences without them
# are smaller than this part.
ROUGHER, QUICK = 1.01, 0.75
# ROUNDING: smaller waves, as a part of the values, come from rounding to 16 digits.
ROUNDING = 1e-12
# STEEPEST: largest power of the frequency by which the spectrum may fall from the lowest frequencies on: a path of smooth slopes.
STEEPEST = 4.0


@dataclass(frozen=True)
class SpectrumPart:
    """The positions of the points of a part in its time span, and the cells of its spectrum."""

    at: Floats  # (m,) from 0 to below 1
    cells: NDArray[np.int64]  # (m,)
    size: int  # number of cells
    highest: int  # highest frequency that is searched, in cycles per part
    step: float  # width of a cell, in the units of the times

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
    """The sum of all waves of a series (n,): zeros if no wave is significant.

    The periodogram of a part of at most `LONGEST` positions, under Hann's window, is compared with its running median. The periodogram of
    noise has an exponential distribution around its level (Priestley 1981, section 6.1.3): in one of 10,000 series one of N frequencies
    exceeds log(10,000 N) levels. A sinusoid of such a frequency is fitted by least squares and subtracted, and the search is repeated. The
    few strongest waves of jumps ring: if the residuals are rougher than the values, there are no waves.

    Uneven times distinguish more waves than equal ones, up to one cycle per point. If the times themselves cluster at equal distances, as
    nights do, the limit is half the frequency of the clusters. The trend of the values, lines between 17 points, is subtracted first at
    uneven times, since it leaks into all frequencies.

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
    """Whether the waves (n,) of values are quick enough to look like noise."""
    return roughness(times, values, waves) < QUICK


def roughness(times: Floats | None, values: Floats, waves: Floats) -> float:
    """The level of differences without the waves, over the level with them."""
    if not waves.any():
        return 1.0
    without, with_them = (constant_level(times, part, np.ones(values.size)) for part in (values - waves, values))
    return without / max(with_them, np.finfo(float).tiny)


def have_waves(values: Floats) -> NDArray[np.bool_]:
    """Whether `find_waves` is not 0 (series,), for short series at equal steps; values (series, n)."""
    return _have_waves(values, np.ones(values.shape))


def roughest_period(times: Floats, waves: Floats) -> float:
    """The period, in the units of the times (n,), of the wave that changes most from point to point; waves (n,) from `find_waves`.

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
    """Whether the marked (n,) of uneven times (n,) recur at equal intervals, by Rayleigh's test: one of 1,000 random sets does.

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
    """`roughest_period` of values at uneven times; None on a grid, if times cluster, or if no wave is significant."""
    if values.size < 2 or _grid(times) is not None or _uneven(times).highest < times.size:
        return None
    waves = find_waves(times, values)
    return roughest_period(times, waves) if waves.any() else None


def _grid(times: Floats) -> NDArray[np.int64] | None:
    """The positions of times on a grid of equal steps (n,); None if they are on no grid."""
    steps = np.diff(times)
    if steps.min() <= 0 or times[-1] - times[0] >= SPARSEST * times.size * steps.min():
        return None
    positions = (times - times[0]) / steps.min()
    on_grid = np.abs(positions - np.rint(positions)).max() < 1e-6
    return np.rint(positions).astype(np.int64) if on_grid else None


def _grid_part(positions: NDArray[np.int64], size: int, step: float = 1.0) -> SpectrumPart:
    return SpectrumPart(positions / size, positions, size, size // 2, step)


def _uneven(times: Floats) -> SpectrumPart:
    """A part at uneven times (m,), with the highest frequency at which they distinguish waves."""
    size, span = CELLS * times.size, float(times[-1] - times[0]) / (1 - 1 / times.size)
    at = (times - times[0]) / max(span, np.finfo(float).tiny)
    part = SpectrumPart(at, np.minimum(np.rint(at * size).astype(np.int64), size - 1), size, 2 * times.size, span / size)
    clusters, count = _periodogram(part, np.ones(times.size)), float(part.windowed(np.ones(times.size)).sum())
    clustered = np.flatnonzero(clusters > np.maximum(_least(clusters), CLUSTERED * count**2))
    return replace(part, highest=min(times.size, (LOWEST + int(clustered[0])) // 2 if clustered.size else times.size))


def _waves_on_a_grid(positions: NDArray[np.int64], values: Floats) -> Floats:
    """The waves of values on a grid (n,), part by part."""
    result = np.zeros(values.size)
    span = int(positions[-1]) + 1
    parts = -(-span // LONGEST)
    size = span // parts
    inside = positions < size * parts  # up to parts − 1 points are in no part
    full, known = np.zeros((2, parts, size))
    full.flat[positions[inside]], known.flat[positions[inside]] = values[inside], 1.0
    for row in np.flatnonzero(_have_waves(full, known)).tolist():
        first, stop = np.searchsorted(positions, (row * size, (row + 1) * size))
        part = _grid_part(positions[first:stop] - row * size, size)
        result[first:stop] = _waves_of_part(part, _detrended(full[row], known[row])[part.cells])
    return result


def _waves_at_uneven_times(times: Floats, values: Floats) -> Floats:
    """The waves of values at uneven times (n,), in parts of equal numbers of points."""
    waves = []
    for points in np.array_split(np.arange(values.size), -(-values.size // LONGEST)):
        part = _uneven(times[points])
        knots = np.linspace(0, 1, 2 * LOWEST + 1)
        hats = np.maximum(1 - 2 * LOWEST * np.abs(part.at[:, None] - knots), 0)
        waves.append(_waves_of_part(part, values[points] - hats @ np.linalg.lstsq(hats, values[points], rcond=None)[0]))
    return np.concatenate(waves)


def _have_waves(parts: Floats, known: Floats) -> NDArray[np.bool_]:
    """Whether parts of series (parts, n) have a wave (parts,); known (parts, n) is 1 at values and 0 at missing ones."""
    window = _hann(parts.shape[1], np.arange(parts.shape[1]))
    standing = np.zeros(len(parts), dtype=bool)
    for start in range(0, len(parts), TOGETHER):
        rows = slice(start, start + TOGETHER)
        power = np.abs(np.fft.rfft(window * _detrended(parts[rows], known[rows])))[..., LOWEST:] ** 2
        standing[rows] = np.any(power > _least(power), axis=-1)
    return standing & (known.mean(axis=1) >= 1 / SPARSEST)


def _waves_of_part(part: SpectrumPart, signal: Floats) -> Floats:
    """The sum of the waves of one part (m,), from its values without their trend (m,)."""
    rest = signal
    power = _periodogram(part, rest)
    least = _least(power)
    for _ in range(min(MOST, part.at.size // POINTS_OF_EACH)):
        standing = power > least
        if not standing.any():  # removed waves no longer raise the level at neighbouring frequencies
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
    """Values (…, n) without their line, and 0 at missing values: known (…, n) is 0 there."""
    points = np.arange(values.shape[-1])
    counts = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    centred = known * (points - (known @ points)[..., None] / counts)
    means = (known * values).sum(axis=-1, keepdims=True) / counts
    squares = np.maximum((centred**2).sum(axis=-1, keepdims=True), 1.0)
    return known * (values - means) - (values * centred).sum(axis=-1, keepdims=True) / squares * centred


def _periodogram(part: SpectrumPart, values: Floats) -> Floats:
    """The periodogram at frequencies from `LOWEST` on (frequencies,)."""
    return part.spectrum(part.windowed(values))[LOWEST:] ** 2


def _least(power: Floats) -> Floats:
    """The least power of a wave in periodograms (…, frequencies), by frequency: infinite if there are too few frequencies."""
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
    """The frequency of the largest power near `frequency`, in cycles, by parabolas through powers half a cycle and then a tenth apart."""
    for step in (0.5, 0.1):
        turned, further = part.rotation(frequency) * windowed, part.rotation(step)
        below, here, above = np.abs([further.conj() @ turned, turned.sum(), further @ turned])
        curvature = below - 2 * here + above
        if curvature < 0:
            frequency += float(np.clip(step / 2 * (below - above) / curvature, -step, step))
    return frequency
