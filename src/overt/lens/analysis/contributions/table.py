"""The table of contributions as text, for wide terminals and narrow ones."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from overt.drawing.numbers import decimals_for, scientific, shorten, signed, visible
from overt.lens.head import head_name

if TYPE_CHECKING:
    from overt.lens.analysis.contributions.result import Contributions, Part

BAR = 12


def table(contributions: Contributions, rows: int, width: int) -> str:
    """The strongest parts with a bar for each, then the sum next to the model's own number, in lines of at most `width` columns."""
    parts = contributions.strongest()
    shown, others = parts[:rows], parts[rows:]
    decimals = decimals_for([part.value for part in shown] + [contributions.logit_difference])
    difference, residual = contributions.logit_difference, contributions.residual
    wide = max((len(signed(value, decimals)) for value in [*(part.value for part in shown), difference]), default=0)
    bar = BAR if width >= 60 else 0
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
    """The part in words: a head with the two tokens that it took most from, or one where both do not fit."""
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
    """A text in lines of at most `width` columns, those after the first one indented."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
