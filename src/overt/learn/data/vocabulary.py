"""Whole words to ids, for models that say something of words rather than write them, and the labels that they choose from."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from overt.errors import InputError
from overt.files import read_json, whole
from overt.learn.data.corpora import Example
from overt.learn.data.tokenizer import SPECIAL, UNKNOWN, Tokenizer

# The longest ending of a word that tells what kind of word it is, in letters.
LONGEST_ENDING = 4


class WordVocabulary:
    """The words of a training corpus, the commonest first behind the special four, and its labels in the order of the alphabet.

    With `parts` a word is told by several ids: its own, those of its endings of 1 to 4 letters, and that of its shape (Xx for
    Paris, dd.d for 12.5), so that a word never seen still says something; `Tagger` and `Classifier` add their vectors up.

    >>> vocabulary = WordVocabulary.learn([Example(["the", "cat"], ["DET", "NOUN"]), Example(["The", "dog"], ["DET", "NOUN"])], lower=True)
    >>> vocabulary.encode(["the", "DOG", "barks"]), vocabulary.labels
    ([4, 6, 3], ['DET', 'NOUN'])
    >>> parts_of("Walking")
    ['Walking', '…g', '…ng', '…ing', '…king', 'Xx']
    """

    def __init__(self, words: Sequence[str], labels: Sequence[str], *, lower: bool = False, parts: bool = False):
        self.known, self.labels, self.lower, self.parts = list(words), list(labels), lower, parts
        self._ids = {word: number for number, word in enumerate([*SPECIAL, *words])}
        self._label_ids = {label: number for number, label in enumerate(labels)}

    @classmethod
    def learn(
        cls, examples: Iterable[Example], *, minimum_count: int = 1, lower: bool = False, parts: bool = False
    ) -> "WordVocabulary":
        """Take the words (and parts of words) that examples hold at least so many times, and their labels."""
        counts: Counter[str] = Counter()
        labels: set[str] = set()
        bare = cls([], [], lower=lower, parts=parts)
        for example in examples:
            labels.update([example.wanted] if isinstance(example.wanted, str) else example.wanted)
            for word in example.given:
                counts.update(bare._spelled(word))
        # Sorted, so that words of one count have one order whatever the corpus's.
        kept = sorted((word for word in counts if counts[word] >= minimum_count), key=lambda word: (-counts[word], word))
        return cls([word for word in kept if word not in SPECIAL], sorted(labels), lower=lower, parts=parts)

    @property
    def words(self) -> int:
        """How many ids there are, the special four included."""
        return len(self._ids)

    def encode(self, words: Iterable[str]) -> list[int] | list[list[int]]:
        """One id a word, or with `parts` one for each part of it."""
        ids = [[self._ids.get(part, UNKNOWN) for part in self._spelled(word)] for word in words]
        return ids if self.parts else [own for [own] in ids]

    def label_id(self, label: str) -> int:
        """A label's number, -1 for one that training has not."""
        return self._label_ids.get(label, -1)

    def _spelled(self, word: str) -> list[str]:
        if not self.parts:
            return [word.lower() if self.lower else word]
        *parts, shape = parts_of(word)
        return [part.lower() if self.lower else part for part in parts] + [shape]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words and labels as JSON."""
        content = {"words": self.known, "labels": self.labels, "lower": self.lower, "parts": self.parts}
        with whole(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def parts_of(word: str) -> list[str]:
    """A word, its endings of 1 to 4 letters, and its shape: capitals X, other letters x, digits d, runs written once."""
    endings = ["…" + word[-length:] for length in range(1, LONGEST_ENDING + 1)]
    shape = "".join("X" if sign.isupper() else "x" if sign.isalpha() else "d" if sign.isdigit() else sign for sign in word)
    return [word, *endings, re.sub(r"(.)\1+", r"\1", shape)]


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer | WordVocabulary:
    """Read a tokenizer.json, of pieces or of words."""
    fix = "copy it again from the folder of its run"
    content = read_json(path, "a tokenizer", fix)
    if "labels" not in content:
        return Tokenizer.load(path)
    lists, flags = ("words", "labels"), ("lower", "parts")
    fits = content.keys() == {*lists, *flags} and all(type(content[name]) is bool for name in flags)
    if not fits or not all(_are_words(content[name]) for name in lists):
        raise InputError(f"{path} is a vocabulary of words and labels, each once", got="something else", fix=fix)
    return WordVocabulary(**content)


def _are_words(words: Any) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words) and len({*words}) == len(words)
