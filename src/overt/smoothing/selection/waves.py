"""Waves: sinusoids that stand out in the spectrum of a series. Quick ones look like noise in its differences."""

import functools

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
# The level of the spectrum at a frequency is the median of about so many beside it; of half as many in short series, where it may fall.
BLOCK = 48
# A grid of more positions than this for each value is too sparse to show a wave.
SPARSEST = 2.0
# Jumps are no sum of few waves, and what is left of them is rougher. Waves without which differences are a quarter smaller are quick.
ROUGHER, QUICK = 1.01, 0.75
# Smaller waves, as a part of the values, are those of their rounding to 16 digits.
ROUNDING = 1e-12
# The power falls by no more than this power of the frequency towards the lowest ones: a path of smooth slopes.
STEEPEST = 4.0


def waves_of(times: Floats | None, values: Floats) -> Floats:
    """The sum of all waves of a series (n,): zeros where none stands out, or where the times are on no grid.

    The periodogram of each part of at most `LONGEST` positions, under Hann's window, is compared with its running median: that of noise
    has an exponential distribution around its level (Priestley 1981, section 6.1.3), so that of N frequencies one in 10,000 series has
    one above log(10,000 N) levels. There a sinusoid is fitted by least squares and taken off, and the rest is searched for another.
    The few strongest waves of jumps ring: where the rest is rougher than the values, there are none.

    times (n,) ascending, None for equal steps; values (n,) without NaN.

    >>> points, draw = np.arange(1000), np.random.default_rng(0)
    >>> wave = np.sin(2 * np.pi * points / 5.3)
    >>> bool(np.abs(waves_of(None, wave + draw.normal(size=1000)) - wave).mean() < 0.1)
    True
    >>> bool(waves_of(None, draw.normal(size=1000)).any())
    False
    """
    result = np.zeros(values.size)
    positions = _grid(times, values.size)
    if positions is None:
        return result
    span = int(positions[-1]) + 1
    parts = -(-span // LONGEST)
    inside = positions < span // parts * parts  # fewer points than parts may be left
    full, known = np.zeros((2, parts, span // parts))
    full.flat[positions[inside]], known.flat[positions[inside]] = values[inside], 1.0
    waves = np.zeros(full.shape)
    for row in np.flatnonzero(_have_waves(full, known)).tolist():
        waves[row] = _waves_of_part(full[row], known[row])
    result[inside] = waves.flat[positions[inside]]
    rounding = np.abs(result).max() <= ROUNDING * np.abs(values).max()
    return np.zeros(values.size) if rounding or roughness(times, values, result) > ROUGHER else result


def quick_waves_of(times: Floats | None, values: Floats) -> Floats:
    """`waves_of` where these are so quick that they pass for noise, and else zeros (n,)."""
    waves = waves_of(times, values)
    return waves if roughness(times, values, waves) < QUICK else np.zeros(values.size)


def roughness(times: Floats | None, values: Floats, waves: Floats) -> float:
    """The level of differences without the waves over that with them."""
    if not waves.any():
        return 1.0
    without, with_them = (constant_level(times, each, np.ones(values.size)) for each in (values - waves, values))
    return without / max(with_them, np.finfo(float).tiny)


def have_waves(values: Floats) -> NDArray[np.bool_]:
    """Whether `waves_of` is not 0, of several short series at equal steps, values (series, n) (series,)."""
    return _have_waves(values, np.ones(values.shape))


def roughest_period(times: Floats, waves: Floats) -> float:
    """The period, in the steps of a grid (n,), of the wave that moves most from point to point; waves (n,) are those of `waves_of`.

    >>> round(roughest_period(np.arange(500.0), np.sin(np.arange(500) * 2 * np.pi / 6.5) + 3 * np.cos(np.arange(500) / 20)), 1)
    6.5
    """
    positions = np.rint((times - times[0]) / np.diff(times).min()).astype(np.int64)
    full = np.zeros(int(positions[-1]) + 1)
    full[positions] = waves
    windowed = _hann(full.size) * full
    spectrum = np.abs(np.fft.rfft(windowed))
    movement = np.sin(np.pi / full.size * np.arange(spectrum.size)) * spectrum
    return full.size / _refined(windowed, int(movement.argmax()))


def _grid(times: Floats | None, count: int) -> NDArray[np.int64] | None:
    """The positions of times on a grid of equal steps (n,); None where they are on none."""
    if count < 2:
        return None
    if times is None:
        return np.arange(count)
    if (np.diff(times) <= 0).any():
        return None
    positions = (times - times[0]) / np.diff(times).min()
    on_grid = positions[-1] < SPARSEST * count and np.abs(positions - np.rint(positions)).max() < 1e-6
    return np.rint(positions).astype(np.int64) if on_grid else None


def _have_waves(parts: Floats, known: Floats) -> NDArray[np.bool_]:
    """Which parts of series (parts, n) have a wave; known (parts, n) is 1 where there is a value, and else 0."""
    standing = [
        _stand_out(_periodogram(_hann(part.shape[1]) * _detrended(part, mask)))
        for part, mask in zip(_in_turn(parts), _in_turn(known), strict=True)
    ]
    return np.concatenate(standing) & (known.mean(axis=1) >= 1 / SPARSEST)


def _stand_out(power: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.any(power > _least(power), axis=-1))


def _in_turn(parts: Floats) -> list[Floats]:
    return [parts[start : start + TOGETHER] for start in range(0, len(parts), TOGETHER)]


def _waves_of_part(values: Floats, known: Floats) -> Floats:
    """The sum of the waves of one part (n,)."""
    window = _hann(values.size) * known
    rest = signal = _detrended(values, known)
    power = _periodogram(window * rest)
    least = _least(power)
    for _ in range(min(MOST, values.size // POINTS_OF_EACH)):
        standing = power > least
        if not standing.any():  # waves raise the level that those beside them must exceed
            least = _least(power)
            standing = power > least
        if not standing.any():
            break
        frequency = _refined(window * rest, LOWEST + int(np.where(standing, power, 0.0).argmax()))
        rotation = _rotation(values.size, frequency)
        basis = np.stack([rotation.real, rotation.imag], axis=1)
        weighted = window[:, None] * basis
        rest = rest - basis @ np.linalg.lstsq(weighted.T @ basis, weighted.T @ rest, rcond=None)[0]
        power = _periodogram(window * rest)
    return signal - rest


def _hann(count: int) -> Floats:
    return np.sin(np.pi * np.arange(1, count + 1) / (count + 1)) ** 2


def _detrended(values: Floats, known: Floats) -> Floats:
    """Values (…, n) without their line, and 0 where they are not known (…, n)."""
    points = np.arange(values.shape[-1])
    counts = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    centred = known * (points - (known @ points)[..., None] / counts)
    means = (known * values).sum(axis=-1, keepdims=True) / counts
    squares = np.maximum((centred**2).sum(axis=-1, keepdims=True), 1.0)
    return known * (values - means) - (values * centred).sum(axis=-1, keepdims=True) / squares * centred


def _periodogram(windowed: Floats) -> Floats:
    """At the frequencies from `LOWEST` on (…, frequencies)."""
    return np.abs(np.fft.rfft(windowed))[..., LOWEST:] ** 2


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
    middles, frequencies = (np.log(LOWEST + each) for each in (size * (np.arange(blocks) + 0.5), np.arange(count) + 0.5))
    levels = np.stack([np.interp(frequencies, middles, each) for each in logs.reshape(-1, middles.size)]).reshape(power.shape)
    slopes = np.clip((logs[..., 1] - logs[..., 0]) / (middles[1] - middles[0]), -STEEPEST, 0.0)
    return np.exp(levels + slopes[..., None] * np.minimum(frequencies - middles[0], 0.0))


def _refined(windowed: Floats, frequency: float) -> float:
    """The frequency of the largest power near one, in cycles, by parabolas through three powers, half a cycle apart and then a tenth."""
    for step in (0.5, 0.1):
        turned, further = _rotation(windowed.size, frequency) * windowed, _small_rotation(windowed.size, step)
        below, here, above = np.abs([further.conj() @ turned, turned.sum(), further @ turned])
        curvature = below - 2 * here + above
        if curvature < 0:
            frequency += float(np.clip(step / 2 * (below - above) / curvature, -step, step))
    return frequency


def _rotation(count: int, cycles: float) -> NDArray[np.complex128]:
    """exp(−2πi k cycles/n) for k below n (n,)."""
    return np.exp(-2j * np.pi * cycles / count * np.arange(count))


_small_rotation = functools.lru_cache(maxsize=8)(_rotation)
