"""The seasons of a series: attention by phase, with heads chosen by how well a cycle is predicted from the others."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np

from overt.smoothing.data.series import Floats, Series
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.heads.normalize import softmax
from overt.smoothing.operators.base import Operator, row_operator
from overt.smoothing.operators.rows import time_row
from overt.smoothing.seasons.phase import (
    Grid,
    PhaseHead,
    PhaseRows,
    attend_phase,
    attend_phase_transposed,
    phase_grid,
    phase_rows,
    self_weights,
)

# PHASES: bandwidths over phases, in cells; 0: equal phases only. WIDEST_PHASE: largest bandwidth, in cycles.
PHASES, WIDEST_PHASE = (0.0, 0.7, 1.5, 3.0, 6.0, 12.0, 24.0), 1 / 8
# CYCLES: bandwidths over cycles with their degrees; infinite: a constant season, or one that grows linearly.
CYCLES = ((np.inf, 0), (np.inf, 1), (12.0, 1), (5.0, 1), (2.0, 1), (2.0, 0))
# TRENDS: bandwidths, in periods, of the local line that is subtracted before a season is estimated, one per turn.
TRENDS = (0.5, 0.5, 0.5)
# LEAST_TREND: least bandwidth of the trend, in steps; a narrower trend follows the noise of single points.
LEAST_TREND = 3.0
# TEMPERATURE: softmax temperature of one point, as in the mixture of heads.
TEMPERATURE = 4.0
# NEGLIGIBLE: smaller shares of heads are dropped. ROUNDING: least unit of risks, as a part of the largest risk.
NEGLIGIBLE, ROUNDING = 1e-6, 1e-15


@dataclass(frozen=True)
class Season:
    """One season: its heads with their weights, and its value in every cell."""

    grid: Grid
    rows: list[PhaseRows] = field(repr=False)
    shares: Floats  # weights of the heads; 1 minus their sum is the weight of "no season"
    cells: Floats = field(default_factory=lambda: np.zeros(0), repr=False)  # (cycles · phases,), 0 if no head has a key
    gain: float = 0.0  # the part of the detrended variance that other cycles predict

    def with_sums(self, sums: Floats, causal: bool) -> "Season":
        """The season by the same heads from other sums of values (cycles · phases,)."""
        parts = zip(self.shares, self.rows, strict=True)
        none = np.zeros(sums.size)
        cells = sum(
            (share * np.nan_to_num(attend_phase(self.grid, sums, rows, causal=causal)[0]) for share, rows in parts), none
        )
        return replace(self, cells=cells)

    def at(self, times: Floats) -> Floats:
        """The season at times in steps (m,)."""
        return self.grid.read(self.cells, times)

    def self_weights(self, times: Floats, causal: bool) -> Floats:
        """∂s_i/∂x_i for a point of weight 1 (m,); subtracting the trend reduces it by the share of one cell in its cycle."""
        total = np.zeros(times.size)
        for share, rows in zip(self.shares, self.rows, strict=True):
            width = min(1.0, max(1.0, np.sqrt(2 * np.pi) * rows.head.phase) / self.grid.phases)
            total += share * (1 - width) * self_weights(self.grid, rows, times, causal=causal)
        return total

    @property
    def phase_bandwidth(self) -> float:
        """The mean bandwidth of phase, in steps."""
        return self.grid.width * sum(share * rows.head.phase for share, rows in zip(self.shares, self.rows, strict=True))


@dataclass(frozen=True)
class Seasons:
    """All seasons of a series, in its own units."""

    each: tuple[Season, ...]
    series: Series = field(repr=False)  # from which they were estimated
    causal: bool

    def at(self, times: Floats) -> Floats:
        """The seasons at times in steps (seasons, m)."""
        return np.stack([season.at(times) for season in self.each])

    @property
    def rest(self) -> Series:
        """The series without its seasons."""
        return self.series.with_values(self.series.values - self.at(self.series.times).sum(axis=0))

    def self_weights(self) -> Floats:
        """∂s_i/∂x_i of the sum of seasons (n,), as if a missing point were present."""
        total = np.sum([season.self_weights(self.series.times, self.causal) for season in self.each], axis=0)
        weights = self.series.weights
        return np.clip(total if weights is None else total * np.where(weights > 0, weights, 1.0), 0.0, 1.0)

    def leverages(self, others: Floats) -> Floats:
        """The seasons' addition ∂s_i/∂x_i (1 − G_i) to the leverages of a smoother of the series without seasons, `others` (n,).

        y = s + B(x − s), so ∂y_i/∂x_i = ∂s_i/∂x_i + Σ_j B_ij (δ_ij − ∂s_j/∂x_i). In the last sum B is a Gaussian of the leverage B_ii, and
        ∂s_j/∂x_i falls from ∂s_i/∂x_i with the distance between the phases of j and i: G is the product of the two.
        """
        narrow = 1 / (2 * np.pi)  # the variance of a Gaussian whose leverage is 1
        leverage = np.clip(others, 1e-6, 1.0)
        phase = narrow + max(season.phase_bandwidth for season in self.each) ** 2
        shared = np.sqrt(phase / (phase + narrow / leverage**2 - narrow))
        return self.self_weights() * (1 - shared)

    @property
    def operator(self) -> Operator:
        """The linear map from the values (n,) to the sum of the seasons, for inspection; O(n²) time."""
        points = self.series.times.size
        return Operator((points, points), self._pull)

    def _pull(self, wanted: Floats) -> Floats:
        """Σ_i v_i ∂s_i/∂x_j for v of all points (n,): `estimate_seasons` in reverse, with the chosen shares."""
        series, causal, count = self.series, self.causal, len(self.each)
        times, weights = series.key_times, np.ones(series.present.size) if series.key_weights is None else series.key_weights
        cells = [season.grid.add_up(series.times, wanted) for season in self.each]
        points, total = np.zeros((count, times.size)), np.zeros(times.size)
        for turn, bandwidth in enumerate(reversed(TRENDS)):
            for index in reversed(range(count)):
                season = self.each[index]
                gradient = season.grid.add_up(times, points[index]) + (cells[index] if turn == 0 else 0.0)
                summed = _heads_transposed(season, gradient, causal)
                detrended = weights * season.grid.read(summed, times)
                trend = _trend_transposed(series, detrended, max(bandwidth * season.grid.period, LEAST_TREND), causal)
                rest = detrended - trend
                total += rest
                points -= rest
                points[index] = trend
        row = np.zeros(series.times.size)
        row[series.present] = total
        return row

    @cached_property
    def level_factor(self) -> float:
        """The noise of the values, over the noise that differences show after the seasons were subtracted."""
        self_weight = float(self.self_weights()[self.series.present].mean())
        h = max(season.phase_bandwidth for season in self.each)
        nearby = np.exp(-0.5 * (np.array([1.0, 2.0]) / h) ** 2) if h else np.zeros(2)
        visible = 1 - self_weight * max(0.0, 1 - 4 / 3 * nearby[0] + 1 / 3 * nearby[1])
        return 1 / np.sqrt(max(visible, 0.1))


def estimate_seasons(series: Series, periods: tuple[float, ...], *, causal: bool = False) -> Seasons:
    """The seasons of a series with periods in steps: x = trend + Σ seasons + remainder.

    Trend and seasons are estimated in turns, as in STL and MSTL (Cleveland et al. 1990; Bandara, Hyndman and Bergmeir 2021). The trend is
    a local line with the bandwidth of half a period, at least three steps; a season is attention to the same phase of other cycles by
    heads of several bandwidths (`phase`). A head's risk is the mean squared error of predicting a cycle from the others; the heads and
    "no season" are mixed by softmax(−N r/4r_min).
    """
    times, values = series.key_times, series.key_values
    weights = np.ones(values.size) if series.key_weights is None else series.key_weights
    grids = [phase_grid(series.times, period, series.clock) for period in periods]
    rows = [_rows(grid, grid.add_up(times, weights), causal) for grid in grids]
    seasons = [Season(grid, heads, np.zeros(len(heads))) for grid, heads in zip(grids, rows, strict=True)]
    # The second run keeps the shares of the first, so that it is a linear map (`Seasons.operator`).
    for fixed in (False, True):
        curves = np.zeros((len(periods), values.size))
        for trend, index in product(TRENDS, range(len(periods))):
            rest = values - curves.sum(axis=0) + curves[index]
            detrended = rest - _trend(series, rest - curves[index], max(trend * periods[index], LEAST_TREND), causal)
            sums = grids[index].add_up(times, weights * detrended)
            if not fixed:
                seasons[index] = _choose(grids[index], rows[index], sums, (times, detrended, weights), causal)
            seasons[index] = seasons[index].with_sums(sums, causal)
            curves[index] = seasons[index].at(times)
    return Seasons(tuple(seasons), series, causal)


def _rows(grid: Grid, sums: Floats, causal: bool) -> list[PhaseRows]:
    phases = [phase for phase in PHASES if phase <= grid.phases * WIDEST_PHASE]
    cycles = [pair for pair in CYCLES if np.isinf(pair[0]) or pair[0] < grid.cycles]
    heads = [PhaseHead(phase, bandwidth, degree) for phase, (bandwidth, degree) in product(phases, cycles)]
    return [phase_rows(grid, sums, head, causal=causal) for head in heads]


def _trend(series: Series, values: Floats, bandwidth: float, causal: bool) -> Floats:
    side = "past" if causal else "both"
    return attend_time(series.key_times, values, series.key_weights, bandwidth, degree=1, side=side).values


def _trend_transposed(series: Series, gradient: Floats, bandwidth: float, causal: bool) -> Floats:
    keys, side = (series.key_times, series.key_weights), ("past" if causal else "both")

    def row(index: int) -> Floats:
        return time_row(*keys, series.key_times[index], bandwidth, degree=1, side=side)

    return row_operator((gradient.size, gradient.size), row).pull(gradient)


def _choose(grid: Grid, heads: list[PhaseRows], sums: Floats, points: tuple[Floats, Floats, Floats], causal: bool) -> Season:
    """The season with its heads and their shares; `points` are times, detrended values and weights."""
    times, detrended, weights = points
    others = [attend_phase(grid, sums, rows, causal=causal)[1] for rows in heads]
    predicted = np.stack([np.zeros(times.size), *(np.nan_to_num(grid.read(cells, times)) for cells in others)])
    risks = ((detrended - predicted) ** 2 @ weights) / weights.sum()
    least, tiny = float(risks.min()), np.finfo(float).tiny
    scale = max(least, ROUNDING * float(risks.max()), tiny)
    shares = softmax(-(times.size / TEMPERATURE * ((risks - least) / scale))[None])[0]
    used = np.flatnonzero(shares[1:] > NEGLIGIBLE)
    return Season(grid, [heads[index] for index in used], shares[1:][used], gain=1 - least / max(float(risks[0]), tiny))


def _heads_transposed(season: Season, gradient: Floats, causal: bool) -> Floats:
    parts = zip(season.shares, season.rows, strict=True)
    none = np.zeros(gradient.size)
    return sum((share * attend_phase_transposed(season.grid, gradient, row, causal=causal) for share, row in parts), none)
