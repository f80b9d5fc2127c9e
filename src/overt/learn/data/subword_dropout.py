"""BPE-dropout: in each epoch a word is cut into different pieces, so a model sees many segmentations of it.

Provilkov et al. 2020, section 3: each step of the segmentation skips each possible merge with a given probability. The package
`tokenizers` implements it with unseeded random numbers; here they depend on a seed.
"""

import itertools
import json
import random
from collections.abc import Sequence

import numpy as np

from overt.learn.data.tokenizer import Tokenizer

# SEGMENTATIONS: samples for each different word; an epoch uses one of them for each occurrence.
SEGMENTATIONS = 16


class SubwordSampler:
    """Token ids of texts with randomly skipped merges, reproducible from seed and epoch.

    >>> tokenizer = Tokenizer.learn(["low lower lowest", "new newer newest"], merges=20)
    >>> sampler = SubwordSampler(tokenizer, ["newer low"], dropout=0.5, seed=0)
    >>> [tokenizer.tokens(row) for row in sampler.epoch(1)]
    [['▁', 'n', 'e', 'wer', '▁', 'l', 'o', 'w']]
    >>> tokenizer.decode(sampler.epoch(2)[0])
    'newer low'
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], *, dropout: float, seed: int):
        segmentation = _Segmentation(tokenizer)
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(word, len(numbers)) for word in segmentation.words(text)] for text in texts]
        self._seed = seed
        self._lengths: np.ndarray = np.array([len(row) for row in rows])
        self._words: np.ndarray = np.array(
            [number for row in rows for number in row], dtype=np.int64
        )  # all texts, concatenated
        generator = random.Random(f"{seed} {dropout}")
        # Words are sampled in the order of their first occurrence.
        self._choices: list[list[int]] = [
            segmentation.sample(word, dropout, generator) for word in numbers for _ in range(SEGMENTATIONS)
        ]

    def epoch(self, number: int) -> list[list[int]]:
        """The ids of each text in one epoch."""
        drawn = np.random.default_rng([self._seed, number]).integers(SEGMENTATIONS, size=len(self._words))
        chosen = (self._words * SEGMENTATIONS + drawn).tolist()
        rows, start = [], 0
        for length in self._lengths.tolist():
            rows.append([piece for word in chosen[start : start + length] for piece in self._choices[word]])
            start += length
        return rows


class _Segmentation:
    """A tokenizer's segmentation of one word into pieces."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.ids = tokenizer.pieces.get_vocab()
        merges = json.loads(tokenizer.pieces.to_str())["model"]["merges"]
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}

    def words(self, text: str) -> list[str]:
        """The parts of a text that merges do not cross."""
        [prepared] = self.tokenizer.prepare([text])
        return [word for word, _ in self.tokenizer.pieces.pre_tokenizer.pre_tokenize_str(prepared)]

    def sample(self, word: str, dropout: float, generator: random.Random) -> list[int]:
        """Segment a word, skipping each possible merge with probability `dropout` at each step; returns the ids."""
        pieces = list(word)
        while True:
            pairs = itertools.pairwise(pieces)
            possible = [(self.ranks[pair], index) for index, pair in enumerate(pairs) if pair in self.ranks]
            possible = [merge for merge in possible if generator.random() >= dropout]
            if not possible:
                return [number for piece in pieces for number in self._numbers(piece)]
            index = min(possible)[1]
            pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]

    def _numbers(self, piece: str) -> list[int]:
        """The id of a piece; for a character without a piece, the ids of its bytes, or the unknown token's."""
        return [self.ids[piece]] if piece in self.ids else self.tokenizer.encode_piece(piece)
