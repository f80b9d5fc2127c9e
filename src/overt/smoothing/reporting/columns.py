"""Several columns that share times, smoothed in one call: one report, with the times at which several have outliers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overt.smoothing.analysis import analyze_together
from overt.smoothing.data.frames import read_input
from overt.smoothing.data.observed import read_columns
from overt.smoothing.data.options import Options
from overt.smoothing.result import Smoothing

# LISTED: shared times that a report lists; the others are counted.
LISTED = 5


class Columns(NamedTuple):
    """The smoothings of columns that share times, by name: the names of a table's columns, else 0, 1, …

    >>> list(analyze_columns(np.zeros((5, 2))).smoothings)
    [0, 1]
    """

    smoothings: dict[Any, Smoothing]

    @property
    def shared_outliers(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The times, ascending, at which two columns or more have an outlier, with the names of these columns."""
        names = list(self.smoothings)
        times = next(iter(self.smoothings.values())).times
        marked = np.stack([smoothing.outliers for smoothing in self.smoothings.values()])
        rows = np.flatnonzero(marked.sum(axis=0) > 1)
        rows = rows[np.argsort(times.moments[rows], kind="stable")]
        return [(times.as_passed[row], tuple(names[column] for column in np.flatnonzero(marked[:, row]))) for row in rows]

    @property
    def sentence(self) -> str:
        """The reports of the columns, and their outliers at the same times."""
        lines = [f"{name}: {smoothing.sentence}" for name, smoothing in self.smoothings.items()]
        shared = self.shared_outliers
        if shared:
            listed = "; ".join(f"{time} ({', '.join(map(str, names))})" for time, names in shared[:LISTED])
            more = f"; and {len(shared) - LISTED} more" if len(shared) > LISTED else ""
            lines.append(f"Outliers at the same time in several columns: {listed}{more}.")
        return "\n".join(lines)


def analyze_columns(x: Any, *, times: ArrayLike | None = None, weights: ArrayLike | None = None, **options: Any) -> Columns:
    """Smooth the columns of x (n, columns) like `analyze` in one call, with the other arguments of `analyze` as `options`.

    Columns do not influence each other. Raises InputError or KindError like `analyze`, and TypeError for an unknown option.

    >>> draw = np.random.default_rng(0)
    >>> table = draw.normal(size=(200, 3))
    >>> table[70, :2], table[120, 2] = 30.0, 30.0
    >>> analyze_columns(table).shared_outliers
    [(np.float64(70.0), (0, 1))]
    """
    chosen, series = Options(**options), read_input(x, times)
    smoothings = analyze_together(read_columns(series, weights, chosen))
    return Columns(dict(zip(series.columns or range(len(smoothings)), smoothings, strict=True)))
