"""What a model keeps while it writes, so that each word costs one step and not all of them again."""

from collections.abc import Sequence

import torch
from torch import Tensor

from overt.layers import KVCache, Prepared


class Memory:
    """A cache of what has been written, one a layer, and the source as each layer's keys and values, where there is one.

    Row i writes for sentence `sentences[i]` of those that the model's `start` read.

    >>> memory = Memory(rows=2, layers=1)
    >>> memory.reorder([1, 1, 0])
    >>> memory.sentences
    [1, 1, 0]
    """

    def __init__(self, rows: int, layers: int, source: Sequence[Prepared] = ()):
        self.sentences = list(range(rows))
        self.caches = [KVCache() for _ in range(layers)]
        self.source = list(source)

    def reorder(self, indices: Tensor | Sequence[int]) -> None:
        """Let row i go on from what is now row indices[i]; there may be more rows than before, or fewer."""
        chosen = torch.as_tensor(indices)
        for cache in self.caches:
            if cache.lengths.numel():
                cache.reorder(chosen)
        sentences = [self.sentences[index] for index in chosen.tolist()]
        # Beams change places within a sentence: what they have written moves then, and what they read stays.
        if sentences != self.sentences:
            self.source = [_rows(prepared, chosen) for prepared in self.source]
            self.sentences = sentences


def _rows(prepared: Prepared, chosen: Tensor) -> Prepared:
    chosen = chosen.to(prepared.key.device)
    lengths = None if prepared.lengths is None else prepared.lengths[chosen]
    return Prepared(prepared.key.index_select(0, chosen), prepared.value.index_select(0, chosen), lengths)
