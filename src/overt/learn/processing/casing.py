"""The case of a text: lines in capitals, words in capitals, headings with a capital in each word."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

# _SMALL: words in lower case in a heading with capitals.
_SMALL = {
    "a", "an", "and", "as", "at", "but", "by", "for", "from", "in", "into", "is", "of", "on", "or", "the", "to", "with",
}  # fmt: skip
# _CAPITALS: share of capital letters from which a whole line counts as capitals.
_CAPITALS = 0.8

# Pieces: the number of pieces of a word in a vocabulary.
Pieces = Callable[[str], int]


class CasedWord(NamedTuple):
    """A word of the text and its place."""

    text: str
    start: int
    stop: int

    @property
    def shouted(self) -> bool:
        """Whether it is a word of at least three letters, all capitals."""
        return len(self.text) > 2 and self.text.isupper()


def cased_words(text: str, spans: Sequence[tuple[int, int]]) -> list[CasedWord]:
    """The words outside of the spans, including their apostrophes."""
    matched = [CasedWord(match.group(), *match.span()) for match in re.finditer(r"[^\W\d_]+(?:['’][^\W\d_]+)*", text)]
    stops = [stop for _, stop in spans]
    after = [bisect_right(stops, word.start) for word in matched]
    return [word for word, number in zip(matched, after, strict=True) if number == len(spans) or spans[number][0] >= word.stop]


def in_capitals(words: Sequence[CasedWord], pieces: Pieces) -> bool:
    """Whether a line is in capitals: nearly all letters are, and most of its words are one piece in lower case.

    >>> in_capitals(cased_words("I LOVE THIS CITY", []), lambda word: 1), in_capitals(cased_words("I love NASA", []), lambda word: 1)
    (True, False)
    """
    letters = "".join(word.text for word in words)
    if not any(word.shouted for word in words) or sum(letter.isupper() for letter in letters) < _CAPITALS * len(letters):
        return False
    long = [word.text.lower().partition("'")[0].partition("’")[0] for word in words if len(word.text) > 1]
    return 2 * sum(pieces(word) == 1 for word in long) >= len(long)


def usual(word: str, pieces: Pieces, *, first: bool = False) -> str:
    """A word in lower case, or capitalized if the vocabulary then has fewer pieces, as for a name.

    At the beginning of a sentence (`first`) a capital stays unless it takes more pieces: "Buy" in pieces would be read as a name.

    >>> pieces = {"tom": 2, "Tom": 1, "buy": 1, "Buy": 2, "the": 1, "The": 1}.__getitem__
    >>> [usual("TOM", pieces), usual("Buy", pieces, first=True), usual("THE", pieces, first=True), usual("THE", pieces)]
    ['Tom', 'buy', 'The', 'the']
    """
    lower = word.lower()
    capital = lower[0].upper() + lower[1:]
    if lower == "i" or lower.startswith("i'"):
        return capital
    small, large = pieces(lower), pieces(capital)
    return capital if large < small or (first and large == small) else lower


def in_title_case(text: str, words: Sequence[CasedWord], pieces: Pieces) -> bool:
    """Whether a line is a heading with capitalized words: no final sign, and two inner words that are one piece in lower case.

    >>> in_title_case("The History Of The City", cased_words("The History Of The City", []), lambda word: 1)
    True
    """
    if len(words) < 3 or text.rstrip().endswith((".", "?", "!", "…", ",", ";")):
        return False
    if not all(word.text[0].isupper() or word.text in _SMALL for word in words):
        return False
    return sum(word.text[0].isupper() and len(word.text) > 1 and pieces(word.text.lower()) == 1 for word in words[1:]) >= 2
