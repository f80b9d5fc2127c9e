"""Edges of a text outside of its sentence: signs of lists and headings, tags around it, topics and emoji after it."""

import re
from collections.abc import Sequence

from overt.learn.processing.spans import REMOVED, Span

_BULLET = re.compile(r"\s*(?:(?:#{1,6}|>+|[-*+•–—]|\d{1,3}[.)]|\[[ xX]\])\s+|(?:\.{2,}|…)\s*)*\s*")
# _ADDRESSED: follows a name or topic at the beginning: the sentence begins with a capital, or a sign separates them.
_ADDRESSED = re.compile(r"\s*[:,|]\s+|\s+[-–—|]\s+|\s+(?=[A-Z@#])")
_SEPARATED = re.compile(r"\s*[:|]\s+|\s+[-–—|]\s+")
_SENTENCE_END = re.compile(r"(?:[.!?…:]|\s[-–—|>→])[\"'”’)]*\s*$")
_BRACKETED = re.compile(r"\([^()]*\)")
# _GOVERNS: words to which a following topic belongs: "I live in #Paris".
_GOVERNS = re.compile(
    r"\b(?:an?|the|my|your|his|her|its|our|their|this|that|in|at|on|of|to|from|for|by|with|without|about|and|or|is|are|was|were|like|love|see|use|"
    r"visit|hate|called|named|follow|join)\s+$",
    re.IGNORECASE,
)


def edges(text: str, spans: Sequence[Span]) -> tuple[int, int]:
    """The start and end of the sentence in a text.

    >>> from overt.learn.processing.spans import find_spans
    >>> text = "- <b>I love this city!</b> #Paris"
    >>> start, stop = edges(text, find_spans(text))
    >>> text[start:stop]
    'I love this city!'
    """
    bullet = _BULLET.match(text)
    start, stop = bullet.end() if bullet else 0, len(text.rstrip())
    left, right = 0, len(spans) - 1
    while left <= right:
        while left <= right and spans[left].start < start:
            left += 1
        if left > right:
            break
        first, last = spans[left], spans[right]
        at_left = not text[start : first.start].strip() and first.start >= start
        at_right = not text[last.stop : stop].strip()
        if at_left and at_right and first.partner == right and left < right:
            start, stop, left, right = first.stop, last.start, left + 1, right - 1
        elif at_left and (end := _left(text, first)) is not None:
            start, left = end, left + 1
        elif at_right and _right(text, last):
            stop, right = last.start, right - 1
        else:
            break
    stop = start + len(text[start:stop].rstrip())
    start = stop - len(text[start:stop].lstrip())
    if _BRACKETED.fullmatch(text, start, stop):
        return start + 1, stop - 1
    return start, stop


def _left(text: str, span: Span) -> int | None:
    """The start of the sentence after a span outside of it; None if the span belongs to the sentence."""
    if span.kind in REMOVED:
        return span.stop if span.partner is None else None
    match = (_ADDRESSED if text[span.start] in "@#" else _SEPARATED).match(text, span.stop)
    return match.end() if match else None


def _right(text: str, span: Span) -> bool:
    """Whether a span at the end is outside of the sentence."""
    if span.kind in REMOVED:
        return span.partner is None
    before = text[: span.start]
    topic = text[span.start] == "#" and before.endswith(" ") and not _GOVERNS.search(before)
    return topic or bool(_SENTENCE_END.search(before))
