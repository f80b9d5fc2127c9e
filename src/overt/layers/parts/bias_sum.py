"""A layer's own bias beside its caller's: their sum, a block at a time, so that nothing of size Q × K is built."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention import check
from overt.attention.biases import Bias
from overt.attention.pieces import piece
from overt.errors import InputError


def sum_of(first: Any, second: Any) -> Any:
    """Both biases, where a layer has one of its own and is given another; either may be None."""
    return second if first is None else first if second is None else SumOfBiases(as_bias(first), as_bias(second))


def as_bias(bias: Any) -> Any:
    """A bias that gives its blocks, from what a caller passes."""
    if isinstance(bias, Bias):
        return bias
    check.bias_tensor(bias)
    return TensorBias(bias)


@piece
class SumOfBiases(Bias):
    """What both biases add."""

    first: Bias
    second: Bias

    trailing: ClassVar = {}

    def bind(self, leading, queries, keys):
        """Both bound."""
        return SumOfBiases(self.first.bind(leading, queries, keys), self.second.bind(leading, queries, keys))

    def block(self, rows, keys):
        """The sum of their numbers."""
        return self.first.block(rows, keys) + self.second.block(rows, keys)

    @property
    def leading(self):
        """The first dimensions that both broadcast to."""
        return torch.broadcast_shapes(self.first.leading, self.second.leading)

    @property
    def held(self):
        """The first one's."""
        return self.first.held


@piece
class TensorBias(Bias):
    """A tensor that broadcasts, aligned right, against (..., Q, K), as a bias that gives its blocks."""

    tensor: Tensor

    trailing: ClassVar = {"tensor": 2}

    def bind(self, leading, queries, keys):
        """Itself, if its last two sizes are 1 or those of the call."""
        rows, columns = (1, 1, *self.tensor.shape)[-2:]
        if (rows != 1 and rows != queries) or (columns != 1 and columns != keys):
            raise InputError(
                f"a bias broadcasts, aligned right, against the weights (..., Q, K) = (..., {queries}, {keys})",
                got=f"a bias of shape {tuple(self.tensor.shape)}",
                fix="cut it to the call's lengths, or insert dimensions of size 1",
            )
        return self

    def block(self, rows, keys):
        """The tensor's own rows and keys; dimensions of size 1 stay."""
        tensor = self.tensor.reshape((1,) * (2 - self.tensor.ndim) + tuple(self.tensor.shape))
        tensor = tensor if tensor.shape[-2] == 1 else tensor[..., rows, :]
        return tensor if tensor.shape[-1] == 1 else tensor[..., keys]

    @property
    def leading(self):
        """Its dimensions before the last two."""
        return tuple(self.tensor.shape[:-2])

    @property
    def held(self):
        """The tensor."""
        return self.tensor
