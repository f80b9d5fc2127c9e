"""Heads that compare waves: the empirical Wiener filter, in cosines of short windows.

Heads by time and by value see a wave as a steep curve, and average it away or follow its noise. In the cosines of a window it is a few
large numbers among many small ones. A pilot curve shows which are large: each is multiplied by signal/(signal + noise) (Ghael, Sayeed
and Baraniuk 1997). As attention, the query and key of a point are the cosines at its position, the score is their product weighted by
these gains, and there is no softmax: weights may be negative, and sum to 1.
"""

import functools
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.selection.bank.noisy_series import NamedHeads, NoisySeries, RowWeights, write_value_heads
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, as_batch
from overt.smoothing.selection.waves import find_waves

# LENGTHS: points of the windows. Without 512 and 1,024 the error of 1,024 points is 3% larger, with only 32, 128 and 512 2%; series of
# 64 points gain from 16 (the development half of benchmarks/smoothing/signals/kinds.py and the signals of development.py, drawn again).
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
# OVERLAP: windows over each point that begin at equal steps from the first point, and as many that end at equal steps from the last, so
# that a reversed series has the reversed curve. Half as many raise the error by 0.7%, a quarter by 2%.
OVERLAP = 8
# CHUNK: numbers that are filtered at a time, so that they stay in a processor's cache.
CHUNK = 2**16
_TINY = np.finfo(np.float64).tiny


def wiener_lengths(points: int) -> tuple[int, ...]:
    """The lengths of the windows that fit into a series of this many points."""
    return tuple(length for length in LENGTHS if length <= points)


class Windows(NamedTuple):
    """The lengths of the windows, and the points of the whole series, which may be smoothed in stretches."""

    lengths: tuple[int, ...]
    points: int


def wiener_heads(series: NoisySeries, pilot: Floats, windows: Windows, correlation: float) -> NamedHeads:
    """The filters of a stretch by a pilot (s, n), for autoregressive noise with ρ = `correlation`; in a gap they are the pilot."""
    lengths, squares, options = windows.lengths, series.levels**2, (correlation, windows.points)

    def write(outputs: HeadOutputs) -> None:
        for index, length in enumerate(lengths):
            filtered = attend_wiener(series.values, squares, pilot, length, *options)
            outputs.values[:, index], outputs.leverages[:, index] = filtered
        np.copyto(outputs.values, pilot[:, None], where=in_gaps(series.weights)[:, None])
        write_value_heads(outputs, series, outputs.values, outputs.leverages)

    columns = series.values[0], squares[0], pilot[0]
    rows: list[RowWeights] = [partial(wiener_row, *columns, length, *options) for length in lengths]
    return NamedHeads([wiener_name(length) for length in lengths], write, rows)


def lost_waves(series: NoisySeries, pilot: Floats) -> Floats:
    """The waves that a pilot (s, n) averaged away: waves that stand out in the residuals of series on a grid (s, n)."""
    known, rest = series.weights > 0, series.values - pilot
    lost = np.zeros(rest.shape)
    if series.waves and on_grid(series.times):
        for to, left, there in zip(lost, rest, known, strict=True):
            to[there] = find_waves(None if there.all() else series.times[there], left[there])
    return lost


def in_gaps(weights: Floats) -> NDArray[np.bool_]:
    """The missing points next to other missing points (…, n), where filters would follow the line that fills the gap, which is no wave.

    Filters also serve single missing values: otherwise real series with a tenth of the values removed have 1 to 4% more error.

    >>> in_gaps(np.array([1.0, 0.0, 1.0, 0.0, 0.0]))
    array([False, False, False,  True,  True])
    """
    missing = weights == 0
    beside = np.zeros_like(missing)
    beside[..., 1:] |= missing[..., :-1]
    beside[..., :-1] |= missing[..., 1:]
    return missing & beside


def wiener_name(length: int) -> str:
    """The name of a filter: the points of its windows."""
    return f"waves, {length} points"


def attend_wiener(
    values: Floats, squares: Floats, pilot: Floats, length: int, rho: float = 0.0, whole: int | None = None
) -> tuple[Floats, Floats]:
    """Values and leverages of the filter in windows of `length` points, of one series or of several; all (…, n).

    In each window a value is Σ_k c_ki g_k X_k plus the window's mean, with X_k the cosine transform of the series, P_k that of the pilot,
    and N_k the variance of the noise in X_k. The gain is g = S/(S + N), where the signal's power S = max(P² − N P²/(P² + N), 0) leaves
    out the pilot's own noise. A point's value is the mean over the windows around it, weighted by Hann's taper and by exp(−r/2), the
    weight of Akaike (1978) for the window's estimated risk r = Σ_k g_k N_k/σ² (windows weighted by their sparsity: Guleryuz 2007).

    The leverage includes the derivative of the gains, with ∂P_k/∂x_i = √g_k c_ki, as if the pilot were P_k = √g_k X_k.

    `squares` are σ_i². `rho` is the ρ of autoregressive noise, whose spectrum N_k has; leverages are then Σ_j W_ij ρ^|i − j|.
    `whole` is the number of points of the whole series if this one is a stretch of it.

    >>> wave = np.cos(np.arange(256))
    >>> noisy = wave + 0.5 * np.random.default_rng(0).normal(size=256)
    >>> values, leverages = attend_wiener(noisy, np.full(256, 0.25), wave, 64)
    >>> round(float(np.std(values - wave)), 2), round(float(leverages.mean()), 2)
    (0.13, 0.17)
    """
    starts = window_starts(values.shape[-1], length, whole)
    if not native.available():
        return _attend(values, squares, pilot, length, rho, starts)
    results = np.empty(values.shape), np.empty(values.shape)
    options = _taper(length), _spectrum(length, rho), _leverages_of_the_mean(length, rho), _transform_factors(length)
    columns = map(np.ascontiguousarray, as_batch(2, values, squares, pilot))
    native.module().wiener(*columns, starts, *options, native.threads(), *as_batch(2, *results))
    return results


def wiener_row(values: Floats, squares: Floats, pilot: Floats, length: int, rho: float, whole: int | None, row: int) -> Floats:
    """The weights of one point of one series over all points (n,)."""
    cosines, spectrum = _cosines(length), _spectrum(length, rho)
    weights, total = np.zeros(values.size), 0.0
    starts = window_starts(values.size, length, whole)
    for start in starts[(starts <= row) & (row < starts + length)].tolist():
        window, at = slice(start, start + length), row - start
        noisy, smooth = values[window] @ cosines, pilot[window] @ cosines
        gains, _ = _gains(noisy, smooth, squares[window], spectrum)
        weight = float(_window_weights(gains, spectrum)) * _taper(length)[at]
        weights[window] += weight * (cosines @ (gains * cosines[at]) + 1 / length)
        total += weight
    return weights / total


def window_starts(points: int, length: int, whole: int | None = None) -> Indices:
    """The first points of the windows, ascending; `whole` as in `attend_wiener`.

    >>> window_starts(20, 16)
    array([0, 1, 2, 3, 4])
    >>> window_starts(21, 16)
    array([0, 1, 2, 3, 4, 5])
    """
    step, last = length // OVERLAP, points - length
    # The start of the first window that ends at equal steps from the last point.
    from_the_end = (points if whole is None else whole) % step or step // 2
    starts = np.sort(
        np.concatenate([np.arange(0, last + 1, step), np.arange(from_the_end, last + 1, step), [last]]), kind="stable"
    )
    return starts[np.diff(starts, prepend=-1) > 0]


def _attend(values: Floats, squares: Floats, pilot: Floats, length: int, rho: float, starts: Indices) -> tuple[Floats, Floats]:
    """`attend_wiener` without the native core."""
    sums = np.zeros((3, *values.shape))  # of weighted values, weighted leverages and weights
    count = max(CHUNK // length, 1)
    for first in range(0, starts.size, count):
        some = starts[first : first + count]
        columns = (sliding_window_view(column, length, axis=-1)[..., some, :] for column in (values, squares, pilot))
        outputs = _filter_windows(*columns, rho=rho)
        for index, start in enumerate(some.tolist()):
            sums[..., start : start + length] += outputs[..., index, :]
    return sums[0] / sums[2], sums[1] / sums[2]


def _filter_windows(values: Floats, squares: Floats, pilot: Floats, *, rho: float) -> Floats:
    """The weighted values, weighted leverages and weights of windows (3, …, windows, length), of columns (…, windows, length)."""
    length = values.shape[-1]
    cosines, spectrum = _cosines(length), _spectrum(length, rho)
    noisy, smooth = values @ cosines, pilot @ cosines
    gains, slopes = _gains(noisy, smooth, squares, spectrum)
    outputs = np.empty((3, *values.shape))
    np.multiply(_window_weights(gains, spectrum)[..., None], _taper(length), out=outputs[2])
    np.matmul((gains + slopes) * spectrum, _squared_cosines(length), out=outputs[1])
    outputs[1] += _leverages_of_the_mean(length, rho)
    np.matmul(gains * noisy, cosines.T, out=outputs[0])
    outputs[0] += values.mean(axis=-1, keepdims=True)
    outputs[:2] *= outputs[2]
    return outputs


def _gains(noisy: Floats, smooth: Floats, squares: Floats, spectrum: Floats) -> tuple[Floats, Floats]:
    """The gains g_k of windows and X_k ∂g_k/∂P_k √g_k (…, windows, k), from X_k and P_k."""
    alike = bool((squares == squares[..., :1]).all())
    levels = squares[..., :1] if alike else squares @ _squared_cosines(squares.shape[-1]).T
    noise = levels * spectrum + _TINY
    power = smooth**2
    signal = np.maximum(power - noise * power / (power + noise), 0.0)
    gains = signal / (signal + noise)
    return gains, 2 * smooth * noisy * noise / (signal + noise) ** 2 * np.sqrt(gains)


def _window_weights(gains: Floats, spectrum: Floats) -> Floats:
    """exp(−r/2) of windows (…, windows)."""
    return np.exp(-0.5 * (gains @ spectrum))


@functools.lru_cache(maxsize=len(LENGTHS))
def _cosines(length: int) -> Floats:
    """The orthonormal cosines c_ki of a window, without the constant one (length, length − 1)."""
    positions = np.pi / length * (np.arange(length) + 0.5)
    return np.sqrt(2 / length) * np.cos(np.outer(positions, np.arange(1, length)))


@functools.lru_cache(maxsize=len(LENGTHS))
def _squared_cosines(length: int) -> Floats:
    """The squares of the cosines of a window (length − 1, length)."""
    return np.ascontiguousarray(_cosines(length).T ** 2)


@functools.lru_cache(maxsize=len(LENGTHS))
def _taper(length: int) -> Floats:
    """Hann's taper (length,)."""
    return np.sin(np.pi / length * (np.arange(length) + 0.5)) ** 2


@functools.lru_cache(maxsize=len(LENGTHS))
def _transform_factors(length: int) -> Floats:
    """1/(2 cos(π(i + ½)/N)) for i below N/2, for N the length, its half, and so on (length − 1,)."""
    sizes = [length >> halvings for halvings in range(length.bit_length() - 1)]
    return np.concatenate([0.5 / np.cos(np.pi / size * (np.arange(size // 2) + 0.5)) for size in sizes])


def _spectrum(length: int, rho: float) -> Floats:
    """The variance of an autoregression in each cosine, over the variance of a point (length − 1,): (1 − ρ²)/(1 − 2ρ cos ω + ρ²)."""
    frequencies = np.pi / length * np.arange(1, length)
    return (1 - rho**2) / (1 - 2 * rho * np.cos(frequencies) + rho**2)


def _leverages_of_the_mean(length: int, rho: float) -> Floats:
    """Σ_j ρ^|i − j| / length (length,)."""
    if rho == 0:
        return np.full(length, 1 / length)
    one_side = rho ** np.arange(length, dtype=np.float64)
    sums = np.cumsum(one_side)
    return (sums + sums[::-1] - 1) / length
