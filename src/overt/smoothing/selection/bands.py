"""The pointwise standard deviation of a curve under independent noise, for its band."""

import numpy as np

from overt.smoothing.data.series import Floats, Series
from overt.smoothing.heads.dispatch import attend_head, attend_in_time
from overt.smoothing.heads.head import SeriesHead
from overt.smoothing.heads.keys import TimeKeys

# NORMAL_QUANTILE: the 97.5% quantile of the normal distribution.
NORMAL_QUANTILE = 1.959964
# DRAWS: bootstrap draws; the relative standard error of the band is then a tenth.
DRAWS = 50
# MOST_LOST: the largest share of the error in a curve's variance; it is 1 for white noise without a signal, 0.01 with a clear signal.
MOST_LOST = 0.75


def lost_signal(curve: Floats, variances: Floats) -> float:
    """The mean squared error of a curve y (n,) over the mean v of its variances (n,), which exclude the signal that was smoothed away.

    Wiener's smoother keeps a part g of signals of variance τ² in noise of variance s = τ²(1 − g)/g: the variance of its curve is gτ², of
    the curve's noise v = g²s = (1 − g) gτ², and its squared error with bias gs. So the error is v/(1 − v/Var y). Without this factor bands
    hold 0.86 of the truth at a signal-to-noise ratio of 0.3 and 200 points, with it 0.96; from a ratio of 2 on it is nearly 1.

    >>> lost_signal(np.array([0.0, 1.0, 2.0, 3.0]), np.full(4, 0.25)).__round__(6), lost_signal(np.zeros(4), np.ones(4))
    (1.25, 4.0)
    """
    variance, mean = float(np.var(curve)), float(np.mean(variances))
    return 1 / (1 - (min(mean / variance, MOST_LOST) if mean < variance else MOST_LOST)) if mean > 0 else 1.0


def standard_deviations(series: Series, head: SeriesHead, curve: Floats, levels: Floats, *, selected: bool) -> Floats:
    """The standard deviation of each y_i (n,), for independent noise whose standard deviation at weight 1 is `levels` (n,).

    Time keys: σ_i √(Σ_j l_ij²/w_j), exact, since the weights l do not depend on the values; varying noise is treated as
    constant within reach. A bandwidth selected from the data is uncertain by about half an octave: then the deviation is the mean of
    √(v + (y_h − y)²) over three bandwidths (Buckland, Burnham and Augustin 1997, equation 9).

    Other keys: the parametric bootstrap (Efron and Tibshirani 1993, section 6.5). The same head smooths the curve plus noise, `DRAWS`
    times, so that the weights vary with the noise.
    """
    if isinstance(head.keys, TimeKeys):
        return time_deviations(series, head, levels, selected=selected)
    known = ~np.isnan(series.values)
    noise = levels / (1.0 if series.weights is None else np.sqrt(np.where(known, series.weights, 1.0)))
    generator = np.random.default_rng(0)
    total, squares = np.zeros(curve.size), np.zeros(curve.size)
    for _ in range(DRAWS):
        drawn = np.where(known, curve + noise * generator.normal(size=curve.size), np.nan)
        deviation = attend_head(series.with_values(drawn), head).values - curve
        total += deviation
        squares += deviation**2
    return np.sqrt(np.maximum(squares - total**2 / DRAWS, 0.0) / (DRAWS - 1))


def time_deviations(
    series: Series, head: SeriesHead, levels: Floats, *, selected: bool, targets: Floats | None = None
) -> Floats:
    """`standard_deviations` of time keys, at all points or at ascending `targets`, at which the noise has these levels."""
    assert isinstance(head.keys, TimeKeys)
    widths = head.keys.bandwidth * 2.0 ** np.array([0.0, -0.5, 0.5] if selected else [0.0])
    fits = [attend_in_time(series, head, float(h), targets=targets) for h in widths]
    return np.mean([np.sqrt(levels**2 * fit.unit_variances + (fit.values - fits[0].values) ** 2) for fit in fits], axis=0)
