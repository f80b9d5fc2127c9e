"""Dropout that does not wait for its random numbers."""

import torch
from torch import Tensor, nn

from overt.attention import check

_CHANCES = 2**16  # what 16 random bits can tell apart


class Dropout(nn.Module):
    """In training each number becomes 0 with probability p, and the others are divided by 1 − p, so that the mean stays.

    Srivastava et al. 2014, section 4. On a CPU torch draws numbers one after another, which takes a small model a fifth of a training
    step; here every draw of 64 bits decides four places, and p is rounded to a multiple of 1/65536. Elsewhere it is torch's own.

    >>> dropped = Dropout(0.25)(torch.ones(1000))
    >>> sorted(set(dropped.tolist())), Dropout(0.25).eval()(torch.ones(2))
    ([0.0, 1.3333333730697632], tensor([1., 1.]))
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        check.probability("dropout", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, thinned out in training."""
        dropped = round(self.p * _CHANCES)
        if not self.training or dropped == 0:
            return x
        if not x.is_cpu or dropped == _CHANCES or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        lots = draws.view(torch.int16)[: x.numel()].view(x.shape)  # from −32768, each as likely
        kept = (lots >= dropped - _CHANCES // 2).to(x.dtype)
        return x * kept.mul_(_CHANCES / (_CHANCES - dropped))

    def extra_repr(self) -> str:
        """What it was built with."""
        return f"p={self.p}"
