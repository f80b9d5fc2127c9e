"""What a smoothing did, in words."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from overt.smoothing.analysis import Smoothing

_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def tell(found: "Smoothing") -> str:
    """The sentences of `Smoothing.sentence`: what was weighted how, what it rests on, what it may be used for."""
    parts = [_mixture(found), _sight(found), _error(found), _missing(found)]
    return " ".join(part for part in parts if part)


def duration(time: float, unit: str) -> str:
    """A length of time with its unit, seconds in the largest unit that fits.

    >>> duration(5400.0, "seconds"), duration(3.0, "steps")
    ('1.5 hours', '3 steps')
    """
    if unit == "seconds":
        size, unit = next(((size, name) for size, name in _UNITS if time >= size), _UNITS[-1])
        time /= size
    return f"{time:.3g} {unit}".rstrip()


def _mixture(found: "Smoothing") -> str:
    options = found.options
    if options.score == "dot":
        form = "the plain sum of" if options.normalizer == "sum" else "softmax of"
        flaw = "every point gets the same value" if options.normalizer == "sum" else "it moves with the zero of the values"
        return f"Each point became the mean of all, weighted by {form} {options.scale:g}·x_i·x_j: the literal recipe; {flaw}."
    chosen = "given" if options.bandwidths else "chosen for the least estimated risk"
    if isinstance(found.bandwidth, tuple):
        time, value = found.bandwidth
        near, width = "near it in time and alike in value", f"{duration(time, found.unit)} and {value:.3g}"
        return f"Each point became the mean of the points {near}, weighted by Gaussians of bandwidth {width} ({chosen})."
    h = found.bandwidth or 0.0
    near, width = ("near it in time", duration(h, found.unit)) if options.keys == "time" else ("alike in value", f"{h:.3g}")
    return f"Each point became the mean of the points {near}, weighted by a Gaussian of bandwidth {width} ({chosen})."


def _sight(found: "Smoothing") -> str:
    seen = "saw only its past and present" if found.options.causal else "saw its future too, so the curve is no forecast"
    window = found.options.window
    return f"Each {seen}." if window is None else f"Each {seen}; none saw farther than {duration(window, found.unit)}."


def _error(found: "Smoothing") -> str:
    if found.noise == 0.0:
        zero = "The noise was given as 0" if found.options.noise is not None else "No noise shows in its second differences"
        return f"{zero}, so there is nothing to take away."
    source = "given" if found.options.noise is not None else "estimated"
    error = float(np.sqrt(max(found.risk, 0.0)))
    fate = f"to about {error:.3g}" if found.risk > 0 else "to nearly nothing"
    change = "lowers" if error < found.noise else "raises"
    return (
        f"If the noise is independent from point to point, with a standard deviation of {found.noise:.3g} ({source}), this "
        f"{change} the error {fate}. The curve has {found.degrees_of_freedom:.3g} degrees of freedom for {found.points} points."
    )


def _missing(found: "Smoothing") -> str:
    missing = int(np.isnan(found.series.values).sum())
    left = missing - found.filled
    filled = f"{found.filled} missing filled from their neighbours" if found.filled else ""
    empty = f"{left} left empty, with no neighbour to attend to" if left else ""
    parts = "; ".join(part for part in (filled, empty) if part)
    return f"{parts[0].upper()}{parts[1:]}." if parts else ""
