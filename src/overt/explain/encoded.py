"""A text in a model's form: its tokens with their checks, and the choice of a word. No torch."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from overt.errors import InputError
from overt.lens.text.tokens_of_text import Token
from overt.reading import check_text


@dataclass(frozen=True)
class Encoded:
    """A text in a model's form: its tokens, their ids, their positions in the text, and which are special."""

    text: str
    tokens: list[str]
    ids: list[int]
    spans: list[tuple[int, int]]
    special: list[int]

    @classmethod
    def from_pieces(
        cls, text: str, pieces: Sequence[str], ids: Sequence[int], spans: Sequence[tuple[int, int]], special: Sequence[int]
    ) -> "Encoded":
        """Create from a tokenizer's output: each token has its piece, whether it is special, and whether a space precedes it."""
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
    """Refuse a text with only special tokens, or longer than the model's limit."""
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
    """The tokens in the text's spelling, without the marks of the vocabulary (Ġ, ▁, ##); in lower case if the model reads lower case.

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
    """The text; an empty text, or one that is not Unicode, is an InputError."""
    if not text.strip():
        raise InputError("a text of at least one word", got=repr(text), fix="pass a sentence")
    return check_text(text, "the text")


def truncation_notes(encoded: Encoded, truncate: bool) -> list[str]:
    """Notes for a text of which only the beginning was read."""
    end = max((last for _, last in encoded.spans), default=0)
    if truncate and encoded.text[end:].strip():
        return [f"Only the first {len(encoded.ids)} tokens of the text were read."]
    return []


@dataclass(frozen=True)
class Word:
    """The word that is the query: its query token, all its tokens, and a note about them."""

    index: int
    pieces: tuple[int, ...]
    note: str = ""


def choose(encoded: Encoded, word: str | None = None) -> Word:
    """The word with this name, `it`, or name and occurrence, `it:2`; by default the last word.

    Case is ignored. If the model reads the word as several pieces, the last piece is the query.

    >>> choose(named(["the", "cat", "saw", "the", "dog"]), "the:2")
    Word(index=3, pieces=(3,), note='')
    """
    if word is None:
        return _last(encoded)
    matches = _occurrences(encoded, word)
    text, _, count = word.rpartition(":")
    if not matches and text and count.isdigit():
        numbered = _occurrences(encoded, text)
        if numbered and not 1 <= int(count) <= len(numbered):
            raise InputError(f"an occurrence of “{text}” from 1 to {len(numbered)}", got=word, fix=_which(text, len(numbered)))
        if numbered:
            return _word(encoded, numbered[int(count) - 1])
    if not matches:
        raise InputError("a word of the text", got=repr(word), fix=f"choose one of its words{_near(encoded, word)}")
    if len(matches) > 1:
        raise InputError(
            "a word that occurs once",
            got=f"“{word}”, which occurs {_times(len(matches))}",
            fix=_which(word, len(matches)),
        )
    return _word(encoded, matches[0])


def named(tokens: Sequence[str]) -> Encoded:
    """Encode whole words as tokens, as if a model had read them."""
    spans, start = [], 0
    for token in tokens:
        spans.append((start, start + len(token)))
        start += len(token) + 1
    return Encoded(" ".join(tokens), list(tokens), list(range(len(tokens))), spans, [])


def spelled(encoded: Encoded, pieces: Sequence[int]) -> str:
    """The text of these adjacent tokens."""
    return encoded.text[encoded.spans[pieces[0]][0] : encoded.spans[pieces[-1]][1]].strip() or encoded.tokens[pieces[-1]]


def _last(encoded: Encoded) -> Word:
    plain = [index for index in range(len(encoded.ids)) if index not in encoded.special]
    lettered = [index for index in plain if any(letter.isalnum() for letter in encoded.tokens[index])]
    index = (lettered or plain)[-1]
    start, end = encoded.spans[index]
    while start > 0 and not encoded.text[start - 1].isspace() and start < end and encoded.text[start - 1].isalnum():
        start -= 1
    return _word(encoded, _covering(encoded, start, end) or (index,))


def _occurrences(encoded: Encoded, name: str) -> list[tuple[int, ...]]:
    """The tokens of each occurrence: of the word in the text, else of a run of whole tokens, else of the single token."""
    name = name.strip()
    if not name:
        return []
    bounded = rf"(?<!\w){re.escape(name)}(?!\w)"
    for pattern, exact in ((bounded, False), (re.escape(name), True)):
        matches = (match.span() for match in re.finditer(pattern, encoded.text, re.IGNORECASE))
        occurrences = [pieces for start, end in matches if (pieces := _covering(encoded, start, end, exact))]
        if occurrences:
            return occurrences
    return [(index,) for index, token in enumerate(encoded.tokens) if token.casefold() == name.casefold()]


def _covering(encoded: Encoded, start: int, end: int, exact: bool = False) -> tuple[int, ...]:
    indices = [
        index
        for index, (first, last) in enumerate(encoded.spans)
        if index not in encoded.special and first < end and last > start and first < last
    ]
    if exact and indices:
        text, first, last = encoded.text, encoded.spans[indices[0]][0], encoded.spans[indices[-1]][1]
        if text[first:last].strip() != text[start:end]:
            return ()
    return tuple(indices)


def _word(encoded: Encoded, pieces: tuple[int, ...]) -> Word:
    if len(pieces) == 1:
        return Word(pieces[0], pieces)
    parts = " · ".join(encoded.tokens[index] for index in pieces)
    note = f"The model reads “{spelled(encoded, pieces)}” as {len(pieces)} pieces, {parts}; the query is that of the last one."
    return Word(pieces[-1], pieces, note)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _which(name: str, count: int) -> str:
    choices = [f"--word {name}:{index}" for index in range(1, count + 1)]
    return f"say which: {', '.join(choices[:-1])} or {choices[-1]}" if count > 1 else f"pass --word {name}"


def _near(encoded: Encoded, name: str) -> str:
    words = dict.fromkeys(re.findall(r"\w+(?:['’-]\w+)*", encoded.text))
    by_case = {word.casefold(): word for word in reversed(words)}
    near = difflib.get_close_matches(name.casefold(), by_case, n=3, cutoff=0.5)
    if near:
        return "; near it are: " + ", ".join(by_case[word] for word in near)
    return ": " + ", ".join(list(words)[:12]) + (", …" if len(words) > 12 else "")
