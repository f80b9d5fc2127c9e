"""Matrices as 8-bit integers with a scale for each row: a quarter of float32's bytes on disk, float32 again in memory."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

SCALE = ".scale"  # suffix of the name of a matrix's scales


def int8_rows(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert floating-point matrices to int8, with their scales under `name`.scale; other tensors are unchanged.

    >>> {name: tensor.tolist() for name, tensor in int8_rows({"map": torch.tensor([[254.0, -128.0]])}).items()}
    {'map': [[127, -64]], 'map.scale': [2.0]}
    """
    result: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        result[name] = tensor
        if tensor.ndim == 2 and tensor.is_floating_point():
            numbers, scales = rounded(tensor.float().numpy(), small=True)
            result |= {name: torch.from_numpy(numbers), name + SCALE: torch.from_numpy(scales)}
    return result


def from_int8_rows(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Restore the weights from `int8_rows` as float32, with errors of at most half a scale; weights without scales are unchanged.

    >>> from_int8_rows(int8_rows({"map": torch.tensor([[254.0, -129.0]])}))
    {'map': tensor([[ 254., -128.]])}
    """
    result: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        scales = weights.get(name + SCALE)
        if tensor.dtype == torch.int8 and scales is not None and scales.shape == tensor.shape[:1]:
            result[name] = tensor.float() * scales[:, None]
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) in weights):
            result[name] = tensor
    return result


def rounded(rows: np.ndarray, small: bool) -> tuple[np.ndarray, np.ndarray]:
    """Round rows to int16, or int8 if `small`, with a scale for each row, so that its largest number is the type's largest in magnitude.

    >>> numbers, scales = rounded(np.array([[2.0, -1.0]], np.float32), small=True)
    >>> numbers.tolist(), round(float(scales[0]), 6)
    ([[127, -64]], 0.015748)
    """
    kind = np.int8 if small else np.dtype("<i2")
    scales = (np.abs(rows).max(axis=1) / np.iinfo(kind).max).astype("<f4")
    known = np.where(scales > 0, scales, 1)[:, None]
    return np.rint(rows / known).astype(kind), scales
