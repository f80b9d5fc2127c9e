"""How spread out the heads of each layer are."""

import math
from typing import Any

import torch

from overt.drawing.canvas import BLUE, INK, LINE, QUIET
from overt.lens.analysis.by_block import WeightsByBlock
from overt.lens.captured import Captured
from overt.lens.figures.paper import COLUMN, EDGE, SMALL, in_print, sheet, title
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.summarized import CapturedSummary

_LEFT, _TOP, _HEIGHT = 34.0, 36.0, 138.0


@in_print
def entropy_by_layer(recording: RecordedCalls) -> Any:
    """How spread out each head's weights are, a point a head, beside equal weights: a matplotlib Figure, a column wide.

        entropy_i = −Σ_j w_ij log w_ij in nats, the mean over the queries that may attend to anything, and over sequences

    The dashed line is the entropy of equal weights on every key that may be attended to, the most there can be; a recording that
    kept summaries has none, since it does not know the masks.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> float(entropy_by_layer(recording).get_figwidth())
    3.35
    """
    calls = recording.nonempty_calls()
    points = [_entropies(captured) for captured in calls]
    most = max(max((*heads, ceiling)) for heads, ceiling in points) or 1.0
    paper = sheet(COLUMN, _TOP + _HEIGHT + 34)
    title(paper, "Entropy of the weights", "nats, the mean over queries")
    step = (COLUMN - _LEFT - EDGE) / len(calls)

    def spot(place: int, value: float) -> tuple[float, float]:
        return _LEFT + (place + 0.5) * step, _TOP + _HEIGHT * (1 - value / (1.05 * most))

    for tick in _ticks(most):
        paper.line(_LEFT, spot(0, tick)[1], COLUMN - EDGE, spot(0, tick)[1], LINE, 0.6)
        paper.text(_LEFT - 5, spot(0, tick)[1], f"{tick:g}", SMALL, QUIET, across="right")
    for place, (heads, ceiling) in enumerate(points):
        x, y = spot(place, ceiling)
        if ceiling:
            paper.axes.plot([x - step * 0.4, x + step * 0.4], [y, y], color=QUIET, linewidth=0.9, linestyle=(0, (2.5, 1.5)))
        paper.axes.plot(*zip(*(spot(place, each) for each in heads), strict=True), "o", **_DOT)
        if place % math.ceil(14 / step) == 0:
            paper.text(x, _TOP + _HEIGHT + 9, f"{recording.number_of(calls[place])}", SMALL, QUIET, across="center")
    means = [spot(place, sum(heads) / len(heads)) for place, (heads, _) in enumerate(points)]
    paper.axes.plot(*zip(*means, strict=True), color=INK, linewidth=0.9)
    told = "● a head   — their mean" + ("   ┄ equal weights" if any(ceiling for _, ceiling in points) else "")
    paper.text(_LEFT, _TOP + _HEIGHT + 24, "call", SMALL, QUIET)
    paper.text(COLUMN - EDGE, _TOP + _HEIGHT + 24, told, SMALL, QUIET, across="right")
    return paper.figure


_DOT: dict[str, Any] = {"color": BLUE, "markersize": 3.0, "alpha": 0.65, "markeredgewidth": 0}


def _entropies(captured: Captured) -> tuple[list[float], float]:
    """Each head's mean entropy, and that of equal weights, 0 where it is not known."""
    opened = captured.opened()
    if isinstance(opened, CapturedSummary):
        return opened.summary.entropy.double().mean((0, -1)).tolist(), 0.0
    weighed = WeightsByBlock(opened)
    spread, equal, count = torch.zeros(len(weighed.places), dtype=torch.float64), 0.0, torch.zeros(len(weighed.places))
    for first, stop, weights in weighed.blocks():
        alive = weights.sum(-1) > 0  # (B, H, rows)
        shares = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        spread += torch.special.entr(shares).sum(-1).double().where(alive, 0).sum((0, 2)).cpu()
        equal += float(weighed.choices(first, stop).double().clamp(min=1).log().where(alive, 0).sum())
        count += alive.sum((0, 2)).cpu()
    return (spread / count.clamp(min=1)).tolist(), equal / max(float(count.sum()), 1.0)


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to the largest, some five of them."""
    rough = most / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= rough)
    return [step * place for place in range(int(most / step) + 1)]
