"""How order gets into attention, which by itself sees a set: three places where a kind of positions may act."""

from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.biases import Bias
from overt.errors import InputError, KindError


class Positions(nn.Module):
    """Where tokens stand, told to an attention layer; each kind of positions is one or more of these hooks.

    `places` are absolute positions, whole numbers (n,), or (B, n) where the rows of a batch stand elsewhere (B is the first
    dimension of what they go with). Every hook changes nothing unless a kind says otherwise.

    >>> x = torch.ones(2, 3)
    >>> Positions().inputs(x, torch.arange(2)) is x, Positions().bias(None)
    (True, None)
    """

    def inputs(self, x: Tensor, places: Tensor) -> Tensor:
        """What asks and what is asked, before it is projected (values are not told): (..., n, width) → the same shape."""
        return x

    def heads(self, x: Tensor, places: Tensor) -> Tensor:
        """Queries and keys after projection: (..., H, n, D) → the same shape."""
        return x

    def bias(self, offset: int | Tensor | None) -> Bias | None:
        """What is added to the scores.

        `offset` is the position of query 0 less that of key 0, an int or one a batch entry (B,); None stands for K − Q.
        """
        return None


def checked_places(places: Any, x: Tensor) -> Tensor:
    """Places on the device of x (..., n, features), one for each of its n tokens."""
    if not isinstance(places, Tensor) or places.is_floating_point() or places.is_complex() or places.dtype == torch.bool:
        kind = f"a {places.dtype} tensor" if isinstance(places, Tensor) else type(places).__name__
        raise KindError("places are whole numbers, one for each token", got=kind, fix="count: torch.arange(n)")
    rows = (1, x.shape[0]) if x.ndim > 2 else (1,)
    if places.ndim not in (1, 2) or places.shape[-1] != x.shape[-2] or (places.ndim == 2 and places.shape[0] not in rows):
        raise InputError(
            "places are (n,), or (B, n) with B the first dimension of what they go with (B, ..., n, features)",
            got=f"places {tuple(places.shape)} for {tuple(x.shape)}",
            fix="pass one place for each token",
        )
    return places.to(x.device)


def beside(values: Tensor, x: Tensor) -> Tensor:
    """Values of places, (n, F) or (B, n, F), shaped to broadcast against x (B, ..., n, features)."""
    if values.ndim < 3:
        return values
    between = (1,) * (x.ndim - 3)
    return values.reshape(values.shape[0], *between, *values.shape[1:])  # (B, ..., n, F)
