"""What a job of many series keeps of each: the curve and what is told of it, small enough to be sent and stored."""

import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from overt.files import whole
from overt.smoothing.api import Smoothing
from overt.smoothing.data.series import Floats

# Families of heads as a legend has room for.
_FAMILIES = {
    "itself": "the point itself",
    "mean": "means",
    "line": "lines",
    "parabola": "parabolas",
    "second look": "second look",
}
# Families of a smaller share of the whole are drawn as one.
_SMALL = 0.01
_ARRAYS = ("values", "lower", "upper", "shares")


@dataclass(frozen=True)
class Curve:
    """A smoothed series without the data it was made from; values and band in the order that the points came in.

    `shares` (families, cells) is the mixture of heads, added up by family, averaged over equal runs of points in time.
    """

    values: Floats  # (n,)
    lower: Floats | None  # (n,), None where the band is withheld
    upper: Floats | None
    shares: Floats | None
    families: tuple[str, ...]
    sentence: str
    facts: dict[str, Any]  # what is told of it in numbers: noise, risk, bandwidth, …

    def save(self, path: Path) -> None:
        """Write the curve to a file, whole or not at all."""
        told = json.dumps({name: value for name, value in asdict(self).items() if name not in _ARRAYS})
        arrays = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        with whole(path) as temporary:
            np.savez(temporary, told=np.array(told), **arrays)

    @classmethod
    def load(cls, path: Path) -> "Curve | None":
        """Read what `save` wrote; None where there is no such file, or one that cannot be read."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                told = json.loads(str(found["told"]))
                arrays = {name: found.get(name) for name in _ARRAYS}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return cls(**arrays, **{**told, "families": tuple(told["families"])})


def curve_of(found: Smoothing) -> Curve:
    """Keep of a smoothing what is written, drawn and told."""
    families, shares = _shares(found)
    bandwidth = found.bandwidth
    facts = {
        "keys": found.options.keys,
        "causal": found.options.causal,
        "given": found.options.bandwidths is not None,
        "bandwidth": list(bandwidth) if isinstance(bandwidth, tuple) else bandwidth,
        "noise": found.noise,
        "noise_given": found.options.noise is not None,
        "risk": found.risk,
        "estimable": found.estimable,
        "most_risk": found.most_risk,
        "freedom": found.degrees_of_freedom,
        "filled": found.filled,
        "unit": found.unit,
        "withheld": found.withheld,
    }
    return Curve(found.values, found.lower, found.upper, shares, families, found.sentence, facts)


def _shares(found: Smoothing) -> tuple[tuple[str, ...], Floats | None]:
    """The mixture by family, the one of most weight first; nothing where there is one head."""
    if found.mixture is None:
        return (), None
    shares: dict[str, Floats] = {}
    for head, share in zip(found.heads, found.mixture, strict=True):
        family = _family(head)
        shares[family] = shares.get(family, 0.0) + share  # (cells,)
    small = [family for family, share in shares.items() if share.mean() < _SMALL]
    families = sorted(shares.keys() - set(small), key=lambda family: -shares[family].mean())
    rows = [shares[family] for family in families]
    if small:
        return (*families, "others"), np.stack([*rows, sum(shares[family] for family in small)])
    return tuple(families), np.stack(rows)


def _family(head: str) -> str:
    """The family that a head such as "line of the past, 8 steps" is drawn with."""
    name = head.partition(",")[0]
    if name.endswith((" of the past", " of the future")):
        return "one side"
    return "patches" if name.startswith("patches") else _FAMILIES.get(name, name)


def nothing(points: int) -> Curve:
    """The curve of a series that has no value at all."""
    return Curve(np.full(points, np.nan), None, None, None, (), "It has no value at all, and was left empty.", {})
