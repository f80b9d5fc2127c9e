"""Weights as maps: every head at a glance, and one head."""

from typing import Any

from overt.drawing.canvas import QUIET, Sheet
from overt.lens.figures.paper import (
    COLUMN,
    EDGE,
    SMALL,
    WIDE,
    cells,
    entry,
    in_print,
    is_signed,
    scale,
    sheet,
    shown,
    title,
    weight_map,
    words,
)
from overt.lens.head import Head
from overt.lens.recorded_calls import RecordedCalls

_GRID_CELLS, _CELLS = 64, 256  # _GRID_CELLS, _CELLS: the most cells along a side of a map, in the grid and for one head
_LARGEST = 52.0  # the largest side of a map in the grid (1/100 inch)
_MAX_LABELS = 40  # the most tokens that are named next to a map
_TALLEST = 480.0


@in_print
def heads_grid(recording: RecordedCalls, *, size: int | None = None, sequence: int = 0, padding: bool = False) -> Any:
    """A matplotlib Figure, a page wide: every recorded head as a small map, one row for each call.

    A map has at most `size` × `size` cells, by default 64 × 64, or a summary's cells; a cell is the mean weight of its queries and
    keys. The colour shows the root of the weight relative to the map's largest, so colours of different maps cannot be compared.
    `sequence` is the batch entry, without the padding of its batch unless `padding`.

    Raises InputError for a sequence that does not exist, and if the cells of a summary do not join to `size`.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> float(heads_grid(recording).get_figwidth())
    6.75
    """
    layers = recording.nonempty_calls()
    across, left, top = max(len(captured.heads) for captured in layers), 34.0, 42.0
    step = min(_LARGEST, (WIDE - left - EDGE) / across)
    cell, floor = step - min(3.0, step / 8), top + step * len(layers)
    paper = sheet(WIDE, floor + 24)
    one, _ = shown(recording.head_of(layers[0].opened(), layers[0].heads[0]), sequence, padding)
    title(paper, "Every head", f"{recording.model}, {one.queries} queries, {one.keys} keys")
    alike = len({captured.heads for captured in layers}) == 1
    for column, head in enumerate(layers[0].heads if alike else ()):
        if step >= 12 or column % 4 == 0:
            paper.text(left + column * step + cell / 2, top - 8, f"H{head}", SMALL, QUIET, across="center")
    for row, captured in enumerate(layers):
        y, opened = top + row * step, captured.opened()
        paper.text(left - 6, y + cell / 2, f"L{recording.number_of(captured)}", SMALL, QUIET, across="right")
        for column, number in enumerate(captured.heads):
            head, index = shown(recording.head_of(opened, number), sequence, padding)
            drawn = entry(head.map(cells(head.captured, size, _GRID_CELLS)), index)
            weight_map(paper, drawn, left + column * step, y, cell, cell, root=True, signed=is_signed(captured))
    signed = "; vermillion: negative" if any(map(is_signed, layers)) else ""
    caption = (
        f"columns: heads; rows of a map: queries, its columns: keys; colour: √weight relative to the map's largest{signed}"
    )
    paper.text(left, floor + 10, caption, SMALL, QUIET, max_width=WIDE - left - EDGE)
    return paper.figure


@in_print
def one_head(head: Head, *, size: int | None = None, sequence: int = 0, padding: bool = False) -> Any:
    """A matplotlib Figure, a column wide: one head's weights, a row for each query, with the tokens' names if they fit.

    With more than `size` queries or keys, by default 256, or a summary's cells, a cell is the mean of several weights. A larger weight
    has a darker cell. Padding of the batch is removed unless `padding`. Raises InputError for a sequence that does not exist, and if
    the cells of a summary do not join to `size`.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> float(one_head(recording[0, 1]).get_figwidth())
    3.35
    """
    head, sequence = shown(head, sequence, padding)
    drawn = entry(head.map(cells(head.captured, size, _CELLS)), sequence)
    query_tokens, key_tokens = (words(tokens, sequence) for tokens in (head.query_tokens, head.key_tokens))
    named = query_tokens is not None and key_tokens is not None and max(head.queries, head.keys) <= _MAX_LABELS
    left, top = (60.0, 76.0) if named else (34.0, 42.0)
    cell = (COLUMN - left - EDGE) / max(drawn.shape[1], 5)
    width, height = cell * drawn.shape[1], max(24.0, min(cell * drawn.shape[0], _TALLEST))
    paper = sheet(COLUMN, top + height + 28)
    title(paper, head.name, head.layer)
    weight_map(paper, drawn, left, top, width, height, root=False, signed=is_signed(head.captured))
    if named and query_tokens is not None and key_tokens is not None:
        _names(paper, query_tokens, key_tokens, left, top, width, height)
    else:
        _ends(paper, head, left, top, width, height)
    wide = scale(paper, left, top + height + 14, float(drawn.abs().nan_to_num().max()), is_signed(head.captured))
    if drawn.shape != (head.queries, head.keys):
        caption = f"cells are means of {head.queries / drawn.shape[0]:.3g} × {head.keys / drawn.shape[1]:.3g} weights"
        paper.text(
            COLUMN - EDGE, top + height + 14, caption, SMALL, QUIET, across="right", max_width=COLUMN - EDGE - left - wide
        )
    return paper.figure


def _names(
    paper: Sheet, query_tokens: list[str], key_tokens: list[str], x: float, y: float, width: float, height: float
) -> None:
    """Write a token next to each row and above each column, in the largest letters that fit."""
    down, across = height / len(query_tokens), width / len(key_tokens)
    row_size, column_size = (max(3.5, min(SMALL, step * 0.55)) for step in (down, across))
    for index, token in enumerate(query_tokens):
        paper.text(x - 4, y + (index + 0.5) * down, token, row_size, across="right", max_width=x - 8)
    for index, token in enumerate(key_tokens):
        paper.text(x + (index + 0.5) * across, y - 4, token, column_size, across="center", max_width=y - 26, rotated=True)


def _ends(paper: Sheet, head: Head, x: float, y: float, width: float, height: float) -> None:
    """Write the first and the last position of each side."""
    paper.text(x, y - 8, "key 0", SMALL, QUIET)
    paper.text(x + width, y - 8, f"{head.keys - 1}", SMALL, QUIET, across="right")
    paper.text(x - 4, y + 5, "0", SMALL, QUIET, across="right")
    paper.text(x - 4, y + height - 5, f"{head.queries - 1}", SMALL, QUIET, across="right")
    paper.text(x - 4, y + height / 2, "query", SMALL, QUIET, across="right", rotated=False, max_width=x - 6)
