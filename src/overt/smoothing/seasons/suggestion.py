"""The period that a series seems to have, for a report of one that was smoothed without a season: one look at usual periods."""

from overt.smoothing.data.series import Series
from overt.smoothing.seasons.detect import LEAST_CORRELATION, LEAST_CYCLES, LEAST_RATIO, SHORTER, SHORTEST, agreement

# Periods of the calendar in seconds, and their names.
CALENDAR_NAMES = {3600.0: "hourly", 86400.0: "daily", 604800.0: "weekly", 365.2425 * 86400: "yearly"}
# Periods in steps that are usual where times are no dates: of weeks, months, hours, weeks of a year, quarters of hours and days.
USUAL = (7.0, 12.0, 24.0, 52.0, 96.0, 144.0, 168.0, 365.0)
# A suggestion needs an agreement of cycles that is this many times as large as one that is looked for (`find_periods`).
CERTAIN = 1.5
# Parts of a cycle that a wave may be, to this tolerance.
PARTS, NEAR = (2, 3, 4), 0.02


def suggested_period(series: Series, *, dates: bool) -> float | None:
    """The shortest usual period in steps on which cycles agree clearly, or None.

    >>> import numpy as np
    >>> from overt.smoothing.data.series import arrange
    >>> draw, days = np.random.default_rng(0), np.arange(280.0)
    >>> sales = arrange(np.where(days % 7 < 5, 10.0, 4.0) + draw.normal(size=280), 86400 * days)
    >>> suggested_period(sales, dates=True), suggested_period(arrange(draw.normal(size=280), days), dates=False)
    (7.0, None)
    """
    span = float(series.times[-1]) + 1
    usual = [period / series.step for period in CALENDAR_NAMES] if dates else list(USUAL)
    usual = [period for period in usual if SHORTEST <= period <= span / LEAST_CYCLES]
    if series.present.size < 4 * LEAST_CYCLES:
        return None
    judged = [(period, *agreement(series, period)) for period in usual]
    clear = [
        (period, rho) for period, rho, ratio in judged if ratio > CERTAIN * LEAST_RATIO and rho > CERTAIN * LEAST_CORRELATION
    ]
    most = max((rho for _, rho in clear), default=0.0)
    return min((period for period, rho in clear if rho >= SHORTER * most), default=None)


def calendar_multiple(period: float) -> float | None:
    """The period of the calendar, in seconds, of which another one is a half, a third or a quarter.

    >>> calendar_multiple(3.5 * 86400) == 7 * 86400, calendar_multiple(5 * 86400)
    (True, None)
    """
    parts = ((whole, part) for whole in CALENDAR_NAMES for part in PARTS)
    return next((whole for whole, part in parts if abs(part * period / whole - 1) < NEAR), None)
