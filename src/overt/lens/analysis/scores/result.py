"""A score as a sum of pairs, a part of the query's stream times a part of the key's, strongest first."""

import math
import os
import shutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from overt.lens.analysis.contributions.result import Part
from overt.lens.analysis.scores.sides import Side, name_of_part
from overt.lens.head import head_name


class ScorePart(NamedTuple):
    """The joint term of one part of the query's stream and one of the key's in a score; None means all other parts of a side.

    `kind` is "pair", or "position" for a term by distance, such as a learned or linear position bias.
    """

    query: Part | None
    key: Part | None
    value: float
    kind: str = "pair"

    @property
    def named(self) -> bool:
        """Whether both sides are single parts."""
        return self.query is not None and self.key is not None

    @property
    def name(self) -> str:
        """The pair in words."""
        if self.kind != "pair":
            return "position bias"
        return f"{_named(self.query)} × {_named(self.key)}"


class Position(NamedTuple):
    """A query or a key: its position, and its token if that is known."""

    position: int
    word: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ScoreContributions:
    """A score split by the parts that wrote its query and its key; see `overt.lens.score_contributions`.

    `score` is the model's own, before a softcap, minus the score of the key `against`, or minus the mean of the row's other keys if
    `relative`. `parts` sum to it: products of the strongest parts of both sides, and the remaining terms. `query` and `key` have all parts
    of one side, each times the whole other side: they sum to the same score, without `position`. `softcapped` is the score after the
    softcap, `slope` the share of a small change that passes it, and `weight` the weight of the score.
    """

    layer: str
    head: tuple[int, int]
    row: Position
    column: Position
    against: Position | None
    relative: bool
    score: float
    parts: tuple[ScorePart, ...]
    query: Side
    key: Side
    position: float
    weight: float
    softcapped: float | None = None
    slope: float = 1.0
    frozen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tokens: dict[int, list[str]] = field(default_factory=dict)
    model: str = ""

    @property
    def sum(self) -> float:
        """The sum of all parts."""
        return math.fsum(part.value for part in self.parts)

    @property
    def residual(self) -> float:
        """The sum minus the model's own score, for the side that is further away."""
        sides = [side.sum + self.position - self.score for side in (self.query, self.key)]
        return max(sides, key=abs)

    @property
    def bound(self) -> float:
        """The largest difference between sum and score that rounding may cause."""
        return max(self.query.bound, self.key.bound)

    @property
    def holds(self) -> bool:
        """Whether both sides sum to the score within their rounding bounds."""
        return all(abs(side.sum + self.position - self.score) <= side.bound for side in (self.query, self.key))

    def strongest(self, count: int | None = None) -> list[ScorePart]:
        """The pairs of single parts with the largest absolute terms."""
        return sorted((part for part in self.parts if part.named), key=lambda part: -abs(part.value))[:count]

    def table(self, rows: int = 6, width: int | None = None) -> str:
        """The strongest pairs, then the strongest parts of either side, the sum, and the frozen factors, in lines of at most `width`."""
        from overt.lens.analysis.scores.table import table

        return table(self, rows, shutil.get_terminal_size((80, 24)).columns if width is None else width)

    def plot(self, path: str | os.PathLike[str] | None = None, rows: int = 8) -> Any:
        """Draw both sides as bars. Returns a matplotlib Figure, and writes it to `path` (PDF, SVG or PNG) if that is passed."""
        from overt.lens.figures.paper import saved
        from overt.lens.figures.scores import score_bars

        return saved(score_bars(self, rows), path)

    def to_dict(self) -> dict[str, Any]:
        """All numbers in types that JSON can hold."""
        return {
            "model": self.model,
            "layer": self.layer,
            "head": list(self.head),
            "query": self.row._asdict(),
            "key": self.column._asdict(),
            "against": None if self.against is None else self.against._asdict(),
            "relative": self.relative,
            "score": self.score,
            "softcapped": self.softcapped,
            "slope": self.slope,
            "weight": self.weight,
            "position_bias": self.position,
            "parts": [
                {"kind": part.kind, "query": _dict(part.query), "key": _dict(part.key), "value": part.value}
                for part in self.parts
            ],
            "sides": {side.name: [_side_entry(side, part) for part in side.parts] for side in (self.query, self.key)},
            "sum": self.sum,
            "residual": self.residual,
            "bound": self.bound,
            "holds": self.holds,
            "frozen": list(self.frozen),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        where = f"{head_name(*self.head)}, query {self.row.position}, key {self.column.position}"
        return f"<the score {self.score:.4g} of {where} in {self.model}, as {len(self.parts)} parts>"


def _named(part: Part | None) -> str:
    return "all others" if part is None else name_of_part(part)


def _dict(part: Part | None) -> dict[str, Any] | None:
    return None if part is None else {"kind": part.kind, "layer": part.layer, "call": part.call, "head": part.head}


def _side_entry(side: Side, part: Part) -> dict[str, Any]:
    sources = side.by_token.get(part.pair) if part.pair else None
    return {**part._asdict(), "by_token": None if sources is None else sources.tolist()}
