"""How strong the noise of each point is, given or estimated, in a series' own units."""

import numpy as np

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats, Series, read_noise
from overt.smoothing.selection.noise import Noise

# What stands for no noise, in units of a series' spread.
NOISELESS = 1e-9


def levels_of(series: Series, options: Options, found: Noise) -> Floats:
    """The noise's standard deviation at weight 1, at each point, in the series' own units."""
    if options.noise is not None:
        return read_noise(options.noise, series.times.size)[series.order] / series.noise_unit
    if found.levels is None:
        return np.full(series.times.size, found.level)
    return np.interp(series.times, series.key_times, found.levels)


def key_noise(series: Series, levels: Floats) -> Floats:
    """σ_i of the present points."""
    noise = levels[series.present]
    return noise if series.key_weights is None else noise / np.sqrt(series.key_weights)


def whole_level(levels: Floats) -> float:
    """The root of their mean square, above 0."""
    return max(float(np.sqrt(np.mean(levels**2))), NOISELESS)
