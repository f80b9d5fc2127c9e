"""The heads that connect labelled pairs: a point with an interval for each head, and a line for each baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from overt.drawing.canvas import BLUE, INK, LINE, QUIET
from overt.drawing.numbers import number
from overt.lens.figures.paper import COLUMN, EDGE, SMALL, in_print, sheet, title

if TYPE_CHECKING:
    from overt.lens.analysis.finding.ranked import RankedHeads

_TOP, _ROW, _NAMES, _NUMBER = 44.0, 14.0, 44.0, 30.0


@in_print
def ranked_heads(result: RankedHeads, rows: int = 12) -> Any:
    """A matplotlib Figure, a column wide: the best heads with the middle 95 % of their accuracy over texts.

    >>> from overt.lens.analysis.finding.ranked import RankedHead, RankedHeads
    >>> head = RankedHead((5, 11), "layer.5", 0.7, (0.6, 0.8), 0.5, 0.01, 0.2, 0.7, 0.72)
    >>> result = RankedHeads((head,), {"chance": 0.5}, (20, 20), (20, 20), "BertModel")
    >>> float(ranked_heads(result).get_figwidth())
    3.35
    """
    heads = result.heads[:rows]
    left, right = EDGE + _NAMES, COLUMN - EDGE - _NUMBER
    bottom = _TOP + _ROW * len(heads)
    paper = sheet(COLUMN, bottom + 14 + 11 * len(result.baselines))
    title(paper, "right pairs", f"{result.model}, {result.pairs[1]} held-out pairs")

    def at(share: float) -> float:
        return left + share * (right - left)

    for share in (0.0, 0.5, 1.0):
        paper.line(at(share), _TOP - 8, at(share), bottom - 6, LINE, 0.6)
        paper.text(at(share), _TOP - 13, number(share, 1), SMALL, QUIET, across="center")
    best = max(result.baselines.values())
    paper.line(at(best), _TOP - 8, at(best), bottom - 6, QUIET, 1.2)
    for index, head in enumerate(heads):
        y = _TOP + index * _ROW
        paper.text(EDGE, y, head.name, SMALL, INK, max_width=_NAMES - 4)
        paper.line(at(head.interval[0]), y, at(head.interval[1]), y, BLUE, 1.2)
        paper.box(at(head.accuracy) - 2.2, y - 2.2, 4.4, 4.4, BLUE)
        paper.text(COLUMN - EDGE, y, number(head.accuracy), SMALL, INK, across="right")
    for index, (name, value) in enumerate(result.baselines.items()):
        mark = " (the grey line)" if value == best else ""
        paper.text(EDGE, bottom + 6 + 11 * index, f"{number(value)}  {name}{mark}", SMALL, QUIET)
    return paper.figure
