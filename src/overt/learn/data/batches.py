"""Batches of examples of similar length, as many as a token budget allows."""

from collections.abc import Sequence

import numpy as np

from overt.errors import InputError


class Batches:
    """Batches whose tokens, padding included, stay within a budget; an epoch's batches depend only on the seed and the epoch.

    `lengths` has one number for each example, or one for each of its sides: (N,) or (N, sides). A batch has rows × longest
    side tokens. Examples are shuffled, sorted by length (stable), cut into batches, and the batches are shuffled: little padding, and
    different batches in each epoch. An example longer than the budget is a batch by itself.

    >>> batches = Batches([3, 9, 3, 4], tokens_per_batch=12, seed=0)
    >>> sorted(sorted(batch) for batch in batches.epoch(0))
    [[0, 2, 3], [1]]
    >>> batches.epoch(5) == batches.epoch(5)
    True
    """

    def __init__(self, lengths: Sequence[int] | Sequence[Sequence[int]], tokens_per_batch: int, seed: int):
        sides = np.asarray(lengths, dtype=np.int64)
        if not len(sides):
            raise InputError("at least one example", got="none", fix="check the training data")
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
        return [batches[index] for index in generator.permutation(len(batches))]

    def _cut(self, order: list[int]) -> list[list[int]]:
        batches: list[list[int]] = [[]]
        for index in order:
            # Examples are sorted by length, so the newest is the longest.
            if batches[-1] and (len(batches[-1]) + 1) * self._longest[index] > self._budget:
                batches.append([])
            batches[-1].append(index)
        return batches
