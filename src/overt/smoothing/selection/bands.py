"""How far a curve may be from the mean of all curves that other noise would have given: its pointwise standard deviation."""

import numpy as np

from overt.smoothing.data.series import Floats, Series
from overt.smoothing.heads.dispatch import attend_head, attend_in_time
from overt.smoothing.heads.head import Head
from overt.smoothing.heads.keys import TimeKeys

# Standard deviations to either side that hold 95% of a normal distribution.
NORMAL = 1.959964
# Draws of a bootstrap: the band's own standard deviation is then a tenth of its width.
DRAWS = 50


def deviation_of(series: Series, head: Head, curve: Floats, levels: Floats, *, chosen: bool) -> Floats:
    """The standard deviation of each y_i (n,), for independent noise whose standard deviation at weight 1 is `levels` (n,).

    Time keys: σ_i √(Σ_j l_ij²/w_j), exactly, since the weights l do not depend on the values; noise that varies is taken for
    constant within reach. A bandwidth that was chosen from the data might as well have come out half an octave narrower or
    wider: then it is the mean of √(v + (y_h − y)²) over the three (Buckland, Burnham and Augustin 1997, equation 9).

    All others: the parametric bootstrap (Efron and Tibshirani 1993, section 6.5), in which the same head smooths the curve
    with `DRAWS` draws of noise; the weights then move with the noise, as they should.
    """
    if isinstance(head.keys, TimeKeys):
        widths = head.keys.bandwidth * 2.0 ** np.array([-0.5, 0.0, 0.5] if chosen else [0.0])
        found = [attend_in_time(series, head, float(h)) for h in widths]
        return np.mean([np.sqrt(levels**2 * one.squares + (one.values - curve) ** 2) for one in found], axis=0)
    known = ~np.isnan(series.values)
    noise = levels / (1.0 if series.weights is None else np.sqrt(np.where(known, series.weights, 1.0)))
    generator = np.random.default_rng(0)
    first, second = np.zeros(curve.size), np.zeros(curve.size)
    for _ in range(DRAWS):
        drawn = np.where(known, curve + noise * generator.normal(size=curve.size), np.nan)
        off = attend_head(series.with_values(drawn), head).values - curve
        first += off
        second += off**2
    return np.sqrt(np.maximum(second - first**2 / DRAWS, 0.0) / (DRAWS - 1))
