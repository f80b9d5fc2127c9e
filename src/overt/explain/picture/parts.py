"""Parts that the picture and the animation share: the sentence with its arcs, and the table of the steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from overt.drawing.canvas import BLUE, FIRE, INK, QUIET, Sheet, lowered, shade
from overt.drawing.numbers import STRONG, entry_width, labels, number, places, vector
from overt.explain.explanation import Choice, Explanation, Stage, StepRow, own_index, stages, state_name, sum_formula

LONGEST_TOKEN, STRIP = 210, 64
SIZES = (18.0, 16.0, 14.0, 12.5, 11.0, 9.5)
WIDE = 1000  # from here on the table has room for the keys and values themselves
Draw = Callable[[StepRow, float, float, float], None]  # a row's cell at x, y, so wide


def sentence(
    sheet: Sheet, explanation: Explanation, x: float, y: float, room: float, height: float, weighed: bool = True
) -> None:
    """Draw the tokens, shaded by their weights once `weighed`, with arcs from the word where they stand on one line."""
    layer, head = explanation.shown
    weights = explanation.rows[layer][head] if weighed else [0.0] * len(explanation.tokens)
    if explanation.other is not None:
        _two_sentences(sheet, explanation, weights, x, y, room, height)
        return
    own = explanation.word
    size, lines = _set(sheet, explanation.tokens, room, height)
    fitting = max(1, int(height // (size * 2.5)))
    top = y + height - size * 2.2 if len(lines) == 1 else y + (height - min(len(lines), fitting) * size * 2.5) / 2
    middles = _chips(sheet, lines[:fitting], weights, x, top, size, own)
    sheet.cropped |= len(lines) > fitting
    if len(lines) == 1:
        _arcs(sheet, weights, middles, own, top - 5, height - size * 2.2 - 16)


def _two_sentences(
    sheet: Sheet, explanation: Explanation, weights: Sequence[float], x: float, y: float, room: float, height: float
) -> None:
    """Draw the sentence that asks above the one that is asked, with links between where each stands on one line."""
    share = height / 2 - 8
    size, asking = _set(sheet, explanation.query_tokens, room, share)
    other, asked = _set(sheet, explanation.tokens, room, share)
    fitting = max(1, int(share // (size * 2.5))), max(1, int(share // (other * 2.5)))
    sheet.cropped |= len(asking) > fitting[0] or len(asked) > fitting[1]
    lines = min(len(asked), fitting[1])
    top = y + height - lines * other * 2.5 + other * 0.3
    above = _chips(sheet, asking[: fitting[0]], [0.0] * len(explanation.query_tokens), x, y, size, explanation.word)
    below = _chips(sheet, asked[: fitting[1]], weights, x, top, other, None)
    if len(asking) > 1 or len(asked) > 1:
        return
    most = max([STRONG, *map(abs, weights)])
    for index, weight in enumerate(weights):
        part = abs(weight) / most
        if part > 0.015:
            ends = above[explanation.word], y + size * 2.05 + 4, below[index], top - 4
            sheet.link(*ends, FIRE if weight < 0 else BLUE, 0.8 + 5 * part, 0.25 + 0.7 * math.sqrt(part))


@dataclass(frozen=True)
class Placed:
    """A token where it stands on its line."""

    index: int
    told: str
    left: float
    width: float


def _set(sheet: Sheet, tokens: Sequence[str], room: float, height: float) -> tuple[float, list[list[Placed]]]:
    """On one line if the letters stay large, else on as many lines as fit, else in the smallest letters."""
    broken = {size: _broken(sheet, tokens, size, room) for size in SIZES}
    alone = [size for size in SIZES if size >= 13 and len(broken[size]) == 1]
    fitting = [size for size in SIZES if len(broken[size]) * size * 2.5 <= height]
    size = [*alone, *fitting, SIZES[-1]][0]
    return size, broken[size]


def _broken(sheet: Sheet, tokens: Sequence[str], size: float, room: float) -> list[list[Placed]]:
    lines: list[list[Placed]] = [[]]
    left, pad, gap = 0.0, size * 0.5, size * 0.35
    for index, token in enumerate(tokens):
        told = sheet.fitted(token, LONGEST_TOKEN, size)
        width = sheet.measure(told, size) + 2 * pad
        if lines[-1] and left + width > room:
            lines.append([])
            left = 0.0
        lines[-1].append(Placed(index, told, left, width))
        left += width + gap
    return lines


def _chips(
    sheet: Sheet, lines: list[list[Placed]], weights: Sequence[float], x: float, y: float, size: float, own: int | None
) -> dict[int, float]:
    """Draw the tokens in boxes, the word's own framed; gives where the middle of each is."""
    most = max([STRONG, *map(abs, weights)])
    middles = {}
    for place, line in enumerate(lines):
        top = y + place * size * 2.5
        for token in line:
            colour, ink = shade(weights[token.index] / most)
            sheet.chip(x + token.left, top, token.width, size * 2.05, colour, FIRE if token.index == own else "none")
            middles[token.index] = x + token.left + token.width / 2
            sheet.text(middles[token.index], top + size * 1.0, token.told, size, ink, across="center")
    return middles


def _arcs(sheet: Sheet, weights: Sequence[float], middles: dict[int, float], own: int, floor: float, height: float) -> None:
    most = max([STRONG, *map(abs, weights)])
    span = max(abs(middle - middles[own]) for middle in middles.values()) or 1.0
    for index, weight in enumerate(weights):
        share = abs(weight) / most
        if index == own or not share > 0.015:
            continue
        tall = height * (0.2 + 0.8 * math.sqrt(abs(middles[index] - middles[own]) / span))
        colour = FIRE if weight < 0 else BLUE
        sheet.arc(middles[own], middles[index], floor, tall, colour, 0.8 + 5 * share, 0.25 + 0.7 * math.sqrt(share))


@dataclass
class Column:
    """A column of the table: which step makes it, its name, where it stands, and how a cell of it is drawn."""

    stage: Stage
    name: str
    x: float
    width: float
    draw: Draw


class StepColumns:
    """The table of the steps on a sheet. `reached` is the last step drawn; `rows` how many rows of it (None: all)."""

    def __init__(self, sheet: Sheet, explanation: Explanation, choice: Choice, x: float, y: float, room: float, height: float):
        self.sheet, self.explanation, self.choice = sheet, explanation, choice
        self.x, self.y, self.room = x, y, room
        self.stages = {stage.key: stage for stage in stages(explanation)}
        self.labels, self.own = labels(explanation.tokens, most=20), own_index(explanation)
        count = len(choice.rows) + bool(choice.others) + 1 + ("join" in self.stages)
        self.step = min(46.0, (height - 48) / count)
        self.size = min(12.5, self.step * 0.36)
        self.most = max((abs(row.weight) for row in choice.rows if math.isfinite(row.weight)), default=0.0) or 1.0
        self.vectors = [row.weighted for row in explanation.steps] + [explanation.output]
        self.columns = self._columns()

    def _columns(self) -> list[Column]:
        score = [key for key in ("score", "scale") if key in self.stages]
        left, made = self.x + 168, []
        if self.explanation.recipe != "qkv":
            name = {"hidden": "h_j", "plain": "x_j"}[self.explanation.recipe]
            made.append(Column(self.stages["vectors"], name, left, 72, self._strip("value")))
            left += 84
        elif self.room >= WIDE:
            for name in ("key", "value"):
                made.append(Column(self.stages["vectors"], name, left, 112, self._strip(name)))
                left += 126
        for key in score:
            made.append(Column(self.stages[key], self.stages[key].formula, left, 76, self._scores(key)))
            left += 90
        end = self.x + self.room
        shown = vector(self.explanation.output, 3, self._entry())
        vectors = STRIP + 8 + self.sheet.measure("0" * len(shown), self.size - 2, mono=True)
        stage = self.stages["normalize"]
        name = f"{stage.title} {stage.formula}"
        made.append(Column(stage, name, left, max(end - vectors - 16 - left, 60), self._weight))
        made.append(Column(self.stages["weigh"], self.stages["weigh"].formula, end - vectors, vectors, self._weighted))
        return made

    def _entry(self) -> int:
        return entry_width(self.vectors, 3, places([value for entries in self.vectors for value in entries]))

    def draw(self, reached: int = 99, rows: float = math.inf) -> None:
        """Draw the columns of the steps up to `reached`; of the last one only the first `rows` cells."""
        self._heads(reached)
        for place, row in enumerate(self.choice.rows):
            y = self.y + 48 + (place + 0.5) * self.step
            self._name(row, y)
            for column in self.columns:
                if column.stage.number < reached or (column.stage.number == reached and place < rows):
                    column.draw(row, column.x, y, column.width)
        self._foot(reached, rows)

    def _heads(self, reached: int) -> None:
        self.sheet.text(self.x, self.y + 26, "token", 10.5, QUIET)
        for column in self.columns:
            now = column.stage.number == reached
            colour, right = (FIRE if now else QUIET), column.stage.key in {"score", "scale"}
            told, x = f"{column.stage.number}  {lowered(column.name)}", column.x + (column.width if right else 0)
            self.sheet.text(
                x, self.y + 26, told, 10.5, colour, bold=now, across="right" if right else "left", room=column.width + 8
            )
        self.sheet.line(self.x, self.y + 42, self.x + self.room, self.y + 42)

    def _name(self, row: StepRow, y: float) -> None:
        own, left = row.index == self.own, self.x
        if self.explanation.recipe != "qkv":
            place = lowered(state_name(self.explanation, row.index))
            left += self.sheet.text(left, y, place, self.size - 1, QUIET) + 8
        self.sheet.text(left, y, self.labels[row.index], self.size, FIRE if own else INK, bold=own, room=self.x + 158 - left)

    def _strip(self, name: str) -> Draw:
        vectors = {row.index: row.key if name == "key" else row.value for row in self.choice.rows}
        most = _largest(list(vectors.values()))
        return lambda row, x, y, width: self.sheet.strip(x, y - 8, width, 16, vectors[row.index], most)

    def _scores(self, key: str) -> Draw:
        values = {row.index: row.score if key == "score" else row.scaled for row in self.choice.rows}
        decimals = places(list(values.values()))

        def draw(row: StepRow, x: float, y: float, width: float) -> None:
            told = number(values[row.index], decimals)
            self.sheet.text(x + width, y, told, self.size, mono=True, across="right", room=width + 8)

        return draw

    def _weight(self, row: StepRow, x: float, y: float, width: float) -> None:
        told = self.sheet.measure("−0.000", self.size, mono=True)
        self.sheet.text(x + told, y, number(row.weight, 3), self.size, mono=True, across="right")
        long = (width - told - 10) * min(1.0, abs(row.weight) / self.most) if math.isfinite(row.weight) else 0.0
        negative = row.weight < 0
        self.sheet.box(x + told + 10, y - 7, max(long, 1.0), 14, FIRE if negative else BLUE, hatch="////" if negative else "")

    def _weighted(self, row: StepRow, x: float, y: float, width: float) -> None:
        self._vector(row.weighted, x, y, INK)

    def _vector(self, values: Sequence[float], x: float, y: float, colour: str, bold: bool = False) -> None:
        decimals = places([value for entries in self.vectors for value in entries])
        self.sheet.strip(x, y - 8, STRIP, 16, values, _largest(self.vectors))
        self.sheet.text(
            x + STRIP + 8, y, vector(values, 3, self._entry(), decimals), self.size - 2, colour, bold=bold, mono=True
        )

    def _foot(self, reached: int, rows: float) -> None:
        y, weigh = self.y + 48 + (len(self.choice.rows) + 0.5) * self.step, self.columns[-1]
        if self.choice.others:
            self.sheet.text(self.x, y, self.choice.label, self.size, QUIET)
            if reached >= self.stages["normalize"].number:
                self._total(self.choice.weight, y, QUIET)
            if reached >= self.stages["weigh"].number:
                self._vector(self.choice.weighted, weigh.x, y, QUIET)
            y += self.step
        self.sheet.line(self.x, y - self.step / 2, self.x + self.room, y - self.step / 2)
        found = self.stages["sum"]
        if reached >= found.number:
            self.sheet.text(
                self.x, y, f"{found.number}  {lowered(sum_formula(self.explanation))}", self.size, bold=True, room=300
            )
            self._total(math.fsum(row.weight for row in self.explanation.steps), y, INK)
            self._vector(self._partial(reached, rows), weigh.x, y, INK, bold=True)
        if "join" in self.stages and reached >= self.stages["join"].number:
            self._join(y + self.step, weigh)

    def _partial(self, reached: int, rows: float) -> list[float]:
        """The output, or as much of the sum as the animation has reached."""
        if reached > self.stages["sum"].number or rows > len(self.choice.rows):
            return self.explanation.output
        taken = [row.weighted for row in self.choice.rows[: int(rows)]]
        return [math.fsum(entries) for entries in zip(*taken, strict=True)] if taken else [0.0] * len(self.explanation.output)

    def _total(self, weight: float, y: float, colour: str) -> None:
        column = self.columns[-2]
        told = self.sheet.measure("−0.000", self.size, mono=True)
        self.sheet.text(column.x + told, y, number(weight, 3), self.size, colour, mono=True, across="right")

    def _join(self, y: float, weigh: Column) -> None:
        found = self.stages["join"]
        joined = self.explanation.joined or [*self.explanation.query, *self.explanation.output]
        told = f"{found.number}  {lowered(found.formula)}   {len(joined)} numbers"
        self.sheet.text(self.x, y, told, self.size, bold=True, room=400)
        self.sheet.strip(weigh.x, y - 8, weigh.width, 16, joined, _largest([joined]))


def _largest(vectors: Sequence[Sequence[float]]) -> float:
    return max((abs(value) for values in vectors for value in values if math.isfinite(value)), default=0.0) or 1.0


def step_columns(
    sheet: Sheet, explanation: Explanation, choice: Choice, x: float, y: float, room: float, height: float
) -> None:
    """Draw the whole table of the steps."""
    StepColumns(sheet, explanation, choice, x, y, room, height).draw()
