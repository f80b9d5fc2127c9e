"""Test signals of the literature on denoising, as formulas at t = i/n, i = 1…n."""

from collections.abc import Callable

import numpy as np

from overt.smoothing.data.series import Floats

Signal = Callable[[Floats], Floats]

_POSITIONS = (0.1, 0.13, 0.15, 0.23, 0.25, 0.4, 0.44, 0.65, 0.76, 0.78, 0.81)
_STEPS = (4.0, -5.0, 3.0, -4.0, 5.0, -4.2, 2.1, 4.3, -3.1, 2.1, -4.2)
_PEAKS = (4.0, 5.0, 3.0, 4.0, 5.0, 4.2, 2.1, 4.3, 3.1, 5.1, 4.2)
_WIDTHS = (0.005, 0.005, 0.006, 0.01, 0.01, 0.03, 0.01, 0.01, 0.005, 0.008, 0.005)
_SPIKES = ((0.75, 500, 0.23), (1.5, 2000, 0.33), (3.0, 8000, 0.47), (2.25, 16000, 0.69), (0.5, 32000, 0.83))


def sampled(name: str, points: int = 1024) -> Floats:
    """The signal called `name` at t = i/points, i = 1…points (points,).

    >>> sampled("sine", 4)
    array([0.8, 0.5, 0.2, 0.5])
    """
    return SIGNALS[name](np.arange(1, points + 1) / points)


def spikes(t: Floats) -> Floats:
    """(1 + Σ h·exp(−w(t − c)²))/5: five peaks, each sharper than the last (Antoniadis, Bigot and Sapatinas 2001)."""
    peaks = [height * np.exp(-sharpness * (t - centre) ** 2) for height, sharpness, centre in _SPIKES]
    return (1 + np.sum(peaks, axis=0)) / 5


def bumps(t: Floats) -> Floats:
    """(1 + Σ h/(1 + |t − p|/w)⁴)/5: eleven cusps (Donoho and Johnstone 1994, table 1)."""
    peaks = [0.594 * h / (1 + np.abs(t - p) / w) ** 4 for h, p, w in zip(_PEAKS, _POSITIONS, _WIDTHS, strict=True)]
    return (1 + np.sum(peaks, axis=0)) / 5


def blocks(t: Floats) -> Floats:
    """Σ h(1 + sign(t − p))/2, scaled to 0.2…0.8: steps between constants (Donoho and Johnstone 1994, table 1)."""
    steps = [h * (1 + np.sign(t - p)) / 2 for h, p in zip(_STEPS, _POSITIONS, strict=True)]
    return 0.2 + 0.6 * _from_0_to_1(np.sum(steps, axis=0))


def doppler(t: Floats) -> Floats:
    """√(t(1 − t))·sin(2.1π/(t + 0.05)), scaled to 0.2…0.8: ever slower waves (Donoho and Johnstone 1994, table 1)."""
    return (1 + 3 * _from_0_to_1(np.sqrt(t * (1 - t)) * np.sin(2.1 * np.pi / (t + 0.05)))) / 5


def heavisine(t: Floats) -> Floats:
    """4 sin 4πt − sign(t − 0.3) − sign(0.72 − t), scaled near 0.2…0.8: a sine that jumps (Donoho and Johnstone 1994, table 1)."""
    return 0.2 + 0.6 / 9 * (4 * np.sin(4 * np.pi * t) - np.sign(t - 0.3) - np.sign(0.72 - t) + 5)


def angles(t: Floats) -> Floats:
    """Seven straight lines, joined but for small jumps (Marron, Adak, Johnstone, Neumann and Patil 1998)."""
    ends = [t <= 0.15, t <= 0.2, t <= 0.5, t <= 0.6, t <= 0.65, t <= 0.85]
    lines = [2 * t + 0.5, 2.6 - 12 * t, 0.2 + 0 * t, 6 * t - 2.8, 6.8 - 10 * t, 0.625 - 0.5 * t]
    shape = np.select(ends, lines, 2 * t - 1.5)
    return (1 + 0.6 * (5 * shape / np.ptp(shape) - 1.6) - 0.0419569) / 5


def blip(t: Floats) -> Floats:
    """0.32 + 0.6t + 0.3 exp(−100(t − 0.3)²), continued 0.6 lower and one period later after 0.8: a bump and a jump (Marron et al. 1998)."""
    before = 0.32 + 0.6 * t + 0.3 * np.exp(-100 * (t - 0.3) ** 2)
    after = -0.28 + 0.6 * t + 0.3 * np.exp(-100 * (t - 1.3) ** 2)
    return np.where(t <= 0.8, before, after)


def corner(t: Floats) -> Floats:
    """Three polynomials that meet at corners at 0.5 and 0.8, scaled to 0.2…0.8 (Marron et al. 1998)."""
    middle, end = 187.161 * (0.125 - t**3) * t**4, 3708.470441 * (t - 1) ** 3
    return 0.2 + 0.6 * _from_0_to_1(np.select([t <= 0.5, t <= 0.8], [623.87 * t**3 * (1 - 2 * t), middle], end))


def wave(t: Floats) -> Floats:
    """0.5 + 0.2 cos 4πt + 0.1 cos 24πt: a slow and a quick wave (Marron et al. 1998)."""
    return 0.5 + 0.2 * np.cos(4 * np.pi * t) + 0.1 * np.cos(24 * np.pi * t)


def sine(t: Floats) -> Floats:
    """0.5 + 0.3 sin 2πt: smoother than all others; not from the literature."""
    return 0.5 + 0.3 * np.sin(2 * np.pi * t)


def _from_0_to_1(shape: Floats) -> Floats:
    return (shape - shape.min()) / np.ptp(shape)


SIGNALS: dict[str, Signal] = {
    signal.__name__: signal for signal in (spikes, bumps, blocks, doppler, heavisine, angles, blip, corner, wave, sine)
}
