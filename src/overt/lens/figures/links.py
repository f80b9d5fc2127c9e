"""A head's strongest links, as arcs over the tokens of a sentence."""

from typing import Any

from torch import Tensor

from overt.attention import check
from overt.drawing.canvas import BLUE, FIRE, QUIET, Sheet
from overt.drawing.numbers import number
from overt.errors import InputError
from overt.lens.figures.paper import EDGE, SMALL, WIDE, entry, in_print, is_signed, sheet, shown, title, words
from overt.lens.head import Head
from overt.lens.tokens import is_cross_attention

Arc = tuple[int, int, float]
_GAP, _MIN_SIZE = 7.0, 4.5  # _GAP: space between tokens (1/100 inch); _MIN_SIZE: the smallest letters (points)
_MOST_LINKS = 100  # the most arcs over one line of a page that can be distinguished
_TALLEST, _BETWEEN_TEXTS = 110.0, 92.0  # _TALLEST: the highest arc; _BETWEEN_TEXTS: space between two texts (1/100 inch)


@in_print
def arcs(
    head: Head, *, links: int = 24, first: int = 0, stop: int | None = None, sequence: int = 0, padding: bool = False
) -> Any:
    """A matplotlib Figure, a page wide: one head's strongest links as arcs between tokens `first` to `stop` of a sentence.

    An arc above the line goes back to an earlier key, an arc below it forward. A larger weight has a darker and wider arc; for signed
    weights, blue arcs are positive and vermillion arcs negative. The weight of a token on itself has no arc. Padding of the batch is
    removed, and not counted by `first` and `stop`, unless `padding`. If queries and keys are two texts, the queries are below and the
    keys above.

    Raises InputError if the recording has no tokens, or more than fit on a line, or no such sequence, and for more than 100 links.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention, key_tokens="the cat sat there .".split()) as recording:
    ...     _ = attention(x, x, x)
    >>> float(arcs(recording[0, 1], links=3).get_figwidth())
    6.75
    """
    check.whole_number("links", links)
    if links > _MOST_LINKS:
        map_of_all = f'plot(path, "head", layer={head.captured.number}, head={head.head})'
        fix = f"draw the strongest, links={_MOST_LINKS}, or all weights as a map: {map_of_all}"
        raise InputError(f"at most {_MOST_LINKS} links, since more arcs cannot be told apart", got=f"links={links}", fix=fix)
    head, sequence = shown(head, sequence, padding)
    query_tokens, key_tokens = head.query_tokens, head.key_tokens
    if query_tokens is None or key_tokens is None:
        fix = "pass record(tokenizer=…) or recording.tokenizer(…), or set recording.tokens = [...]"
        raise InputError("a recording with tokens, to draw arcs", got="one without them", fix=fix)
    cross = is_cross_attention(head.captured) or query_tokens != key_tokens
    rows = slice(first, stop)
    columns = slice(None) if cross else rows
    weights = entry(head.weights(rows), sequence)[:, columns]
    query_labels, key_labels = (words(query_tokens, sequence) or [])[rows], (words(key_tokens, sequence) or [])[columns]
    free = weights.nan_to_num(nan=0.0).clone()
    if not cross:
        free.fill_diagonal_(0)
    arcs_shown, total = _strongest(free, links), int(free.count_nonzero())
    return (
        _draw_between_texts(head, arcs_shown, total, query_labels, key_labels)
        if cross
        else _draw_over_and_under(head, arcs_shown, total, query_labels)
    )


def _strongest(free: Tensor, count: int) -> list[Arc]:
    """The largest weights (query, key, weight), smallest first so that the strongest is drawn on top."""
    largest = free.flatten().abs().topk(min(count, free.numel())).indices
    pairs = [(index // free.shape[1], index % free.shape[1]) for index in largest.tolist()]
    weights_of_pairs = free.flatten()[largest].tolist()
    return [(i, j, weight) for (i, j), weight in zip(pairs, weights_of_pairs, strict=True) if weight != 0][::-1]


def _ink(head: Head, weight: float, arcs_shown: list[Arc]) -> tuple[float, float]:
    """The width and the opacity of an arc: by its weight, or for signed weights by its size relative to the largest."""
    size = abs(weight) / max(abs(arcs_shown[-1][2]), 1e-12) if is_signed(head.captured) else weight
    return 0.3 + 2.2 * size, 0.25 + 0.75 * size


def _draw_over_and_under(head: Head, arcs_shown: list[Arc], total: int, tokens: list[str]) -> Any:
    over, under = (max((abs(i - j) for i, j, _ in arcs_shown if (j < i) is back), default=0) for back in (True, False))
    positions, size = _layout_tokens(tokens)
    rises = [min(_TALLEST, 14.0 * span) if span else 0.0 for span in (over, under)]
    line = 34 + rises[0] + 10
    paper = sheet(WIDE, line + 10 + rises[1] + 22)
    title(paper, head.name, head.layer)
    signed = is_signed(head.captured)
    which = "blue: positive, vermillion: negative" if signed else "above: to earlier keys, below: to later keys"
    _describe(paper, arcs_shown, total, which)
    _token_line(paper, tokens, positions, line, size)
    for i, j, weight in arcs_shown:
        back = j < i
        share = abs(i - j) / (over if back else under)
        height, floor = (rises[0] * share, line - 9) if back else (-rises[1] * share, line + 9)
        blue = weight > 0 if is_signed(head.captured) else back
        paper.arc(positions[i], positions[j], floor, height, BLUE if blue else FIRE, *_ink(head, weight, arcs_shown))
    return paper.figure


def _draw_between_texts(head: Head, arcs_shown: list[Arc], total: int, query_tokens: list[str], key_tokens: list[str]) -> Any:
    paper = sheet(WIDE, 40 + _BETWEEN_TEXTS + 24)
    title(paper, head.name, head.layer)
    _describe(paper, arcs_shown, total, "below: queries, above: keys")
    (below, size), (above, other) = _layout_tokens(query_tokens), _layout_tokens(key_tokens)
    _token_line(paper, key_tokens, above, 40, other)
    _token_line(paper, query_tokens, below, 40 + _BETWEEN_TEXTS, size)
    for i, j, weight in arcs_shown:
        paper.link(below[i], 40 + _BETWEEN_TEXTS - 9, above[j], 49, BLUE, *_ink(head, weight, arcs_shown))
    return paper.figure


def _describe(paper: Sheet, arcs_shown: list[Arc], total: int, which: str) -> None:
    """Write the caption at the right of the title: the number of arcs and of all weights."""
    count = f"{len(arcs_shown)} strongest of {total:,}" if len(arcs_shown) < total else f"all {total}"
    weight_range = f", weights {number(arcs_shown[0][2])} to {number(arcs_shown[-1][2])}" if arcs_shown else ""
    paper.text(WIDE - EDGE, 13, f"{count} links{weight_range}; {which}", SMALL, QUIET, across="right")


def _layout_tokens(tokens: list[str]) -> tuple[list[float], float]:
    """The centre of each token on the line, and the largest size of letters at which all fit."""
    paper, size = sheet(WIDE, 10), SMALL + 1.0
    while size >= _MIN_SIZE:
        widths = [paper.measure(paper.letters(token), size) + _GAP for token in tokens]
        if sum(widths) <= WIDE - 2 * EDGE:
            gap = min(30.0, (WIDE - 2 * EDGE - sum(widths)) / max(1, len(tokens)))
            x, middles = EDGE, []
            for width in widths:
                middles.append(x + (width + gap) / 2)
                x += width + gap
            return middles, size
        size -= 0.5
    raise InputError(
        f"tokens that fit beside each other on {WIDE / 100} inches",
        got=f"{len(tokens)} tokens",
        fix="choose some of them: first=0, stop=30",
    )


def _token_line(paper: Sheet, tokens: list[str], positions: list[float], y: float, size: float) -> None:
    for token, x in zip(tokens, positions, strict=True):
        paper.text(x, y, token, size, across="center")
