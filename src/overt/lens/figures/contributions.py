"""The parts of a model that add most to a logit, as bars to both sides of zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overt.drawing.canvas import INK, LINE, QUIET
from overt.drawing.numbers import decimals_for, shorten, visible
from overt.lens.figures.paper import EDGE, SMALL, WIDE, in_print, sheet, signed_bar, title
from overt.lens.head import head_name

if TYPE_CHECKING:
    from overt.lens.analysis.contributions.result import Contributions, Part

_TOP, _ROW, _NAMES, _NUMBER = 40.0, 15.0, 230.0, 40.0


@in_print
def bars(contributions: Contributions, rows: int = 16) -> Any:
    """A matplotlib Figure, a page wide: the strongest parts of `contributions` as bars, with their sum below.

    >>> import torch, overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32).eval()
    >>> words = torch.tensor([[3, 7, 9, 7]])
    >>> with overt.lens.record(model) as recording:
    ...     scores = model(words)
    >>> float(bars(overt.lens.contributions(recording, model, (5, 8), inputs=words)).get_figwidth())
    6.75
    """
    parts = contributions.strongest(rows)
    values = [part.value for part in parts] + [contributions.logit_difference]
    left, decimals = EDGE + _NAMES + _NUMBER, decimals_for(values)
    low, high = min(0.0, *values), max(0.0, *values)
    step = (WIDE - EDGE - _NUMBER - left) / ((high - low) or 1.0)
    zero = left - low * step
    paper = sheet(WIDE, _TOP + _ROW * (len(parts) + 1) + 26)
    what = "logit difference" if len(contributions.target.tokens) == 2 else "logit"
    title(paper, f"{contributions.target}", f"what each part adds to the {what}")
    paper.line(zero, _TOP - _ROW / 2, zero, _TOP + _ROW * (len(parts) + 0.5), LINE, 0.8)
    names = [_name(part, contributions) for part in parts] + [f"the {what}"]
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        y = _TOP + index * _ROW
        paper.text(EDGE, y, name, SMALL, INK, max_width=_NAMES - 6)
        signed_bar(paper, zero, y, value, step, decimals, INK if index == len(parts) else "")
    frozen = "; ".join(contributions.frozen)
    paper.text(EDGE, _TOP + _ROW * (len(parts) + 1) + 10, f"frozen: {frozen}", SMALL, QUIET, max_width=WIDE - 2 * EDGE)
    return paper.figure


def _name(part: Part, contributions: Contributions) -> str:
    if part.pair is None:
        return part.name
    sources = contributions.by_token[part.pair]
    strongest = int(sources.abs().argmax())
    tokens = contributions.tokens
    source = (
        f"token {strongest}" if tokens is None or strongest >= len(tokens) else f"“{visible(shorten(tokens[strongest], 24))}”"
    )
    return f"head {head_name(*part.pair)}, most from {source}"
