"""What smoothing makes of real series: whether points left out are found again, and what it says of itself."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.denoising.peers import smoother
from overt.errors import InputError
from overt.reading import reading
from overt.smoothing import analyze
from overt.smoothing.data.series import Floats, Indices

# Numenta's anomaly benchmark (github numenta/NAB) and electricity transformers (github zhouhaoyi/ETDataset).
SERIES = {
    "taxi": ("nyc_taxi.csv", "value"),
    "machine": ("machine_temperature_system_failure.csv", "value"),
    "tweets": ("twitter_volume_goog.csv", "value"),
    "oil": ("ETTh1.csv", "OT"),
}
LINE = "line"  # between the nearest visible neighbours
GAP = 6  # points, of those that are left out together
_HIDDEN_SHARE = 0.1


@dataclass(frozen=True)
class SeriesResult:
    """One series: the mean squared error at the hidden points over the series' variance, and the sentence of `analyze`."""

    name: str
    points: int
    left_out: int
    errors: dict[str, float]  # by smoother; LINE for linear interpolation
    gap_errors: dict[str, float]  # the same where points are left out in gaps
    unable: dict[str, str]
    sentence: str


def folder(data: Path) -> Path:
    """The folder `series` in the user's data."""
    path = data / "series"
    if not path.is_dir():
        fix = "name the folder that holds `series` by --data or OVERT_DATA, or omit --part real"
        raise InputError("a folder `series` with the real series", got=f"no folder {path}", fix=fix)
    return path


def files(folder: Path) -> dict[str, Path]:
    """The file of each series, by its name in error messages."""
    return {f"the series {name}": folder / file for name, (file, _) in SERIES.items()}


def measure(folder: Path, name: str, names: list[str], notify: Callable[[str], None] = lambda doing: None) -> SeriesResult:
    """Hide a tenth of the points, always the same ones, and measure how near each smoother comes to them; then a tenth in gaps.

    Rows count as equal steps. The hidden points contain noise, so that no error can reach 0.
    """
    file, column = SERIES[name]
    x = _numbers(folder / file, column)
    hidden, unable = single_points(x), {}
    errors, gap_errors = (errors_at(x, left_out, names, unable, notify) for left_out in (hidden, gaps(x)))
    unable = {peer: f"failed on {name}: {what}" for peer, what in unable.items()}
    return SeriesResult(name, x.size, hidden.size, errors, gap_errors, unable, analyze(x).sentence)


def _numbers(path: Path, column: str) -> Floats:
    """A column of a file of comma-separated values with a header; empty cells are NaN."""
    with reading(path, "a readable file to smooth", "check its name"), path.open(newline="") as file:
        return np.array([float(row[column] or "nan") for row in csv.DictReader(file)])


def single_points(x: Floats, seed: int = 0) -> Indices:
    """A tenth of the points with a value, but the first and the last, whose neighbours are on one side only."""
    inner = np.flatnonzero(~np.isnan(x))[1:-1]
    return np.sort(np.random.default_rng(seed).choice(inner, int(_HIDDEN_SHARE * inner.size), replace=False))


def gaps(x: Floats, seed: int = 0) -> Indices:
    """As many in gaps of `GAP`, at least as far from each other.

    >>> gaps(np.arange(40.0))
    array([25, 26, 27, 28, 29, 30])
    """
    inner = np.flatnonzero(~np.isnan(x))[1:-1]
    blocks = inner.size // (2 * GAP)
    count = min(blocks, max(1, round(_HIDDEN_SHARE * inner.size / GAP)))
    chosen = np.sort(np.random.default_rng(seed).choice(blocks, count, replace=False))
    return inner[2 * GAP * chosen[:, None] + np.arange(GAP)].ravel()


def errors_at(
    x: Floats,
    hidden: Indices,
    names: list[str],
    unable: dict[str, str],
    notify: Callable[[str], None] = lambda doing: None,
) -> dict[str, float]:
    """The error of each smoother at hidden points; those that fail are named in `unable`."""
    visible = x.copy()
    visible[hidden] = np.nan
    steps, known = np.arange(x.size), ~np.isnan(visible)
    errors = {LINE: _error(np.interp(steps, steps[known], visible[known]), x, hidden)}
    for name in names:
        notify(name)
        try:
            errors[name] = _error(smoother(name).smooth(visible), x, hidden)
        except Exception as error:  # any error of another library is reported, and the others go on
            unable[name] = f"{type(error).__name__}: {error}"
    return errors


def _error(curve: Floats, x: Floats, hidden: Indices) -> float:
    return float(np.mean((curve[hidden] - x[hidden]) ** 2) / np.nanvar(x))
