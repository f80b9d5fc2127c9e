"""The terms that the parts of a model add to a logit, strongest first, and their distance from the model's own number."""

import math
import os
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.drawing.numbers import decimals_for, scientific, shorten, signed, visible
from overt.lens.analysis.contributions.targets import Target
from overt.lens.head import head_name

_BAR = 12  # columns of a bar in the table


class Part(NamedTuple):
    """The term of one part of the model: `kind` is "head", "feed-forward", "mixer", "embedding", "bias" or "constant".

    `layer` is the name of its module; `call` and `head` are the numbers of a head, as in `recording[call, head]`.
    """

    kind: str
    layer: str
    value: float
    call: int | None = None
    head: int | None = None

    @property
    def pair(self) -> tuple[int, int] | None:
        """The numbers of a head's call and of the head; None for other parts."""
        return None if self.call is None or self.head is None else (self.call, self.head)

    @property
    def name(self) -> str:
        """The part in words."""
        if self.pair:
            return f"head {head_name(*self.pair)}  {self.layer}"
        return f"{self.kind}  {self.layer}"


@dataclass(frozen=True, eq=False, repr=False)
class Contributions:
    """The terms that the parts of a model add to the logit of `target`, or to a difference of two; see `overt.lens.contributions`.

    `parts` has every head, feed-forward layer, embedding and bias. `logit_difference` is the model's own number (the logit itself for
    one token), and `bound` how far rounding may take the sum from it. `frozen` names the factors that are held constant.
    """

    target: Target
    parts: tuple[Part, ...]
    by_token: dict[tuple[int, int], Tensor]
    logit_difference: float
    bound: float
    frozen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tokens: list[str] | None = None
    model: str = field(default="", kw_only=True)

    @property
    def sum(self) -> float:
        """The sum of all parts."""
        return math.fsum(part.value for part in self.parts)

    @property
    def residual(self) -> float:
        """The sum minus the model's own number."""
        return self.sum - self.logit_difference

    @property
    def holds(self) -> bool:
        """Whether the residual is within its rounding bound."""
        return abs(self.residual) <= self.bound

    @property
    def by_head(self) -> dict[tuple[int, int], float]:
        """The term of each head, by the numbers of its call and of the head."""
        return {part.pair: part.value for part in self.parts if part.pair}

    @property
    def by_layer(self) -> dict[str, float]:
        """The sum of the parts of each block, in the order of the model; parts outside the blocks by their module."""
        totals: dict[str, list[float]] = {}
        for part in self.parts:
            totals.setdefault(block_name(part.layer), []).append(part.value)
        return {block: math.fsum(values) for block, values in totals.items()}

    @property
    def by_source(self) -> Tensor:
        """The sum of the terms of all heads by source token, (K,)."""
        longest = max((len(values) for values in self.by_token.values()), default=0)
        total = torch.zeros(longest, dtype=torch.float64)
        for values in self.by_token.values():
            total[: len(values)] += values
        return total

    def strongest(self, count: int | None = None) -> list[Part]:
        """The parts with the largest absolute terms, biases and constants as one part each."""
        summed = [part for part in self.parts if part.kind not in ("bias", "constant")]
        for kind in ("bias", "constant"):
            those = [part for part in self.parts if part.kind == kind]
            if those:
                where = those[0].layer if len(those) == 1 else f"all {len(those)}"
                summed.append(Part(kind, where, math.fsum(part.value for part in those)))
        return sorted(summed, key=lambda part: -abs(part.value))[:count]

    def table(self, rows: int = 12, width: int | None = None) -> str:
        """The strongest parts, the others as one row, the sum, and the frozen factors, in lines of at most `width` columns."""
        return _table(self, rows, shutil.get_terminal_size((80, 24)).columns if width is None else width)

    def plot(self, path: str | os.PathLike[str] | None = None, rows: int = 16) -> Any:
        """Draw the strongest parts as bars. Returns a matplotlib Figure, and writes it to `path` (PDF, SVG or PNG) if that is passed."""
        from overt.lens.figures.contributions import bars
        from overt.lens.figures.paper import saved

        return saved(bars(self, rows), path)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<contributions of {len(self.parts)} parts of {self.model} to {self.target}: {self.logit_difference:.4g}>"


def block_name(layer: str) -> str:
    """The block that a module is in: its name up to the first number.

    >>> block_name("model.layers.3.mlp.experts.1"), block_name("model.norm")
    ('model.layers.3', 'model.norm')
    """
    parts = layer.split(".")
    index = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    return layer if index is None else ".".join(parts[: index + 1])


def summed(parts: Iterable[Part]) -> list[Part]:
    """Add up the parts of the same kind and module."""
    values: dict[tuple[Any, ...], list[float]] = {}
    for part in parts:
        values.setdefault((part.kind, part.layer, part.call, part.head), []).append(part.value)
    return [Part(kind, layer, math.fsum(value), call, head) for (kind, layer, call, head), value in values.items()]


def _table(contributions: Contributions, rows: int, width: int) -> str:
    """The strongest parts with their bars, then the sum next to the model's own number, in lines of at most `width` columns."""
    parts = contributions.strongest()
    shown, others = parts[:rows], parts[rows:]
    decimals = decimals_for([part.value for part in shown] + [contributions.logit_difference])
    difference, residual = contributions.logit_difference, contributions.residual
    wide = max((len(signed(value, decimals)) for value in [*(part.value for part in shown), difference]), default=0)
    bar = _BAR if width >= 60 else 0
    largest = max((abs(part.value) for part in shown), default=0.0) or 1.0
    lines = wrapped(f"{contributions.target} at position {contributions.target.position}{_at(contributions)}", width)
    for part in shown:
        drawn = _bar(part.value, largest, bar)
        head = f"{signed(part.value, decimals).rjust(wide)}  {drawn}"
        lines.append(head + _about(part, contributions, decimals, max(width - len(head), 16)))
    if others:
        total = math.fsum(part.value for part in others)
        lines.append(f"{signed(total, decimals).rjust(wide)}  {' ' * (bar + 1 if bar else 0)}{len(others)} others")
    lines.append(f"{'─' * wide}")
    what = "the logit difference" if len(contributions.target.tokens) == 2 else "the logit"
    lines.append(f"{signed(difference, decimals).rjust(wide)}  {what}")
    mark = "holds" if contributions.holds else "DIFFERS"
    lines += wrapped(
        f"the sum of the parts differs by {scientific(residual)}, bound {scientific(contributions.bound)}: {mark}", width
    )
    for note in [f"frozen: {name}" for name in contributions.frozen] + list(contributions.notes):
        lines += wrapped(note, width)
    return "\n".join(lines)


def _about(part: Part, contributions: Contributions, decimals: int, limit: int) -> str:
    """The part in words: for a head, the two source tokens with the largest terms, or one if both do not fit."""
    sources = contributions.by_token.get(part.pair) if part.pair else None
    if sources is None or part.pair is None:
        kind, layer = part.kind, part.layer
        left = limit - len(kind) - 2
        return f"{kind}  {layer if len(layer) <= left else '…' + layer[len(layer) - left + 1 :]}"
    words = [
        f"{_token(contributions, int(index))} {signed(float(sources[index]), decimals)}"
        for index in sources.abs().topk(min(2, len(sources))).indices
    ]
    head = f"head {head_name(*part.pair)}  from "
    both = head + ", ".join(words)
    return both if len(both) <= limit else shorten(head + words[0], limit)


def _token(contributions: Contributions, index: int) -> str:
    tokens = contributions.tokens
    return f"token {index}" if tokens is None or index >= len(tokens) else f"“{visible(tokens[index])}”"


def _at(contributions: Contributions) -> str:
    tokens, position = contributions.tokens, contributions.target.position
    return "" if tokens is None or position >= len(tokens) else f", {_token(contributions, position)}"


def _bar(value: float, largest: float, cells: int) -> str:
    if not cells:
        return ""
    length = max(round(abs(value) / largest * cells), 1 if value else 0)
    return ("█" if value >= 0 else "▒") * length + " " * (cells - length + 1)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, indented after the first."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
