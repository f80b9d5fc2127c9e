"""Token ids as a text and its tokens: the characters and the span of each token, and which tokens are special."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from overt.lens.text.spelling import NO_SPACE
from overt.lens.text.vocabulary import Vocabulary

REPLACED = "\ufffd"


class Token(str):
    """A token as a person reads it: a string with the tokenizer's facts.

    `piece` is the tokenizer's own spelling ("Ġanimal"), `id` its number, `special` whether it is a special token, `padding` whether it
    fills up a sequence. `span` is (start, stop) in the text of `recording.texts`, and `spaced` whether a space precedes it there.
    A token that is a part of one character is the character with the number of the part: "😀[1/3]".

    >>> token = Token("animal", piece="Ġanimal", id=5044, span=(4, 10), spaced=True)
    >>> token, token.upper(), token.piece
    ('animal', 'ANIMAL', 'Ġanimal')
    """

    __slots__ = ("id", "padding", "piece", "spaced", "span", "special")

    def __new__(
        cls,
        text: str,
        *,
        piece: str,
        id: int,
        special: bool = False,
        padding: bool = False,
        span: tuple[int, int] = (0, 0),
        spaced: bool = False,
    ) -> "Token":
        """A token that is read as `text`."""
        token = super().__new__(cls, text)
        token.piece, token.id, token.special, token.padding, token.span, token.spaced = (
            piece,
            id,
            special,
            padding,
            span,
            spaced,
        )
        return token

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles."""
        fields = {name: getattr(self, name) for name in Token.__slots__}
        return _token, (str(self), fields)


def _token(text: str, fields: dict[str, Any]) -> Token:
    return Token(text, **fields)


class DecodedText(NamedTuple):
    """A text without its special tokens, and all of its tokens."""

    text: str
    tokens: list[Token]


class _Letter(NamedTuple):
    """A character of the text, its position, and the part of it (number, of how many) that a token spells."""

    letter: str
    position: int
    part: int
    parts: int


def spelled_pieces(ids: Sequence[int], vocabulary: Vocabulary) -> list[bytes]:
    """The bytes that each token adds to the text, spaces included; special tokens by their names.

    The joined bytes are UTF-8; one token may be a part of a character.
    """
    pieces, glued = list[bytes](), False
    for entry in map(vocabulary.entry, ids):
        data = entry.piece.encode() if entry.special else entry.text
        data = data.removeprefix(b" ") if glued else data
        glued = not entry.special and data.endswith(NO_SPACE)
        pieces.append(data.removesuffix(NO_SPACE) if glued else data)
    return pieces


def spelled_words(ids: Sequence[int], vocabulary: Vocabulary) -> list[str]:
    """The spelled pieces as readable words: a part of a character is the character with its number, "😀[1/3]"."""
    words = [piece.decode("utf-8", "replace") for piece in spelled_pieces(ids, vocabulary)]
    if not any(REPLACED in word for word in words):
        return words
    named = decoded(ids, vocabulary).tokens
    return [str(name) if REPLACED in word else word for word, name in zip(words, named, strict=True)]


def decoded(ids: Sequence[int], vocabulary: Vocabulary) -> DecodedText:
    """The text of these ids, and their tokens."""
    entries, padding = [vocabulary.entry(number) for number in ids], _padding(ids, vocabulary)
    letters: list[list[_Letter]] = [[] for _ in ids]
    text: list[str] = []
    for special, run in groupby(range(len(ids)), key=lambda index: entries[index].special or padding[index]):
        if not special:
            _spell([(index, entries[index].text) for index in run], text, letters, first=not text)
    tokens = []
    start = 0
    for index, (number, entry) in enumerate(zip(ids, entries, strict=True)):
        facts = {"piece": entry.piece, "id": number, "padding": padding[index]}
        if entry.special or padding[index]:
            tokens.append(Token(entry.piece, **facts, special=True, span=(start, start), spaced=True))
            continue
        tokens.append(_plain_token(letters[index], start, facts))
        start = tokens[-1].span[1]
    return DecodedText("".join(text).rstrip(" "), tokens)


def _spell(pieces: list[tuple[int, bytes]], text: list[str], letters: list[list[_Letter]], first: bool) -> None:
    """Add the characters of neighbouring pieces to the text, and each character to the tokens that spell it."""
    data = b"".join(element for _, element in pieces)
    tokens = [index for index, element in pieces for _ in element]  # the token of each byte
    # A tokenizer adds a space at the front.
    start = len(data) - len(data.lstrip(b" ")) if first and data.strip(b" ") else 0
    while start < len(data):
        if data[start : start + 1] == NO_SPACE:
            start += 2 if data[start + 1 : start + 2] == b" " else 1
            continue
        stop = start + _length(data, start)
        spelling = list(dict.fromkeys(tokens[start:stop]))
        letter = data[start:stop].decode("utf-8", "replace")
        for part, index in enumerate(spelling, 1):
            letters[index].append(_Letter(letter, len(text), part, len(spelling)))
        text.append(letter)
        start = stop


def _length(data: bytes, start: int) -> int:
    """The number of bytes of the character at `start`; 1 for a byte that begins no character."""
    lead = data[start]
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    try:
        data[start : start + length].decode("utf-8")
    except UnicodeDecodeError:
        return 1
    return min(length, len(data) - start)


def _plain_token(letters: list[_Letter], start: int, facts: dict[str, Any]) -> Token:
    """A token that is not special, without the spaces around it unless it consists of spaces."""
    body, spaced = letters, False
    if any(not letter.letter.isspace() for letter in letters):
        while body[0].letter == " ":
            body, spaced = body[1:], True
        while body[-1].letter == " ":
            body = body[:-1]
    word = "".join(item.letter if item.parts == 1 else f"{item.letter}[{item.part}/{item.parts}]" for item in body)
    span = (body[0].position, body[-1].position + 1) if body else (start, start)
    return Token(word, **facts, span=span, spaced=spaced)


def _padding(ids: Sequence[int], vocabulary: Vocabulary) -> list[bool]:
    """Which ids fill up a sequence. If the id also begins or ends texts, the one next to the text is no padding."""
    pads = [number == vocabulary.padding for number in ids]
    if vocabulary.pad_alone or all(pads):
        return pads
    first, last = pads.index(False), len(pads) - 1 - pads[::-1].index(False)
    return [pad and not first - 1 <= index <= last + 1 for index, pad in enumerate(pads)]
