"""A smoothed series without its data: the curve and its report, small enough to send and store."""

import json
import zipfile
from dataclasses import asdict, dataclass
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

    def components(self) -> dict[str, Floats]:
        """The trend and the sum of the seasons, (n,) each, by name; nothing without a period."""
        if self.seasons is None:
            return {}
        seasonal = self.seasons.sum(axis=1)
        return {"trend": self.values - seasonal, "seasonal": seasonal}

    def save(self, path: Path) -> None:
        """Write the curve to a file, completely or not at all."""
        content = json.dumps({name: value for name, value in asdict(self).items() if name not in _ARRAYS})
        arrays = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        with whole(path) as temporary:
            np.savez(temporary, content=np.array(content), **arrays)

    @classmethod
    def load(cls, path: Path) -> "Curve | None":
        """Read a curve that `save` wrote; None if the file is missing or cannot be read."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                content = json.loads(str(archive["content"]))
                arrays = {name: archive.get(name) for name in _ARRAYS}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return cls(**arrays, **{**content, "families": tuple(content["families"])})


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
    shares: dict[str, Floats] = {}
    for head, share in zip(smoothing.heads, smoothing.mixture, strict=True):
        family = _family(head)
        shares[family] = shares.get(family, 0.0) + share  # (cells,)
    small = [family for family, share in shares.items() if share.mean() < _SMALL]
    families = sorted(shares.keys() - set(small), key=lambda family: -shares[family].mean())
    rows = [shares[family] for family in families]
    if small:
        return (*families, "others"), np.stack([*rows, sum(shares[family] for family in small)])
    return tuple(families), np.stack(rows)


def _family(head: str) -> str:
    """The family of a head: "one side" for "line of the past, 8 steps"."""
    name = head.partition(",")[0]
    if name.endswith((" of the past", " of the future")):
        return "one side"
    return "patches" if name.startswith("patches") else _FAMILIES.get(name, name)


def empty_curve(points: int) -> Curve:
    """The curve of a series without any value."""
    return Curve(np.full(points, np.nan), None, None, None, (), "The series has no values; nothing was computed.", {})
