"""Heads: parts of a vector that attention treats apart, as a dimension of their own."""

from torch import Tensor


def split(states: Tensor, heads: int) -> Tensor:
    """All heads side by side, apart: (..., n, H · D) to (..., H, n, D)."""
    return states.unflatten(-1, (heads, -1)).transpose(-2, -3)


def joined(heads: Tensor) -> Tensor:
    """The heads side by side again: (..., H, n, D) to (..., n, H · D)."""
    return heads.transpose(-2, -3).flatten(-2)


def lifted(heads: Tensor) -> Tensor:
    """With a batch of one where there is none, as grouped heads ask for: at least (B, H, n, D)."""
    return heads if heads.ndim > 3 else heads[None]
