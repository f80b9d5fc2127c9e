"""Edits of a text: replacements that the model reads, and the original position of each letter."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Edit(NamedTuple):
    """An edit: text[start:stop] is replaced by `text`.

    `kind` is its effect on the translation: "placeholder" (`content` replaces the model's text that matches `pattern`), "left" or
    "right" (`content` after the word before it, or before the word after it), "emphasis" (capital letters), "ending" (`content` as the
    last signs of the sentence), or "" (none). `partner` numbers the pairs of marks.
    """

    start: int
    stop: int
    text: str
    kind: str = ""
    content: str = ""
    pattern: str = ""
    partner: int | None = None


class Edited(NamedTuple):
    """The text after its edits, and the position of each edit in it."""

    text: str
    positions: list[tuple[int, int]]


def apply(text: str, edits: Iterable[Edit]) -> Edited:
    """Apply all edits to a text; they are in order and do not overlap.

    >>> apply("i dont know", [Edit(2, 6, "don't")])
    Edited(text="i don't know", positions=[(2, 7)])
    """
    parts, positions, position, length = [], [], 0, 0
    for edit in edits:
        before = text[position : edit.start]
        start = length + len(before)
        parts += [before, edit.text]
        positions.append((start, start + len(edit.text)))
        position, length = edit.stop, start + len(edit.text)
    return Edited("".join([*parts, text[position:]]), positions)


def joined(edits: Sequence[Edit], others: Iterable[Edit]) -> list[Edit]:
    """All edits in order, without those of `others` that overlap one of `edits`."""
    stops, starts = [edit.stop for edit in edits], [edit.start for edit in edits]
    added = []
    for edit in others:
        after = bisect_right(stops, edit.start)
        if after == len(edits) or starts[after] >= edit.stop:
            added.append(edit)
    return sorted([*edits, *added], key=lambda edit: (edit.start, edit.stop))


# GAP: letters between a token and the next one in the text: spaces, and a letter that the vocabulary lacks.
GAP = 4


def token_spans(text: str, tokens: Sequence[str], gap: int = GAP) -> list[tuple[int, int]]:
    """The position of each token in the text, at most `gap` letters after the previous one; a missing token gets an empty span.

    >>> token_spans("I am happy", ["▁i", "▁am", "▁hap", "py"])
    [(0, 1), (2, 4), (5, 8), (8, 10)]
    """
    lowered, start, spans = text.lower(), 0, []
    for token in tokens:
        letters = token.removeprefix("▁").removesuffix("</w>").lower()
        position = lowered.find(letters, start, start + len(letters) + gap)
        start, end = (start, start) if position < 0 else (position, position + len(letters))
        spans.append((start, end))
        start = end
    return spans
