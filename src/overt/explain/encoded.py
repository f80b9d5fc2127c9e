"""A text as a model reads it: its tokens, and what is checked of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from overt.errors import InputError
from overt.lens.text.tokens_of_text import Token


@dataclass(frozen=True)
class Encoded:
    """A text as a model reads it: its tokens, their numbers, where each stands in the text, and which are special."""

    text: str
    tokens: list[str]
    ids: list[int]
    spans: list[tuple[int, int]]
    special: list[int]

    @classmethod
    def of(
        cls, text: str, pieces: Sequence[str], ids: Sequence[int], spans: Sequence[tuple[int, int]], special: Sequence[int]
    ) -> "Encoded":
        """A text as its tokenizer cut it: each token knows its piece, whether it is special, and whether a space stands before it."""
        tokens: list[str] = []
        before = 0
        for index, word in enumerate(readable(text, pieces, spans)):
            start, stop = spans[index]
            marked, gap = index in special, text[before:start] + text[start:stop][:1]
            spaced = marked or (bool(tokens) and any(map(str.isspace, gap)))
            tokens.append(Token(word, piece=pieces[index], id=ids[index], special=marked, span=(start, stop), spaced=spaced))
            before = max(before, stop)
        return cls(text, tokens, list(ids), list(spans), list(special))

    @property
    def plain(self) -> "Encoded":
        """The same text without its special tokens."""
        indices = [index for index in range(len(self.ids)) if index not in self.special]
        return Encoded(
            self.text,
            [self.tokens[index] for index in indices],
            [self.ids[index] for index in indices],
            [self.spans[index] for index in indices],
            [],
        )


def fitting(encoded: Encoded, limit: int | None, name: str) -> Encoded:
    """Refuse what has no token but special ones, and what is longer than the model takes."""
    if len(encoded.special) == len(encoded.ids):
        raise InputError("a text of at least one word", got=repr(encoded.text), fix="pass a sentence")
    if limit is not None and len(encoded.ids) > limit:
        raise InputError(
            f"at most {limit} tokens for {name}",
            got=f"{len(encoded.ids)} tokens",
            fix="shorten the text, or pass --truncate to read its beginning only",
        )
    return encoded


def readable(text: str, tokens: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str]:
    """Each token as the text has it, without the marks of its vocabulary (Ġ, ▁, ##); in lower case where the model reads it so.

    >>> readable("The cats", ["the", "Ġcat", "##s", "</s>"], [(0, 3), (3, 7), (7, 8), (0, 0)])
    ['the', 'cat', 's', '</s>']
    """
    shown = []
    for token, (start, end) in zip(tokens, spans, strict=True):
        written = text[start:end].strip()
        letters = token.removeprefix("##")
        shown.append(token if not written else letters if letters.casefold() == written.casefold() else written)
    return shown


def require_words(text: str) -> str:
    """The text itself; an empty one is an InputError."""
    if not text.strip():
        raise InputError("a text of at least one word", got=repr(text), fix="pass a sentence")
    return text


def truncation_notes(encoded: Encoded, truncate: bool) -> list[str]:
    """What to say where only the beginning of a text was read."""
    end = max((last for _, last in encoded.spans), default=0)
    if truncate and encoded.text[end:].strip():
        return [f"Only the first {len(encoded.ids)} tokens of the text were read."]
    return []
