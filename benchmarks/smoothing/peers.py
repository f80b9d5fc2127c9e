"""Smoothers beyond those of `benchmarks/denoising`, for one series at equal steps: a series in, its curve out."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from benchmarks.denoising.peers import PEERS, Smoother
from benchmarks.smoothing.in_r import missing, r_curve


@dataclass(frozen=True)
class InR(Smoother):
    """A smoother of R; `needs` is empty, since what is missing is not Python's."""

    package: str = ""

    @property
    def missing(self) -> str | None:
        """What to install, or None."""
        return missing(self.package)


def hampel(x: np.ndarray) -> np.ndarray:
    """Values beyond three scaled median absolute deviations of the median of eleven become that median (Hampel 1974)."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 5, mode="reflect"), 11)
    medians = np.median(windows, axis=1)
    deviations = np.median(np.abs(windows - medians[:, None]), axis=1) / 0.6744897501960817
    return np.where(np.abs(x - medians) > 3 * deviations, medians, x)


def after_hampel(peer: Smoother) -> Smoother:
    """The same smoother on a series that the Hampel filter went over."""
    return Smoother(f"Hampel, {peer.name}", peer.description, peer.needs, lambda x: peer.curve(hampel(x)))


def gaussian_process_with_ar(x: np.ndarray) -> np.ndarray:
    """Matérn-3/2, an autoregression of order one and white noise, all by maximum likelihood; the curve is the Matérn part."""
    terms, minimize = import_module("celerite2.terms"), import_module("scipy.optimize").minimize
    process_of = import_module("celerite2").GaussianProcess
    steps, centre, spread = np.arange(x.size, dtype=float), x.mean(), x.std()
    values = (x - centre) / spread

    def fitted(logarithms: np.ndarray) -> tuple:
        sigma, rho, level, decay, noise = np.exp(logarithms)
        signal = terms.Matern32Term(sigma=sigma, rho=rho)
        process = process_of(signal + terms.RealTerm(a=level**2, c=decay))
        process.compute(steps, diag=noise**2)
        return process, signal

    def cost(logarithms: np.ndarray) -> float:
        return -fitted(logarithms)[0].log_likelihood(values) / values.size

    bounds = [(-4.0, 4.0), (np.log(8.0), np.log(10.0 * x.size)), (-6.0, 1.0), (np.log(0.05), np.log(3.0)), (-6.0, 1.0)]
    starts = [np.log([1.0, width, 0.4, 0.7, 0.3]) for width in (30.0, 150.0)]
    best = min((minimize(cost, start, method="L-BFGS-B", bounds=bounds) for start in starts), key=lambda result: result.fun)
    process, signal = fitted(best.x)
    return centre + spread * process.predict(values, t=steps, kernel=signal)


# Thresholds by level (Abramovich, Sapatinas and Silverman 1998), averaged over shifts by an odd step, which runs through all residues.
BAYES_THRESH = """rowMeans(sapply(seq(0, length(x) - 1, by = 61), function(shift) {
    i <- (t + shift - 1) %% length(x) + 1; y <- numeric(length(x))
    w <- wd(x[i], filter.number = 8, family = "DaubLeAsymm")
    y[i] <- wr(threshold(w, levels = 3:(nlevelsWT(w) - 1), policy = "BayesThresh")); y
}))"""


def _r(name: str, package: str, description: str, expression: str) -> Smoother:
    curve: Callable[[np.ndarray], np.ndarray] = r_curve(package, expression)
    return InR(name, description, (), curve, package=package)


MORE: list[Smoother] = [
    _r("mgcv", "mgcv", "R, penalised splines by REML", 'predict(gam(x ~ s(t, bs = "cr", k = 100), method = "REML"))'),
    _r("wavethresh", "wavethresh", "R, BayesThresh by level, at 17 shifts", BAYES_THRESH),
    Smoother("Matérn and AR", "celerite2, by likelihood", ("celerite2", "scipy"), gaussian_process_with_ar),
    *(after_hampel(peer) for peer in PEERS if peer.name not in ("Haar", "db4")),
]
ALL_PEERS: dict[str, Smoother] = {each.name: each for each in (*PEERS, *MORE)}


def usable() -> list[str]:
    """The names of those whose packages are installed; a line for each of the others."""
    for each in ALL_PEERS.values():
        if each.missing:
            print(f"{each.name} is left out: {each.missing}")
    return [name for name, each in ALL_PEERS.items() if not each.missing]
