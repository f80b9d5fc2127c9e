"""Smoothing as a scikit-learn regressor."""

from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from overt.errors import InputError
from overt.smoothing.api import analyze
from overt.smoothing.data.options import Bandwidth, KeyKind
from overt.smoothing.data.periods import Length, Periods, is_number
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.features import Sample, attend_features, choose_bandwidth, noise_variance
from overt.smoothing.operators.other_times import values_at
from overt.smoothing.result import Smoothing
from overt.smoothing.selection.bands import NORMAL_QUANTILE


class AttentionSmoother(RegressorMixin, BaseEstimator):
    """`overt.smooth` for scikit-learn: `fit(times, values)`, then `predict(times)` at any times, inside or outside the data.

    With one feature, the time, the parameters mean the same as in `overt.smooth`, and `predict` returns `overt.smooth(values, at=times)`.

    With several features, a point attends to points that are near in all features, W_ij ∝ w_j exp(−|z_i − z_j|²/2h²). Features and h are
    in standard deviations of a feature. The prediction is a mean (degree 0) or a plane (degree 1), and bandwidth "auto" is the h with the
    least leave-one-out error. keys must be "auto" or "time", without window, noise, robust, period and span.

    Points with equal features are joined into one, with the weighted mean of their values and the sum of their weights, so a weight of 2
    is equivalent to the point twice.

    Fitted attributes: `bandwidth_` (None if heads are mixed), `n_features_in_`, and with one feature `smoothing_`, a `Smoothing`.

    >>> times = np.arange(6.0).reshape(-1, 1)
    >>> smoother = AttentionSmoother(keys="time", bandwidth=1.0).fit(times, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> smoother.predict([[2.5]]).round(6)
    array([3.5])
    """

    n_features_in_: int

    def __init__(
        self,
        keys: KeyKind = "auto",
        bandwidth: Bandwidth = "auto",
        degree: int = 1,
        window: Length | None = None,
        robust: bool | Literal["auto"] = "auto",
        noise: float | Literal["poisson", "gaussian"] | None = None,
        period: Periods | None = None,
        span: Length | None = None,
    ):
        self.keys = keys
        self.bandwidth = bandwidth
        self.degree = degree
        self.window = window
        self.robust = robust
        self.noise = noise
        self.period = period
        self.span = span

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Store the points and choose the bandwidth if it is automatic.

        X (n, features) and y (n,) must be finite; sample_weight (n,), 0 or more, is 1/variance of a value up to a factor.
        """
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # scikit-learn 1.8 does not check this
            fix = "pass a weight above 0 for some points, or leave out sample_weight"
            raise InputError("a non-zero weight in sample_weight", got=f"{weights.size} zeros", fix=fix)
        self._sample = _join_equal(X, np.asarray(y, dtype=np.float64), weights)
        if self.n_features_in_ == 1:
            self.smoothing_: Smoothing = analyze(self._sample.values, **self._options())
            self.bandwidth_ = self.smoothing_.bandwidth
            return self
        self._check_features()
        self._center, self._scale = _units(self._sample)
        self._sample = self._sample._replace(features=(self._sample.features - self._center) / self._scale)
        automatic = self.bandwidth == "auto"
        self.bandwidth_ = choose_bandwidth(self._sample, self.degree) if automatic else float(self.bandwidth)  # type: ignore[arg-type]
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Floats: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Floats, Floats]: ...

    def predict(self, X: Any, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The curve or surface (m,) at points X (m, features), also its standard deviation (m,) with `return_std`.

        The standard deviation describes the error of the curve, not of a new measurement. Raises InputError if there is none, and for
        times beyond the data by more than half of its length. Nearer times are extrapolated as by `Smoothing.at`.
        """
        check_is_fitted(self)
        features = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        if self.n_features_in_ > 1:
            targets = (features - self._center) / self._scale
            fitted = attend_features(self._sample, self.bandwidth_, self.degree, targets)  # type: ignore[arg-type]
            if not return_std:
                return fitted.values
            at_points = attend_features(self._sample, self.bandwidth_, self.degree)  # type: ignore[arg-type]
            return fitted.values, np.sqrt(noise_variance(self._sample, at_points) * fitted.unit_variances)
        if not return_std:
            return values_at(self.smoothing_, features[:, 0], band=False).values
        curve, lower, upper = values_at(self.smoothing_, features[:, 0], band=True)
        if lower is None or upper is None:
            fix = "call predict without return_std"
            raise InputError("noise for which there is a standard deviation", got=self.smoothing_.withheld.rstrip("."), fix=fix)
        return curve, (upper - lower) / (2 * NORMAL_QUANTILE)

    def _options(self) -> dict[str, Any]:
        weights = self._sample.weights
        return {
            "times": self._sample.features[:, 0],
            "weights": None if (weights == 1).all() else weights,
            **self.get_params(),
        }

    def _check_features(self) -> None:
        others = {name: getattr(self, name) for name in ("window", "noise", "period", "span")}
        if self.keys not in ("auto", "time") or any(other is not None for other in others.values()) or self.robust is True:
            expected = 'keys="auto" or "time" without window, noise, robust, period and span, for several features'
            got = ", ".join(f"{name}={value!r}" for name, value in {"keys": self.keys, "robust": self.robust, **others}.items())
            raise InputError(expected, got=got, fix="leave these out, or fit one feature, the time")
        if self.degree not in (0, 1):
            raise InputError("degree 0 or 1 for several features", got=repr(self.degree), fix="choose one of them")
        if self.bandwidth != "auto" and not is_number(self.bandwidth, above=0.0):
            raise InputError("a bandwidth above 0", got=repr(self.bandwidth), fix='pass a number above 0, or "auto"')


def _join_equal(features: Floats, values: Floats, weights: Floats) -> Sample:
    """The points of weight above 0, joined if their features are equal, in ascending order."""
    known = weights > 0
    unique, group = np.unique(features[known], axis=0, return_inverse=True)
    total = np.bincount(group.ravel(), weights[known]).astype(np.float64)
    return Sample(unique, np.bincount(group.ravel(), weights[known] * values[known]) / total, total)


def _units(sample: Sample) -> tuple[Floats, Floats]:
    """Mean and standard deviation by feature; the standard deviation is 1 for a constant feature."""
    center = np.average(sample.features, axis=0, weights=sample.weights)
    spread = np.sqrt(np.average((sample.features - center) ** 2, axis=0, weights=sample.weights))
    return center, np.where(spread > 0, spread, 1.0)
