"""Base maps of the page: the largest and the mean weight in near-equal cells, one byte per cell, on a logarithmic scale."""

import numpy as np
from torch import Tensor

OCTAVES = 24  # octaves of weights below 1 that a code covers, down to 2^−24; one step of the code is 6.6 %
NAN, MOST = 255, 254
# SIGNED_OCTAVES: octaves of the sizes of signed weights, up to 2^SIGNED_TOP; ZERO: the code of 0; SIDES: the steps on each side of it.
SIGNED_OCTAVES, SIGNED_TOP, ZERO, SIDES = 24, 6, 128, 126


def coded(weights: Tensor) -> np.ndarray:
    """Weights as bytes: 0 is exactly zero, 1 to 254 are 2^−24 to 1 in equal steps of the logarithm, 255 is NaN.

    Weights beyond these ends get the code of the end, negative weights the code of their size. Never raises.

    >>> import torch
    >>> coded(torch.tensor([0.0, 1e-12, 0.5, 1.0, float("nan")])).tolist()
    [0, 1, 243, 254, 255]
    """
    sizes = np.abs(weights.detach().float().cpu().numpy())
    steps = np.rint(1 + (MOST - 1) * (1 + np.log2(np.fmax(sizes, 2.0**-OCTAVES)) / OCTAVES)).clip(1, MOST)
    return np.where(np.isnan(sizes), NAN, np.where(sizes == 0, 0, steps)).astype(np.uint8)


def signed_codes(weights: Tensor) -> np.ndarray:
    """Signed weights as bytes around 128, which is zero: 126 steps of the size's logarithm, from 2^−18 to 2^6, on each side; 255 is NaN.

    >>> import torch
    >>> signed_codes(torch.tensor([-1.0, 0.0, 1.0, float("nan")])).tolist()
    [33, 128, 223, 255]
    """
    numbers = weights.detach().float().cpu().numpy()
    logs = np.log2(np.fmax(np.abs(numbers), np.float32(2.0**-SIGNED_OCTAVES)))
    steps = np.rint(1 + (SIDES - 1) * (1 + (logs - SIGNED_TOP) / SIGNED_OCTAVES)).clip(1, SIDES)
    codes = ZERO + np.sign(numbers) * steps
    return np.where(np.isnan(numbers), NAN, np.nan_to_num(codes)).astype(np.uint8)


def cells(longest: int, heads: int, exact: bool) -> int:
    """The cells along each side of a head's base map.

    If the page computes cells itself, short heads need only a thumbnail; long heads need a first map.

    >>> cells(32_768, 1, True), cells(512, 72, True), cells(512, 72, False)
    (1024, 48, 256)
    """
    if longest <= 2048 and exact:
        return 128 if heads <= 32 else 48
    return 1024 if heads <= 4 else 512 if heads <= 16 else 256 if heads <= 72 else 128
