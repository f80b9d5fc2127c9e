"""A matrix of weights as a map in the terminal: a row for each query token, a column for each key token.

`weight_map` has a number in every cell, so it needs room; `block_map` is a picture of two rows a line, at any length.
"""

import math
from collections.abc import Iterable, Sequence

from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from overt.drawing.letters import Ink, broken, piece, shade, writable
from overt.drawing.numbers import number
from overt.explain.terminal.step_table import QUIET, WORD

_LABEL = 14  # most columns of a row's name
_DEEP = 12  # most letters of a vertical name
_SEEN = 0.005  # smallest weight with a number; smaller ones would read .00 and stay blank
_HALF = "▀"  # its upper half in the letter's colour, its lower half in the background's
_MOST = 96  # cells of a picture along each side: 48 lines
_LABELLED = 24  # most rows with a line and a name each
# _RAMP: Cividis, which lightens monotonically, so it is readable without its hue. _SIXTEEN: similar colours of 16-colour terminals.
_RAMP = ((0, 34, 78), (65, 77, 107), (124, 123, 120), (188, 175, 111), (254, 232, 56))
_SIXTEEN = ("black", "blue", "bright_black", "white", "bright_yellow")
_NOT_A_NUMBER = Color.parse("red")


@piece
def weight_map(
    ink: Ink, query_tokens: Sequence[str], key_tokens: Sequence[str], weights: Sequence[Sequence[float]]
) -> Iterable[Text]:
    """Draw `weights[i][j]`, of query `query_tokens[i]` on key `key_tokens[j]`, each as a shaded cell with its number to two decimals.

    The names of the columns are vertical if they do not fit side by side; columns that still do not fit follow below, with the names
    of the rows again.
    """
    names = [ink.token(token, _DEEP, QUIET) for token in key_tokens]
    rows = [ink.token(token, min(_LABEL, ink.width // 2)) for token in query_tokens]
    label = max((row.cell_len for row in rows), default=0) + 1
    available = ink.width - label
    wide = [max(5, name.cell_len + 1) for name in names]
    upright = sum(wide) > available
    if upright:
        wide = [max((len(_number(weight)) for row in weights for weight in row), default=0) + 1] * len(names)
    for index, part in enumerate(_parts(wide, available)):
        if index:
            yield ink.line()
        if upright:
            yield from _upright(ink, [name.plain for name in names[part]], wide[part], label)
        else:
            yield ink.line(" " * label, *(_centred(name, width) for name, width in zip(names, wide, strict=True)))
        for row, row_weights in zip(rows, weights, strict=True):
            cells = (_cell(ink, weight, width) for weight, width in zip(row_weights[part], wide[part], strict=True))
            yield ink.line(" " * (label - row.cell_len - 1), row, " ", *cells)


def _parts(wide: Sequence[int], available: int) -> list[slice]:
    """Split columns into parts that fit side by side, of nearly equal size."""
    if sum(wide) <= available:
        return [slice(0, len(wide))]
    columns = max(available // max(wide), 1)
    size = math.ceil(len(wide) / math.ceil(len(wide) / columns))
    return [slice(first, first + size) for first in range(0, len(wide), size)]


def _number(weight: float) -> str:
    """A weight to two decimals; empty if that is .00."""
    return f"{weight:.2f}".removeprefix("0") if weight >= _SEEN else ""


def _cell(ink: Ink, weight: float, width: int) -> Text:
    return _centred(ink.text(_number(weight)), width, shade(weight))


def _centred(text: Text, width: int, style: str = "") -> Text:
    """A text centred in `width` columns."""
    left = (width - text.cell_len) // 2
    return Text(" " * left, style=style, end="").append_text(text).append(" " * (width - text.cell_len - left))


def _upright(ink: Ink, names: Sequence[str], wide: Sequence[int], indent: int) -> Iterable[Text]:
    """The names written vertically, ending just above their columns."""
    deep = max(map(len, names), default=0)
    for index in range(deep):
        letters = [name.rjust(deep)[index] for name in names]
        cells = (_centred(ink.text(letter, QUIET), width) for letter, width in zip(letters, wide, strict=True))
        yield ink.line(" " * indent, *cells)


Rows = Sequence[Sequence[float]]


class BlockMap:
    """Weights as a picture of half blocks; empty without colours or without that letter, as in a pipe.

    Up to 24 rows have a line and a name each, beyond that two rows share a line; if it is wider than the terminal, or than 96 cells,
    cells are joined, each shows its largest weight, and the caption reports it. `marked` is the row of the explained word.
    """

    def __init__(self, query_tokens: Sequence[str], weights: Rows, marked: int, name: str = ""):
        self.query_tokens = query_tokens
        self.weights = weights
        self.marked = marked
        self.name = name

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.color_system is not None and writable(_HALF, options.encoding) == _HALF:
            few = console.color_system in ("standard", "windows")
            yield from self._lines(Ink(options.max_width, options.encoding), few)

    def _lines(self, ink: Ink, few: bool) -> Iterable[Text]:
        rows, columns = len(self.weights), max(map(len, self.weights), default=0)
        largest = max((abs(weight) for row in self.weights for weight in row if math.isfinite(weight)), default=0.0)
        names = [ink.token(token, _LABEL, QUIET) for token in self.query_tokens] if rows <= _LABELLED else []
        label = max((name.cell_len for name in names), default=0) + 2
        if names and label + 2 * columns > ink.width:
            names, label = [], 2
        joined = 1 if names else max(1, math.ceil(max(columns / max(1, min(_MOST, ink.width - label)), rows / _MOST)))
        title = ink.line(ink.text(f"Every weight of {self.name}" if self.name else "Every weight", "bold"))
        yield from broken(title, ink.width)
        yield from ink.prose(_caption(rows, columns, largest, joined), QUIET)
        wide = 2 if names else 1
        colours = [[_tint(weight, largest, few) for weight in row] for row in pooled(self.weights, joined)]
        pairs = [(row, row) for row in colours] if names else _paired(colours)
        for index, (upper, lower) in enumerate(pairs):
            first = index * joined * (1 if names else 2)
            is_marked = first <= self.marked < first + joined * (1 if names else 2)
            name = names[index] if names else Text()
            mark = ink.text("»" if is_marked else " ", WORD)
            yield ink.line(" " * (label - 2 - name.cell_len), name, mark, " ", _line(upper, lower, wide))
        yield Text()


def _caption(rows: int, columns: int, largest: float, joined: int) -> str:
    """The lines under the title."""
    cells = f"each cell is the largest of {joined} × {joined} weights, " if joined > 1 else ""
    return f"{rows} queries down, {columns} keys across; {cells}brightness grows with √weight, up to {number(largest)}"


def pooled(weights: Rows, joined: int) -> list[list[float]]:
    """The largest absolute value of each `joined` × `joined` weights, so that a single large one does not vanish; NaN if one is NaN.

    >>> pooled([[0.1, 0.2, 0.3], [0.4, -0.9, 0.0]], 2)
    [[0.9, 0.3]]
    """
    if joined == 1:
        return [[abs(weight) for weight in row] for row in weights]
    bands = [list(zip(*weights[first : first + joined], strict=True)) for first in range(0, len(weights), joined)]
    return [
        [
            _largest(weight for column in band[first : first + joined] for weight in column)
            for first in range(0, len(band), joined)
        ]
        for band in bands
    ]


def _largest(weights: Iterable[float]) -> float:
    largest = 0.0
    for weight in weights:
        if math.isnan(weight):
            return math.nan
        largest = max(largest, abs(weight))
    return largest


def _paired(rows: list[list[Color]]) -> list[tuple[list[Color], list[Color] | None]]:
    """Two rows a line; the last line of an odd number has no lower row."""
    return [(rows[index], rows[index + 1] if index + 1 < len(rows) else None) for index in range(0, len(rows), 2)]


def _line(upper: list[Color], lower: list[Color] | None, wide: int) -> Text:
    line = Text(end="")
    for index, colour in enumerate(upper):
        below = None if lower is None else lower[index]
        # One colour needs no letter, which could leave gaps in some fonts.
        line.append(" " * wide if colour == below else _HALF * wide, Style(color=colour, bgcolor=below))
    return line


def _tint(weight: float, largest: float, few: bool) -> Color:
    """The colour of a weight between zero and the largest, by its square root, so that small weights are visible next to large ones."""
    if not math.isfinite(weight):
        return _NOT_A_NUMBER
    share = math.sqrt(min(abs(weight) / largest, 1.0)) if largest else 0.0
    if few:
        return Color.parse(_SIXTEEN[min(int(share * len(_SIXTEEN)), len(_SIXTEEN) - 1)])
    level = share * (len(_RAMP) - 1)
    low = min(int(level), len(_RAMP) - 2)
    mixed = (round(a + (b - a) * (level - low)) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
    return Color.from_rgb(*mixed)
