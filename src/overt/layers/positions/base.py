"""Positions of tokens; without them attention has no order. Each kind of positions overrides one or more of three methods."""

from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.biases import Bias
from overt.errors import InputError, KindError


class Positions(nn.Module):
    """How an attention layer uses the positions of tokens; each kind of positions overrides one or more of these methods.

    `positions` are absolute, integers (n,), or (B, n) if they differ between rows of a batch (B is the first
    dimension of x). By default each method changes nothing.

    >>> x = torch.ones(2, 3)
    >>> Positions().inputs(x, torch.arange(2)) is x, Positions().bias(None)
    (True, None)
    """

    def inputs(self, x: Tensor, positions: Tensor) -> Tensor:
        """The inputs of queries and keys before their projection (values have no positions): (..., n, width) → the same shape."""
        return x

    def heads(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries and keys after projection: (..., H, n, D) → the same shape."""
        return x

    def bias(self, offset: int | Tensor | None) -> Bias | None:
        """The bias that is added to the scores, or None.

        `offset` is the position of query 0 minus the position of key 0, an int or one for each batch entry (B,); None means K − Q.
        """
        return None


def checked_positions(positions: Any, x: Tensor) -> Tensor:
    """Positions on the device of x (..., n, features), one for each of its n tokens."""
    if (
        not isinstance(positions, Tensor)
        or positions.is_floating_point()
        or positions.is_complex()
        or positions.dtype == torch.bool
    ):
        kind = f"a {positions.dtype} tensor" if isinstance(positions, Tensor) else type(positions).__name__
        raise KindError("positions as whole numbers, one for each token", got=kind, fix="count: torch.arange(n)")
    rows = (1, x.shape[0]) if x.ndim > 2 else (1,)
    fits = positions.ndim == 1 or (positions.ndim == 2 and positions.shape[0] in rows)
    if not fits or positions.shape[-1] != x.shape[-2]:
        raise InputError(
            "positions (n,), or (B, n) with B the first dimension of the states (B, ..., n, features)",
            got=f"positions {tuple(positions.shape)} for {tuple(x.shape)}",
            fix="pass one position for each token",
        )
    return positions.to(x.device)


def broadcastable(values: Tensor, x: Tensor) -> Tensor:
    """Reshape values of positions, (n, F) or (B, n, F), to broadcast against x (B, ..., n, features)."""
    if values.ndim < 3:
        return values
    between = (1,) * (x.ndim - 3)
    return values.reshape(values.shape[0], *between, *values.shape[1:])  # (B, ..., n, F)
