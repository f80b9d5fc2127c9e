"""Other smoothers, each as automatic as its package allows: a series in, its curve out, without knowledge of the truth."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from overt.errors import MissingExtra
from overt.smoothing import smooth
from overt.smoothing.data.series import Floats, Indices


@dataclass(frozen=True)
class Smoother:
    """A smoother: `curve` takes (n,) at equal steps and returns (n,); `fills` says whether NaN may be among them."""

    name: str
    description: str  # its package and how it chooses, in 40 letters
    needs: tuple[str, ...]  # modules
    curve: Callable[[Floats], Floats]
    fills: bool = False

    @property
    def missing(self) -> str | None:
        """What to install if a module is missing, else None."""
        absent = next((module for module in self.needs if find_spec(module) is None), None)
        return str(MissingExtra(self.name, needs=absent, extra="bench")) if absent else None

    @property
    def versions(self) -> dict[str, str]:
        """The versions of its packages, by the names under which they are installed."""
        installed = packages_distributions()
        return {package: version(package) for module in self.needs for package in installed.get(module, [])}

    def smooth(self, x: Floats) -> Floats:
        """The curve of x; a ValueError where the result is no curve."""
        curve = self.curve(x)
        if curve.shape != x.shape or not np.isfinite(curve).all():
            raise ValueError(f"returned shape {curve.shape} with {np.sum(~np.isfinite(curve))} values that are not finite")
        return curve


def ours(x: Floats) -> Floats:
    """The default of this library, without options."""
    return smooth(x)


def wavelet(name: str) -> Callable[[Floats], Floats]:
    """BayesShrink (Chang, Yu and Vetterli 2000) at every level, averaged over shifts (Coifman and Donoho 1995)."""

    def curve(x: Floats) -> Floats:
        restoration = import_module("skimage.restoration")
        options = {
            "wavelet": name,
            "wavelet_levels": import_module("pywt").dwt_max_level(x.size, name),
            "method": "BayesShrink",
        }
        # An odd step runs through every residue of 2, 4, 8 … 32, and through the coarser levels evenly.
        step = max(1, x.size // 64) * 2 - 1
        return restoration.cycle_spin(
            x, restoration.denoise_wavelet, max_shifts=x.size - 1, shift_steps=step, func_kw=options, workers=1
        )

    return curve


def total_variation(x: Floats) -> Floats:
    """min over y of ½‖x − y‖² + λΣ|y_{i+1} − y_i|, exactly (Condat 2013), λ of least Stein risk.

    The curve's degrees of freedom are the number of its constant pieces (Tibshirani and Taylor 2012).
    """
    tv_denoise = import_module("condat_tv").tv_denoise
    variance = _noise(x) ** 2
    strengths = np.sqrt(variance) * np.geomspace(0.1, 10 * np.sqrt(np.log(x.size)), 40)

    def risk(y: Floats) -> float:
        pieces = 1 + np.count_nonzero(np.abs(np.diff(y)) > 1e-12 * np.ptp(x))
        return float(np.mean((x - y) ** 2) + 2 * variance * pieces / x.size)

    return min((tv_denoise(x, strength) for strength in strengths), key=risk)


def spline(x: Floats, times: Floats | None = None) -> Floats:
    """SciPy's cubic smoothing spline, λ by generalised cross-validation (Woltring 1986); times in steps, equal ones if None."""
    # It searches λ between 0 and n in units of time cubed. With time in steps that is too small for a smooth series; with time
    # from 0 to 1 the λ of a rough series is too small compared with n.
    moments, known = 0.1 * (np.arange(x.size) if times is None else times), ~np.isnan(x)
    return import_module("scipy.interpolate").make_smoothing_spline(moments[known], x[known])(moments)


def whittaker(x: Floats) -> Floats:
    """Least squares with penalised second differences, λ by leave-one-out cross-validation (Eilers 2003)."""
    known = ~np.isnan(x)
    options = {"lmbda": 1.0, "order": 2, "data_length": x.size, "weights": known.astype(float).tolist()}
    smoother = import_module("whittaker_eilers").WhittakerSmoother(**options)
    # The noise here is white: the package's option against correlated noise would only drop points.
    result = smoother.smooth_optimal(np.where(known, x, 0.0).tolist(), break_serial_correlation=False)
    return np.array(result.get_optimal().get_smoothed())


def gaussian_process(x: Floats, times: Floats | None = None) -> Floats:
    """A Gaussian process with a Matérn-3/2 kernel (Foreman-Mackey et al. 2017), its three parameters by maximum likelihood.

    times (n,) in steps, ascending; equal ones if None.
    """
    celerite2, minimize = import_module("celerite2"), import_module("scipy.optimize").minimize
    steps, known = np.arange(x.size, dtype=float) if times is None else times, ~np.isnan(x)
    centre, spread = x[known].mean(), x[known].std()
    values = (x[known] - centre) / spread

    def fitted(logarithms: Floats) -> Any:
        sigma, rho, noise = np.exp(logarithms)
        process = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=sigma, rho=rho))
        process.compute(steps[known], diag=noise**2)
        return process

    def cost(logarithms: Floats) -> float:
        return -fitted(logarithms).log_likelihood(values) / values.size

    # Uneven times show quicker signals than equal ones do.
    shortest, widths = (1.0, (5.0, 50.0)) if times is None else (0.1, (2.0, 20.0, 200.0))
    bounds = [(-4.0, 4.0), (np.log(shortest), np.log(10.0 * x.size)), (-8.0, 1.0)]
    starts = [np.log([1.0, width, 0.5]) for width in widths]
    best = min((minimize(cost, start, method="L-BFGS-B", bounds=bounds) for start in starts), key=lambda result: result.fun)
    return centre + spread * fitted(best.x).predict(values, t=steps)


def lowess(x: Floats) -> Floats:
    """Local lines with tricube weights (Cleveland 1979), without re-weighting, the fraction by cross-validation in five folds.

    The folds of the package are stretches of the series, whose inner points have no neighbours left. Here each fold is every
    fifth point.
    """
    steps, known = np.arange(x.size, dtype=float), np.flatnonzero(~np.isnan(x))

    def curve(fraction: float, among: Indices, at: Indices) -> Floats:
        model = import_module("fastlowess").Lowess(fraction=fraction, iterations=0, delta=0.0, retain_model=True)
        return np.asarray(model.fit(steps[among], x[among]).predict(steps[at]).y)

    def error(fraction: float) -> float:
        return sum(
            np.sum((x[known[k::5]] - curve(fraction, np.delete(known, np.s_[k::5]), known[k::5])) ** 2) for k in range(5)
        )

    best = min(np.geomspace(4.0, 0.5 * known.size, 16) / known.size, key=error)
    return curve(best, known, np.arange(x.size))


def polynomial_filter(x: Floats) -> Floats:
    """Savitzky and Golay's filter (1964) of degree 2, its window by leave-one-out cross-validation."""
    signal = import_module("scipy.signal")
    widths = np.unique(np.geomspace(2, max(2, x.size // 4), 24).astype(int)) * 2 + 1

    def error(width: int) -> float:
        residuals = x - signal.savgol_filter(x, width, 2)
        return float(np.mean((residuals / (1 - signal.savgol_coeffs(width, 2)[width // 2])) ** 2))

    return signal.savgol_filter(x, min((int(width) for width in widths if width <= x.size), key=error), 2)


def _noise(x: Floats) -> float:
    """The noise's standard deviation from the median absolute second difference."""
    return float(np.median(np.abs(np.diff(x, 2))) / (0.6744897501960817 * np.sqrt(6)))


OURS = Smoother("overt", "the default of this library", (), ours, fills=True)
_WAVELETS = ("pywt", "skimage")
PEERS = [
    Smoother("Haar", "scikit-image, BayesShrink at many shifts", _WAVELETS, wavelet("haar")),
    Smoother("sym8", "scikit-image, BayesShrink at many shifts", _WAVELETS, wavelet("sym8")),
    Smoother("db4", "scikit-image, BayesShrink at many shifts", _WAVELETS, wavelet("db4")),
    Smoother("TV", "condat-tv, strength by Stein's risk", ("condat_tv",), total_variation),
    Smoother("spline", "SciPy, make_smoothing_spline", ("scipy",), spline, fills=True),
    Smoother("Whittaker", "whittaker-eilers, by cross-validation", ("whittaker_eilers",), whittaker, fills=True),
    Smoother("Matérn", "celerite2, Matérn-3/2 by likelihood", ("celerite2", "scipy"), gaussian_process, fills=True),
    Smoother("LOWESS", "fastlowess, by cross-validation", ("fastlowess",), lowess, fills=True),
    Smoother("SavGol", "SciPy, savgol_filter by cross-validation", ("scipy",), polynomial_filter),
]


def smoother(name: str) -> Smoother:
    """The smoother called `name`: ours or a peer."""
    return next(candidate for candidate in (OURS, *PEERS) if candidate.name == name)
