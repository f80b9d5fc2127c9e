"""A bias that is the sum of one number per query and one per key."""

from typing import ClassVar

import torch
from torch import Tensor

from overt.attention.biases.base import Bias, SumOfBiases
from overt.attention.check import float_tensor
from overt.attention.pieces import piece
from overt.errors import InputError


@piece
class LineBias(Bias):
    """The sum of one number per query and one per key: of_queries_i + of_keys_j.

    `of_queries` (..., Q) and `of_keys` (..., K), whose leading dimensions are aligned right with batch and heads. They are added
    in float64, so that sums near 0 of large numbers lose no digits. Raises InputError if a length is not the call's.

    >>> bias = LineBias(torch.tensor([0.0, 10.0]), torch.tensor([1.0, 2.0]))
    >>> bias.bind(0, 2, 2).block(torch.arange(2), torch.arange(2))
    tensor([[ 1.,  2.],
            [11., 12.]], dtype=torch.float64)
    """

    of_queries: Tensor
    of_keys: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"of_queries": 1, "of_keys": 1}

    def __post_init__(self) -> None:
        for name, length in (("of_queries", "Q"), ("of_keys", "K")):
            tensor = getattr(self, name)
            float_tensor(f"{name} of overt.biases.LineBias", tensor)
            if tensor.ndim < 1:
                raise InputError(f"{name} of overt.biases.LineBias (..., {length})", got="()", fix="give it a dimension")

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The bias in float64, if its lengths are the call's."""
        if (self.of_queries.shape[-1], self.of_keys.shape[-1]) != (queries, keys):
            raise InputError(
                f"of_queries (..., {queries}) and of_keys (..., {keys}) in overt.biases.LineBias",
                got=f"{tuple(self.of_queries.shape)} and {tuple(self.of_keys.shape)}",
                fix="pass one number for each query and each key of the call",
            )
        return LineBias(self.of_queries.double(), self.of_keys.double())

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The sums of these rows and keys: (..., rows, keys)."""
        return self.of_queries[..., rows, None] + self.of_keys[..., None, keys]

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The numbers of only these rows and keys."""
        return LineBias(self.of_queries[..., rows], self.of_keys[..., keys])

    @property
    def leading(self) -> tuple[int, ...]:
        """The dimensions before the last, to which both tensors broadcast."""
        return tuple(torch.broadcast_shapes(self.of_queries.shape[:-1], self.of_keys.shape[:-1]))

    @property
    def source(self) -> Tensor:
        """The numbers of the keys."""
        return self.of_keys


def without_lines(bias: Bias | None) -> tuple[Bias | None, LineBias | None]:
    """Split a bound bias into a bias that is no `LineBias` and one that is; the sum of both is the bias, either may be None."""
    if type(bias) is LineBias:
        return None, bias
    if type(bias) is SumOfBiases and LineBias in (type(bias.first), type(bias.second)):
        return (bias.first, bias.second) if type(bias.second) is LineBias else (bias.second, bias.first)  # type: ignore[return-value]
    return bias, None
