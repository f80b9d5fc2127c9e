"""The strings of the tokens that a model read, matched with each call by its lengths."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from torch import nn

from overt.errors import InputError, KindError
from overt.lens.capture.sink import MULTI_HEAD
from overt.lens.captured import Captured
from overt.lens.text.texts import Texts

Strings = Sequence[str] | Sequence[Sequence[str]]
Words = list[list[str]]  # one list for all batch elements, or one for each


@dataclass(frozen=True, eq=False)
class Tokens:
    """The strings of the queries and of the keys: one for each position, or a list of them for each batch element.

    The caller passes the strings, or a tokenizer decodes them from `texts`, the token ids that the model read.

    An encoder–decoder model makes three kinds of calls. Encoder self-attention has the keys' tokens on both sides, decoder
    self-attention the queries', and cross-attention has both. The lengths of a call decide its kind, or the name of its layer if
    both texts are equally long.
    """

    queries: Words | None = None
    keys: Words | None = None
    texts: Texts = field(default_factory=Texts)

    @classmethod
    def from_strings(cls, queries: Strings | None, keys: Strings | None, texts: Texts | None = None) -> "Tokens":
        """Check the strings; the strings of one side serve both if the other side has none."""
        query_words, key_words = _words("query_tokens", queries), _words("key_tokens", keys)
        texts = Texts() if texts is None else texts
        return cls(query_words or key_words, key_words or query_words, texts)

    @classmethod
    def checked(cls, queries: Strings | None, keys: Strings | None, tokenizer: Any, model: nn.Module) -> "Tokens":
        """The caller's strings, or the tokenizer's words. Raises InputError if both are passed."""
        if tokenizer is not None and (queries is not None or keys is not None):
            raise InputError("tokens or a tokenizer", got="both", fix="leave query_tokens and key_tokens out")
        return cls.from_strings(queries, keys, Texts.with_tokenizer(tokenizer, model))

    @property
    def known(self) -> bool:
        """Whether there are strings, token ids with a tokenizer, or parts of pictures and sound."""
        return self.keys is not None or self.texts.known

    def query_words(self, call: Captured) -> Words | None:
        """The tokens of a call's queries: the last tokens of its keys if the queries continue a cache."""
        if self.queries is None:
            return self._read(call, call.queries, is_cross_attention(call), queries=True)
        words = self._matching(call, call.queries, "queries")
        if words is None and not is_cross_attention(call):
            return [sentence[call.keys - call.queries :] for sentence in self.key_words(call) or []]
        return words if words is not None else _no_match(self, call, call.queries, "queries")

    def key_words(self, call: Captured) -> Words | None:
        """The tokens of a call's keys."""
        if self.keys is None:
            return self._read(call, call.keys, is_cross_attention(call), queries=False)
        words = self._matching(call, call.keys, "keys")
        return words if words is not None else _no_match(self, call, call.keys, "keys")

    def one_sequence(self, call: Captured) -> bool:
        """Whether a call's queries are positions of the sequence of its keys."""
        words, offset = self.key_words(call), call.keys - call.queries
        return not is_cross_attention(call) and (
            words is None or self.query_words(call) == [sentence[offset:] for sentence in words]
        )

    def fit(self, call: Captured) -> bool:
        """Whether there are tokens of this call's lengths."""
        try:
            return self.query_words(call) is not None and self.key_words(call) is not None
        except InputError:
            return False

    def fingerprint(self, call: Captured) -> str:
        """A hash of the tokens of a call; empty without tokens."""
        words = self.key_words(call)
        return "" if words is None else hashlib.sha256(repr((words, self.query_words(call))).encode()).hexdigest()[:16]

    def _read(self, call: Captured, length: int, cross: bool, queries: bool) -> Words | None:
        """The words of the ids that a call's queries or keys were read from."""
        if (read := getattr(call, "read", ())) and (queries or not cross):
            words = self.texts.tokens_of_passes(call.layer, read, call.batch)
            if words is None or len(words[0]) < length:
                return None
            return cast(Words, [sentence[len(sentence) - length :] for sentence in words])
        other = cross and not queries
        return cast("Words | None", self.texts.tokens_of_call(call.layer, call.pass_index, call.batch, length, other))

    def _matching(self, call: Captured, length: int, side: str) -> Words | None:
        sides = (self.keys, self.queries) if side == "keys" else (self.queries, self.keys)
        matching = [words for words in sides if words is not None and _has_lengths(words, length, call.batch)]
        if len(matching) == 2 and not is_cross_attention(call):
            # Self-attention reads the same tokens on both sides: the keys' tokens in an encoder, the queries' in a decoder.
            name = call.layer.lower()
            return self.keys if "encoder" in name else self.queries if "decoder" in name else matching[0]
        return matching[0] if matching else None


def is_cross_attention(call: Captured) -> bool:
    """Whether a call is attention between two sequences, by its layer's name or its lengths."""
    name = call.layer.lower()
    if any(mark in name for mark in ("cross", "encoder_attn", "encdec")):
        return True
    if "decoder" in name and name.endswith(".multihead_attn"):  # as nn.TransformerDecoderLayer calls it, next to its self_attn
        return True
    # nn.MultiheadAttention has no cache, so a different number of keys means another sequence.
    return call.queries > call.keys or (call.source == MULTI_HEAD and call.queries != call.keys)


def token_ids(words: Words) -> list[list[int]]:
    """A number for each token: equal for equal ids if a tokenizer knows them ("Ġanimal" and "animal" read alike), else for equal strings.

    >>> token_ids([["the", "cat", "the"]])
    [[0, 1, 0]]
    """
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(str(getattr(token, "id", token)), len(numbers)) for token in sentence] for sentence in words]


def _words(name: str, strings: Any) -> Words | None:
    """One list of strings for each batch element."""
    if strings is None or (isinstance(strings, Sequence) and not strings):
        return None
    sentences = [strings] if isinstance(strings, Sequence) and isinstance(strings[0], str) else strings
    if isinstance(strings, str) or not isinstance(sentences, Sequence) or not all(map(_is_sentence, sentences)):
        raise KindError(
            f"{name} as a list of strings, one for each position, or a list of them for each batch element",
            got=repr(strings) if len(repr(strings)) < 80 else type(strings).__name__,
            fix="pass tokenizer.convert_ids_to_tokens(ids)",
        )
    return [list(sentence) for sentence in sentences]


def _is_sentence(sentence: Any) -> bool:
    return (
        isinstance(sentence, Sequence) and not isinstance(sentence, str) and all(isinstance(token, str) for token in sentence)
    )


def _has_lengths(words: Words, length: int, batch: int) -> bool:
    return len(words) in (1, batch) and all(len(sentence) == length for sentence in words)


def _no_match(tokens: Tokens, call: Captured, length: int, side: str) -> NoReturn:
    both = tokens.queries, tokens.keys
    lengths = dict.fromkeys(str([len(sentence) for sentence in words]) for words in both if words is not None)
    suffix = f" in each of {call.batch} sequences" if call.batch > 1 else ""
    raise InputError(
        "one token for each key and for each query, or a list of them for each batch element",
        got=f"{' and '.join(lengths)} tokens for {length} {side} of {call.layer}{suffix}",
        fix="pass the tokens that the model read in this call, with padding and special tokens",
    )
