"""A recurrence in chunks of positions: many rows of weights and the output, without a step for each position."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.triangular import Stretch

# _LENGTH, _LENGTH_BY_FEATURE: positions of a chunk; shorter if each feature has its own decay, which prevents a matrix product.
_LENGTH, _LENGTH_BY_FEATURE = 64, 32
_BLOCK = 2**22  # numbers in a block of weights
_NUMBERS = 2**25  # numbers in the chunk matrices that are computed together


class Chunks:
    """A recurrence as matrices for each chunk of positions, computed in float64 and stored in the dtype of sums.

    A row walks back chunk by chunk: its vector r (D) gives the weights r · written for a chunk, and becomes r · carried.
    Memory grows with K · D, never with Q × K.
    """

    def __init__(self, recurrence: Recurrence, dtype: torch.dtype | None = None):
        self.recurrence = recurrence
        ready = recurrence.ready()
        by_feature = ready.log_decay is not None and ready.log_decay.shape[-1] > 1
        self.length: int = max(1, min(_LENGTH_BY_FEATURE if by_feature else _LENGTH, recurrence.keys))
        self.count: int = -(-recurrence.keys // self.length)
        self.offset: int = recurrence.keys - recurrence.queries
        self.dtype: torch.dtype = dtype or recurrence.dtype
        self.value: Tensor = self._chunked(ready.value).to(self.dtype)  # (B, H, N, C, E)
        query, names = pad(ready.query, (0, 0, self.offset, 0)), ("key", "log_decay", "erase", "probe")
        parts = [self._joined(part) for part in (query, *(getattr(ready, name) for name in names))]
        stretch = Stretch(*parts, recurrence.reads)  # type: ignore[arg-type]
        self.local: Tensor = self._by_chunk(stretch.weights)
        self.asking: Tensor = self._by_chunk(stretch.asking)
        self.written: Tensor = self._by_chunk(stretch.written)
        self.carried: Tensor = self._by_chunk(stretch.carried)
        if ready.diagonal is not None:
            diagonal = self._chunked(pad(ready.diagonal, (self.offset, 0))[..., None])[..., 0]
            self.local = self.local + diagonal.to(self.dtype).diag_embed()
        self.start: Tensor | None = ready.start
        self.normalizer: Tensor | None = ready.normalizer

    def _chunked(self, tensor: Tensor) -> Tensor:
        """(B, H, K, …) as (B, H, N, C, …); positions past the end write nothing, erase nothing and keep the state."""
        return pad(tensor, (0, 0, 0, self.count * self.length - tensor.shape[2])).unflatten(2, (self.count, self.length))

    def _joined(self, tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else self._chunked(tensor.double()).flatten(1, 2)  # (B, H · N, C, D)

    def _by_chunk(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(1, (self.recurrence.heads, self.count)).to(self.dtype)  # (B, H, N, …)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Blocks of rows in order: the first row of each, and its weights (B, H, rows, K)."""
        recurrence = self.recurrence
        size = max(1, _BLOCK // max(1, recurrence.batch * recurrence.heads * recurrence.keys))
        for first in range(0, max(recurrence.queries, 1), size):  # one empty block if there are no rows
            yield first, self.weights(range(first, min(first + size, recurrence.queries)))

    def weights(self, rows: Sequence[int]) -> Tensor:
        """The weights of these queries, in ascending order: (B, H, rows, K)."""
        positions = [row + self.offset for row in rows]
        lead = self.value.shape[:2]
        weights = self.value.new_zeros(*lead, len(positions), self.count * self.length)
        asking = self.value.new_zeros(*lead, 0, self.recurrence.query.shape[-1])  # r of the rows after this chunk
        for chunk in range(positions[-1] // self.length if positions else -1, -1, -1):
            behind = len(positions) - asking.shape[2]
            here = slice(chunk * self.length, (chunk + 1) * self.length)
            weights[:, :, behind:, here] = asking @ self.written[:, :, chunk]
            carried = self.carried[:, :, chunk]
            asking = asking @ carried if carried.shape[-1] > 1 or asking.shape[-1] == 1 else asking * carried.mT
            inside = [position - here.start for position in positions[:behind] if position >= here.start]
            if inside:
                weights[:, :, behind - len(inside) : behind, here] = self.local[:, :, chunk, inside]
                asking = torch.cat([self.asking[:, :, chunk, inside], asking], dim=2)
        weights = weights[..., : self.recurrence.keys]
        if self.normalizer is not None:
            weights /= self.normalizer[:, :, list(rows), None].to(self.dtype)
        return weights

    def output(self) -> Tensor:
        """The outputs (B, H, Q, E)."""
        state = self.value.new_zeros(*self.value.shape[:2], self.recurrence.query.shape[-1], self.value.shape[-1])
        state = state if self.start is None else self.start.to(self.dtype)
        outputs = [self.value[:, :, :0].flatten(2, 3)]
        for chunk in range(self.count):
            value, carried = self.value[:, :, chunk], self.carried[:, :, chunk]
            if (chunk + 1) * self.length > self.offset:
                outputs.append(self.local[:, :, chunk] @ value + self.asking[:, :, chunk] @ state)
            left = carried @ state if carried.shape[-1] > 1 or state.shape[-2] == 1 else carried * state
            state = left + self.written[:, :, chunk] @ value
        output = torch.cat(outputs, dim=2)  # from the first chunk that has a query
        skipped = self.offset // self.length * self.length if self.recurrence.queries else 0
        output = output[:, :, self.offset - skipped : self.recurrence.keys - skipped]
        return output if self.normalizer is None else output / self.normalizer[..., None].to(self.dtype)


def head_groups(recurrence: Recurrence) -> Iterator[Recurrence]:
    """The recurrence in groups of heads, so that the chunk matrices of one group stay small."""
    by_head = recurrence.batch * recurrence.keys * 6 * max(1, recurrence.query.shape[-1], recurrence.value.shape[-1])
    size = max(1, _NUMBERS // max(1, by_head))
    for first in range(0, recurrence.heads, size):
        yield recurrence.of_heads(range(first, min(first + size, recurrence.heads)))
