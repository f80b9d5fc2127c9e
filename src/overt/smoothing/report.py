"""What a smoothing did, in words."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from overt.smoothing.api import Smoothing

_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
# What the families of heads are, to a reader who knows none of them.
_FAMILIES = {
    "itself": "the points as they are",
    "mean": "means over time",
    "line": "lines through what is near in time",
    "parabola": "parabolas through what is near in time",
    "mean of the past": "means of one side",
    "mean of the future": "means of one side",
    "line of the past": "lines of one side",
    "line of the future": "lines of one side",
    "parabola of the past": "parabolas of one side",
    "patches": "patches like the one around it",
    "second look": "what a first curve holds alike",
}
# Shares under this are not worth a word.
_TENTH = 0.1


def tell(found: "Smoothing") -> str:
    """The sentences of `Smoothing.sentence`: what was weighted how, what it rests on, what it may be used for."""
    parts = [_mixture(found), _sight(found), _error(found), _band(found), _missing(found)]
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


def families(heads: tuple[str, ...]) -> list[str]:
    """The family of each head, in plain words: heads are called "line, 8 steps" or "patches of 11, 2 σ"."""
    short = [head.partition(",")[0] for head in heads]
    return [_FAMILIES.get("patches" if name.startswith("patches") else name, name) for name in short]


def _mixture(found: "Smoothing") -> str:
    options = found.options
    if found.mixture is not None:
        return _bank(found)
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
    if options.keys == "time":
        through = ("the mean of", "the value of a line through", "the value of a parabola through")[options.degree]
        near, width = "near it in time", duration(h, found.unit)
    else:
        through = "the mean of"
        near, width = ("alike in value" if options.keys == "value" else "with surroundings like its own"), f"{h:.3g}"
    return f"Each point became {through} the points {near}, weighted by a Gaussian of bandwidth {width} ({chosen})."


def _bank(found: "Smoothing") -> str:
    """Which families of heads made the curve, and where one that matters was strongest."""
    if found.mixture is None:
        return ""
    names = families(found.heads)
    kinds = list(dict.fromkeys(names))
    shares = np.stack([found.mixture[[name == kind for name in names]].sum(axis=0) for kind in kinds])  # (kinds, cells)
    whole = shares.mean(axis=1)
    used = [kind for kind in np.argsort(-whole) if whole[kind] >= _TENTH]
    told = [f"{kinds[kind]} ({whole[kind]:.0%}{_where(shares[kind])})" for kind in used]
    listed = told[0] if len(told) == 1 else ", ".join(told[:-1]) + " and " + told[-1]
    return f"Each point is a mixture of {len(found.heads)} heads, weighted by how well each is estimated to do around it: mostly {listed}."


def _where(shares: np.ndarray) -> str:
    """The third of the series where a share is highest, if it is there at least twice what it is elsewhere."""
    if shares.size < 3:
        return ""
    thirds = [part.mean() for part in np.array_split(shares, 3)]
    most = int(np.argmax(thirds))
    others = (sum(thirds) - thirds[most]) / 2
    return "" if thirds[most] < 2 * others else ", mostly " + ("early", "in the middle", "late")[most]


def _sight(found: "Smoothing") -> str:
    seen = "saw its future too, so the curve is no forecast"
    if found.options.causal:
        chosen = _chosen(found)
        seen = "saw only its past and present" + (f", but for {chosen}, chosen from the whole series" if chosen else "")
    window = found.options.window
    return f"Each {seen}." if window is None else f"Each {seen}; none saw farther than {duration(window, found.unit)}."


def _chosen(found: "Smoothing") -> str:
    """What a causal curve still owes to the whole series."""
    options = found.options
    parts = ["the outliers"] if options.robust else []
    if found.mixture is not None:
        parts += ["the heads"] if options.noise is not None else ["the noise level", "the heads"]
    elif options.score == "gaussian" and options.bandwidths is None:
        parts += ["the bandwidth"]
    return " and ".join(parts)


def _error(found: "Smoothing") -> str:
    if found.noise == 0.0:
        zero = "The noise was given as 0" if found.options.noise is not None else "No noise shows in its second differences"
        return f"{zero}, so there is nothing to take away."
    source = "given" if found.options.noise is not None else "estimated"
    varies = ", on the whole: it varies with time" if np.ptp(found.levels) > 1e-12 * found.levels.max() else ""
    return (
        f"If the noise is independent from point to point and close to normal, with a standard deviation of {found.noise:.3g} "
        f"({source}{varies}), {_left(found)}. "
        f"The curve has {found.degrees_of_freedom:.3g} degrees of freedom for {found.points} points."
    )


def _left(found: "Smoothing") -> str:
    """What is said of the error that is left: a number where the estimate can tell it from none, else what it hardly exceeds."""
    if found.estimable:
        error = float(np.sqrt(found.risk))
        return f"this {'lowers' if error < found.noise else 'raises'} the error to about {error:.3g}"
    most, points = float(np.sqrt(found.most_risk)), found.series.present.size
    if most >= found.noise:
        return f"the error that is left cannot be told from {points} points"
    return f"the error that is left is too small to estimate from {points} points: under some {most:.3g}"


def _band(found: "Smoothing") -> str:
    if not found.withheld:
        return ""
    return f"{found.withheld} So what is said of the error is not to be relied on, and there is no band."


def _missing(found: "Smoothing") -> str:
    left = int(np.isnan(found.values).sum())
    filled = f"{found.filled} missing filled from their neighbours" if found.filled else ""
    empty = f"{left} left empty" + (", with no neighbour to attend to" if found.options.fill else "") if left else ""
    parts = "; ".join(part for part in (filled, empty) if part)
    return f"{parts[0].upper()}{parts[1:]}." if parts else ""
