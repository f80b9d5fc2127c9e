"""The same head of two sentences side by side, with notes on the difference. No torch."""

from collections.abc import Sequence
from dataclasses import replace

from overt.explain.encoded import Word
from overt.explain.explanation import Explanation

# _CHANGE: the smallest change of a weight between two sentences that is reported.
_CHANGE = 0.1


def compared(first: Explanation, second: Explanation, pieces: tuple[Word, Word]) -> list[Explanation]:
    """Both explanations, the second with notes on changes; `pieces` are the query words of each."""
    layer, head = first.shown
    here, there = (_strongest(vectors, layer, head, word.pieces) for vectors, word in zip((first, second), pieces, strict=True))
    if here is None or there is None:
        return [first, second]
    notes = []
    words = f"“{first.query_tokens[first.word]}”"
    tokens = first.tokens[here], second.tokens[there]
    weights = first.rows[layer][head][here], second.rows[layer][head][there]
    numbers = f"{weights[0]:.2f} and {weights[1]:.2f}"
    if _occurrence(first.tokens, here) == _occurrence(second.tokens, there):
        notes.append(
            f"In both sentences L{layer}H{head} links {words} most strongly to “{tokens[0]}”, {numbers}. "
            f"Where {words} means something else in the second, this head does not show it."
        )
    else:
        notes.append(
            f"L{layer}H{head} links {words} most strongly to “{tokens[0]}” in the first "
            f"and to “{tokens[1]}” in the second, {numbers}."
        )
    return [first, replace(second, notes=[*notes, *_largest_change(first, second), *second.notes])]


def _strongest(explanation: Explanation, layer: int, head: int, word_pieces: Sequence[int]) -> int | None:
    """The other word with the largest weight in this head's row."""
    excluded = {*explanation.special, *(word_pieces if explanation.other is None else ())}
    row = explanation.rows[layer][head]
    return max((index for index in range(len(row)) if index not in excluded), key=lambda index: row[index], default=None)


def _largest_change(first: Explanation, second: Explanation) -> list[str]:
    """A note on the link whose weight changes most, among the first sentence's strongest links with words in the second too."""
    changes = []
    for link in first.links:
        name, count = _occurrence(first.tokens, link.index)
        same = [index for index, token in enumerate(second.tokens) if token == name]
        if link.pattern or len(same) <= count:
            continue
        changes.append((abs(second.rows[link.layer][link.head][same[count]] - link.weight), link, same[count]))
    change, link, index = max(changes, key=lambda entry: entry[0], default=(0.0, None, 0))
    if link is None or change < _CHANGE or (link.layer, link.head) == first.shown:
        return []
    after = second.rows[link.layer][link.head][index]
    verb = "falls" if after < link.weight else "rises"
    return [
        f"L{link.layer}H{link.head} changes most: its weight on “{link.token}” {verb} from {link.weight:.2f} to {after:.2f}."
    ]


def _occurrence(tokens: Sequence[str], index: int) -> tuple[str, int]:
    """A token, and the number of equal tokens before it."""
    return tokens[index], list(tokens[:index]).count(tokens[index])
