"""Dropout with fast random numbers on the CPU."""

import torch
from torch import Tensor, nn

from overt.attention import check

_VALUES = 2**16  # values of 16 random bits


class Dropout(nn.Module):
    """In training each number becomes 0 with probability p, and the others are divided by 1 − p, which preserves the mean.

    Srivastava et al. 2014, section 4. On a CPU torch draws a number for each element, a fifth of the time of a training step of a small
    model; here each draw of 64 bits decides four elements, and p is rounded to a multiple of 1/65536. Other devices use torch's dropout.

    >>> dropped = Dropout(0.25)(torch.ones(1000))
    >>> sorted(set(dropped.tolist())), Dropout(0.25).eval()(torch.ones(2))
    ([0.0, 1.3333333730697632], tensor([1., 1.]))
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        check.probability("dropout", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, with zeros in training."""
        dropped_values = round(self.p * _VALUES)
        if not self.training or dropped_values == 0:
            return x
        if not x.is_cpu or dropped_values == _VALUES or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        numbers = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform, from −32768
        factors = (numbers >= dropped_values - _VALUES // 2).to(x.dtype)
        return x * factors.mul_(_VALUES / (_VALUES - dropped_values))

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
