"""A smoothed series without its data: the curve and its report, small enough to send and store."""

import functools
import json
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overt.files import whole
from overt.smoothing.data.series import Floats

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# Short names of the families of heads, for a legend.
_FAMILIES = {
    "itself": "the point itself",
    "mean": "means",
    "line": "lines",
    "parabola": "parabolas",
    "extrapolated parabola": "parabolas",
}
# Families with a smaller share are drawn as one, "others".
_SMALL = 0.01
_ARRAYS = ("values", "lower", "upper", "shares", "seasons")


@dataclass(frozen=True)
class Curve:
    """A smoothed series without its data; values and band are in the caller's order.

    `shares` (families, cells) is the mixture of heads, added up by family, averaged over equal runs of points in time.
    """

    values: Floats  # (n,)
    lower: Floats | None  # (n,), None where there is no band
    upper: Floats | None
    shares: Floats | None
    families: tuple[str, ...]
    sentence: str
    facts: dict[str, Any]  # the numbers of the report: noise, risk, bandwidth, …
    seasons: Floats | None = None  # (n, seasons), None without a period

    @property
    def note(self) -> str:
        """Why there is no band, for a picture; "" where there is one."""
        withheld = self.facts.get("withheld")
        return f"no band: {in_short(withheld)}" if withheld else ""

    def components(self) -> dict[str, Floats]:
        """The trend and the sum of the seasons, (n,) each, by name; nothing without a period."""
        if self.seasons is None:
            return {}
        seasonal = self.seasons.sum(axis=1)
        return {"trend": self.values - seasonal, "seasonal": seasonal}


def in_short(withheld: str) -> str:
    """The first words of the sentence that says why a band is withheld.

    >>> in_short("Many values repeat the one before: copies, or ends of a range.")
    'many values repeat the one before'
    """
    reason = re.split("[:,]", withheld)[0].rstrip(".")
    return reason[0].lower() + reason[1:]


def save_curves(path: Path, curves: Sequence[Curve]) -> None:
    """Write curves to one file, completely or not at all: the arrays of one kind one after the other, the rest as JSON."""
    arrays: dict[str, list[Floats]] = {name: [] for name in _ARRAYS}
    contents = []
    for curve in curves:
        content = {name: value for name, value in vars(curve).items() if name not in _ARRAYS}
        present = {name: array for name in _ARRAYS if (array := getattr(curve, name)) is not None}
        contents.append(content | {"shapes": {name: array.shape for name, array in present.items()}})
        for name, array in present.items():
            arrays[name].append(array.ravel())
    with whole(path) as temporary:
        joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in arrays.items() if parts}
        np.savez(temporary, contents=np.array(json.dumps(contents)), **joined)


def load_curves(path: Path) -> list[Curve] | None:
    """Read the curves that `save_curves` wrote; None if the file is missing or cannot be read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            contents = json.loads(str(archive["contents"]))
            arrays, curves = {name: archive.get(name) for name in _ARRAYS}, []
            for content in contents:
                curve_arrays: dict[str, Any] = dict.fromkeys(_ARRAYS)
                for name, shape in content.pop("shapes").items():
                    size = math.prod(shape)
                    curve_arrays[name], arrays[name] = arrays[name][:size].reshape(shape), arrays[name][size:]
                curves.append(Curve(**curve_arrays, **{**content, "families": tuple(content["families"])}))
            return curves
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def curve_of(smoothing: "Smoothing") -> Curve:
    """The part of a smoothing that is written, drawn and reported."""
    families, shares = _shares(smoothing)
    bandwidth = smoothing.bandwidth
    facts = {
        "keys": smoothing.options.keys,
        "causal": smoothing.options.causal,
        "bandwidth_passed": smoothing.options.bandwidths is not None,
        "bandwidth": list(bandwidth) if isinstance(bandwidth, tuple) else bandwidth,
        "noise": smoothing.noise,
        "counts": smoothing.counts,
        "noise_passed": smoothing.options.noise is not None,
        "risk": smoothing.risk,
        "estimable": smoothing.estimable,
        "risk_upper_bound": smoothing.risk_upper_bound,
        "degrees_of_freedom": smoothing.degrees_of_freedom,
        "filled": smoothing.filled,
        "unit": smoothing.unit,
        "periods": list(smoothing.periods),
        "withheld": smoothing.withheld,
    }
    seasons = smoothing.components if smoothing.options.period is not None else None
    return Curve(smoothing.values, smoothing.lower, smoothing.upper, shares, families, smoothing.sentence, facts, seasons)


def _shares(smoothing: "Smoothing") -> tuple[tuple[str, ...], Floats | None]:
    """The mixture by family, the largest share first; nothing for a single head."""
    if smoothing.mixture is None:
        return (), None
    names, members = _families(smoothing.heads)
    shares = members @ smoothing.mixture  # (families, cells)
    means = shares.mean(axis=1)
    large = [family for family in np.argsort(-means, kind="stable") if means[family] >= _SMALL]
    families, rows = tuple(names[family] for family in large), shares[large]
    if len(large) == len(names):
        return families, rows
    others = np.delete(shares, large, axis=0).sum(axis=0)
    return (*families, "others"), np.concatenate([rows, others[None]])


@functools.lru_cache(maxsize=16)
def _families(heads: tuple[str, ...]) -> tuple[tuple[str, ...], Floats]:
    """The families, and which heads belong to each (families, heads): the same for every series of one length."""
    names = [_family(head) for head in heads]
    families = tuple(dict.fromkeys(names))
    return families, np.array([[float(name == family) for name in names] for family in families])


def _family(head: str) -> str:
    """The family of a head: "one side" for "line of the past, 8 steps"."""
    name = head.partition(",")[0]
    if name.endswith((" of the past", " of the future")):
        return "one side"
    return "patches" if name.startswith("patches") else _FAMILIES.get(name, name)


def empty_curve(points: int) -> Curve:
    """The curve of a series without any value."""
    return Curve(np.full(points, np.nan), None, None, None, (), "The series has no values; nothing was computed.", {})
