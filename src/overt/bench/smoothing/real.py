"""What smoothing makes of real series: whether points left out are found again, and what it says of itself."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from overt.bench.smoothing.peers import smoother
from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.data.read_table import read_table
from overt.smoothing.data.series import Floats

# Numenta's anomaly benchmark (github numenta/NAB) and electricity transformers (github zhouhaoyi/ETDataset).
SERIES = {
    "taxi": ("nyc_taxi.csv", "value"),
    "machine": ("machine_temperature_system_failure.csv", "value"),
    "tweets": ("twitter_volume_goog.csv", "value"),
    "oil": ("ETTh1.csv", "OT"),
}
LINE = "line"  # between the neighbours that are left
_LEFT_OUT = 0.1


@dataclass(frozen=True)
class Found:
    """One series: the mean squared error at the points left out, in shares of the series' variance, and our sentence."""

    name: str
    points: int
    left_out: int
    errors: dict[str, float]  # by smoother; LINE for linear interpolation
    unable: dict[str, str]
    sentence: str


def folder(data: Path) -> Path:
    """The folder `series` in the user's data."""
    place = data / "series"
    if not place.is_dir():
        fix = "name the folder that holds `series` by --data or OVERT_DATA, or leave out --part real"
        raise InputError("real series are read from a folder of the user's", got=f"no folder {place}", fix=fix)
    return place


def files(place: Path) -> dict[str, Path]:
    """The file of each series, by the name that an error says."""
    return {f"the series {name}": place / file for name, (file, _) in SERIES.items()}


def measure(place: Path, name: str, names: list[str], tell: Callable[[str], None] = lambda doing: None) -> Found:
    """Leave a tenth of the points out, drawn once and for all, and see how near each smoother comes to them.

    Rows count as equal steps. What is left out holds its own noise, so that no error can come to 0.
    """
    file, column = SERIES[name]
    x = read_table(place / file).numbers(column)
    known = np.flatnonzero(~np.isnan(x))
    inner = known[1:-1]  # nothing to the one side of the ends: another question
    hidden = np.sort(np.random.default_rng(0).choice(inner, int(_LEFT_OUT * inner.size), replace=False))
    seen = x.copy()
    seen[hidden] = np.nan
    errors, unable = {LINE: _error(_line(seen), x, hidden)}, {}
    for each in names:
        tell(each)
        try:
            errors[each] = _error(smoother(each).smooth(seen), x, hidden)
        except Exception as error:  # whatever goes wrong in another library is told, and ends only its own part
            unable[each] = f"failed on {name}: {type(error).__name__}: {error}"
    return Found(name, x.size, hidden.size, errors, unable, analyze(x).sentence)


def _line(x: Floats) -> Floats:
    steps, known = np.arange(x.size), ~np.isnan(x)
    return np.interp(steps, steps[known], x[known])


def _error(curve: Floats, x: Floats, hidden: np.ndarray) -> float:
    return float(np.mean((curve[hidden] - x[hidden]) ** 2) / np.nanvar(x))
