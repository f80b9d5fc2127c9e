"""Local polynomials on even steps where values are missing or weigh less, by convolutions in O(n) for any bandwidth."""

import numpy as np
from numpy.typing import NDArray

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.convolution import convolve
from overt.smoothing.heads.local.even_grid import attend_even_grid
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# From so many keys in a bandwidth on, convolutions are faster than sums key by key; over both sides boxes of time are faster still.
WIDE = 16.0
# Where Σ_j k_j is smaller, the nearest key is far away: the sums have lost digits, and are computed key by key.
FEW = 1.0


# Of the points, those that may be computed key by key beside missing values while the others are convolutions.
SHARE = 0.5


def attend_grid_with_gaps(values: Floats, present: NDArray[np.bool_], scale: float, degree: int, side: Side) -> Floats | None:
    """Values, c_0 and unit variances (3, n) of the fits at all points, where few values are missing; None where they are many.

    Far from a missing value all weights are those of a whole grid. Near one, sums are key by key.

    >>> steps, present = np.arange(200.0), np.arange(200) != 100
    >>> attend_grid_with_gaps(np.where(present, steps, 0.0), present, 1.0, 1, "both")[0][98:103].round(9).tolist()
    [98.0, 99.0, 100.0, 101.0, 102.0]
    """
    if not native.available():
        return None
    reach, steps = int(np.ceil(NEGLIGIBLE * scale)), np.arange(present.size)
    missing = np.concatenate([[0], np.cumsum(~present)])
    first, last = (steps if side == "future" else steps - reach), (steps if side == "past" else steps + reach)
    near = missing[np.minimum(last + 1, present.size)] > missing[np.maximum(first, 0)]
    if near.mean() > SHARE:
        return None
    columns = attend_even_grid(values, scale, degree, np.inf, side)
    center = values[present].mean()
    keys, targets = (steps[present].astype(np.float64), values[present] - center, None), steps[near].astype(np.float64)
    columns[:, near] = attend_compiled(*keys, targets, scale, degree, side=side)
    columns[0, near] += center
    return columns


def favors_convolutions(keys_in_bandwidth: float, degree: int, side: Side) -> bool:
    """Whether convolutions are faster than other ways."""
    return native.available() and side != "both" and degree <= 1 and keys_in_bandwidth >= WIDE


def attend_weighted_grid(values: Floats, weights: Floats, scale: float, degree: int, side: Side) -> Floats:
    """Values, c_0 and unit variances (3, n) of the fits of degree 0 or 1 at all points, also at those of weight 0, which are no keys.

    Weights are w_j exp(−(j − i)²/2·scale²) on one side or both. NaN without a key on the side.

    >>> attend_weighted_grid(np.array([0.0, 9.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0, 1.0]), 16.0, 1, "both")[0].round(9) + 0.0
    array([0., 1., 2., 3.])
    """
    is_key = weights > 0
    before, after = (0.0 if side == "future" else np.inf), (0.0 if side == "past" else np.inf)

    def moments(column: Floats, highest: int, squared: bool = False) -> Floats:
        """Σ_j column_j k_j u_j^p, or with k_j², for p up to the highest."""
        factor = np.sqrt(0.5) if squared else 1.0  # k² is a kernel of this part of the bandwidth
        return np.stack([
            convolve(column, lambda u, p=p: np.exp(-u * u / 2) * (factor * u) ** p, scale * factor, before, after)
            for p in range(highest + 1)
        ])  # fmt: skip

    # Around their own mean, values keep the digits that a large offset would take.
    center = values[is_key].mean()
    of_weights = moments(weights, 2 * degree)
    kernel = of_weights[0] if (weights[is_key] == 1).all() else moments(is_key.astype(np.float64), 0)[0]
    of_values = moments(np.where(is_key, weights * (values - center), 0.0), degree)
    sums = PowerSums(of_weights, of_values, moments(weights, 2 * degree, squared=True), kernel)
    columns = fit(sums).results(sums)
    few = kernel < FEW
    if few.any():
        steps = np.arange(float(values.size))
        keys = steps[is_key], values[is_key] - center, weights[is_key]
        columns[:, few] = attend_compiled(*keys, steps[few], scale, degree, side=side)
    columns[0] += center
    return columns
