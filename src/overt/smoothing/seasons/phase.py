"""Keys of phase: attention to the same phase of other cycles, for example the same hour of other days.

Points are added up in cells, one per step if the period has a whole number of steps. With other periods, and at uneven times, points are
between cells: a cycle then has at least 24 cells, since seasons are interpolated linearly, and a point is shared in proportion between two
cells (linear binning: Fan and Marron 1994, section 3). Missing values leave a cell empty; times need not be even.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.clock import Clock
from overt.smoothing.data.series import Floats, Indices

# FINE: fewest cells of a cycle if points are between cells. Lines between 24 cells are exact to 0.9% of the height of a wave.
FINE = 24
# CELLS_A_POINT, CELLS: most cells, per point or in all; for few points over very many cycles the cells are wider.
CELLS_A_POINT, CELLS = 4, 2**18
# WHOLE: largest difference of times and periods from whole steps, in steps.
WHOLE = 1e-6
# CUT: standard deviations of a Gaussian beyond which a cell or a cycle is ignored.
CUT = 3.0
# SINGULAR: least determinant of a line through cycles, over the product of its diagonal; below, the mean replaces the line.
SINGULAR = 0.02


class Grid(NamedTuple):
    """Cells of phase: phase b of cycle c is cell c · phases + b."""

    period: float  # in steps
    phases: int
    cycles: int
    clock: Clock | None = None  # local time that the phases follow

    @property
    def width(self) -> float:
        """The width of a cell, in steps."""
        return self.period / self.phases

    def locate(self, times: Floats) -> tuple[Indices, Floats]:
        """The cell at or before every time (m,), and the share of the next. Times beyond the cycles take the nearest cycle's phase."""
        position = (times if self.clock is None else self.clock.shifted(times)) / self.width
        nearest = np.rint(position)
        position = np.where(np.abs(position - nearest) < 1e-6, nearest, position)
        last = self.cycles * self.phases - 1
        over = np.maximum(np.ceil((position - last) / self.phases), 0.0) + np.minimum(np.floor(position / self.phases), 0.0)
        position = np.clip(position - over * self.phases, 0, last)
        left: Indices = np.asarray(position, dtype=np.intp)
        return left, np.asarray(position - left, dtype=np.float64)

    def read(self, cells: Floats, times: Floats) -> Floats:
        """Cells (cycles · phases,) interpolated linearly at times (m,)."""
        left, share = self.locate(times)
        return (1 - share) * cells[left] + share * cells[np.minimum(left + 1, cells.size - 1)]

    def add_up(self, times: Floats, values: Floats) -> Floats:
        """The sums of values over cells (cycles · phases,), a value shared between two cells: the transpose of `read`."""
        left, share = self.locate(times)
        size = self.cycles * self.phases
        at_left, at_right = (1 - share) * values, share * values
        sums = np.bincount(left, at_left, size) + np.bincount(np.minimum(left + 1, size - 1), at_right, size)
        return sums.astype(np.float64)


class PhaseHead(NamedTuple):
    """The bandwidth over phases in cells (0: equal phases only), over cycles (infinite: equal weights), and the degree over cycles."""

    phase: float
    cycles: float
    degree: int


class PhaseRows(NamedTuple):
    """A head's linear map from sums of values to cells, β_0 = p Σ_c K_c X_c + q Σ_c K_c c X_c, with and without the target's cycle."""

    head: PhaseHead
    mean: Floats  # p (cycles, phases); NaN without a key
    slope: Floats  # q
    mean_others: Floats  # p without the target's cycle
    slope_others: Floats


def phase_grid(times: Floats, period: float, clock: Clock | None = None) -> Grid:
    """The cells for ascending times in steps from 0; a daily period follows the clock of a time zone."""
    clock = clock if clock is not None and clock.rules(period) else None
    times = times if clock is None else clock.shifted(times)
    cycles, phases = int(times[-1] // period) + 1, max(2, round(period))
    if max(abs(period - phases), np.abs(times - np.rint(times)).max(initial=0.0)) > WHOLE:
        phases = max(phases, FINE)
    return Grid(period, min(phases, max(8, max(CELLS_A_POINT * times.size, CELLS) // cycles)), cycles + 1, clock)


def phase_rows(grid: Grid, weights: Floats, head: PhaseHead, *, causal: bool = False) -> PhaseRows:
    """The map that attends to the same phase of other cycles: w_j exp(−(b_j − b_i)²/2h² − (c_j − c_i)²/2H²), phases b, cycles c.

    Degree 0 is the mean, degree 1 the line over cycles, which follows a season that grows (the cycle-subseries of STL: Cleveland et al.
    1990, section 2.2). With `causal` only earlier cycles are keys.

    `weights` are the sums of w_j over cells (cycles · phases,).
    """
    spread = _over_phases(grid, weights, head)
    moments = [_over_cycles(spread, head, power, causal) for power in range(3)]
    cycle = 0.0 if causal else spread
    return PhaseRows(head, *_line(moments, head.degree), *_line([moments[0] - cycle, *moments[1:]], head.degree))


def attend_phase(grid: Grid, values: Floats, rows: PhaseRows, *, causal: bool = False) -> tuple[Floats, Floats]:
    """The season of every cell by all cycles, and by all cycles but its own; `values` are the sums of w_j x_j over cells.

    NaN without a key. All are (cycles · phases,).

    >>> grid, x = Grid(3.0, 3, 2), np.array([1.0, 2.0, 3.0, 1.5, 2.5, 3.5])
    >>> rows = phase_rows(grid, np.ones(6), PhaseHead(0.0, np.inf, 0))
    >>> attend_phase(grid, x, rows)
    (array([1.25, 2.25, 3.25, 1.25, 2.25, 3.25]), array([1.5, 2.5, 3.5, 1. , 2. , 3. ]))
    """
    spread = _over_phases(grid, values, rows.head)
    sums, sloped = (_over_cycles(spread, rows.head, power, causal) for power in range(2))
    others = sums if causal else sums - spread
    season = rows.mean * sums + rows.slope * sloped
    return season.reshape(-1), (rows.mean_others * others + rows.slope_others * sloped).reshape(-1)


def attend_phase_transposed(grid: Grid, cells: Floats, rows: PhaseRows, *, causal: bool = False) -> Floats:
    """The transpose of `attend_phase`: contributions of the sums of values to a weighted sum of cells (cycles · phases,)."""
    weighted = cells.reshape(grid.cycles, grid.phases)
    spread = sum(
        _over_cycles_transposed(np.nan_to_num(factor) * weighted, rows.head, power, causal)
        for power, factor in enumerate((rows.mean, rows.slope))
    )
    return _over_phases(grid, np.asarray(spread).reshape(-1), rows.head).reshape(-1)


def self_weights(grid: Grid, rows: PhaseRows, times: Floats, *, causal: bool = False) -> Floats:
    """The weight of a point of w_j = 1 in the season at its own time (m,); 0 if `causal`, since no cycle attends to itself."""
    if causal:
        return np.zeros(times.size)
    left, share = grid.locate(times)
    mean = np.nan_to_num(rows.mean).reshape(-1)
    nearby = np.exp(-0.5 / rows.head.phase**2) if rows.head.phase else 0.0
    right = np.minimum(left + 1, mean.size - 1)
    across = share * (1 - share) * nearby * (mean[left] + mean[right])
    return (1 - share) ** 2 * mean[left] + share**2 * mean[right] + across


def _over_phases(grid: Grid, cells: Floats, head: PhaseHead) -> Floats:
    """Σ_d exp(−d²/2h²) of neighbouring cells, through the edges of cycles, (cycles, phases)."""
    reach = min(int(CUT * head.phase), grid.phases // 2)
    total = cells.copy()
    for distance in range(1, reach + 1):
        weight = np.exp(-0.5 * (distance / head.phase) ** 2)
        total[distance:] += weight * cells[:-distance]
        total[:-distance] += weight * cells[distance:]
    return total.reshape(grid.cycles, grid.phases)


def _over_cycles(cells: Floats, head: PhaseHead, power: int, causal: bool) -> Floats:
    """Σ_m K(m) m^p X_m over the cells X_m that are m cycles later (negative: earlier), (cycles, phases)."""
    count = len(cells)
    if np.isinf(head.cycles):
        index = np.arange(count, dtype=np.float64)[:, None]
        powers = [cells * index**q for q in range(power + 1)]
        # Over earlier cycles if causal, over all cycles otherwise.
        sums = [np.cumsum(part, axis=0) - part if causal else part.sum(axis=0)[None] for part in powers]
        if power == 0:
            return sums[0] + np.zeros_like(cells)
        if power == 1:
            return sums[1] - index * sums[0]
        return sums[2] - 2 * index * sums[1] + index**2 * sums[0]
    total = np.zeros_like(cells)
    for lag, weight in _lags(head, count, causal):
        total[max(0, -lag) : count - max(0, lag)] += weight * lag**power * cells[max(0, lag) : count + min(0, lag)]
    return total


def _over_cycles_transposed(cells: Floats, head: PhaseHead, power: int, causal: bool) -> Floats:
    count = len(cells)
    if np.isinf(head.cycles):
        index = np.arange(count, dtype=np.float64)[:, None]

        def later(part: Floats) -> Floats:
            total = part.sum(axis=0)
            return total - np.cumsum(part, axis=0) if causal else total + np.zeros_like(part)

        return later(cells) if power == 0 else index * later(cells) - later(index * cells)
    total = np.zeros_like(cells)
    for lag, weight in _lags(head, count, causal):
        total[max(0, lag) : count + min(0, lag)] += weight * lag**power * cells[max(0, -lag) : count - max(0, lag)]
    return total


def _lags(head: PhaseHead, count: int, causal: bool) -> list[tuple[int, float]]:
    reach = min(int(CUT * head.cycles), count - 1)
    return [(lag, float(np.exp(-0.5 * (lag / head.cycles) ** 2))) for lag in range(-reach, 0 if causal else reach + 1)]


def _line(moments: list[Floats], degree: int) -> tuple[Floats, Floats]:
    """p and q of β_0 = p Σ K X + q Σ K m X, from Σ K m^0, Σ K m^1 and Σ K m^2."""
    zeroth, first, second = moments
    known = zeroth > 1e-9
    determinant = zeroth * second - first**2
    straight = known & (degree > 0) & (determinant > SINGULAR * zeroth * second)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(straight, second / determinant, np.where(known, 1 / zeroth, np.nan))
        slope = np.where(straight, -first / determinant, np.where(known, 0.0, np.nan))
    return mean, slope
