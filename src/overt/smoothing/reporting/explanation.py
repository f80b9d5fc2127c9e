"""Explanation of a curve in sentences: the heads, the points that they attend to, and the degrees of freedom."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.periods import length_in_words
from overt.smoothing.data.series import Floats

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# _FAMILIES: names of the families of heads, in sentences and in a legend.
_FAMILIES = {
    "itself": ("the points as they are", "the point itself"),
    "mean": ("means over time", "means"),
    "line": ("local lines", "lines"),
    "parabola": ("local parabolas", "parabolas"),
    "extrapolated parabola": ("local parabolas", "parabolas"),
    "mean of the past": ("one-sided means", "one side"),
    "line of the past": ("one-sided lines", "one side"),
    "parabola of the past": ("one-sided parabolas", "one side"),
    "patches": ("similar patches", "patches"),
    "waves": ("waves that a first smoothing shows", "waves"),
    "segments": ("segments that are constant or straight", "segments"),
    "guided": ("averages of points at similar levels", "guided"),
}
# _MINIMUM_SHARE: smallest share that is mentioned.
_MINIMUM_SHARE = 0.1


def explain(result: "Smoothing") -> str:
    """The sentences of `Smoothing.explanation`."""
    counted = result.points - int(result.repeats.out.sum())
    freedom = (
        f"The curve has {result.degrees_of_freedom:.3g} degrees of freedom for {counted} "
        f"{'points' if result.repeats.events == 1 else 'means'}."
    )
    step_texts = " ".join(
        step.text for step in result.steps if step.name in ("weights", "tails", "heads", "ties") and step.text
    )
    return " ".join(filter(None, [step_texts, _reach(result), freedom]))


@functools.lru_cache(maxsize=32)
def family_members(heads: tuple[str, ...], *, legend: bool = False) -> tuple[list[str], Floats]:
    """The families' names, for sentences or a legend, and the heads in each (families, heads): equal for all series of one length."""
    # Heads are called "line, 8 steps" or "patches of 11, 2 σ".
    short = ["patches" if head.startswith("patches") else head.partition(",")[0] for head in heads]
    names = [_FAMILIES.get(name, (name, name))[legend] for name in short]
    kinds = list(dict.fromkeys(names))
    return kinds, np.array([[float(name == kind) for name in names] for kind in kinds])


def heads_in_words(result: "Smoothing") -> str:
    """The head or heads, and the weights with which a point attends."""
    options = result.options
    if result.mixture is not None:
        return _bank(result.heads, result.mixture)
    if options.score == "dot":
        form = "the plain sum of" if options.normalizer == "sum" else "softmax of"
        flaw = "every point gets the same value" if options.normalizer == "sum" else "it depends on the zero of the values"
        return (
            f"Each point became the mean of all, weighted by {form} {options.dot_scale:g}·x_i·x_j: the literal recipe; {flaw}."
        )
    source = "given" if options.bandwidths else "chosen for the least estimated risk"
    if isinstance(result.bandwidth, tuple):
        time, value = result.bandwidth
        near, width = "near it in time and similar in value", f"{length_in_words(time, result.unit)} and {value:.3g}"
        return f"Each point became the mean of the points {near}, weighted by Gaussians of bandwidth {width} ({source})."
    h = result.bandwidth or 0.0
    if options.keys == "time":
        through = ("the mean of", "the value of a line through", "the value of a parabola through")[options.degree]
        near, width = "near it in time", length_in_words(h, result.unit)
    else:
        through = "the mean of"
        near, width = ("similar in value" if options.keys == "value" else "with similar surroundings"), f"{h:.3g}"
    return f"Each point became {through} the points {near}, weighted by a Gaussian of bandwidth {width} ({source})."


def _bank(names: tuple[str, ...], mixture: Floats) -> str:
    """The families of heads with the largest weights, and the part of the series in which they are strongest."""
    kinds, members = family_members(names)
    shares = members @ mixture  # (kinds, cells)
    means = shares.mean(axis=1)
    used = [kind for kind in np.argsort(-means) if means[kind] >= _MINIMUM_SHARE]
    parts = [
        f"{kinds[kind]} ({means[kind]:.0%}{where})" for kind, where in zip(used, _strongest_thirds(shares[used]), strict=True)
    ]
    heads = f"Each point is a mixture of {len(names)} heads"
    return f"{heads}, with larger weights for lower estimated risk: mostly {listed_in_words(parts)}."


def listed_in_words(parts: list[str]) -> str:
    """One or more parts in the form "a, b and c"."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _strongest_thirds(shares: Floats) -> list[str]:
    """The thirds of the series in which shares (kinds, cells) are largest, if at least as large as the sum of the other thirds."""
    cells = shares.shape[1]
    if cells < 3:
        return [""] * shares.shape[0]
    starts = np.array([0, -(-cells // 3), -(-cells * 2 // 3)])
    thirds = np.add.reduceat(shares, starts, axis=1) / np.diff(starts, append=cells)
    return [
        "" if third.max() < third.sum() - third.max() else ", mostly " + ("early", "in the middle", "late")[third.argmax()]
        for third in thirds
    ]


def _reach(result: "Smoothing") -> str:
    """The points to which a point attends."""
    scope = "Each point attends to past and future points, so the curve is not a forecast"
    if result.options.causal:
        chosen = chosen_from_all(result)
        scope = "Each point attends to the present and past only"
        scope += f"; chosen from the whole series: {chosen}" if chosen else ""
    window = result.options.window
    return f"{scope}." if window is None else f"{scope}. The window is {length_in_words(window, result.unit)} to either side."


def chosen_from_all(result: "Smoothing") -> str:
    """The choices that depend on the whole series even in a causal curve."""
    options = result.options
    parts = ["the outliers"] if options.weighs_outliers else []
    if result.mixture is not None:
        parts += ["the heads"] if options.noise is not None else ["the noise level", "the heads"]
    elif options.score == "gaussian" and options.bandwidths is None:
        parts += ["the bandwidth"]
    return " and ".join(parts)
