"""A smoothed series without its data: the curve and its report, small enough to send and store."""

import json
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overt.files import whole
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import moments_as_passed
from overt.smoothing.reporting.changes import known_changes
from overt.smoothing.reporting.explanation import family_members
from overt.smoothing.reporting.limits import gaps

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# _SMALL: families with a smaller share are drawn together as "others".
_SMALL = 0.01
# _GAPS: gaps in which the curve is drawn; _IN_A_GAP: times per gap.
_GAPS, _IN_A_GAP = 40, 12
_ARRAYS = ("values", "lower", "upper", "shares", "seasons", "outliers", "between", "slope")


@dataclass(frozen=True)
class Curve:
    """A smoothed series without its data; values and band are in the caller's order.

    `shares` (families, cells) is the mixture of heads, summed by family and averaged over equal runs of points in time.
    """

    values: Floats  # (n,)
    lower: Floats | None  # (n,), None if there is no band
    upper: Floats | None
    shares: Floats | None
    families: tuple[str, ...]
    sentence: str
    facts: dict[str, Any]  # the numbers of the report: noise, risk, bandwidth, …
    seasons: Floats | None = None  # (n, seasons), None without a period
    outliers: NDArray[np.bool_] | None = None  # (n,)
    between: Floats | None = None  # (m, 4) inside gaps: a position between two points, such as 3.25, with curve and band there
    report: dict[str, str] = field(default_factory=dict)  # the sections of `sentence`
    explanation: str = ""
    steps: Sequence[dict[str, str]] = ()  # the applied steps, in order, with name and text
    slope: Floats | None = None  # (3, n) the derivative and the ends of its band, NaN without a band; None unless wanted
    anomalies: tuple[dict[str, Any], ...] | None = None  # fields by name, times as text or numbers; None unless wanted
    changes: tuple[dict[str, Any], ...] | None = None

    @property
    def note(self) -> str:
        """Why there is no band, for a picture; "" if there is one."""
        withheld = self.facts.get("withheld")
        return f"no band: {in_short(withheld)}" if withheld else ""

    def components(self) -> dict[str, Floats]:
        """The trend (n,) and the sum of the seasons (n,), by name; empty without a period."""
        if self.seasons is None:
            return {}
        seasonal = self.seasons.sum(axis=1)
        return {"trend": self.values - seasonal, "seasonal": seasonal}


def in_short(withheld: str) -> str:
    """The first words of the reason why a band is withheld.

    >>> in_short("Many values repeat the one before: copies, or ends of a range.")
    'many values repeat the one before'
    """
    reason = re.split("[:,]", withheld)[0].rstrip(".")
    return reason[0].lower() + reason[1:]


def save_curves(path: Path, curves: Sequence[Curve]) -> None:
    """Write curves to one file, completely or not at all: arrays of one kind concatenated, all else as JSON."""
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
    """The curves that `save_curves` wrote; None if the file is missing or cannot be read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            contents = json.loads(str(archive["contents"]))
            arrays, curves = {name: archive.get(name) for name in _ARRAYS}, []
            for content in contents:
                curve_arrays: dict[str, Any] = dict.fromkeys(_ARRAYS)
                for name, shape in content.pop("shapes").items():
                    size = math.prod(shape)
                    curve_arrays[name], arrays[name] = arrays[name][:size].reshape(shape), arrays[name][size:]
                names = ("families", "anomalies", "changes")
                tuples = {name: tuple(content[name]) for name in names if content.get(name) is not None}
                curves.append(Curve(**curve_arrays, **{**content, **tuples}))
            return curves
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def extract_curve(smoothing: "Smoothing", wanted: Sequence[str] = ()) -> Curve:
    """The part of a smoothing that is written, drawn and reported, with "derivative", "anomalies" and "changes" if wanted."""
    more = _more(smoothing, wanted)  # first, since the report has the changes that are known
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
        "changes": _positions(smoothing, [change.time for change in known_changes(smoothing) or ()]),
    }
    seasons = smoothing.components if smoothing.options.period is not None else None
    report = smoothing.report._asdict()
    return Curve(
        values=smoothing.values,
        lower=smoothing.lower,
        upper=smoothing.upper,
        shares=shares,
        families=families,
        sentence=" ".join(filter(None, report.values())),
        facts=facts,
        seasons=seasons,
        outliers=smoothing.outliers,
        between=_between(smoothing),
        report=report,
        explanation=smoothing.explanation,
        steps=[{"name": step.name, "text": step.text} for step in smoothing.steps],
        **more,
    )


def _more(smoothing: "Smoothing", wanted: Sequence[str]) -> dict[str, Any]:
    """The slope, anomalies and changes, if wanted."""
    more: dict[str, Any] = {}
    if "derivative" in wanted:
        derivative = smoothing.derivative()
        none = np.full(smoothing.points, np.nan)
        ends = [none if end is None else end for end in (derivative.lower, derivative.upper)]
        more["slope"] = np.stack([derivative.values, *ends])
    if "anomalies" in wanted:
        more["anomalies"] = tuple(_plain(anomaly._asdict()) for anomaly in smoothing.anomalies())
    if "changes" in wanted:
        more["changes"] = tuple(_plain(change._asdict()) for change in smoothing.changes)
    return more


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields with numbers as Python numbers, and dates and all else as text."""
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, np.datetime64):
            plain[name] = str(np.datetime_as_string(value, unit="auto"))
        else:
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, np.timedelta64)
            plain[name] = float(value) if number else str(value)
    return plain


def _positions(smoothing: "Smoothing", times: Sequence[Any]) -> list[int]:
    """The positions of times among the ascending times of the series."""
    ordered = smoothing.times.as_passed[smoothing.series.order]
    return [int(np.searchsorted(ordered, time)) for time in times]


def _between(smoothing: "Smoothing") -> Floats | None:
    """The curve and its band inside the longest gaps, at a few times per gap."""
    options, times = smoothing.options, smoothing.times
    moments = times.moments[smoothing.series.order]
    before = gaps(moments)
    before = np.sort(before[np.argsort(moments[before] - moments[before + 1], kind="stable")][:_GAPS])
    if not before.size or options.causal or not options.fill:
        return None
    positions = (before[:, None] + np.arange(1, _IN_A_GAP + 1) / (_IN_A_GAP + 1)).ravel()
    values, lower, upper = smoothing.at(
        moments_as_passed(np.interp(positions, np.arange(moments.size), moments), times), band=True
    )
    missing = np.full(positions.size, np.nan)
    return np.column_stack([positions, values, missing if lower is None else lower, missing if upper is None else upper])


def _shares(smoothing: "Smoothing") -> tuple[tuple[str, ...], Floats | None]:
    """The mixture by family, the largest share first; empty for a single head."""
    if smoothing.mixture is None:
        return (), None
    names, members = family_members(smoothing.heads, legend=True)
    shares = members @ smoothing.mixture  # (families, cells)
    means = shares.mean(axis=1)
    large = [family for family in np.argsort(-means, kind="stable") if means[family] >= _SMALL]
    families, rows = tuple(names[family] for family in large), shares[large]
    if len(large) == len(names):
        return families, rows
    others = np.delete(shares, large, axis=0).sum(axis=0)
    return (*families, "others"), np.concatenate([rows, others[None]])


def empty_curve(points: int) -> Curve:
    """The curve of a series without any value."""
    return Curve(np.full(points, np.nan), None, None, None, (), "The series has no values; nothing was computed.", {})
