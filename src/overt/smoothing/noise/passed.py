"""Values on a scale that was passed, and angles: on that scale their noise is estimated as in any series."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.observed import Observed
from overt.smoothing.noise.images import brought_back, transformed
from overt.smoothing.noise.kind import Analyze, Kind
from overt.smoothing.noise.scale import Transform, angular, check_on_scale, wrapped

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing


class OnScale(Kind):
    """Values smoothed by their logarithms, roots or logits; noise= is the level on that scale."""

    names: tuple[str, ...] = ("roots",)
    within_bounds: bool = True

    def holds(self, series: Observed) -> bool:
        """Whether scale= names a transform."""
        return bool(series.options.transform)

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the transformed values, converted back to the mean of the values."""
        name, bounds = series.options.transform, series.options.limits_of_scale
        check_on_scale(series.values, name, bounds)
        transform = Transform(name, *bounds)
        result = series.smoothed(analyze, transform.forward(series.values), series.options.on_its_scale)
        return transformed(result, series.values, transform, series.options, bounds)

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The sentence that names the scale and its bounds."""
        low, high = result.bounds
        within = f"above {low:g}" if high == np.inf else f"between {low:g} and {high:g}"
        return f"The {result.kind} of the values, {within}, were smoothed ({source}), and the curve is the mean of the values."


class Angles(Kind):
    """Angles, unwrapped: a full turn is added or removed so that an angle is nearest to the direction of its smoothed sine and cosine."""

    names: tuple[str, ...] = ("angles",)

    def holds(self, series: Observed) -> bool:
        """Whether circular= is a full turn."""
        return series.options.circular is not None

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the unwrapped angles, wrapped to 0 to a full turn."""
        values, turn, plain = series.values, float(series.options.circular or 1.0), series.options.on_its_scale
        outside = np.flatnonzero(~np.isnan(values) & ~((values >= -turn) & (values <= turn)))
        if outside.size:
            got, fix = f"{values[outside[0]]:g} at [{outside[0]}]", "pass the size of a full turn, as circular=360 for degrees"
            raise InputError(f"values from {-turn:g} to {turn:g} with circular={turn:g}", got=got, fix=fix)
        first = replace(plain, period=None, robust=False, noise="gaussian", fill=True)
        cosine, sine = (series.smoothed(analyze, part(2 * np.pi * values / turn), first).values for part in (np.cos, np.sin))
        order = np.argsort(series.times.moments, kind="stable")
        direction = np.full(values.size, np.nan)
        direction[order] = np.unwrap(np.arctan2(sine, cosine)[order]) * turn / (2 * np.pi)
        result = series.smoothed(analyze, direction + wrapped(values - direction, turn), plain)
        scale = angular(turn, np.rint((result.observed - values) / turn))
        brought = brought_back(result, scale, series.options, (-np.inf, np.inf))
        return replace(brought, components=result.components, observed=values)

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The sentence that names the size of a full turn."""
        return (
            f"The values are angles with a full turn of {result.options.circular:g} ({source}), smoothed the shorter way round."
        )
