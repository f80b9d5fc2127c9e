"""Some heads of a mask or bias that is bound to its call, as a piece of the same kind.

The native kernels support a piece of the same kind, but not a wrapper around it.
"""

from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.masks import Mask
from overt.attention.pieces import SelectHeads


def piece_for_heads(piece: Any, select: SelectHeads) -> Any:
    """The mask or bias with `select` applied to its tensors; None if its class does not support this."""
    return piece.for_heads(select) if isinstance(piece, Mask | Bias) else None


def one_head(head: int, total: int) -> SelectHeads:
    """Selects one head and removes the dimension of heads."""

    def select(tensor: Tensor, trailing: int) -> Tensor:
        dim = -1 - trailing
        if tensor.ndim < 1 + trailing:
            return tensor
        return tensor.select(dim, head // (total // tensor.shape[dim]) if tensor.shape[dim] > 1 else 0)

    return select


def some_heads(heads: tuple[int, ...], total: int) -> SelectHeads:
    """Selects some heads, in this order."""

    def select(tensor: Tensor, trailing: int) -> Tensor | None:
        dim = -1 - trailing
        if tensor.ndim < 1 + trailing or tensor.shape[dim] == 1:
            return tensor
        if min(tensor.shape[-trailing:]) > 1 and trailing == 2:
            return None
        group = total // tensor.shape[dim]
        return tensor.index_select(dim, torch.tensor([head // group for head in heads], device=tensor.device))

    return select
