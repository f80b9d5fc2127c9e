"""Batches of like length, as many examples as a budget of tokens holds."""

from collections.abc import Sequence

import numpy as np

from overt.errors import InputError


class Batches:
    """Batches whose tokens, padding counted, stay within a budget; an epoch's are a function of seed and epoch alone.

    `lengths` are one number an example, or one for each of its sides, (N,) or (N, sides); a batch costs its rows times the longest
    side among them. Examples are put in a random order, then sorted by length (which leaves equals in that order), cut into
    batches, and the batches shuffled: little padding, and other neighbours in each epoch. An example longer than the budget is a
    batch of its own.

    >>> batches = Batches([3, 9, 3, 4], tokens_per_batch=12, seed=0)
    >>> sorted(sorted(batch) for batch in batches.epoch(0))
    [[0, 2, 3], [1]]
    >>> batches.epoch(5) == batches.epoch(5)
    True
    """

    def __init__(self, lengths: Sequence[int] | Sequence[Sequence[int]], tokens_per_batch: int, seed: int):
        sides = np.asarray(lengths, dtype=np.int64)
        if not len(sides):
            raise InputError("batches are made of at least one example", got="none", fix="check the training data")
        self._sides = sides.reshape(len(sides), -1)  # (N, sides)
        self._longest = self._sides.max(1)
        self._budget, self._seed = tokens_per_batch, seed

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of one epoch, each a list of examples' indices."""
        generator = np.random.default_rng([self._seed, number])
        order = generator.permutation(len(self._sides))
        # lexsort sorts by its last key first, and keeps the random order among equals.
        order = order[np.lexsort([*self._sides[order].T, self._longest[order]])]
        batches = self._cut(order.tolist())
        return [batches[place] for place in generator.permutation(len(batches))]

    def _cut(self, order: list[int]) -> list[list[int]]:
        batches: list[list[int]] = [[]]
        for index in order:
            # Sorted by length, the newest is the longest.
            if batches[-1] and (len(batches[-1]) + 1) * self._longest[index] > self._budget:
                batches.append([])
            batches[-1].append(index)
        return batches
