"""Parse the lines of a text file before its rows: encoding, Excel's `sep=`, comments, names and units.

Python's `csv` reads the cells: polars and pyarrow convert cells to types, so they keep neither the line numbers for errors nor the
original text, which `--out` copies, and they need the number of lines before the names.
"""

import codecs
import csv
import io
import re
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from overt.cli.shared.tables.dates import is_date
from overt.cli.shared.tables.notation import MISSING, Notation
from overt.cli.shared.tables.numerals import bare, parse_number
from overt.errors import InputError
from overt.reading import gunzip, reading, reason

_LARGEST_CELL = 2**31 - 1  # the largest size that `csv` accepts on all systems
_SEPARATORS = "\t;|,"  # in order of preference: a comma may be a decimal mark
_SAMPLE = 100  # lines from which separator and width are recognised
_BEFORE_NAMES = 40  # largest number of lines before the names, without comments
# _UNIT: units in a single column with a word before its numbers; any other word is an invalid cell.
_UNIT = re.compile(
    r"°[CFK]?|deg ?[CFK]?|[CFK%‰$€£]|celsius|kelvin|EUR|USD|ppm|ppb|pH|dB|lu?x|min|h|d|kn|t|rpm"
    r"|[nµumckhMG]?(?:m|s|g|l|Pa|bar|Wh?|V|A|Hz)[²³23]?(?:/[a-zµ]{1,4}[²³23]?)?",
    re.IGNORECASE,
)
_limit = threading.Lock()


@dataclass
class TableLayout:
    """A text file split into lines before the rows, names, and rows with their line numbers, counted from 1."""

    separator: str
    before: list[str]  # lines before the names, unchanged
    names: list[str]
    rows: list[list[str]]
    lines: list[int]
    units: list[str] | None = None
    remarks: list[str] = field(default_factory=list)
    comments: dict[int, list[list[str]]] = field(
        default_factory=dict
    )  # comments between the rows, by the number of the following row
    uneven: list[int] = field(default_factory=list)  # rows with fewer or more cells than names; their cells are empty


def read_layout(path: Path, content: bytes, notation: Notation, wanted: Collection[str] = ()) -> TableLayout:
    """Read a text file. `wanted` are column names from the caller: a first line with one of them is no row."""
    with reading(path, "comma-separated values", "export it again"):
        text, remarks = _decode(path, gunzip(path, content) if content.startswith(b"\x1f\x8b") else content)
        separator, before, body = _split(text, notation)
        first = len(before) + 1
        separator = separator or _separator(body)
        rows, lines = _cells(body, separator, first)
    if not rows:
        got = "only the first line" if before else "an empty file"
        raise InputError(f"a line of column names and at least one row in {path}", got=got, fix="pass a file with both")
    layout = TableLayout(separator, before, [], rows, lines, remarks=remarks)
    _skip_lines_before_names(layout)
    _take_names(layout, set(wanted))
    comments = sum(line.lstrip('" ').startswith("#") for line in layout.before)
    if comments:
        remarks.insert(0, f"{_count(comments, 'comment line')} before the names.")
    if not layout.rows:
        raise InputError(
            f"a line of column names and at least one row in {path}", got="only the first line", fix="pass a file with both"
        )
    _take_comments(layout)
    _take_units(layout, notation)
    _even(path, layout, notation)
    return layout


def _decode(path: Path, content: bytes) -> tuple[str, list[str]]:
    """The text of a file, UTF-8 or UTF-16, and notes on its encoding."""
    encoding = "utf-8-sig"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in content[:1000]:
        even, odd = content[:1000:2].count(0), content[1:1000:2].count(0)
        encoding = "utf-16-le" if odd > max(4 * even, 1) else "utf-16-be" if even > max(4 * odd, 1) else encoding
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            fix = "export it again as UTF-8"
            raise InputError(f"{path} to be UTF-16 text, as its first bytes say", got=reason(error), fix=fix) from error
        fix = "save it as UTF-8, or `iconv -f cp1252 -t utf-8 FILE | overt smooth -`"
        raise InputError(f"{path} to be UTF-8 text", got=reason(error), fix=fix) from error
    return text, [] if encoding == "utf-8-sig" else ["The file is UTF-16 text."]


def _split(text: str, notation: Notation) -> tuple[str | None, list[str], str]:
    """The separator, if the file states it, the blank and comment lines at the beginning, and the remaining text."""
    separator, before, position = notation.separator, [], 0
    while position < len(text):
        end = text.find("\n", position) + 1 or len(text)
        line = text[position:end].rstrip("\r\n")
        plain = line.strip('" ')
        if not before and plain.lower().startswith("sep=") and len(plain.rstrip("\r\n")) in (4, 5):
            separator = separator or plain[4:] or "\t"
        elif line.strip() and not plain.startswith("#"):
            break
        before.append(line)
        position = end
    return separator, before, text[position:]


def _separator(text: str) -> str:
    """The separator for which most lines have the same number of cells, more than one."""
    lines = [line for line in islice(io.StringIO(text), _SAMPLE) if line.strip()]
    best, most = ",", (len(lines) - 1) // 2  # at least half of the lines
    for separator in _SEPARATORS:
        with suppress(csv.Error), _cells_of_any_size():
            widths = Counter(len(row) for row in csv.reader(lines, delimiter=separator) if len(row) > 1)
            share = max(widths.values(), default=0)
            if share > most:
                best, most = separator, share
    return best


def _cells(text: str, separator: str, first: int) -> tuple[list[list[str]], list[int]]:
    """The non-blank rows with their line numbers; `first` is the first line's number."""
    rows, lines = [], []
    with _cells_of_any_size():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num + first - 1)
    return rows, lines


def _skip_lines_before_names(layout: TableLayout) -> None:
    """Move lines before the names to `before`: lines with fewer cells than the table; the line after the last of them has the names."""
    width = Counter(len(row) for row in layout.rows[:_SAMPLE]).most_common(1)[0][0]
    head = layout.rows[: _BEFORE_NAMES + 1]
    start = max((index + 1 for index, row in enumerate(head[:-1]) if len(row) < width), default=0)
    if not start or width < 2 or any(len(row) > width for row in head[:start]) or not _holds_names(head[start], width):
        return
    layout.before += [layout.separator.join(row) for row in layout.rows[:start]]
    layout.rows, layout.lines = layout.rows[start:], layout.lines[start:]
    layout.remarks.append(f"{_count(start, 'line')} before the names, without a # at the beginning.")


def _holds_names(row: Sequence[str], width: int) -> bool:
    """Whether every cell of a line has a word."""
    cells = [cell.strip() for cell in row]
    return len(cells) == width and all(cell.lower() not in MISSING and not _is_value(cell) for cell in cells)


def _take_names(layout: TableLayout, wanted: set[str]) -> None:
    """Move the names from the rows to `names`, or take them from the last comment, or number the columns if there are none."""
    first = [cell.strip() for cell in layout.rows[0]]
    numbered = [str(number) for number in range(1, len(first) + 1)]
    named = not _is_row(first) or first == numbered or bool(wanted & (set(first) - set(numbered)))
    if named:
        layout.names = first
        layout.rows, layout.lines = layout.rows[1:], layout.lines[1:]
        return
    comment = layout.before[-1].lstrip('# "') if layout.before and layout.before[-1].lstrip('" ').startswith("#") else ""
    names = [name.strip() for name in next(csv.reader([comment], delimiter=layout.separator), [])]
    if len(names) == len(first) and all(names) and not _is_row(names) and (len(names) > 1 or " " not in names[0]):
        layout.names = names
        layout.before.pop()
        layout.remarks.append("A comment line names the columns.")
        return
    layout.names = numbered
    layout.remarks.append(f"The file has no names: its {len(first)} columns are called 1, 2, … and its first line is a row."
                          if len(first) > 1 else "The file has no names: its column is called 1, and its first line is a row.")  # fmt: skip


def _is_row(cells: Sequence[str]) -> bool:
    """Whether all cells of a line are numbers or dates, so that it has no names."""
    present = [cell.strip() for cell in cells if cell.strip()]
    return bool(present) and all(_is_value(cell) for cell in present)


def _is_value(cell: str) -> bool:
    if any(parse_number(cell, decimal) is not None for decimal in ".,") or is_date(cell):
        return True
    stripped = bare(cell)
    return stripped is not None and any(parse_number(stripped.numeral, decimal) is not None for decimal in ".,")


def _take_comments(layout: TableLayout) -> None:
    """Move comments between the rows to `comments`."""
    width = len(layout.names)
    rows, lines = [], []
    for row, line in zip(layout.rows, layout.lines, strict=True):
        text = row[0].lstrip()
        if text.startswith("#") and (len(row) != width or text.startswith(("# ", "##"))):
            layout.comments.setdefault(len(rows), []).append(row)
        else:
            rows.append(row)
            lines.append(line)
    if layout.comments:
        count = sum(map(len, layout.comments.values()))
        layout.remarks.append(f"{_count(count, 'comment line')} between the rows.")
        layout.rows, layout.lines = rows, lines


def _take_units(layout: TableLayout, notation: Notation) -> None:
    """Move a line of units after the names to `units`: none of its cells is a number, but all cells below in some column are."""
    if len(layout.rows) < 3 or len(layout.rows[0]) != len(layout.names):
        return
    line = [cell.strip() for cell in layout.rows[0]]
    present = [index for index, cell in enumerate(line) if cell]
    known = [index for index in present if line[index].lower() not in notation.spellings]
    if not known or any(_is_value(line[index]) for index in known):
        return
    below = [[row[index].strip() for row in layout.rows[1:] if len(row) == len(line)] for index in range(len(line))]
    values = [index for index in known if _all_values(below[index], notation)]
    texts = set(known) - set(values)
    if (
        not values
        or any(line[index] in below[index] for index in texts)
        or (len(values) == 1 and not _is_unit(line[values[0]]))
    ):
        return
    layout.units, comments = layout.rows[0], layout.comments
    layout.comments = {}
    for index, rows in comments.items():
        layout.comments.setdefault(max(index - 1, 0), []).extend(rows)
    layout.remarks.append(f"Line {layout.lines[0]} was read as units: {', '.join(line[index] for index in known)}.")
    layout.rows, layout.lines = layout.rows[1:], layout.lines[1:]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun + 's'}"


def _is_unit(cell: str) -> bool:
    """Whether a cell is a known unit, or in brackets like a unit."""
    return bool(_UNIT.fullmatch(cell)) or (cell[0], cell[-1]) in {("[", "]"), ("(", ")")}


def _all_values(cells: Sequence[str], notation: Notation) -> bool:
    present = [cell for cell in cells if cell.lower() not in notation.spellings]
    return bool(present) and all(_is_value(cell) for cell in present)


def _even(path: Path, layout: TableLayout, notation: Notation) -> None:
    """Give every row as many cells as there are names, or ask."""
    width = len(layout.names)
    for index, (row, line) in enumerate(zip(layout.rows, layout.lines, strict=True)):
        if len(row) == width:
            continue
        if len(row) > width and not any(cell.strip() for cell in row[width:]):
            del row[width:]
            continue
        if notation.errors == "ask":
            expected = f"{width} cells in each row of {path}, as in its first line"
            fix = "correct that row, or pass --errors missing to leave such rows out"
            raise InputError(expected, got=f"{len(row)} at line {line}", fix=fix)
        layout.uneven.append(index)
        layout.rows[index] = [""] * width


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """Raise the process-wide limit of 131,072 characters per cell, and restore it."""
    with _limit:
        before = csv.field_size_limit(_LARGEST_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)
