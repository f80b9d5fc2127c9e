"""The noise level of each point, passed or estimated, in a series' own units."""

import numpy as np

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats, Series, read_noise
from overt.smoothing.selection.noise import NoiseEstimate

# The level used instead of 0, in units of a series' spread.
NOISELESS = 1e-9


def noise_levels(series: Series, options: Options, estimate: NoiseEstimate | None = None) -> Floats:
    """The noise's standard deviation at weight 1 of each point (n,), in the series' own units: passed, or else estimated."""
    if options.noise is not None:
        return read_noise(options.noise, series.times.size)[series.order] / series.noise_unit
    if estimate is None:
        raise ValueError("neither passed nor estimated")
    if estimate.levels is None:
        return np.full(series.times.size, estimate.level)
    return np.interp(series.times, series.key_times, estimate.levels)


def key_noise(series: Series, levels: Floats) -> Floats:
    """The noise's standard deviation σ_i of the present points (m,)."""
    noise = levels[series.present]
    return noise if series.key_weights is None else noise / np.sqrt(series.key_weights)


def overall_level(levels: Floats) -> float:
    """The root mean square of the levels, above 0."""
    return max(float(np.sqrt(np.mean(levels**2))), NOISELESS)
