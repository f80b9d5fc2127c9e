"""The parts of a head's score as bars to both sides of zero: the parts that wrote the key, and the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overt.drawing.canvas import INK, LINE, QUIET
from overt.drawing.numbers import decimals_for, number
from overt.lens.analysis.scores.table import about, title
from overt.lens.figures.paper import EDGE, SMALL, WIDE, in_print, sheet, signed_bar
from overt.lens.figures.paper import title as heading

if TYPE_CHECKING:
    from overt.lens.analysis.scores.result import ScoreContributions

_TOP, _ROW, _NAMES, _NUMBER, _GAP = 52.0, 15.0, 190.0, 36.0, 12.0


@in_print
def score_bars(why: ScoreContributions, rows: int = 8) -> Any:
    """A matplotlib Figure, a page wide: the strongest parts of the key's stream next to those of the query's.

    >>> import torch, overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32).eval()
    >>> with overt.lens.record(model) as recording:
    ...     scores = model(torch.tensor([[3, 7, 9, 7]]))
    >>> why = overt.lens.score_contributions(recording, model, head=(1, 0), query=3, key=1)
    >>> float(score_bars(why).get_figwidth())
    6.75
    """
    sides = [(side, side.strongest(rows)) for side in (why.key, why.query)]
    values = [part.value for _, parts in sides for part in parts]
    decimals, low, high = decimals_for([*values, why.score]), min(0.0, *values), max(0.0, *values)
    height = _TOP + _ROW * max(len(parts) for _, parts in sides)
    paper = sheet(WIDE, height + 26)
    heading(paper, title(why), f"score {number(why.score, decimals)}")
    panel = (WIDE - 2 * EDGE - _GAP) / 2
    step = (panel - _NAMES - 2 * _NUMBER) / ((high - low) or 1.0)
    for index, (side, parts) in enumerate(sides):
        left = EDGE + index * (panel + _GAP)
        zero = left + _NAMES + _NUMBER - low * step
        paper.text(left, _TOP - _ROW, f"what wrote the {side.name}", SMALL, QUIET, max_width=panel)
        paper.line(zero, _TOP - _ROW / 2, zero, _TOP + _ROW * (len(parts) - 0.5), LINE, 0.8)
        for number_of_row, part in enumerate(parts):
            y = _TOP + number_of_row * _ROW
            paper.text(left, y, about(why, side, part), SMALL, INK, max_width=_NAMES - 6)
            signed_bar(paper, zero, y, part.value, step, decimals)
    frozen = "; ".join(why.frozen) or "nothing"
    paper.text(EDGE, height + 10, f"frozen: {frozen}", SMALL, QUIET, max_width=WIDE - 2 * EDGE)
    return paper.figure
