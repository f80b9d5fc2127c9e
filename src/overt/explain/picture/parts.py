"""Parts shared by picture and animation: the sentence with its arcs, and the table of steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from overt.drawing.canvas import BLUE, FIRE, INK, QUIET, Sheet, lowered, shade
from overt.drawing.numbers import STRONG, decimals_for, entry_width, labels, number, vector
from overt.explain.explanation import Choice, Explanation, Stage, StepRow, stages, state_name, sum_formula, word_index

LONGEST_TOKEN, STRIP = 210, 64  # LONGEST_TOKEN: largest width of a token's text; STRIP: width of a vector's strip
SIZES = (18.0, 16.0, 14.0, 12.5, 11.0, 9.5)  # sizes of the sentence's letters, tried from the largest on
WIDE = 1000  # width from which the table has room for the keys and values
Draw = Callable[[StepRow, float, float, float], None]  # draws a row's cell at x, y, with a width


def sentence(
    sheet: Sheet, explanation: Explanation, x: float, y: float, max_width: float, height: float, weighed: bool = True
) -> None:
    """Draw the tokens, shaded by their weights if `weighed`, with arcs from the word if they fit on one line."""
    layer, head = explanation.shown
    weights = explanation.rows[layer][head] if weighed else [0.0] * len(explanation.tokens)
    if explanation.other is not None:
        _two_sentences(sheet, explanation, weights, x, y, max_width, height)
        return
    word = explanation.word
    size, lines = _set(sheet, explanation.tokens, max_width, height)
    fitting = max(1, int(height // (size * 2.5)))
    top = y + height - size * 2.2 if len(lines) == 1 else y + (height - min(len(lines), fitting) * size * 2.5) / 2
    middles = _chips(sheet, lines[:fitting], weights, x, top, size, word)
    sheet.cropped |= len(lines) > fitting
    if len(lines) == 1:
        _arcs(sheet, weights, middles, word, top - 5, height - size * 2.2 - 16)


def _two_sentences(
    sheet: Sheet, explanation: Explanation, weights: Sequence[float], x: float, y: float, max_width: float, height: float
) -> None:
    """Draw the queries' sentence above the keys', with links between tokens if each sentence is on one line."""
    share = height / 2 - 8
    size, attending = _set(sheet, explanation.query_tokens, max_width, share)
    other, attended = _set(sheet, explanation.tokens, max_width, share)
    fitting = max(1, int(share // (size * 2.5))), max(1, int(share // (other * 2.5)))
    sheet.cropped |= len(attending) > fitting[0] or len(attended) > fitting[1]
    lines = min(len(attended), fitting[1])
    top = y + height - lines * other * 2.5 + other * 0.3
    above = _chips(sheet, attending[: fitting[0]], [0.0] * len(explanation.query_tokens), x, y, size, explanation.word)
    below = _chips(sheet, attended[: fitting[1]], weights, x, top, other, None)
    if len(attending) > 1 or len(attended) > 1:
        return
    strongest = max([STRONG, *map(abs, weights)])
    for index, weight in enumerate(weights):
        part = abs(weight) / strongest
        if part > 0.015:
            ends = above[explanation.word], y + size * 2.05 + 4, below[index], top - 4
            sheet.link(*ends, FIRE if weight < 0 else BLUE, 0.8 + 5 * part, 0.25 + 0.7 * math.sqrt(part))


@dataclass(frozen=True)
class PlacedToken:
    """A token at its position on its line."""

    index: int
    text: str
    left: float
    width: float


def _set(sheet: Sheet, tokens: Sequence[str], max_width: float, height: float) -> tuple[float, list[list[PlacedToken]]]:
    """Place tokens on one line if the letters stay large, else on as many lines as fit, else in the smallest letters."""
    broken = {size: _broken(sheet, tokens, size, max_width) for size in SIZES}
    alone = [size for size in SIZES if size >= 13 and len(broken[size]) == 1]
    fitting = [size for size in SIZES if len(broken[size]) * size * 2.5 <= height]
    size = [*alone, *fitting, SIZES[-1]][0]
    return size, broken[size]


def _broken(sheet: Sheet, tokens: Sequence[str], size: float, max_width: float) -> list[list[PlacedToken]]:
    lines: list[list[PlacedToken]] = [[]]
    left, pad, gap = 0.0, size * 0.5, size * 0.35
    for index, token in enumerate(tokens):
        text = sheet.fitted(token, LONGEST_TOKEN, size)
        width = sheet.measure(text, size) + 2 * pad
        if lines[-1] and left + width > max_width:
            lines.append([])
            left = 0.0
        lines[-1].append(PlacedToken(index, text, left, width))
        left += width + gap
    return lines


def _chips(
    sheet: Sheet, lines: list[list[PlacedToken]], weights: Sequence[float], x: float, y: float, size: float, word: int | None
) -> dict[int, float]:
    """Draw the tokens in boxes, the word's own framed; returns the middle of each."""
    strongest = max([STRONG, *map(abs, weights)])
    middles = {}
    for row, line in enumerate(lines):
        top = y + row * size * 2.5
        for token in line:
            colour, ink = shade(weights[token.index] / strongest)
            sheet.chip(x + token.left, top, token.width, size * 2.05, colour, FIRE if token.index == word else "none")
            middles[token.index] = x + token.left + token.width / 2
            sheet.text(middles[token.index], top + size * 1.0, token.text, size, ink, across="center")
    return middles


def _arcs(sheet: Sheet, weights: Sequence[float], middles: dict[int, float], word: int, floor: float, height: float) -> None:
    strongest = max([STRONG, *map(abs, weights)])
    span = max(abs(middle - middles[word]) for middle in middles.values()) or 1.0
    for index, weight in enumerate(weights):
        share = abs(weight) / strongest
        if index == word or not share > 0.015:
            continue
        tall = height * (0.2 + 0.8 * math.sqrt(abs(middles[index] - middles[word]) / span))
        colour = FIRE if weight < 0 else BLUE
        sheet.arc(middles[word], middles[index], floor, tall, colour, 0.8 + 5 * share, 0.25 + 0.7 * math.sqrt(share))


@dataclass
class DrawnColumn:
    """A column of the table: its step, name and position, and the function that draws its cells."""

    stage: Stage
    name: str
    x: float
    width: float
    draw: Draw


class StepColumns:
    """The table of steps on a sheet. `reached` is the last step drawn; `rows` the number of its rows (None: all)."""

    def __init__(
        self, sheet: Sheet, explanation: Explanation, choice: Choice, x: float, y: float, max_width: float, height: float
    ):
        self.sheet = sheet
        self.explanation = explanation
        self.choice = choice
        self.x = x
        self.y = y
        self.max_width = max_width
        self.stages: dict[str, Stage] = {stage.key: stage for stage in stages(explanation)}
        self.labels: list[str] = labels(explanation.tokens, limit=20)
        self.word_row: int | None = word_index(explanation)
        count = len(choice.rows) + bool(choice.others) + 1 + ("join" in self.stages)
        self.step: float = min(46.0, (height - 48) / count)
        self.size: float = min(12.5, self.step * 0.36)
        self.strongest: float = max((abs(row.weight) for row in choice.rows if math.isfinite(row.weight)), default=0.0) or 1.0
        self.vectors: list[list[float]] = [row.weighted for row in explanation.steps] + [explanation.output]
        self.columns: list[DrawnColumn] = self._columns()

    def _columns(self) -> list[DrawnColumn]:
        score = [key for key in ("score", "scale") if key in self.stages]
        left, made = self.x + 168, []
        if self.explanation.recipe != "qkv":
            name = {"hidden": "h_j", "plain": "x_j"}[self.explanation.recipe]
            made.append(DrawnColumn(self.stages["vectors"], name, left, 72, self._strip("value")))
            left += 84
        elif self.max_width >= WIDE:
            for name in ("key", "value"):
                made.append(DrawnColumn(self.stages["vectors"], name, left, 112, self._strip(name)))
                left += 126
        for key in score:
            made.append(DrawnColumn(self.stages[key], self.stages[key].formula, left, 76, self._scores(key)))
            left += 90
        end = self.x + self.max_width
        shown = vector(self.explanation.output, 3, self._entry())
        vectors = STRIP + 8 + self.sheet.measure("0" * len(shown), self.size - 2, mono=True)
        stage = self.stages["normalize"]
        name = f"{stage.title} {stage.formula}"
        made.append(DrawnColumn(stage, name, left, max(end - vectors - 16 - left, 60), self._weight))
        made.append(DrawnColumn(self.stages["weigh"], self.stages["weigh"].formula, end - vectors, vectors, self._weighted))
        return made

    def _entry(self) -> int:
        return entry_width(self.vectors, 3, decimals_for([value for entries in self.vectors for value in entries]))

    def draw(self, reached: int = 99, rows: float = math.inf) -> None:
        """Draw the columns of the steps up to `reached`; in the last one only the first `rows` cells."""
        self._heads(reached)
        for index, row in enumerate(self.choice.rows):
            y = self.y + 48 + (index + 0.5) * self.step
            self._name(row, y)
            for column in self.columns:
                if column.stage.number < reached or (column.stage.number == reached and index < rows):
                    column.draw(row, column.x, y, column.width)
        self._foot(reached, rows)

    def _heads(self, reached: int) -> None:
        self.sheet.text(self.x, self.y + 26, "token", 10.5, QUIET)
        for column in self.columns:
            now = column.stage.number == reached
            colour, right = (FIRE if now else QUIET), column.stage.key in {"score", "scale"}
            text, x = f"{column.stage.number}  {lowered(column.name)}", column.x + (column.width if right else 0)
            self.sheet.text(
                x, self.y + 26, text, 10.5, colour, bold=now, across="right" if right else "left", max_width=column.width + 8
            )
        self.sheet.line(self.x, self.y + 42, self.x + self.max_width, self.y + 42)

    def _name(self, row: StepRow, y: float) -> None:
        word_row, left = row.index == self.word_row, self.x
        if self.explanation.recipe != "qkv":
            index = lowered(state_name(self.explanation, row.index))
            left += self.sheet.text(left, y, index, self.size - 1, QUIET) + 8
        self.sheet.text(
            left, y, self.labels[row.index], self.size, FIRE if word_row else INK, bold=word_row, max_width=self.x + 158 - left
        )

    def _strip(self, name: str) -> Draw:
        vectors = {row.index: row.key if name == "key" else row.value for row in self.choice.rows}
        strongest = largest_size(list(vectors.values()))
        return lambda row, x, y, width: self.sheet.strip(x, y - 8, width, 16, vectors[row.index], strongest)

    def _scores(self, key: str) -> Draw:
        values = {row.index: row.score if key == "score" else row.scaled for row in self.choice.rows}
        decimals = decimals_for(list(values.values()))

        def draw(row: StepRow, x: float, y: float, width: float) -> None:
            text = number(values[row.index], decimals)
            self.sheet.text(x + width, y, text, self.size, mono=True, across="right", max_width=width + 8)

        return draw

    def _weight(self, row: StepRow, x: float, y: float, width: float) -> None:
        number_width = self.sheet.measure("−0.000", self.size, mono=True)
        self.sheet.text(x + number_width, y, number(row.weight, 3), self.size, mono=True, across="right")
        long = (width - number_width - 10) * min(1.0, abs(row.weight) / self.strongest) if math.isfinite(row.weight) else 0.0
        negative = row.weight < 0
        self.sheet.box(
            x + number_width + 10, y - 7, max(long, 1.0), 14, FIRE if negative else BLUE, hatch="////" if negative else ""
        )

    def _weighted(self, row: StepRow, x: float, y: float, width: float) -> None:
        self._vector(row.weighted, x, y, INK)

    def _vector(self, values: Sequence[float], x: float, y: float, colour: str, bold: bool = False) -> None:
        decimals = decimals_for([value for entries in self.vectors for value in entries])
        self.sheet.strip(x, y - 8, STRIP, 16, values, largest_size(self.vectors))
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
        self.sheet.line(self.x, y - self.step / 2, self.x + self.max_width, y - self.step / 2)
        step = self.stages["sum"]
        if reached >= step.number:
            self.sheet.text(
                self.x, y, f"{step.number}  {lowered(sum_formula(self.explanation))}", self.size, bold=True, max_width=300
            )
            self._total(math.fsum(row.weight for row in self.explanation.steps), y, INK)
            self._vector(self._partial(reached, rows), weigh.x, y, INK, bold=True)
        if "join" in self.stages and reached >= self.stages["join"].number:
            self._join(y + self.step, weigh)

    def _partial(self, reached: int, rows: float) -> list[float]:
        """The output, or the part of the sum that the animation has reached."""
        if reached > self.stages["sum"].number or rows > len(self.choice.rows):
            return self.explanation.output
        taken = [row.weighted for row in self.choice.rows[: int(rows)]]
        return [math.fsum(entries) for entries in zip(*taken, strict=True)] if taken else [0.0] * len(self.explanation.output)

    def _total(self, weight: float, y: float, colour: str) -> None:
        column = self.columns[-2]
        text = self.sheet.measure("−0.000", self.size, mono=True)
        self.sheet.text(column.x + text, y, number(weight, 3), self.size, colour, mono=True, across="right")

    def _join(self, y: float, weigh: DrawnColumn) -> None:
        step = self.stages["join"]
        joined = self.explanation.joined or []
        text = f"{step.number}  {lowered(step.formula)}   {len(joined)} numbers"
        self.sheet.text(self.x, y, text, self.size, bold=True, max_width=400)
        self.sheet.strip(weigh.x, y - 8, weigh.width, 16, joined, largest_size([joined]))


def largest_size(vectors: Sequence[Sequence[float]]) -> float:
    """The largest absolute value of all finite entries; 1 if all are zero."""
    return max((abs(value) for values in vectors for value in values if math.isfinite(value)), default=0.0) or 1.0
