"""The waves that sinusoidal and rotary positions are made of: cosines and sines of place × frequency.

They are computed where they are used and never stored, so that no length bounds them and no conversion of a model to half
precision rounds them. Angles are float64 (float32 on Apple's GPUs, which have no more): at place 1,000,000 a float32 angle is
wrong by up to 0.06, and so would be what is rotated by it.
"""

import torch
from torch import Tensor


def precision(device: torch.device) -> torch.dtype:
    """The most precise floating-point numbers of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def frequencies(width: int, base: float, device: torch.device) -> Tensor:
    """base^(−2i / width) for i = 0, 1, …, in radians a place: (⌈width / 2⌉,).

    >>> frequencies(4, 100.0, torch.device("cpu"))
    tensor([1.0000, 0.1000], dtype=torch.float64)
    """
    count = (width + 1) // 2
    last = -2 * (count - 1) / width
    return torch.logspace(0, last, count, base, dtype=precision(device), device=device)


def waves(places: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each place × each frequency: two of (..., n, F) for places (..., n)."""
    angles = places[..., None].to(frequencies.dtype) * frequencies  # (..., n, F)
    return angles.cos(), angles.sin()
