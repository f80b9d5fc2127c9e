"""The last look at a finished curve: whether it contradicts the noise that was found, so that its error and band mean nothing."""

import numpy as np

from overt.smoothing.data.series import Floats

# A curve of more degrees of freedom than this part of the values follows their noise; shorter series have few values beyond their signal.
FOLLOWED, LEAST_VALUES = 0.8, 30
# A curve may leave the range of the values by this part of it.
BEYOND = 1.0


def objection(values: Floats, curve: Floats, degrees_of_freedom: float, noise: float) -> str:
    """Why no error can be stated for a curve (n,) of known values (n,), one sentence; "" if nothing contradicts it.

    >>> objection(np.arange(100.0), np.arange(100.0), 99.0, 1.0).partition(",")[0]
    'The curve has 99 degrees of freedom for 100 values'
    """
    if noise > 0 and values.size >= LEAST_VALUES and degrees_of_freedom > FOLLOWED * values.size:
        return (
            f"The curve has {degrees_of_freedom:.3g} degrees of freedom for {values.size} values, so that it follows nearly all of them: "
            "the noise is of a kind that was not recognized, or the signal is as quick as noise."
        )
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    slack = BEYOND * (high - low)
    known = curve[~np.isnan(curve)]
    if known.size and (known.min() < low - slack or known.max() > high + slack):
        return "The curve leaves the range of the values by more than that range."
    return ""
