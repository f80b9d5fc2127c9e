"""The result of a replay: whether it repeats the server's run, and how much each span was read and needed."""

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from overt.drawing.numbers import number, shorten, visible
from overt.errors import InputError, needed_by
from overt.lens.analysis.replay.dialects import LoggedAnswer
from overt.lens.analysis.replay.page import page

BOUND = 0.05  # largest mean difference, in nats, between log probabilities of the server and of the replay


def check_bound(bound: float) -> None:
    """Raise InputError for a bound that is not above 0."""
    if not bound > 0:
        raise InputError("a bound above 0 nats", got=f"bound={bound!r}", fix=f"leave it out for {BOUND}")


@dataclass(frozen=True, eq=False)
class ReplayCheck:
    """The log probabilities of the server and of the replay in nats, by token; NaN if the server gave none, −inf for zero probability.

    It `holds` if their mean difference is at most `bound` and the largest at most ten times that. `temperature` is the one that the
    replayed log probabilities were computed at, usually 1: another one only if the server's fit it better.
    """

    server: np.ndarray
    replayed: np.ndarray
    bound: float = BOUND
    temperature: float = 1.0

    @property
    def compared(self) -> int:
        """The number of tokens with both log probabilities."""
        return int((~np.isnan(self.difference)).sum())

    @property
    def difference(self) -> np.ndarray:
        """The replayed log probabilities minus the server's."""
        return self.replayed - self.server

    @property
    def mean(self) -> float:
        """The mean absolute difference; NaN if no token can be compared."""
        return float(np.nanmean(np.abs(self.difference))) if self.compared else math.nan

    @property
    def largest(self) -> float:
        """The largest absolute difference; NaN if no token can be compared."""
        return float(np.nanmax(np.abs(self.difference))) if self.compared else math.nan

    @property
    def holds(self) -> bool:
        """Whether the replay repeats the server's run within the bound."""
        return bool(self.mean <= self.bound and self.largest <= 10 * self.bound)

    def __str__(self) -> str:
        if not self.compared:
            return "no log probabilities to compare with"
        judged = "within" if self.holds else "beyond"
        total = len(self.server)
        tokens = (
            f"{self.compared} of {total} tokens" if self.compared < total else "1 token" if total == 1 else f"{total} tokens"
        )
        tempered = f", at temperature {self.temperature:g}" if self.temperature != 1 else ""
        return (
            f"log probabilities of {tokens} differ by {self.mean:.4f} nats on average, {self.largest:.4f} at most"
            f"{tempered}, {judged} the bound of {self.bound:g} and {10 * self.bound:g}"
        )


@dataclass(frozen=True, eq=False)
class SpanReading:
    """One span: its number of `tokens`, and for each token of the answer the `mass` on the span and the `change` by its knock-out.

    `mass` (A,) is the weight on the span's tokens, a mean over all heads; `by_head` (heads, A) has each head. `change` (A,) is the log
    probability with the span minus the one without it, in nats: positive if the span made the token likelier.
    """

    name: str
    tokens: int
    mass: np.ndarray
    change: np.ndarray
    by_head: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """A server's answer, run again: `check`, and the `spans` if the check holds; otherwise `refused` has the reason.

    `words` are the tokens of prompt and answer, the first `prompt` of them the prompt's; `heads` the (layer, number, head) of the rows
    of each span's `by_head`. Printing shows mass and change side by side, always together: mass is not use.
    """

    answer: LoggedAnswer
    words: list[str]
    prompt: int
    check: ReplayCheck
    spans: list[SpanReading] = field(default_factory=list)
    heads: list[tuple[str, int, int]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def name(self) -> str:
        """The server's name of the answer, or its line in the log."""
        return self.answer.name or f"line {self.answer.line}"

    def table(self) -> Any:
        """A pandas DataFrame with a row for each span: tokens, mass, change, and the heads of the largest mass."""
        with needed_by("Replay.table", "smooth"):
            import pandas
        rows = [
            {
                "span": span.name,
                "tokens": span.tokens,
                "mass": span.mass.mean(),
                "change": span.change.sum(),
                "head": self.strongest(span)[0],
                "its mass": self.strongest(span)[1],
            }
            for span in self.spans
        ]
        return pandas.DataFrame(rows, columns=["span", "tokens", "mass", "change", "head", "its mass"])

    def strongest(self, span: SpanReading) -> tuple[str, float]:
        """The head with the largest mean mass on a span, as "layer.head", and its mass."""
        masses = span.by_head.mean(1)
        _, call, head = self.heads[int(np.nanargmax(masses))]
        return f"{call}.{head}", float(np.nanmax(masses))

    def data(self) -> dict[str, Any]:
        """All results as plain data, for JSON."""
        rounded = {"server": self.check.server, "replayed": self.check.replayed}
        return {
            "line": self.answer.line,
            "name": self.answer.name,
            "dialect": self.answer.dialect,
            "notes": [*self.notes],
            "prompt_tokens": self.prompt,
            "answer": self.words[self.prompt :],
            "check": {
                "holds": self.check.holds,
                "mean": _short(self.check.mean),
                "largest": _short(self.check.largest),
                "bound": self.check.bound,
                "temperature": self.check.temperature,
                **{name: [_short(value) for value in values.tolist()] for name, values in rounded.items()},
            },
            "verdict": str(self.check),
            "refused": self.refused or None,
            "spans": [
                {
                    "name": span.name,
                    "tokens": span.tokens,
                    "mass": _short(float(span.mass.mean())),
                    "change": _short(float(span.change.sum())),
                    "strongest_head": self.strongest(span)[0],
                    "mass_by_token": [_short(value) for value in span.mass.tolist()],
                    "change_by_token": [_short(value) for value in span.change.tolist()],
                }
                for span in self.spans
            ],
        }

    def page(self, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> str:
        """Write the replay as one offline HTML page, and return its path; without a path the page itself."""
        return page([self.data()], path, title=title or f"{self.name} replayed")

    def __repr__(self) -> str:
        return f"<replay of {self.name}: {self.prompt} and {len(self.words) - self.prompt} tokens, {len(self.spans)} spans>"

    def __str__(self) -> str:
        answer = shorten(visible("".join(self.words[self.prompt :]).strip()), 60)
        lines = [
            f"{visible(self.name)} ({self.answer.dialect}), {self.prompt} + {len(self.words) - self.prompt} tokens: {answer}",
            str(self.check),
        ]
        lines += self.notes
        if self.refused:
            return "\n".join([*lines, self.refused])
        names = [visible(span.name) for span in self.spans]
        width = max(map(len, names), default=4)
        lines.append(f"{'span':<{width}}  tokens    mass  change by knock-out")
        lines += [
            f"{name:<{width}}  {span.tokens:6}  {number(float(span.mass.mean()), 3):>6}  {number(float(span.change.sum()), 3):>8} nats"
            for name, span in zip(names, self.spans, strict=True)
        ]
        return "\n".join(lines)


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
