"""A head's strongest links, as arcs over the tokens of a sentence."""

from typing import Any

from torch import Tensor

from overt.attention import check
from overt.drawing.canvas import BLUE, FIRE, QUIET, Sheet
from overt.drawing.numbers import number
from overt.errors import InputError
from overt.lens.figures.paper import EDGE, SMALL, WIDE, entry, in_print, sheet, title, words
from overt.lens.head import Head
from overt.lens.tokens import is_cross_attention

Link = tuple[int, int, float]
_GAP, _LEAST = 7.0, 4.5  # between tokens, in hundredths of an inch; points of the smallest letters
_TALLEST, _ROOM = 110.0, 92.0  # of an arc, and of the place between two texts


@in_print
def arcs(head: Head, *, links: int = 24, first: int = 0, stop: int | None = None, sequence: int = 0) -> Any:
    """One head's strongest links as arcs between the tokens first to stop of a sentence: a matplotlib Figure, a page wide.

    Over the line a token looks back, under it forward; the darker and wider the arc, the larger the weight. A token's weight on
    itself has no arc. Where queries and keys are two texts, links run up from the one that asks.

    Raises InputError where the recording has no tokens, more than fit beside each other, or none of that sequence.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention, key_tokens="the cat sat there .".split()) as recording:
    ...     _ = attention(x, x, x)
    >>> float(arcs(recording[0, 1], links=3).get_figwidth())
    6.75
    """
    check.whole_number("links", links)
    asking, asked = head.query_tokens, head.key_tokens
    if asking is None or asked is None:
        fix = "set recording.tokens = [...], or give them to record(key_tokens=…)"
        raise InputError("arcs stand over the tokens", got="a recording without them", fix=fix)
    crossing = is_cross_attention(head.captured) or asking != asked
    rows = slice(first, stop)
    columns = slice(None) if crossing else rows
    weights = entry(head.weights(rows), sequence)[:, columns]
    askers, ends = (words(asking, sequence) or [])[rows], (words(asked, sequence) or [])[columns]
    found = _strongest(weights, links, crossing)
    return _crossing(head, found, askers, ends) if crossing else _over_and_under(head, found, askers)


def _strongest(weights: Tensor, count: int, crossing: bool) -> list[Link]:
    """The largest weights (query, key, weight), smallest first so that the strongest is drawn on top."""
    free = weights.nan_to_num(nan=0.0).clone()
    if not crossing:
        free.fill_diagonal_(0)
    found = free.flatten().topk(min(count, free.numel()))
    pairs = [(place // free.shape[1], place % free.shape[1]) for place in found.indices.tolist()]
    return [(i, j, weight) for (i, j), weight in zip(pairs, found.values.tolist(), strict=True) if weight > 0][::-1]


def _over_and_under(head: Head, found: list[Link], tokens: list[str]) -> Any:
    over, under = (max((abs(i - j) for i, j, _ in found if (j < i) is back), default=0) for back in (True, False))
    places, size = _spread(tokens)
    rises = [min(_TALLEST, 14.0 * span) if span else 0.0 for span in (over, under)]
    line = 34 + rises[0] + 10
    paper = sheet(WIDE, line + 10 + rises[1] + 22)
    title(paper, f"Head {head.head}", head.layer)
    _told(paper, found, "above: looks back, below: forward")
    _line_of(paper, tokens, places, line, size)
    for i, j, weight in found:
        back = j < i
        share = abs(i - j) / (over if back else under)
        height, floor = (rises[0] * share, line - 9) if back else (-rises[1] * share, line + 9)
        paper.arc(places[i], places[j], floor, height, BLUE if back else FIRE, 0.3 + 2.2 * weight, 0.25 + 0.75 * weight)
    return paper.figure


def _crossing(head: Head, found: list[Link], asking: list[str], asked: list[str]) -> Any:
    paper = sheet(WIDE, 40 + _ROOM + 24)
    title(paper, f"Head {head.head}", head.layer)
    _told(paper, found, "below: the text that asks")
    (below, size), (above, other) = _spread(asking), _spread(asked)
    _line_of(paper, asked, above, 40, other)
    _line_of(paper, asking, below, 40 + _ROOM, size)
    for i, j, weight in found:
        paper.link(below[i], 40 + _ROOM - 9, above[j], 49, BLUE, 0.3 + 2.2 * weight, 0.25 + 0.75 * weight)
    return paper.figure


def _told(paper: Sheet, found: list[Link], which: str) -> None:
    """What the arcs are, at the right of the title."""
    range_of = f", weights {number(found[0][2])} to {number(found[-1][2])}" if found else ""
    paper.text(WIDE - EDGE, 13, f"{len(found)} strongest links{range_of}; {which}", SMALL, QUIET, across="right")


def _spread(tokens: list[str]) -> tuple[list[float], float]:
    """Where the middle of each token stands on the line, and the size of letters at which all fit."""
    paper, size = sheet(WIDE, 10), SMALL + 1.0
    while size >= _LEAST:
        widths = [paper.measure(paper.letters(token), size) + _GAP for token in tokens]
        if sum(widths) <= WIDE - 2 * EDGE:
            gap = min(30.0, (WIDE - 2 * EDGE - sum(widths)) / max(1, len(tokens)))
            x, places = EDGE, []
            for width in widths:
                places.append(x + (width + gap) / 2)
                x += width + gap
            return places, size
        size -= 0.5
    raise InputError(
        "the tokens of a line of arcs stand beside each other",
        got=f"{len(tokens)} tokens, too many for {WIDE / 100} inches",
        fix="choose some of them: first=0, stop=30",
    )


def _line_of(paper: Sheet, tokens: list[str], places: list[float], y: float, size: float) -> None:
    for token, place in zip(tokens, places, strict=True):
        paper.text(place, y, token, size, across="center")
