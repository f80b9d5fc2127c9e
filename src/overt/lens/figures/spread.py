"""The entropy of the heads of each layer."""

import math
from typing import Any

import torch

from overt.drawing.canvas import BLUE, INK, LINE, QUIET
from overt.lens.analysis.by_block import WeightsByBlock
from overt.lens.captured import Captured
from overt.lens.figures.paper import COLUMN, EDGE, SMALL, in_print, sheet, title
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.summarized import mixer_entropy
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.one_text import unpadded_texts
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.tokens import Tokens

_LEFT, _TOP, _HEIGHT = 34.0, 36.0, 138.0


@in_print
def entropy_by_layer(recording: RecordedCalls, *, padding: bool = False) -> Any:
    """A matplotlib Figure, a column wide: the entropy of each head's weights, a point for each head, and of equal weights.

        entropy_i = −Σ_j w_ij log w_ij in nats, the mean over the queries that may attend to any key, and over sequences

    Queries of padding are removed unless `padding`. For linear token mixers, whose weights are signed, w is |W| ÷ Σ |W|. The dashed
    line is the maximum, the entropy of equal weights on every key that the query may attend to; mixers and summaries have none.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> float(entropy_by_layer(recording).get_figwidth())
    3.35
    """
    calls = recording.nonempty_calls()
    points = [_entropies(captured, recording.strings, padding) for captured in calls]
    largest = max(max((*heads, ceiling)) for heads, ceiling in points) or 1.0
    paper = sheet(COLUMN, _TOP + _HEIGHT + 34)
    title(paper, "Entropy of the weights", "nats, the mean over queries")
    step = (COLUMN - _LEFT - EDGE) / len(calls)

    def spot(index: int, value: float) -> tuple[float, float]:
        return _LEFT + (index + 0.5) * step, _TOP + _HEIGHT * (1 - value / (1.05 * largest))

    for tick in _ticks(largest):
        paper.line(_LEFT, spot(0, tick)[1], COLUMN - EDGE, spot(0, tick)[1], LINE, 0.6)
        paper.text(_LEFT - 5, spot(0, tick)[1], f"{tick:g}", SMALL, QUIET, across="right")
    for index, (heads, ceiling) in enumerate(points):
        x, y = spot(index, ceiling)
        if ceiling:
            paper.axes.plot([x - step * 0.4, x + step * 0.4], [y, y], color=QUIET, linewidth=0.9, linestyle=(0, (2.5, 1.5)))
        paper.axes.plot(*zip(*(spot(index, head) for head in heads), strict=True), "o", **_DOT)
        if index % math.ceil(14 / step) == 0:
            paper.text(x, _TOP + _HEIGHT + 9, f"L{recording.number_of(calls[index])}", SMALL, QUIET, across="center")
    means = [spot(index, sum(heads) / len(heads)) for index, (heads, _) in enumerate(points)]
    paper.axes.plot(*zip(*means, strict=True), color=INK, linewidth=0.9)
    legend = "● a head   — their mean" + ("   ┄ equal weights" if any(ceiling for _, ceiling in points) else "")
    paper.text(COLUMN - EDGE, _TOP + _HEIGHT + 24, legend, SMALL, QUIET, across="right")
    return paper.figure


_DOT: dict[str, Any] = {"color": BLUE, "markersize": 3.0, "alpha": 0.65, "markeredgewidth": 0}


def _entropies(captured: Captured, tokens: Tokens, padding: bool) -> tuple[list[float], float]:
    """Each head's mean entropy, and the entropy of equal weights (0 if unknown)."""
    opened = captured.opened()
    if isinstance(opened, CapturedSummary):
        return opened.summary.entropy.double().mean((0, -1)).tolist(), 0.0
    if isinstance(opened, CapturedMixer):
        return mixer_entropy(opened).double().mean((0, -1)).tolist(), 0.0
    if (texts := None if padding else unpadded_texts(opened, tokens)) is not None:
        spreads = [(_entropies(text.captured, text.tokens, True), len(text.rows)) for text in texts]
        total = sum(rows for _, rows in spreads)
        heads = zip(*(spread for (spread, _), _ in spreads), strict=True)
        means = [sum(value * rows for value, (_, rows) in zip(head, spreads, strict=True)) / total for head in heads]
        return means, sum(ceiling * rows for (_, ceiling), rows in spreads) / total
    weighed = WeightsByBlock(opened)
    spread, equal, count = torch.zeros(len(weighed.indices), dtype=torch.float64), 0.0, torch.zeros(len(weighed.indices))
    for first, stop, weights in weighed.blocks():
        attending = weights.sum(-1) > 0  # (B, H, rows)
        shares = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        spread += torch.special.entr(shares).sum(-1).double().where(attending, 0).sum((0, 2)).cpu()
        equal += float(weighed.choices(first, stop).double().clamp(min=1).log().where(attending, 0).sum())
        count += attending.sum((0, 2)).cpu()
    return (spread / count.clamp(min=1)).tolist(), equal / max(float(count.sum()), 1.0)


def _ticks(largest: float) -> list[float]:
    """About five round numbers from 0 to the largest."""
    rough = largest / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * part for part in (1, 2, 5, 10) if unit * part >= rough)
    return [step * index for index in range(int(largest / step) + 1)]
