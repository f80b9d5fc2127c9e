"""Vectors for the recipes: the text model's word vectors, or a reader's own numbers from a CSV file. No torch."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from overt.errors import InputError
from overt.explain.encoded import Encoded, Word, named, truncation_notes
from overt.explain.explanation import Explanation, step_rows
from overt.reading import is_numeral, reading

if TYPE_CHECKING:
    from torch import Tensor

Matrix: TypeAlias = "np.ndarray | Tensor"


@dataclass(frozen=True)
class Vectors:
    """A sequence of vectors (N, D), their tokens, and their origin."""

    encoded: Encoded
    values: np.ndarray
    source: str
    notes: list[str] = field(default_factory=list)


def read_vectors(model: Any, text: str, truncate: bool = False) -> Vectors:
    """The model's own vector of each token, before any layer; special tokens are excluded."""
    encoded = model.encode(text, truncate)
    plain = encoded.plain
    return Vectors(plain, model.word_vectors(plain.ids), f"word vectors of {model.name}", truncation_notes(encoded, truncate))


def one_head(
    vectors: Vectors,
    other: Vectors | None,
    word: Word,
    *,
    scores: Matrix,
    scaled: Matrix,
    weights: Matrix,
    keys: Matrix,
    values: Matrix,
    query: Matrix,
    output: Matrix,
    notes: Sequence[str] = (),
    **others: Any,
) -> Explanation:
    """The explanation of one word with a single head; `others` are further fields of it.

    Scores, scaled scores and weights are (N, K), keys (K, D), values (K, E), queries (N, D) and outputs (N, E).
    """
    against, i = other or vectors, word.index
    return Explanation(
        text=vectors.encoded.text,
        other=other.encoded.text if other else None,
        tokens=against.encoded.tokens,
        query_tokens=vectors.encoded.tokens,
        word=i,
        special=[],
        rows=[[weights[i].tolist()]],
        shown=(0, 0),
        why="the only head",
        query=query[i].tolist(),
        steps=step_rows(against.encoded.tokens, scores[i], scaled[i], weights[i], keys, values),
        output=output[i].tolist(),
        matrix=weights.tolist(),
        notes=[note for note in (word.note, *vectors.notes, *(other.notes if other else []), *notes) if note],
        **{"scale_name": "", "normalizer": "softmax", **others},
    )


@dataclass(frozen=True)
class VectorTable:
    """A CSV file of numbers: one vector a row, and the rows' names, if it has any."""

    path: Path
    names: list[str] | None
    values: np.ndarray

    def sequence(self, text: str | None = None) -> Vectors:
        """The rows in order; with a text, the row of each of its words, or, without names, the rows named by its words."""
        words = text.split() if text else None
        if words is None:
            names = self.names or [f"x{index}" for index in range(1, len(self.values) + 1)]
            return Vectors(named(names), self.values, self.path.name)
        if self.names is None:
            if len(words) != len(self.values):
                raise InputError(
                    "one word for each row of a file without names",
                    got=f"{len(words)} words and {len(self.values)} rows",
                    fix="give the file a first column of names, or leave the text out",
                )
            return Vectors(named(words), self.values, self.path.name)
        row_by_name = {name.casefold(): index for index, name in reversed(list(enumerate(self.names)))}
        unknown = [word for word in words if word.casefold() not in row_by_name]
        if unknown:
            raise InputError(
                f"a row in {self.path.name} for every word of the text",
                got=f"no row for {', '.join(repr(word) for word in unknown[:5])}",
                fix="add the rows, or leave the text out to take the file's rows in their order",
            )
        return Vectors(named(words), self.values[[row_by_name[word.casefold()] for word in words]], self.path.name)


def read_csv(path: str | Path) -> VectorTable:
    """Read one vector a row, with an optional first column of names and an optional first row of headings.

    A cell that is not a finite number is an error that names it by row and column, counted from 1.
    """
    path = Path(path)
    form = "a CSV file of numbers as --vectors"
    with reading(path, form, "write it as UTF-8 text, one vector a row"), path.open(newline="", encoding="utf-8-sig") as file:
        lines = [(number, row) for number, row in enumerate(csv.reader(file), start=1) if any(cell.strip() for cell in row)]
    if len(lines) > 1 and not any(is_numeral(cell) for cell in lines[0][1]) and any(is_numeral(cell) for cell in lines[1][1]):
        lines = lines[1:]
    if not lines:
        raise InputError("a CSV file of numbers as --vectors", got=f"{path}, which is empty", fix="write one vector a row")
    first = 0 if all(is_numeral(row[0]) for _, row in lines) else 1
    width = len(lines[0][1])
    values = [
        [_cell(path, line, column, row[column]) for column in range(first, _width(path, line, row, width))]
        for line, row in lines
    ]
    if not values[0]:
        raise InputError("at least one number in each row", got=f"{path} with names only", fix="add columns of numbers")
    names = [row[0].strip() for _, row in lines] if first else None
    return VectorTable(path, names, np.array(values, dtype=np.float64))


def _cell(path: Path, line: int, column: int, cell: str) -> float:
    value = float(cell) if is_numeral(cell) else math.nan
    if not math.isfinite(value):
        raise InputError(
            f"finite numbers in {path.name}",
            got=f"{cell.strip()!r} in row {line}, column {column + 1}",
            fix="write a number there, with a point before the decimals",
        )
    return value


def _width(path: Path, line: int, row: Sequence[str], width: int) -> int:
    if len(row) != width:
        raise InputError(
            f"rows of equal length in {path.name}",
            got=f"{len(row)} columns in row {line}, {width} before it",
            fix="give every row the same columns",
        )
    return width
