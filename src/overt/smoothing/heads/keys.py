"""What makes two points of a series similar: the scores of parameter-free self-attention, and their derivatives.

Each class is one score s_ij = f(point_i, point_j). With weights W = softmax_j(s) and y_i = Σ_j W_ij x_j, `slope` is the
full derivative ∂y_i/∂x_i that an honest risk estimate needs: where the score itself contains the noisy x_i, the
diagonal W_ii alone is wrong, since moving x_i also moves every weight of row i.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from overt.smoothing.data.series import Floats

# Beyond nine bandwidths a Gaussian is below e^-40 of its peak, far under the last digit of a float64.
NEGLIGIBLE = 9.0
# Points to either side that patches are compared over where no window is given.
PATCH_WINDOW = 200


class Points(NamedTuple):
    """Some points of a series: their times and values, both (m,)."""

    times: Floats
    values: Floats


class Row(NamedTuple):
    """What a slope is made of, one entry a row: W_ii, Var_{W_i}(x) = Σ_j W_ij (x_j − y_i)², x_i and y_i."""

    own: Floats
    variance: Floats
    value: Floats
    output: Floats


class Keys(Protocol):
    """A score between points, the derivative of its attention, and how far in time it reaches."""

    @property
    def radius(self) -> float:
        """Distance in time beyond which a key's weight is zero in float64, for a query that is itself a key."""
        ...

    def scores(self, query: Points, key: Points) -> Floats:
        """s_ij, (queries, keys)."""
        ...

    def slope(self, row: Row) -> Floats:
        """∂y_i/∂x_i, (rows,)."""
        ...

    def in_units(self, step: float, spread: float) -> float | tuple[float, float] | None:
        """The bandwidth in the caller's units, where a series measures time in `step` and values in `spread`."""
        ...


@dataclass(frozen=True)
class TimeKeys:
    """Near in time: s_ij = −(t_i − t_j)² / 2h², for which attention is Nadaraya–Watson kernel regression.

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

    def slope(self, row: Row) -> Floats:
        """W_ii."""
        return row.own

    def in_units(self, step: float, spread: float) -> float:
        """h, a time."""
        return float(self.bandwidth * step)


@dataclass(frozen=True)
class ValueKeys:
    """Near in value: s_ij = −(x_i − x_j)² / 2h², one mean-shift step (Fukunaga and Hostetler 1975).

    ∂s_ij/∂x_i = (x_j − x_i)/h², so ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)(x_j − x_i)/h² = W_ii + Var_{W_i}(x)/h².
    """

    bandwidth: float

    @property
    def radius(self) -> float:
        """Without end: points far apart in time may be alike."""
        return np.inf

    def scores(self, query: Points, key: Points) -> Floats:
        """−(x_i − x_j)² / 2h²."""
        return _gaussian(query.values, key.values, self.bandwidth)

    def slope(self, row: Row) -> Floats:
        """W_ii + Var_{W_i}(x)/h²."""
        return row.own + row.variance / self.bandwidth**2

    def in_units(self, step: float, spread: float) -> float:
        """h, a value."""
        return float(self.bandwidth * spread)


@dataclass(frozen=True)
class BothKeys:
    """Near in time and in value: the sum of both scores, the bilateral filter (Tomasi and Manduchi 1998).

    Only the score of the values moves with x_i, so ∂y_i/∂x_i is that of `ValueKeys`.
    """

    time: TimeKeys
    value: ValueKeys

    @property
    def radius(self) -> float:
        """That of the time keys: a point's own score is 0, the largest there is."""
        return self.time.radius

    def scores(self, query: Points, key: Points) -> Floats:
        """−(t_i − t_j)² / 2h_t² − (x_i − x_j)² / 2h_x²."""
        return self.time.scores(query, key) + self.value.scores(query, key)

    def slope(self, row: Row) -> Floats:
        """W_ii + Var_{W_i}(x)/h_x²."""
        return self.value.slope(row)

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
        """Without end: the recipe knows nothing of time."""
        return np.inf

    def scores(self, query: Points, key: Points) -> Floats:
        """β x_i x_j."""
        return self.scale * query.values[:, None] * key.values  # (queries, keys)

    def slope(self, row: Row) -> Floats:
        """The derivative that goes with the normaliser."""
        if self.plain_sum:
            return row.own * (2 * row.value - row.output) / row.value
        return row.own * (1 + self.scale * row.value * (row.value - row.output)) + self.scale * row.variance

    def in_units(self, step: float, spread: float) -> None:
        """The dot score has no bandwidth."""


@dataclass(frozen=True)
class PatchKeys:
    """Alike around: s_ij = −Σ_m (x_{i+m} − x_{j+m})² / ((2p + 1)·2h²), m = −p … p, non-local means (Buades, Coll and Morel 2005).

    Points are compared in their order, whatever their times. `overt.smoothing.heads.patches` has the derivative.
    """

    bandwidth: float
    half: int = 5

    def profile(self, causal: bool) -> Floats:
        """What each difference of two patches counts for, all together 1 (2p + 1,); with `causal` only those of the past count."""
        counts = np.ones(2 * self.half + 1)
        if causal:
            counts[self.half + 1 :] = 0.0
        return counts / counts.sum()

    def reach(self, window: float) -> int:
        """Points to either side that are compared: the window, in steps, or 200 where there is none."""
        return PATCH_WINDOW if np.isinf(window) else int(window * (1 + 1e-9))

    def in_units(self, step: float, spread: float) -> float:
        """h, a value: how far apart two points of like patches are."""
        return float(self.bandwidth * spread)


def _gaussian(query: Floats, key: Floats, bandwidth: float) -> Floats:
    scores = query[:, None] - key  # (queries, keys)
    scores /= bandwidth
    np.square(scores, out=scores)
    scores *= -0.5
    return scores


AnyKeys = TimeKeys | ValueKeys | BothKeys | DotKeys | PatchKeys
