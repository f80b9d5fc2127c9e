"""Weights as maps: every head at a glance, and one head."""

from typing import Any

from overt.drawing.canvas import QUIET, Sheet
from overt.lens.figures.paper import COLUMN, EDGE, SMALL, WIDE, cells, entry, in_print, scale, sheet, title, weight_map, words
from overt.lens.head import Head
from overt.lens.recorded_calls import RecordedCalls

_LARGEST = 52.0  # of a head's map in the grid, in hundredths of an inch
_MOST_LABELS = 40  # tokens that are named beside a map
_TALLEST = 480.0


@in_print
def heads_grid(recording: RecordedCalls, *, size: int = 64, sequence: int = 0) -> Any:
    """Every recorded head as a small map, a row a call: a matplotlib Figure, a page wide.

    A cell is the mean weight of the queries and keys that share it, of `size` × `size` cells at most; colour grows with its root, up
    to the map's own largest, so maps are not to be compared in darkness. `sequence` is the batch entry.

    Raises InputError for a sequence that is not there, and where a kept summary's cells do not join to `size`.

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
    room, floor = step - min(3.0, step / 8), top + step * len(layers)
    paper = sheet(WIDE, floor + 24)
    title(paper, "Every head", f"{recording.model}, {layers[0].queries} queries, {layers[0].keys} keys")
    paper.text(left - 6, top - 8, "call", SMALL, QUIET, across="right")
    alike = len({captured.heads for captured in layers}) == 1
    for column, head in enumerate(layers[0].heads if alike else ()):
        if step >= 12 or column % 4 == 0:
            paper.text(left + column * step + room / 2, top - 8, f"{head}", SMALL, QUIET, across="center")
    for row, captured in enumerate(layers):
        y, opened = top + row * step, captured.opened()
        paper.text(left - 6, y + room / 2, f"{recording.number_of(captured)}", SMALL, QUIET, across="right")
        for column, head in enumerate(captured.heads):
            drawn = entry(recording.head_of(opened, head).map(cells(captured, size)), sequence)
            weight_map(paper, drawn, left + column * step, y, room, room, root=True)
    told = "columns are heads; rows of a map ask, its columns are asked; colour grows with √weight up to each map's own largest"
    paper.text(left, floor + 10, told, SMALL, QUIET, max_width=WIDE - left - EDGE)
    return paper.figure


@in_print
def one_head(head: Head, *, size: int = 256, sequence: int = 0) -> Any:
    """One head's weights, a row for each query, its tokens named where they fit: a matplotlib Figure, a column wide.

    Beyond `size` queries or keys a cell is the mean of the weights that share it. Colour grows with the weight.
    Raises InputError for a sequence that is not there, and where a kept summary's cells do not join to `size`.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> float(one_head(recording[0, 1]).get_figwidth())
    3.35
    """
    drawn = entry(head.map(cells(head.captured, size)), sequence)
    asking, asked = (words(found, sequence) for found in (head.query_tokens, head.key_tokens))
    named = asking is not None and asked is not None and max(head.queries, head.keys) <= _MOST_LABELS
    left, top = (60.0, 76.0) if named else (34.0, 42.0)
    cell = (COLUMN - left - EDGE) / max(drawn.shape[1], 5)
    width, height = cell * drawn.shape[1], max(24.0, min(cell * drawn.shape[0], _TALLEST))
    paper = sheet(COLUMN, top + height + 28)
    title(paper, f"Head {head.head}", head.layer)
    weight_map(paper, drawn, left, top, width, height, root=False)
    if named and asking is not None and asked is not None:
        _names(paper, asking, asked, left, top, width, height)
    else:
        _ends(paper, head, left, top, width, height)
    wide = scale(paper, left, top + height + 14, float(drawn.abs().nan_to_num().max()))
    if drawn.shape != (head.queries, head.keys):
        told = f"cells are means of {head.queries / drawn.shape[0]:.3g} × {head.keys / drawn.shape[1]:.3g} weights"
        paper.text(COLUMN - EDGE, top + height + 14, told, SMALL, QUIET, across="right", max_width=COLUMN - EDGE - left - wide)
    return paper.figure


def _names(paper: Sheet, asking: list[str], asked: list[str], x: float, y: float, width: float, height: float) -> None:
    """A name beside each row and over each column, as large as they leave room for."""
    down, across = height / len(asking), width / len(asked)
    row_size, column_size = (max(3.5, min(SMALL, step * 0.55)) for step in (down, across))
    for place, token in enumerate(asking):
        paper.text(x - 4, y + (place + 0.5) * down, token, row_size, across="right", max_width=x - 8)
    for place, token in enumerate(asked):
        paper.text(x + (place + 0.5) * across, y - 4, token, column_size, across="center", max_width=y - 26, rotated=True)


def _ends(paper: Sheet, head: Head, x: float, y: float, width: float, height: float) -> None:
    """The first and the last place of each side."""
    paper.text(x, y - 8, "key 0", SMALL, QUIET)
    paper.text(x + width, y - 8, f"{head.keys - 1}", SMALL, QUIET, across="right")
    paper.text(x - 4, y + 5, "0", SMALL, QUIET, across="right")
    paper.text(x - 4, y + height - 5, f"{head.queries - 1}", SMALL, QUIET, across="right")
    paper.text(x - 4, y + height / 2, "query", SMALL, QUIET, across="right", rotated=False, max_width=x - 6)
