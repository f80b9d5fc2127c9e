"""The parts of a score as text, for terminals of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overt.drawing.numbers import decimals_for, number, scientific, shorten, signed, visible
from overt.lens.analysis.contributions.result import wrapped
from overt.lens.analysis.scores.sides import name_of_part
from overt.lens.head import head_name

if TYPE_CHECKING:
    from overt.lens.analysis.contributions.result import Part
    from overt.lens.analysis.scores.result import Position, ScoreContributions
    from overt.lens.analysis.scores.sides import Side


def table(why: ScoreContributions, rows: int, width: int) -> str:
    """Both sides, strongest parts first, the strongest pairs, then the sum next to the model's own score."""
    shown = [part.value for side in (why.query, why.key) for part in side.strongest(rows)]
    decimals = decimals_for([*shown, why.score])
    lines = wrapped(title(why), width)
    for side, where in ((why.key, why.column), (why.query, why.row)):
        lines += ["", *wrapped(f"parts of the {side.name} {_token(where)}", width)]
        lines += _side(why, side, rows, decimals, width)
    lines += ["", *wrapped("products of these parts (query × key)", width)]
    lines += [_line(pair.value, decimals, pair.name, width) for pair in why.strongest(rows)]
    if why.position:
        lines.append(_line(why.position, decimals, "position bias", width))
    lines += ["", _line(why.score, decimals, "score" if why.softcapped is None else "score before the softcap", width)]
    if why.softcapped is not None:
        lines.append(_line(why.softcapped, decimals, f"score after it; the softcap's slope is {100 * why.slope:.0f} %", width))
    mark = "holds" if why.holds else "DIFFERS"
    lines += wrapped(f"sum of the parts minus score: {scientific(why.residual)}, bound {scientific(why.bound)}: {mark}", width)
    for note in [f"held fixed: {name}" for name in why.frozen] + list(why.notes):
        lines += wrapped(note, width)
    return "\n".join(lines)


def title(why: ScoreContributions) -> str:
    """The head, query and key of the score in words."""
    than = ""
    if why.against is not None:
        than = f" rather than to {_token(why.against)}"
    elif why.relative:
        than = " rather than to the mean of the other tokens"
    weight = f"weight {number(why.weight)}"
    return f"why {head_name(*why.head)} attends from {_token(why.row)} to {_token(why.column)}{than} ({weight})"


def about(why: ScoreContributions, side: Side, part: Part) -> str:
    """A part of a side in words: for a head, with the source token of its largest term."""
    sources = side.by_token.get(part.pair) if part.pair else None
    if sources is None or not len(sources):
        return name_of_part(part)
    index = int(sources.abs().argmax())
    words = why.tokens.get(part.call or 0)
    source = f"token {index}" if words is None or index >= len(words) else f"“{visible(words[index])}”"
    return f"{name_of_part(part)}, most from {source}"


def _side(why: ScoreContributions, side: Side, rows: int, decimals: int, width: int) -> list[str]:
    parts = side.strongest()
    lines = [_line(part.value, decimals, about(why, side, part), width) for part in parts[:rows]]
    if len(parts) > rows:
        lines.append(_line(sum(part.value for part in parts[rows:]), decimals, f"{len(parts) - rows} others", width))
    return lines


def _line(value: float, decimals: int, text: str, width: int) -> str:
    cells = signed(value, decimals).rjust(decimals + 5)
    return f"{cells}  {shorten(text, max(width - len(cells) - 2, 8))}"


def _token(where: Position) -> str:
    return f"token {where.position}" if where.word is None else f"“{visible(where.word)}”"
