"""Smoothing as an aeon transformer of series."""

from typing import Any

import numpy as np
from aeon.transformations.series.base import BaseSeriesTransformer  # pyright: ignore[reportMissingImports]

from overt.smoothing.api import smooth
from overt.smoothing.data.options import Bandwidth, KeyKind
from overt.smoothing.data.periods import Length, Periods
from overt.smoothing.data.series import Floats


class SeriesSmoother(BaseSeriesTransformer):
    """`overt.smooth` for aeon: `fit_transform(series)` returns one curve per channel.

    The parameters mean the same as in `overt.smooth`. Missing values (NaN) are filled. A value of the curve depends on the past only if
    `causal`, as required before a forecaster.

        from overt.smoothing import SeriesSmoother
        curve = SeriesSmoother(period=24).fit_transform(series)  # (channels, points)
    """

    _tags = {  # noqa: RUF012 - aeon reads it from the class
        "capability:multivariate": True,
        "capability:missing_values": True,
        "X_inner_type": "np.ndarray",
        "fit_is_empty": True,
    }

    def __init__(
        self,
        keys: KeyKind = "auto",
        bandwidth: Bandwidth = "auto",
        causal: bool = False,
        period: Periods | None = None,
        span: Length | None = None,
    ):
        self.keys = keys
        self.bandwidth = bandwidth
        self.causal = causal
        self.period = period
        self.span = span
        super().__init__(axis=1)

    def _transform(self, X: Floats, y: Any = None) -> Floats:
        options = self.get_params(deep=False)
        return np.stack([smooth(channel, **options) for channel in np.asarray(X, dtype=np.float64)])
