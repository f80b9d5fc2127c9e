"""The table of steps as text: a column for each step, a row for each token, fitted to the width."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from overt.drawing.letters import Ink, bar
from overt.drawing.numbers import decimals_for, entry_width, labels, number, vector
from overt.explain.explanation import (
    Choice,
    Explanation,
    Stage,
    StepRow,
    choose_rows,
    count_word,
    query_name,
    stages,
    state_name,
    sum_formula,
    word_index,
)

BAR, WORD, QUIET = "#2b8fd0", "bold #d55e00", "dim"
LONGEST_BAR = 28  # most columns of a bar


@dataclass
class TextColumn:
    """One column: the number and name of its step, a cell for each row, a cell for all others, and the foot."""

    number: str
    name: str
    cells: list[Text]
    others: Text
    foot: Text
    right: bool = False


class StepTable:
    """The table of one explanation, with the strongest `rows` tokens; `lines(ink)` lays it out."""

    def __init__(self, explanation: Explanation, rows: int | None = 8):
        self.explanation = explanation
        self.choice: Choice = choose_rows(explanation, rows)
        self.stages: dict[str, Stage] = {stage.key: stage for stage in stages(explanation)}
        self.word_row: int | None = word_index(explanation)
        self.labels: list[str] = labels([row.token for row in explanation.steps], limit=14)

    def lines(self, ink: Ink) -> Iterable[Text]:
        """The complete table: the word's own vector, the rows, and in the hidden recipe the joined vector."""
        yield self._heading(ink)
        yield from self._body(ink)
        if "join" in self.stages:
            yield from self._joined(ink)

    def _body(self, ink: Ink) -> list[Text]:
        """The widest table that fits; vectors that do not fit next to the other columns get their own lines."""
        apart: list[Text] = []
        if self.explanation.recipe != "qkv":
            table = self._fitted(ink, 3, with_vectors=True)
            if _width(table) <= ink.width:
                return table
            apart = self._sequence(ink)
        for shown in (3, 2, 1):
            table = self._fitted(ink, shown, with_vectors=False)
            if _width(table) <= ink.width:
                return [*apart, *table]
        narrower = Ink(ink.width - 2, ink.encoding)
        rows, right = self._rows(ink, 1, False, 4)
        return [*apart, *(ink.line("  " if line else "", line) for line in narrower.table(rows, right))]

    def _heading(self, ink: Ink) -> Text:
        title = f"{count_word(len(self.stages))} steps"
        title += f", {self.explanation.name}" if self.explanation.name else ""
        query = self.explanation.query
        query_line = f"1  {query_name(self.explanation)} = {vector(query, decimals=decimals_for(query))}"
        return ink.line(ink.text(title, "bold"), "   ", ink.text(query_line))

    def _sequence(self, ink: Ink) -> list[Text]:
        """The vectors of step 1 on their own lines, if they do not fit into the table."""
        ordered = sorted(self.choice.rows, key=lambda row: row.index)
        more = ink.prose(f"and {len(self.choice.others)} more", QUIET) if self.choice.others else []
        table: list[Text] = []
        for shown in (3, 2, 1):
            write = self._aligned([row.value for row in ordered], shown)
            rows = [[ink.text("  1"), self._token(row, ink), ink.text(write(row.value))] for row in ordered]
            table = ink.grid(rows, [False] * 3)
            if _width(table) <= ink.width:
                break
        return [*table, *more, Text()]

    def _joined(self, ink: Ink) -> list[Text]:
        stage = self.stages["join"]
        joined = self.explanation.joined or []
        width = f"{len(self.explanation.query)} numbers in, {len(joined)} out"
        line = f"  {stage.number}  {stage.formula} = {vector(joined, decimals=decimals_for(joined))}"
        return [ink.line(ink.text(line, "bold"), "   ", ink.text(width, QUIET))]

    def _fitted(self, ink: Ink, shown: int, with_vectors: bool) -> list[Text]:
        """The table with `shown` entries of each vector, and a bar that fills the width."""
        bare = self._table(ink, shown, with_vectors, 0)
        available = ink.width - _width(bare) - 1
        return self._table(ink, shown, with_vectors, max(8 if with_vectors else 4, min(LONGEST_BAR, available)))

    def _table(self, ink: Ink, shown: int, with_vectors: bool, width: int) -> list[Text]:
        rows, right = self._rows(ink, shown, with_vectors, width)
        return [ink.line("  ", line) for line in ink.grid(rows, right)]

    def _rows(self, ink: Ink, shown: int, with_vectors: bool, width: int) -> tuple[list[list[Text]], list[bool]]:
        """The cells of the table, and which columns are right-aligned."""
        columns = [self._tokens(ink)]
        columns += [self._vectors(ink, shown)] if with_vectors else []
        columns += [self._scores(ink, key, [getattr(row, field) for row in self.choice.rows])
                    for key, field in (("score", "score"), ("scale", "scaled")) if key in self.stages]  # fmt: skip
        columns += [self._weights(ink, width), self._weighted(ink, shown)]
        rows = [[ink.text(column.number, QUIET) for column in columns], [ink.text(column.name, QUIET) for column in columns]]
        rows += [list(row) for row in zip(*(column.cells for column in columns), strict=True)]
        rows += [[column.others for column in columns]] if self.choice.others else []
        rows += [[column.foot for column in columns]]
        return rows, [column.right for column in columns]

    def _tokens(self, ink: Ink) -> TextColumn:
        foot = ink.text(f"{self.stages['sum'].number}  {sum_formula(self.explanation)}", "bold")
        cells = [self._token(row, ink) for row in self.choice.rows]
        return TextColumn("", "token", cells, ink.text(self.choice.label, QUIET), foot)

    def _token(self, row: StepRow, ink: Ink) -> Text:
        state = "" if self.explanation.recipe == "qkv" else f"{state_name(self.explanation, row.index)}  "
        name = ink.token(self.labels[row.index], 18, WORD if row.index == self.word_row else "")
        return ink.line(ink.text(state, QUIET), name)

    def _vectors(self, ink: Ink, shown: int) -> TextColumn:
        write = self._aligned([row.value for row in self.choice.rows], shown)
        name = {"hidden": "h_j", "plain": "x_j"}.get(self.explanation.recipe, "v")
        return TextColumn("1", name, [ink.text(write(row.value)) for row in self.choice.rows], ink.text(""), ink.text(""))

    def _scores(self, ink: Ink, key: str, values: list[float]) -> TextColumn:
        stage, decimals = self.stages[key], decimals_for(values)
        cells = [ink.text(number(value, decimals)) for value in values]
        return TextColumn(str(stage.number), stage.formula, cells, ink.text(""), ink.text(""), right=True)

    def _weights(self, ink: Ink, width: int) -> TextColumn:
        stage, strongest = self.stages["normalize"], max((abs(row.weight) for row in self.choice.rows), default=0.0)
        numbers = [number(row.weight, 3) for row in self.choice.rows]
        wide = max(map(len, numbers), default=0)
        cells = [
            ink.line(f"{weight.rjust(wide)} ", _bar(row.weight, strongest, width, ink))
            for weight, row in zip(numbers, self.choice.rows, strict=True)
        ]
        total = math.fsum(row.weight for row in self.explanation.steps)
        others = ink.text(number(self.choice.weight, 3).rjust(wide), QUIET)
        foot = ink.text(number(total, 3).rjust(wide))
        return TextColumn(str(stage.number), f"{stage.title} {stage.formula}", cells, others, foot)

    def _weighted(self, ink: Ink, shown: int) -> TextColumn:
        vectors = [row.weighted for row in self.choice.rows] + [self.choice.weighted] * bool(self.choice.others)
        write, stage = self._aligned([*vectors, self.explanation.output], shown), self.stages["weigh"]
        cells = [ink.text(write(row.weighted)) for row in self.choice.rows]
        others = ink.text(write(self.choice.weighted) if self.choice.others else "", QUIET)
        return TextColumn(str(stage.number), stage.formula, cells, others, ink.text(write(self.explanation.output), "bold"))

    @staticmethod
    def _aligned(vectors: Sequence[Sequence[float]], shown: int):
        decimals = decimals_for([entry for entries in vectors for entry in entries[: shown + 1]])
        wide = entry_width(vectors, shown, decimals)
        return lambda entries: vector(entries, shown, wide, decimals)


def _bar(weight: float, strongest: float, width: int, ink: Ink) -> Text:
    return ink.text(bar(weight, strongest, width).ljust(width), WORD if weight < 0 else BAR)


def _width(lines: Sequence[Text]) -> int:
    return max(line.cell_len for line in lines)
