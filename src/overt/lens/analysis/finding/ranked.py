"""Heads that connect labelled pairs, best first, next to baselines that need no attention."""

import os
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from overt.drawing.numbers import number
from overt.errors import needed_by
from overt.lens.analysis.finding.page import page
from overt.lens.analysis.finding.pairs import ReadPair
from overt.lens.head import head_name

FEWEST = 10  # texts of a half below which an interval is no guide


class RankedHead(NamedTuple):
    """A head, measured on the texts that it was not chosen on.

    `accuracy` is the share of pairs whose key gets more weight than every competitor (½ for equal weights), `interval` its middle 95 %
    over texts, `baseline` the accuracy of the best baseline, and `p_value` the p-value of accuracy − baseline, adjusted for all heads.
    `mass` is the mean weight on the key, `area` the mean share of competitors with less (AUC), and `chosen` the accuracy on the half
    that heads are sorted by.
    """

    head: tuple[int, int]
    layer: str
    accuracy: float
    interval: tuple[float, float]
    baseline: float
    p_value: float
    mass: float
    area: float
    chosen: float

    @property
    def name(self) -> str:
        """The head as figures and tables name it: "L5H11"."""
        return head_name(*self.head)


@dataclass(frozen=True, eq=False, repr=False)
class RankedHeads:
    """The result of `overt.lens.find_heads`: `heads`, sorted by their accuracy on one half of the texts and measured on the other.

    `baselines` has accuracies on the same half without this model's attention: of the distance, of the same token, of chance, and of the
    best head of the same model with random weights. `notes` are for the reader, and `held_out` are the pairs of the measured half, with
    numbers for each of `heads`.
    """

    heads: tuple[RankedHead, ...]
    baselines: dict[str, float]
    pairs: tuple[int, int]
    texts: tuple[int, int]
    model: str
    notes: tuple[str, ...] = field(default=())
    held_out: tuple[ReadPair, ...] = field(default=())

    @property
    def significant(self) -> list[RankedHead]:
        """The heads that are better than the best baseline, at 5 % for all heads together."""
        return [head for head in self.heads if head.p_value < 0.05]

    def table(self) -> Any:
        """All heads as a pandas DataFrame, one row each. Raises MissingExtra without pandas."""
        with needed_by("found.table()", "smooth"):
            from pandas import DataFrame
        return DataFrame([{"name": head.name, **head._asdict()} for head in self.heads])

    def to_dict(self) -> dict[str, Any]:
        """All numbers in types that JSON can hold."""
        return {
            "model": self.model,
            "texts": {"chosen on": self.texts[0], "measured on": self.texts[1]},
            "pairs": {"chosen on": self.pairs[0], "measured on": self.pairs[1]},
            "baselines": self.baselines,
            "heads": [{"name": head.name, **head._asdict()} for head in self.heads],
            "notes": list(self.notes),
        }

    def text(self, rows: int = 10, width: int | None = None) -> str:
        """The best heads, the baselines and the notes, in lines of at most `width` columns."""
        width = shutil.get_terminal_size((80, 24)).columns if width is None else width
        lines = _wrapped([_answer(self)], width)
        wide = width >= 62
        lines += ["", *_wrapped(["heads in the order of the half that chose them"], width)]
        lines += [f"{'head':8}right  {'interval':14}" + ("mass   AUC  p (all heads)" if wide else "p")]
        for head in self.heads[:rows]:
            low, high = (number(end) for end in head.interval)
            probability = number(head.p_value, 3) if head.p_value >= 0.0005 else "< 0.001"
            more = f"{number(head.mass)}  {number(head.area)}  " if wide else ""
            lines.append(f"{head.name:8}{number(head.accuracy):5}  {f'[{low}, {high}]':14}{more}{probability}")
        lines += ["", "without this attention"]
        lines += [f"{'':8}{number(value):5}  {name}" for name, value in self.baselines.items()]
        return "\n".join(lines + ([""] if self.notes else []) + _wrapped(self.notes, width))

    def plot(self, path: str | os.PathLike[str] | None = None, rows: int = 12) -> Any:
        """Draw the best heads with their intervals and the baselines. Returns a matplotlib Figure, and writes it to `path` if passed."""
        from overt.lens.figures.paper import saved
        from overt.lens.figures.ranked import ranked_heads

        return saved(ranked_heads(self, rows), path)

    def page(self, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> str:
        """Write an offline HTML page: all heads, their intervals, the baselines, and each head's held-out texts.

        Returns its path, or without a path the page itself. Raises InputError for a page of more than 20 MB.
        """
        return page(self.to_dict(), self.held_out, _answer(self), path, title=title)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return (
            f"<{len(self.heads)} heads of {self.model} on {sum(self.pairs)} pairs, {len(self.significant)} above all baselines>"
        )


def _answer(result: RankedHeads) -> str:
    """The answer in one sentence."""
    best = result.heads[0]
    chosen, counted = (
        f"{texts}" if pairs == texts else f"{pairs} pairs in {texts}"
        for pairs, texts in zip(result.pairs, result.texts, strict=True)
    )
    measured = f"chosen on {chosen} texts, measured on {counted} others"
    name, value = max(result.baselines.items(), key=lambda item: item[1])
    share = f"{best.name} is right in {100 * best.accuracy:.0f} % of the pairs ({measured})"
    if result.significant:
        return f"{share}; the best baseline, {name}, in {100 * value:.0f} %."
    baseline = f"the best baseline, {name}, which is right in {100 * value:.0f} % of the pairs"
    return f"None of {len(result.heads)} heads is significantly better than {baseline}. {share}."


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, width, break_on_hyphens=False)]
