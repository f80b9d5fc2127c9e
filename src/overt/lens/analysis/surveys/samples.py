"""Random texts of a corpus, the same ones for any order and any number of machines."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import numpy as np

SAMPLE, TOP = 512, 8  # SAMPLE: texts drawn for all heads; TOP: strongest texts of each head


class Links(NamedTuple):
    """The strongest link of each head in one text: weight, query and key, each (heads,)."""

    weights: np.ndarray
    queries: np.ndarray
    keys: np.ndarray


def draw(index: int) -> int:
    """A hash of text number `index`: the texts with the smallest hashes are the sample."""
    return int.from_bytes(sha256(index.to_bytes(8, "little")).digest()[:8], "little")


@dataclass(eq=False)
class Samples:
    """A random sample of texts with each head's strongest link in them, and each head's strongest texts of all.

    `drawn` is the sample by text number. `top` (heads, TOP) has numbers of texts, −1 for none, and `top_links` their links, strongest
    first, and for equal weights the earlier text first. `texts` has the texts of both.
    """

    heads: int
    drawn: dict[int, Links] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    top: np.ndarray = field(init=False)
    top_links: Links = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.heads, TOP)
        self.top = np.full(shape, -1, np.int64)
        self.top_links = Links(np.full(shape, -1, np.float32), np.zeros(shape, np.int32), np.zeros(shape, np.int32))

    def add(self, indices: Iterable[int], texts: Iterable[str], links: Links) -> None:
        """Add texts with their links, each (texts, heads)."""
        numbers, strings = [*indices], [*texts]
        self.texts |= dict(zip(numbers, strings, strict=True))
        self.drawn |= {number: Links(*(link[row].copy() for link in links)) for row, number in enumerate(numbers)}
        repeated = np.broadcast_to(np.array(numbers, np.int64), (self.heads, len(numbers)))
        self._merge_top(repeated, Links(*(link.T for link in links)))
        self._forget()

    def merge(self, other: "Samples") -> None:
        """Add the samples of another part of the corpus."""
        self.texts |= other.texts
        self.drawn |= other.drawn
        self._merge_top(other.top, other.top_links)
        self._forget()

    def _merge_top(self, numbers: np.ndarray, links: Links) -> None:
        numbers = np.concatenate([self.top, numbers], axis=1)
        both = Links(*(np.concatenate(pair, axis=1) for pair in zip(self.top_links, links, strict=True)))
        order = np.lexsort((numbers, -both.weights), axis=1)[:, :TOP]
        self.top = np.take_along_axis(numbers, order, axis=1)
        self.top_links = Links(*(np.take_along_axis(side, order, axis=1) for side in both))
        self.top[self.top_links.weights < 0] = -1

    def _forget(self) -> None:
        """Drop texts that are neither in the sample nor among the strongest."""
        chosen = heapq.nsmallest(SAMPLE, self.drawn, key=lambda index: (draw(index), index))
        self.drawn = {index: self.drawn[index] for index in sorted(chosen)}
        named = {*self.drawn, *np.unique(self.top).tolist()}
        self.texts = {index: self.texts[index] for index in sorted(named) if index >= 0}
