"""Heads as a dimension: split from the width, and joined."""

from torch import Tensor


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(..., n, H · D) to (..., H, n, D)."""
    return states.unflatten(-1, (heads, -1)).transpose(-2, -3)


def join_heads(heads: Tensor) -> Tensor:
    """(..., H, n, D) to (..., n, H · D)."""
    return heads.transpose(-2, -3).flatten(-2)


def with_batch(heads: Tensor) -> Tensor:
    """At least (B, H, n, D), as grouped heads need it: with a batch of one where there is none."""
    return heads if heads.ndim > 3 else heads[None]
