"""Convert whole words to ids, for models that label words or texts, and labels to numbers."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from overt.errors import InputError
from overt.files import whole
from overt.learn.data.corpora import CorpusExample
from overt.learn.data.tokenizer import SPECIAL, UNKNOWN, Tokenizer
from overt.reading import read_json

# MAX_ENDING: letters of the longest word ending with an id.
MAX_ENDING = 4


class WordVocabulary:
    """The words of a training corpus, by frequency after the four special tokens, and its labels in alphabetical order.

    With `parts`, a word has several ids: one for the word, one for each ending of 1 to 4 letters, and one for its shape (Xx for
    Paris, d.d for 12.5), so that an unknown word still has known parts; `Tagger` and `Classifier` add their vectors.

    >>> sentences = [["the", "cat"], ["The", "dog"]]
    >>> vocabulary = WordVocabulary.learn([CorpusExample(words, ["DET", "NOUN"]) for words in sentences], lower=True)
    >>> vocabulary.encode(["the", "DOG", "barks"]), vocabulary.labels
    ([4, 6, 3], ['DET', 'NOUN'])
    >>> word_parts("Walking")
    ['Walking', '…g', '…ng', '…ing', '…king', 'Xx']
    """

    def __init__(self, words: Sequence[str], labels: Sequence[str], *, lower: bool = False, parts: bool = False):
        self.word_list: list[str] = list(words)
        self.labels: list[str] = list(labels)
        self.lower = lower
        self.parts = parts
        self._ids = {word: number for number, word in enumerate([*SPECIAL, *words])}
        self._label_ids = {label: number for number, label in enumerate(labels)}

    @classmethod
    def learn(
        cls, examples: Iterable[CorpusExample], *, minimum_count: int = 1, lower: bool = False, parts: bool = False
    ) -> "WordVocabulary":
        """Take the words (and word parts) that occur at least `minimum_count` times in the examples, and the labels."""
        counts: Counter[str] = Counter()
        labels: set[str] = set()
        empty = cls([], [], lower=lower, parts=parts)
        for example in examples:
            labels.update([example.target] if isinstance(example.target, str) else example.target)
            for word in example.source:
                counts.update(empty._parts_of_word(word))
        # Sorted, so that words of equal count have the same order for any order of the corpus.
        frequent = sorted((word for word in counts if counts[word] >= minimum_count), key=lambda word: (-counts[word], word))
        return cls([word for word in frequent if word not in SPECIAL], sorted(labels), lower=lower, parts=parts)

    @property
    def words(self) -> int:
        """The number of ids, with the four special tokens."""
        return len(self._ids)

    def encode(self, words: Iterable[str]) -> list[int] | list[list[int]]:
        """One id for each word, or with `parts` one id for each of its parts."""
        ids = [[self._ids.get(part, UNKNOWN) for part in self._parts_of_word(word)] for word in words]
        return ids if self.parts else [word_id for [word_id] in ids]

    def label_id(self, label: str) -> int:
        """A label's number, -1 if it does not occur in training."""
        return self._label_ids.get(label, -1)

    def _parts_of_word(self, word: str) -> list[str]:
        if not self.parts:
            return [word.lower() if self.lower else word]
        *parts, shape = word_parts(word)
        return [part.lower() if self.lower else part for part in parts] + [shape]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words and labels as JSON."""
        content = {"words": self.word_list, "labels": self.labels, "lower": self.lower, "parts": self.parts}
        with whole(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def word_parts(word: str) -> list[str]:
    """A word, its endings of 1 to 4 letters, and its shape: capitals X, other letters x, digits d, repeated ones written once."""
    endings = ["…" + word[-length:] for length in range(1, MAX_ENDING + 1)]
    shape = "".join("X" if sign.isupper() else "x" if sign.isalpha() else "d" if sign.isdigit() else sign for sign in word)
    return [word, *endings, re.sub(r"(.)\1+", r"\1", shape)]


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer | WordVocabulary:
    """Read a tokenizer.json: a `Tokenizer`, or a `WordVocabulary`."""
    fix = "copy it again from the folder of its run"
    content = read_json(path, "a tokenizer", fix)
    if "labels" not in content:
        return Tokenizer.load(path)
    lists, flags = ("words", "labels"), ("lower", "parts")
    fits = content.keys() == {*lists, *flags} and all(type(content[name]) is bool for name in flags)
    if not fits or not all(_are_words(content[name]) for name in lists):
        raise InputError(f"{path} to be a vocabulary of unique words and labels", got="other content", fix=fix)
    return WordVocabulary(**content)


def _are_words(words: Any) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words) and len({*words}) == len(words)
