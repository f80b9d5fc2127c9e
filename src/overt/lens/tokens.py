"""The strings of the tokens that a model read, found for each call by its lengths."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from overt.errors import InputError, KindError
from overt.lens.capture.adapters import MULTI_HEAD
from overt.lens.captured import Captured

Strings = Sequence[str] | Sequence[Sequence[str]]
Words = list[list[str]]  # one list, or one for each batch element


class Tokens(NamedTuple):
    """One string a position, or a list of them for each batch element: what the queries read, and what the keys read.

    An encoder–decoder model has calls of three kinds. Those of its encoder have the keys' tokens on both sides, those of its decoder
    the queries', and the attention between them one of each; which is which is told by the lengths, and by the layer's name
    where both are equally long.
    """

    queries: Words | None = None
    keys: Words | None = None

    @classmethod
    def of(cls, queries: Strings | None, keys: Strings | None) -> "Tokens":
        """Check the strings; those of one side stand for both where the other's are not given."""
        query_words, key_words = _words("query_tokens", queries), _words("key_tokens", keys)
        return cls(query_words or key_words, key_words or query_words)

    def of_queries(self, call: Captured) -> Words | None:
        """The tokens of a call's queries; queries that continue a cache have the last of its keys' tokens."""
        found = self._fitting(call, call.queries, "queries")
        if found is None and self.queries is not None and not between(call):
            return [sentence[call.keys - call.queries :] for sentence in self.of_keys(call) or []]
        return found if found is not None or self.queries is None else _misfit(self, call, call.queries, "queries")

    def of_keys(self, call: Captured) -> Words | None:
        """The tokens of a call's keys."""
        found = self._fitting(call, call.keys, "keys")
        return found if found is not None or self.keys is None else _misfit(self, call, call.keys, "keys")

    def fit(self, call: Captured) -> bool:
        """Whether there are tokens of this call's lengths."""
        try:
            return self.of_queries(call) is not None and self.of_keys(call) is not None
        except InputError:
            return False

    def fingerprint(self, call: Captured) -> str:
        """What tells these tokens of a call from others; empty without any."""
        words = self.of_keys(call)
        return "" if words is None else hashlib.sha256(repr((words, self.of_queries(call))).encode()).hexdigest()[:16]

    def _fitting(self, call: Captured, length: int, side: str) -> Words | None:
        sides = (self.keys, self.queries) if side == "keys" else (self.queries, self.keys)
        fitting = [words for words in sides if words is not None and _fits(words, length, call.batch)]
        if len(fitting) == 2 and not between(call):
            # Self-attention reads the same tokens on both sides: in an encoder those of the keys, in a decoder the queries'.
            name = call.layer.lower()
            return self.keys if "encoder" in name else self.queries if "decoder" in name else fitting[0]
        return fitting[0] if fitting else None


def between(call: Captured) -> bool:
    """Whether a call is attention between two sequences, as its layer's name or its lengths tell."""
    name = call.layer.lower()
    if any(mark in name for mark in ("cross", "encoder_attn", "encdec")):
        return True
    # nn.MultiheadAttention has no cache, so other keys than queries are another sequence's.
    return call.queries > call.keys or (call.source == MULTI_HEAD and call.queries != call.keys)


def _words(name: str, given: Any) -> Words | None:
    """One list of strings for each batch element."""
    if given is None or (isinstance(given, Sequence) and not given):
        return None
    sentences = [given] if isinstance(given, Sequence) and isinstance(given[0], str) else given
    if isinstance(given, str) or not isinstance(sentences, Sequence) or not all(map(_is_sentence, sentences)):
        raise KindError(
            f"{name} is a list of strings, one a position, or a list of them for each batch element",
            got=repr(given) if len(repr(given)) < 80 else type(given).__name__,
            fix="pass tokenizer.convert_ids_to_tokens(ids)",
        )
    return [list(sentence) for sentence in sentences]


def _is_sentence(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(token, str) for token in given)


def _fits(words: Words, length: int, batch: int) -> bool:
    return len(words) in (1, batch) and all(len(sentence) == length for sentence in words)


def _misfit(tokens: Tokens, call: Captured, length: int, side: str) -> NoReturn:
    given = dict.fromkeys(str([len(sentence) for sentence in words]) for words in tokens if words is not None)
    each = f" in each of {call.batch} sequences" if call.batch > 1 else ""
    raise InputError(
        "tokens are one string for each key, and for each query, or a list of them for each batch element",
        got=f"{' and '.join(given)} tokens for {length} {side} of {call.layer}{each}",
        fix="give the tokens that the model read in this call, padding and special ones included",
    )
