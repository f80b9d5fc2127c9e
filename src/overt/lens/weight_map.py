"""A matrix of weights as a map in the terminal: a row for each token that asks, a column for each token that is asked."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from overt.lens.letters import Ink, Piece, shade
from overt.lens.steps_text import QUIET

_LABEL = 14  # columns of a row's name at most
_DEEP = 12  # letters of a name that stands upright
_NARROW = 3  # columns of a cell under an upright name
_SEEN = 0.005  # what would read .00 stays blank


def weight_map(asking: Sequence[str], asked: Sequence[str], weights: Sequence[Sequence[float]]) -> Piece:
    """Draw `weights[i][j]`, of the token `asking[i]` on `asked[j]`, each as a shaded cell with its number.

    The names of the columns stand upright where they would not fit side by side; columns that still do not fit are left out, and
    that is said.
    """
    return Piece(lambda ink: _map(asking, asked, weights, ink))


def _map(asking: Sequence[str], asked: Sequence[str], weights: Sequence[Sequence[float]], ink: Ink) -> Iterable[Text]:
    names = [ink.token(token, _DEEP, QUIET) for token in asked]
    rows = [ink.token(token, _LABEL) for token in asking]
    label = max((row.cell_len for row in rows), default=0) + 1
    room = ink.width - label
    wide = [max(5, name.cell_len + 1) for name in names]
    if sum(wide) <= room:
        yield ink.line(" " * label, *(_centred(name, width) for name, width in zip(names, wide, strict=True)))
    else:
        wide = [_NARROW] * min(len(names), room // _NARROW)
        yield from _upright(ink, [name.plain for name in names[: len(wide)]], label)
    for row, own in zip(rows, weights, strict=True):
        cells = (_cell(ink, weight, width) for weight, width in zip(own, wide, strict=False))
        yield ink.line(" " * (label - row.cell_len - 1), row, " ", *cells)
    if len(wide) < len(names):
        told = f"(the first {len(wide)} of {len(names)} columns; all need a width of {label + _NARROW * len(names)})"
        yield from ink.prose(told, QUIET)


def _cell(ink: Ink, weight: float, width: int) -> Text:
    """A weight to two decimals, or to one in a narrow cell."""
    told = f"{weight:.1f}" if width == _NARROW else f"{weight:.2f}"
    told = told.removeprefix("0") if weight >= (0.05 if width == _NARROW else _SEEN) else ""
    return _centred(ink.text(told), width, shade(weight))


def _centred(text: Text, width: int, style: str = "") -> Text:
    """A text in the middle of so many columns."""
    left = (width - text.cell_len) // 2
    return Text(" " * left, style=style, end="").append_text(text).append(" " * (width - text.cell_len - left))


def _upright(ink: Ink, names: Sequence[str], indent: int) -> Iterable[Text]:
    """The names from top to bottom, ending just above their columns."""
    deep = max(map(len, names), default=0)
    for place in range(deep):
        letters = (name.rjust(deep)[place] for name in names)
        yield ink.line(" " * indent, *(_centred(ink.text(letter, QUIET), _NARROW) for letter in letters))
