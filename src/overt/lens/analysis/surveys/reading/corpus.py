"""The texts of a file, read one after another: lines of text, JSON lines, or a column of a Parquet file."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from overt.drawing.numbers import shorten, visible
from overt.errors import InputError, needed_by
from overt.reading import parse_json, reading, unreadable

_ROWS = 1024  # rows of a Parquet file in memory at a time
_TABLES = {
    ".csv": "write its column of texts as JSON lines, or rename it to .txt if each line is a text",
    ".tsv": "write its column of texts as JSON lines, or rename it to .txt if each line is a text",
    ".json": "write its texts as JSON lines, one a line, into a .jsonl file",
}


class Corpus:
    """The texts of one or more files, in order; each iteration reads the files from their beginning.

    A `.parquet` file has a text in each row of its column `field`, a `.jsonl` file a JSON object or a string on each line, and in every
    other file each line is a text; `.gz` is unpacked. A line of JSON that is truncated or has no such field is skipped: `skipped` has
    (file, line number, reason) of each after the corpus was read. Only that list grows with the corpus.

    Raises InputError for a file that cannot be read, is not UTF-8 or is a table (.csv), and if every line was skipped;
    MissingExtra for Parquet without pyarrow.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "texts.jsonl"
    >>> _ = path.write_text('{"text": "the cat"}\\n{"text": "the d')
    >>> corpus = Corpus([path])
    >>> len(corpus), list(corpus), corpus.skipped[0][1:]
    (1, ['the cat'], (2, 'it is not complete JSON'))
    """

    def __init__(self, paths: list[Path], field: str = "text"):
        self.paths = paths
        self.field = field
        self.skipped: list[tuple[str, int, str]] = []
        self._length: int | None = None

    def __iter__(self) -> Iterator[str]:
        self.skipped = []
        empty = True
        for path in self.paths:
            for text in self._parquet(path) if path.suffix == ".parquet" else self._lines(path):
                empty = False
                yield text
        if empty and self.skipped:
            path, number, why = self.skipped[0]
            got = f"{len(self.skipped):,} lines without one; {path}, line {number}: {why}"
            raise InputError("a corpus of at least one text", got=got, fix="name the field of the texts with --field")

    def __len__(self) -> int:
        """The number of texts, for which the files are read once."""
        if self._length is None:
            self._length = sum(1 for _ in self)
        return self._length

    def _lines(self, path: Path) -> Iterator[str]:
        endings = path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]
        jsonl = ".jsonl" in endings or ".ndjson" in endings
        for ending in endings:
            if ending in _TABLES:
                raise InputError("texts on lines, JSON lines or Parquet", got=f"{path}, {ending}", fix=_TABLES[ending])
        with ExitStack() as stack:
            try:
                opening = gzip.open if path.suffix == ".gz" else open
                file = stack.enter_context(opening(path, "rb"))
                for number, line in enumerate(file, 1):
                    data = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                    text = self._json_text(path, number, data) if jsonl else _decoded(path, number, data)
                    if text is not None:
                        yield text
            except (OSError, EOFError, zlib.error) as error:
                fix = "check its name" if isinstance(error, OSError) else "unpack it, or download it again"
                raise unreadable(path, "a readable file", error, fix) from error

    def _json_text(self, path: Path, number: int, line: bytes) -> str | None:
        if not line.strip():
            return None
        try:
            value: Any = parse_json(line.decode(), strict=False)
        except ValueError:  # a line may also be cut off inside a character
            self.skipped.append((os.fspath(path), number, "it is not complete JSON"))
            return None
        text = value if isinstance(value, str) else value.get(self.field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            self.skipped.append((os.fspath(path), number, f"it has no text {self.field!r}{_fields(value)}"))
            return None
        return text

    def _parquet(self, path: Path) -> Iterator[str]:
        with needed_by("a corpus in Parquet", "smooth"):
            from pyarrow import parquet
        with reading(path, "a Parquet file", "export it again"), parquet.ParquetFile(path) as file:
            if self.field not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise InputError(f"{path} to have a column {self.field!r}", got=f"columns {names}", fix="name one with --field")
            number = 0
            for rows in file.iter_batches(batch_size=_ROWS, columns=[self.field]):
                for text in rows.column(0).to_pylist():
                    number += 1
                    if isinstance(text, str):
                        yield text
                    else:
                        self.skipped.append((os.fspath(path), number, f"it has no text {self.field!r}"))


def _fields(value: Any) -> str:
    """A part of an error message: the names of the text fields that a JSON object has instead."""
    texts = [visible(name) for name, item in value.items() if isinstance(item, str)] if isinstance(value, dict) else []
    return f", but {shorten(', '.join(texts), 40)}" if texts else ""


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        got = f"the byte 0x{line[error.start]:02x} in line {number}"
        raise InputError(f"{path} to be UTF-8 text", got=got, fix="convert it to UTF-8") from error
