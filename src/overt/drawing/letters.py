"""Letters for terminals: bars, sparklines, and replacements for letters that the encoding lacks."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from overt.drawing.numbers import visible

Arguments = ParamSpec("Arguments")
_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STAND_INS = {
    "√": "sqrt", "α": "a", "·": ".", "Σ": "Sum", "█": "#", "−": "-", "…": "...", "✓": "ok", "✗": "NOT", "÷": "/", "×": "x",
    "∞": "inf", "→": "->", "←": "<-", "“": '"', "”": '"', "»": ">>", "«": "<<", "µ": "u", "∅": "(empty)", "␣": "_", "─": "-",
    "▏": " ", "▎": " ", "▍": " ", "▌": "#", "▋": "#", "▊": "#", "▉": "#", "▒": "=", "’": "'", "│": "|",
    "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "%",
}  # fmt: skip
# ROOM_FOR_A_BAR: columns from which a bar fits next to the count of finished work, without displacing a number.
ROOM_FOR_A_BAR = 80
_TELLING = 16  # columns that a column of words needs
_WORD = "(?:\\S|[\u00a0\u2007\u202f])+"  # no line is broken at a no-break space
# _SHADES: Cividis from its dark end, each with letters that are readable on it, on light and dark terminals.
_SHADES = (
    "white on #35446c",
    "white on #575d6d",
    "white on #6f7073",
    "black on #a69d75",
    "black on #d3c164",
    "black on #fee838",
)


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw a series in one line of text, a letter for each value, between `low` and `high`; non-finite values are gaps.

    >>> sparkline([0, 1, 2, 3], 0, 3)
    '▁▃▆█'
    """
    return "".join(_level(value, low, high) for value in values)


def _level(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " "
    share = (value - low) / (high - low) if high > low else 0.5
    return _LEVELS[round(min(max(share, 0.0), 1.0) * (len(_LEVELS) - 1))]


def bar(value: float, maximum: float, width: int) -> str:
    """Draw a bar of at most `width` letters, to an eighth of a letter; a negative value is hatched.

    >>> bar(1, 2, 4), bar(-1, 1, 3), bar(0.15625, 1, 4)
    ('██', '▒▒▒', '▋')
    """
    if not math.isfinite(value) or maximum <= 0:
        return ""
    share = min(abs(value) / maximum, 1.0) * width
    if value < 0:
        return "▒" * round(share)
    eighths = round(share * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def shade(share: float) -> str:
    """The style of a share from 0 to 1: a background that becomes lighter with it, and readable letters.

    >>> shade(0.01), shade(0.5), shade(1.0)
    ('', 'black on #a69d75', 'black on #fee838')
    """
    return _SHADES[min(int(share * len(_SHADES)), len(_SHADES) - 1)] if share > 0.04 else ""


_SURROGATE = re.compile("[\ud800-\udfff]")  # lone surrogates, which no encoding has; non-UTF-8 bytes of a file name


def writable(text: str, encoding: str) -> str:
    """Replace each letter that the encoding lacks by a similar one.

    >>> writable("÷ √32 → α·v", "ascii"), writable("α·v", "utf-8")
    ('/ sqrt32 -> a.v', 'α·v')
    """
    if encoding.lower().startswith("utf") and _SURROGATE.search(text) is None:
        return text
    return "".join(_writable_letter(letter, encoding) for letter in text)


def _writable_letter(letter: str, encoding: str) -> str:
    try:
        letter.encode(encoding)
    except UnicodeEncodeError:
        return _STAND_INS.get(letter) or letter.encode("ascii", "backslashreplace").decode("ascii")
    return letter


def broken(line: Text, width: int, indent: int | None = None) -> list[Text]:
    """Break a line into lines of at most `width` columns, between words, so that no number is cut; only a word that is too long is cut.

    Continuation lines are indented by two columns relative to the line's own indentation, or by `indent` columns.

    >>> [part.plain for part in broken(Text("  one of 0.647 and 0.12"), 12)]
    ['  one of', '    0.647', '    and 0.12']
    """
    if line.cell_len <= width:
        return [line]
    indentation = len(line.plain) - len(line.plain.lstrip())
    indent = min(indentation + 2, width // 3) if indent is None else indent
    parts: list[Text] = []
    for start, end in _runs(line.plain, width, indent):
        part = line[start:end]
        part.no_wrap, part.overflow, part.end = line.no_wrap, line.overflow, line.end
        parts.append(part if not parts else Text(" " * indent, no_wrap=True, overflow="crop", end=line.end).append_text(part))
    return parts


def _runs(text: str, width: int, indent: int) -> Iterable[tuple[int, int]]:
    """The start and end of each line of a text broken between words."""
    start = end = 0
    for word in re.finditer(_WORD, text):
        available = width - (indent if start else 0)
        if end > start and cell_len(text[start : word.end()]) > available:
            yield start, end
            start, available = word.start(), width - indent
        while cell_len(text[start : word.end()]) > available:
            cut = start + max(1, len(set_cell_size(text[start : word.end()], available).rstrip()))
            yield start, cut
            start, available = cut, width - indent
        end = word.end()
    if end > start:
        yield start, end


class Ink:
    """Creates text for a width in columns, in the letters of the output's encoding."""

    def __init__(self, width: int, encoding: str):
        self.width = width
        self.encoding = encoding

    def text(self, content: str, style: str = "") -> Text:
        """A run of text without markup."""
        return Text(writable(content, self.encoding), style=style, no_wrap=True, overflow="crop", end="")

    def token(self, content: str, width: int, style: str = "") -> Text:
        """A token, its control characters made visible, cropped to `width` columns."""
        content, dots = writable(visible(content), self.encoding), writable("…", self.encoding)
        if cell_len(content) > width:
            content = set_cell_size(content, width - len(dots)).rstrip() + dots
        return self.text(content, style)

    def line(self, *parts: Text | str) -> Text:
        """Parts side by side; a `Piece` breaks the line between words if it is too long."""
        whole = Text(no_wrap=True, overflow="crop")
        for part in parts:
            whole.append_text(part if isinstance(part, Text) else self.text(part))
        return whole

    def prose(self, content: str, style: str = "", lead: str = "  ") -> list[Text]:
        """Sentences broken between words; the first line starts with `lead`, the others are indented under it."""
        available = max(self.width - cell_len(lead), 8)
        text = re.sub("[\t\n\v\f\r]", " ", writable(content, self.encoding))
        parts = [text[start:end] for start, end in _runs(text, available, 0)] or [""]
        return [
            self.line(self.text((lead if not index else " " * cell_len(lead)) + part, style))
            for index, part in enumerate(parts)
        ]

    def table(self, rows: Iterable[Sequence[Text]], right: Sequence[bool], gap: int = 2) -> list[Text]:
        """The lines of `grid`; if they are too long, several tables: each has the first column and the next columns that fit."""
        rows = [list(row) for row in rows]
        lines = self.grid(rows, right, gap)
        if not lines or max(line.cell_len for line in lines) <= self.width:
            return lines
        return self._in_parts(rows, right, gap)

    def grid(self, rows: Iterable[Sequence[Text]], right: Sequence[bool], gap: int = 2) -> list[Text]:
        """Lines of any length with aligned columns, right-aligned where `right` is True."""
        rows = [list(row) for row in rows]
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        lines = [self.line(*self._spaced(row, widths, right, gap)) for row in rows]
        for line in lines:
            line.rstrip()
        return lines

    def _in_parts(self, rows: list[list[Text]], right: Sequence[bool], gap: int) -> list[Text]:
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        others = sum(widths[:-1]) + gap * len(widths[:-1])
        if not right[-1] and self.width - others >= _TELLING:  # the last column's words fit, broken between words
            widths[-1] = self.width - others
            return self._folded(rows, range(len(widths)), widths, right, gap)
        widths[0] = min(widths[0], self.width // 2)
        available = self.width - widths[0] - gap
        parts: list[list[int]] = [[]]
        for column in range(1, len(widths)):
            widths[column] = min(widths[column], available)
            if parts[-1] and sum(widths[letter] + gap for letter in parts[-1]) + widths[column] > available:
                parts.append([])
            parts[-1].append(column)
        lines: list[Text] = []
        for part in parts:
            telling = [row for row in rows if any(row[column].plain.strip() for column in part)]
            lines += [*([self.line()] if lines else []), *self._folded(telling, [0, *part], widths, right, gap)]
        return lines

    def _folded(
        self, rows: list[list[Text]], columns: Sequence[int], widths: Sequence[int], right: Sequence[bool], gap: int
    ) -> list[Text]:
        """Some columns of a table, with cells wider than their column broken between words."""
        folded: list[list[Text]] = []
        for row in rows:
            cells = [broken(row[column], widths[column], 0) for column in columns]
            deep = max(map(len, cells))
            folded += [[cell[index] if index < len(cell) else Text() for cell in cells] for index in range(deep)]
        return self.grid(folded, [right[column] for column in columns], gap)

    def _spaced(self, row: list[Text], widths: list[int], right: Sequence[bool], gap: int) -> Iterable[Text]:
        for index, (cell, width, to_right) in enumerate(zip(row, widths, right, strict=True)):
            last, space = index + 1 == len(row), " " * (width - cell.cell_len)
            yield Text(space).append_text(cell) if to_right else cell
            if not last:
                yield Text(" " * gap if to_right else space + " " * gap)


class Piece:
    """A part of a page of text, laid out after its width and its encoding are known."""

    def __init__(self, lay_out: Callable[[Ink], Iterable[Text]]):
        self.lay_out = lay_out

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lay_out(Ink(options.max_width, options.encoding)):
            yield from broken(line, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(40, options.max_width), options.max_width)


def piece(lay_out: Callable[Concatenate[Ink, Arguments], Iterable[Text]]) -> Callable[Arguments, Piece]:
    """Decorate a layout function, whose first argument is the ink, so that it returns a `Piece` for its other arguments."""

    @functools.wraps(lay_out)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Piece:
        return Piece(lambda ink: lay_out(ink, *args, **kwargs))

    return made
