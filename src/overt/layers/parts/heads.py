"""Heads as a dimension: splitting the width into heads, and joining them."""

from torch import Tensor


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(..., n, H · D) to (..., H, n, D)."""
    return states.unflatten(-1, (heads, -1)).transpose(-2, -3)


def join_heads(heads: Tensor) -> Tensor:
    """(..., H, n, D) to (..., n, H · D)."""
    return heads.transpose(-2, -3).flatten(-2)


def with_batch(heads: Tensor) -> Tensor:
    """Add a batch of one if there is none, since grouped heads need (B, H, n, D)."""
    return heads if heads.ndim > 3 else heads[None]
