"""Cosines and sines of position × frequency, for sinusoidal and rotary positions.

They are computed at each use and never stored, so there is no maximum length, and converting a model to half
precision does not round them. Angles are float64 (float32 on Apple's GPUs, which have no float64): at position 1,000,000 the
error of a float32 angle is up to 0.06, which would make the rotated vectors wrong.
"""

import torch
from torch import Tensor


def frequencies(width: int, base: float, device: torch.device) -> Tensor:
    """base^(−2i / width) for i = 0, 1, …, in radians per position: (⌈width / 2⌉,).

    >>> frequencies(4, 100.0, torch.device("cpu"))
    tensor([1.0000, 0.1000], dtype=torch.float64)
    """
    count = (width + 1) // 2
    last = -2 * (count - 1) / width
    dtype = torch.float32 if device.type == "mps" else torch.float64  # the most precise dtype of the device
    return torch.logspace(0, last, count, base, dtype=dtype, device=device)


def cosines_and_sines(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position × each frequency: two of (..., n, F) for positions (..., n)."""
    angles = positions[..., None].to(frequencies.dtype) * frequencies  # (..., n, F)
    return angles.cos(), angles.sin()
