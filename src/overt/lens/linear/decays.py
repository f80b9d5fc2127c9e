"""The decays between any two positions, and the products of written and reading vectors through them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

ZERO = -800.0  # a log of a decay below this is a decay of 0, because its exp is 0 even in float64


class Decays:
    """The products of decays between any two of N positions, as exp of differences of cumulated logs; log_decay (B, H, N, 1 or D).

    Logs are cumulated in float64. Decays of 0 are counted separately, because their logs would swamp all others in the cumulated sum.
    """

    def __init__(self, log_decay: Tensor | None, length: int):
        self.length = length
        self.logs: Tensor | None = None
        if log_decay is not None:
            zero = log_decay < ZERO
            logs = torch.where(zero, 0, log_decay).double().cumsum(2)
            self.logs = pad(logs, (0, 0, 1, 0))  # (B, H, N + 1, 1 or D): entry j + 1 is up to position j
            self.zeros: Tensor | None = pad(zero.cumsum(2), (0, 0, 1, 0)) if bool(zero.any()) else None

    def products(self, reading: Sequence[Tensor], written: Sequence[Tensor]) -> list[list[Tensor]]:
        """The product of each reading vector with each earlier written vector, through the decays between both positions.

        For each pair of the tensors `reading` and `written` (B, H, N, D): Σ_d reading_id · Π_{j < l < i} a_ld · written_jd for j < i,
        else 0, (B, H, N, N).
        """
        if self.logs is not None and self.logs.shape[-1] > 1:
            return self._by_feature(torch.stack(list(reading), dim=-2), torch.stack(list(written), dim=-2))
        dtype, device = reading[0].dtype, reading[0].device
        allowed = torch.ones(self.length, self.length, dtype=torch.bool, device=device).tril(-1)
        factor = allowed.to(dtype)
        if self.logs is not None:
            logs = self.logs[..., 0]
            difference = torch.where(allowed, logs[..., :-1, None] - logs[..., None, 1:], -torch.inf)
            if self.zeros is not None:
                zeros = self.zeros[..., 0]
                difference = torch.where(zeros[..., :-1, None] == zeros[..., None, 1:], difference, -torch.inf)
            factor = difference.exp_().to(dtype)
        return [[(one @ other.mT).mul_(factor) for other in written] for one in reading]

    def _by_feature(self, reading: Tensor, written: Tensor) -> list[list[Tensor]]:
        """The products for (B, H, N, R, D) and (B, H, N, W, D), computed one reading position at a time."""
        assert self.logs is not None
        batch, heads, length, readers, _ = reading.shape
        writers = written.shape[-2]
        total = reading.new_zeros(batch, heads, readers, length, length, writers)
        for position in range(1, length):
            earlier = slice(1, position + 1)
            difference = self.logs[:, :, position, None] - self.logs[:, :, earlier]  # (B, H, j, D)
            if self.zeros is not None:
                same = self.zeros[:, :, position, None] == self.zeros[:, :, earlier]
                difference = torch.where(same, difference, -torch.inf)
            left = written[:, :, :position] * difference.exp_().to(written.dtype)[..., None, :]  # (B, H, j, W, D)
            read = reading[:, :, position] @ left.flatten(2, 3).mT  # (B, H, R, j · W)
            total[:, :, :, position, :position] = read.unflatten(-1, (position, writers))
        return [[total[:, :, reader, ..., writer] for writer in range(writers)] for reader in range(readers)]

    def from_start(self) -> Tensor | float:
        """The factor of the start state in the states before each position and after the last: (B, H, N + 1, 1 or D)."""
        if self.logs is None:
            return 1.0
        return (self.logs if self.zeros is None else torch.where(self.zeros == 0, self.logs, -torch.inf)).exp()

    def to_position(self, last: int) -> Tensor | float:
        """The factor after position `last` of the vector written at each position up to it: (B, H, last + 1, 1 or D), or 1."""
        if self.logs is None:
            return 1.0
        difference = self.logs[:, :, last + 1, None] - self.logs[:, :, 1 : last + 2]
        if self.zeros is not None:
            same = self.zeros[:, :, last + 1, None] == self.zeros[:, :, 1 : last + 2]
            difference = torch.where(same, difference, -torch.inf)
        return difference.exp()
