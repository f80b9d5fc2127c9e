"""One head of a linear token mixer: any block of its signed weights, recomputed exactly by the walk back from each row."""

from torch import Tensor

from overt.lens.head import Head, Index, positions
from overt.lens.linear.captured import CapturedMixer


class MixerHead(Head):
    """One head of a linear token mixer. Its weights are signed and do not sum to one."""

    captured: CapturedMixer

    def weights(self, rows: Index = None, keys: Index = None) -> Tensor:
        """Any block of the signed weights, exactly: (B, rows, keys). None stands for all rows or all keys."""
        weights = self.recurrence.weights(positions("row", rows, self.queries))[:, 0]
        return weights if keys is None else weights[..., positions("key", keys, self.keys)]

    @property
    def recurrence(self):
        """The recurrence of this head alone."""
        return self.captured.recurrence.of_heads([self.captured.copies.index(self.head)])

    def part_of(self, tensor: Tensor) -> Tensor:
        """This head's part (B, N, D) of an input or output of the call."""
        index = self.captured.copies.index(self.head)
        return tensor[:, index * tensor.shape[1] // len(self.captured.copies)]

    @property
    def query(self) -> Tensor:
        """The head's queries (B, Q, D), with their scale."""
        return self.part_of(self.captured.recurrence.query)

    @property
    def key(self) -> Tensor:
        """The head's keys (B, K, D), with the strength of writing."""
        return self.part_of(self.captured.recurrence.key)

    @property
    def value(self) -> Tensor:
        """The head's values (B, K, E)."""
        return self.part_of(self.captured.recurrence.value)

    @property
    def output(self) -> Tensor:
        """The model's own output of the mixing of this head (B, Q, E), before gate and norm."""
        return self.part_of(self.captured.output)
