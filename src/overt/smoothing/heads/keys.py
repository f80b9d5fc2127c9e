"""What makes two points of a series similar: the scores of parameter-free self-attention, and their derivatives.

Each class is one score s_ij = f(point_i, point_j). With weights W = softmax_j(s) and y_i = Σ_j W_ij x_j, the leverage of point i
is the full derivative ∂y_i/∂x_i, which Stein's risk estimate needs. For weights that do not depend on the values it is W_ii, the
diagonal of the smoother matrix. If the score contains the noisy x_i, W_ii is not the derivative, since x_i also changes every weight
of row i: then the leverage is the generalized leverage (St. Laurent and Cook 1992).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from overt.smoothing.data.series import Floats

# NEGLIGIBLE: the radius of a Gaussian in bandwidths; beyond it the Gaussian is below e^-40 of its peak, far below float64's precision.
NEGLIGIBLE = 9.0
# PATCH_WINDOW: points to either side that patches are compared over without a window.
PATCH_WINDOW = 200


class Points(NamedTuple):
    """Some points of a series: their times and values, both (m,)."""

    times: Floats
    values: Floats


class KeyPoints(NamedTuple):
    """Points that serve as keys: times ascending, values, and weights above 0, all (n,)."""

    times: Floats
    values: Floats
    weights: Floats | None  # None: all 1


class RowMoments(NamedTuple):
    """For each row: y_i = Σ_j W_ij x_j, the self weight W_ii, and the variance Var_{W_i}(x) = Σ_j W_ij (x_j − y_i)²."""

    values: Floats
    self_weights: Floats  # NaN for targets that are no keys
    variances: Floats


class SeriesKeys(Protocol):
    """A score between points, the derivative of its attention, and how far in time it reaches."""

    @property
    def radius(self) -> float:
        """Distance in time beyond which a key's weight is zero in float64, for a query that is itself a key."""
        ...

    def scores(self, query: Points, key: Points) -> Floats:
        """s_ij, (queries, keys)."""
        ...

    def leverage(self, row: RowMoments, inputs: Floats) -> Floats:
        """∂y_i/∂x_i of rows whose values x_i are `inputs`, (rows,)."""
        ...

    def in_units(self, step: float, spread: float) -> float | tuple[float, float] | None:
        """The bandwidth in the caller's units; the units of the series are `step` for time and `spread` for values."""
        ...


@dataclass(frozen=True)
class TimeKeys:
    """Similar in time: s_ij = −(t_i − t_j)² / 2h², for which attention is Nadaraya–Watson kernel regression.

    The weights do not depend on the values, so ∂y_i/∂x_i = W_ii.

    >>> TimeKeys(1.0).scores(Points(np.array([0.0]), np.zeros(1)), Points(np.array([0.0, 2.0]), np.zeros(2)))
    array([[-0., -2.]])
    """

    bandwidth: float

    @property
    def radius(self) -> float:
        """Nine bandwidths."""
        return NEGLIGIBLE * self.bandwidth

    def scores(self, query: Points, key: Points) -> Floats:
        """−(t_i − t_j)² / 2h²."""
        return _gaussian(query.times, key.times, self.bandwidth)

    def leverage(self, row: RowMoments, inputs: Floats) -> Floats:
        """W_ii."""
        return row.self_weights

    def in_units(self, step: float, spread: float) -> float:
        """h, a time."""
        return float(self.bandwidth * step)


@dataclass(frozen=True)
class ValueKeys:
    """Similar in value: s_ij = −(x_i − x_j)² / 2h², one mean-shift step (Fukunaga and Hostetler 1975).

    ∂s_ij/∂x_i = (x_j − x_i)/h², so ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)(x_j − x_i)/h² = W_ii + Var_{W_i}(x)/h².
    """

    bandwidth: float

    @property
    def radius(self) -> float:
        """Infinite: points far apart in time may have similar values."""
        return np.inf

    def scores(self, query: Points, key: Points) -> Floats:
        """−(x_i − x_j)² / 2h²."""
        return _gaussian(query.values, key.values, self.bandwidth)

    def leverage(self, row: RowMoments, inputs: Floats) -> Floats:
        """W_ii + Var_{W_i}(x)/h²."""
        return row.self_weights + row.variances / self.bandwidth**2

    def in_units(self, step: float, spread: float) -> float:
        """h, a value."""
        return float(self.bandwidth * spread)


@dataclass(frozen=True)
class BothKeys:
    """Similar in time and in value: the sum of both scores, the bilateral filter (Tomasi and Manduchi 1998).

    Only the score of the values depends on x_i, so ∂y_i/∂x_i is as for `ValueKeys`.
    """

    time: TimeKeys
    value: ValueKeys

    @property
    def radius(self) -> float:
        """The radius of the time keys, since a point's score with itself is 0, the largest possible."""
        return self.time.radius

    def scores(self, query: Points, key: Points) -> Floats:
        """−(t_i − t_j)² / 2h_t² − (x_i − x_j)² / 2h_x²."""
        return self.time.scores(query, key) + self.value.scores(query, key)

    def leverage(self, row: RowMoments, inputs: Floats) -> Floats:
        """W_ii + Var_{W_i}(x)/h_x²."""
        return self.value.leverage(row, inputs)

    def in_units(self, step: float, spread: float) -> tuple[float, float]:
        """(h_t, h_x), a time and a value."""
        return self.time.in_units(step, spread), self.value.in_units(step, spread)


@dataclass(frozen=True)
class DotKeys:
    """The literal recipe, s_ij = β x_i x_j.

    Softmax: ∂s_ij/∂x_i = β x_j (+ β x_i where j = i), so ∂y_i/∂x_i = W_ii (1 + β x_i (x_i − y_i)) + β Var_{W_i}(x).
    Plain sum: x_i and β cancel, y_i = Σ x_j² / Σ x_j, so ∂y_i/∂x_i = (2x_i − y_i) / Σ x_j = W_ii (2x_i − y_i) / x_i.
    """

    scale: float
    plain_sum: bool = False

    @property
    def radius(self) -> float:
        """Infinite: the recipe ignores time."""
        return np.inf

    def scores(self, query: Points, key: Points) -> Floats:
        """β x_i x_j."""
        return self.scale * query.values[:, None] * key.values  # (queries, keys)

    def leverage(self, row: RowMoments, inputs: Floats) -> Floats:
        """The derivative for the normalizer in use."""
        if self.plain_sum:
            return row.self_weights * (2 * inputs - row.values) / inputs
        return row.self_weights * (1 + self.scale * inputs * (inputs - row.values)) + self.scale * row.variances

    def in_units(self, step: float, spread: float) -> None:
        """The dot score has no bandwidth."""


@dataclass(frozen=True)
class PatchKeys:
    """Similar surroundings: s_ij = −Σ_m (x_{i+m} − x_{j+m})² / ((2p + 1)·2h²), m = −p … p, non-local means (Buades, Coll and Morel 2005).

    Points are compared in their order, whatever their times. `overt.smoothing.heads.patches` has the derivative.
    """

    bandwidth: float
    half: int = 5

    def profile(self, causal: bool) -> Floats:
        """The weight of each difference of two patches, summing to 1 (2p + 1,); 0 for later points if `causal`."""
        profile = np.ones(2 * self.half + 1)
        if causal:
            profile[self.half + 1 :] = 0.0
        return profile / profile.sum()

    def reach(self, window: float) -> int:
        """Points to either side that are compared: the window in steps, or `PATCH_WINDOW` without a window."""
        return PATCH_WINDOW if np.isinf(window) else int(window * (1 + 1e-9))

    def in_units(self, step: float, spread: float) -> float:
        """h, a value: the typical difference of two points with similar patches."""
        return float(self.bandwidth * spread)


def _gaussian(query: Floats, key: Floats, bandwidth: float) -> Floats:
    scores = query[:, None] - key  # (queries, keys)
    scores /= bandwidth
    np.square(scores, out=scores)
    scores *= -0.5
    return scores


AnyKeys = TimeKeys | ValueKeys | BothKeys | DotKeys | PatchKeys
