"""Local means and lines on even steps where values are missing or weigh less: sums by convolutions, in O(n) for any bandwidth."""

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.convolution import convolve
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# From so many keys in a bandwidth on, convolutions are faster than sums key by key; over both sides boxes of time are faster still.
WIDE = 16.0
# Where Σ_j k_j is smaller, the nearest key is far away: the sums have lost digits, and are computed key by key.
FEW = 1.0


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
