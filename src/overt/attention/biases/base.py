"""The base class of biases, their sum, and a tensor as a bias: each computes its numbers a block at a time."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.check import align_left, bias_tensor, broadcasts
from overt.attention.pieces import SelectHeads, inherit_only_with, narrowed, piece, select_heads, whole_numbers, within_64_bits


class Bias:
    """The base class of biases: a bias bound to the sizes of a call computes the numbers to add, block by block.

    >>> from overt import ALiBi
    >>> block = ALiBi(torch.tensor([1.0])).bind(3, 2, 2).block(torch.arange(2), torch.arange(2))
    >>> isinstance(ALiBi(torch.tensor([1.0])), Bias), block.tolist()
    (True, [[[-0.0, -1.0], [-1.0, -0.0]]])
    """

    offset: int | Tensor | None = None

    by_distance: ClassVar[bool] = False
    """Whether the numbers depend only on distance and head: native kernels then read Q + K − 1 of them, not Q × K."""

    trailing: ClassVar[dict[str, int] | None] = None
    """Number of dimensions after batch and heads, by the name of each tensor of a bound bias; None if unknown."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_only_with("block", cls, Bias, ("by_distance", "trailing", "of_block"))

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The same bias for a call with this number of leading dimensions and the lengths Q and K."""
        raise NotImplementedError

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The numbers to add for these rows and keys: broadcastable to (..., rows, keys)."""
        raise NotImplementedError

    def added_pairs(self) -> Tensor | None:
        """The tensor (..., Q or 1, K or 1) of a bound bias, if the bias is only that tensor."""
        return None

    def for_heads(self, select: SelectHeads) -> "Bias | None":
        """A bound bias with `select` applied to its tensors; None if the dimension of the heads is unknown."""
        return select_heads(self, select)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The bound bias of only these rows and keys, both counted from 0.

        >>> from overt import ALiBi
        >>> ALiBi(torch.tensor([1.0]), offset=0).of_block(slice(2, 4), slice(3, 6)).block(torch.arange(1), torch.arange(2))
        tensor([[[-1., -2.]]])
        """
        return BiasBlock(self, rows.start, keys.start)

    @property
    def leading(self) -> tuple[int, ...]:
        """The dimensions of a block before (rows, keys)."""
        raise NotImplementedError

    @property
    def source(self) -> Tensor:
        """The tensor from which the bias is computed."""
        raise NotImplementedError

    def _distance(self, rows: Tensor, keys: Tensor) -> Tensor:
        return keys - (rows[:, None] + (0 if self.offset is None else self.offset))  # (rows, keys), or (B, …, 1, rows, keys)

    def _bound_offset(self, leading: int, queries: int, keys: int) -> int | Tensor:
        return keys - queries if self.offset is None else within_64_bits(align_left(type(self).__name__, self.offset, leading))

    def _offset_of_block(self, rows: slice, keys: slice) -> int | Tensor:
        return (0 if self.offset is None else self.offset) + rows.start - keys.start

    def _check_offset(self) -> None:
        if self.offset is not None:
            whole_numbers(type(self).__name__, "offset", self.offset)


@piece
class SumOfBiases(Bias):
    """The sum of two biases."""

    first: Bias
    second: Bias

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, as_bias(getattr(self, name)))

    trailing: ClassVar[dict[str, int] | None] = {}

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """Bind both biases."""
        return SumOfBiases(self.first.bind(leading, queries, keys), self.second.bind(leading, queries, keys))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The sum of both blocks."""
        return self.first.block(rows, keys) + self.second.block(rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """Both biases, restricted to these rows and keys."""
        return SumOfBiases(self.first.of_block(rows, keys), self.second.of_block(rows, keys))

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading dimensions to which both broadcast."""
        return torch.broadcast_shapes(self.first.leading, self.second.leading)

    @property
    def source(self) -> Tensor:
        """The source of the first bias."""
        return self.first.source


@piece
class TensorBias(Bias):
    """A tensor that broadcasts, aligned right, against (..., Q, K), as a bias; `attend` wraps tensors in it."""

    tensor: Tensor

    def __post_init__(self) -> None:
        bias_tensor(self.tensor)

    trailing: ClassVar[dict[str, int] | None] = {"tensor": 2}

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The bias with at least two dimensions, if the last two are of size 1 or Q and K."""
        broadcasts("bias", self.tensor, queries, keys, leading)
        tensor = self.tensor
        return self if tensor.ndim > 1 else TensorBias(tensor.reshape((1,) * (2 - tensor.ndim) + tuple(tensor.shape)))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The tensor's rows and keys; dimensions of size 1 stay."""
        return narrowed(self.tensor, rows, keys)

    def added_pairs(self) -> Tensor:
        """The tensor."""
        return self.tensor

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The tensor's rows and keys."""
        return TensorBias(narrowed(self.tensor, rows, keys))

    @property
    def leading(self) -> tuple[int, ...]:
        """The tensor's dimensions before the last two."""
        return tuple(self.tensor.shape[:-2])

    @property
    def source(self) -> Tensor:
        """The tensor."""
        return self.tensor


@dataclass(frozen=True, eq=False)
class BiasBlock(Bias):
    """A block of a bound bias: its rows from `first_row` on and its keys from `first_key` on."""

    inner: Bias
    first_row: int
    first_key: int

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys, shifted by the block's first row and key."""
        return self.inner.block(rows + self.first_row, keys + self.first_key)

    @property
    def by_distance(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the bias depends only on distance and head."""
        return self.inner.by_distance

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading dimensions of the bias."""
        return self.inner.leading

    @property
    def source(self) -> Tensor:
        """The source of the bias."""
        return self.inner.source


def as_bias(bias: "Bias | Tensor") -> Bias:
    """Convert a caller's argument to a `Bias`: a `Bias` stays, a tensor becomes a `TensorBias`.

    >>> as_bias(torch.zeros(2, 3)).bind(0, 2, 3).block(torch.arange(1), torch.arange(3)).shape
    torch.Size([1, 3])
    """
    if isinstance(bias, Bias):
        return bias
    return TensorBias(bias)


def sum_of(first: "Bias | Tensor | None", second: "Bias | Tensor | None") -> "Bias | Tensor | None":
    """The sum of two biases, computed a block at a time; None counts as 0.

    >>> from overt import ALiBi
    >>> bias = sum_of(ALiBi(torch.tensor([1.0]), offset=0), torch.ones(2, 2))
    >>> bias.block(torch.arange(2), torch.arange(2))
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    return second if first is None else first if second is None else SumOfBiases(as_bias(first), as_bias(second))
