"""Positions of the text that an edit names: numbers, slices, or words of the tokens that a model read."""

from collections.abc import Sequence

from overt.errors import InputError
from overt.lens.analysis.editing.changes import Where
from overt.lens.text.named import numbered_occurrences

_NEAR = 3  # tokens on either side of a word that an error shows


def named_positions(where: Where, first: int, count: int, tokens: Sequence[str] | None, what: str) -> list[int]:
    """The named positions among `first`, `first` + 1, …, counted from `first`; a word is looked up in `tokens`, one a position.

    Raises InputError for a word that is missing or occurs several times.

    >>> named_positions(slice(2, None), 1, 4, None, "query"), named_positions("cat", 0, 3, ["the", "cat", "sat"], "key")
    ([1, 2, 3], [1])
    """
    if where is None:
        return list(range(count))
    if isinstance(where, str):
        return word_positions(where, tokens or [], what)
    if isinstance(where, slice):
        chosen = set(range(first + count)[where])
    else:
        numbers = [where] if isinstance(where, int) else where
        chosen = {number + first + count if number < 0 else number for number in numbers}
    return [position - first for position in sorted(chosen) if first <= position < first + count]


def word_positions(word: str, tokens: Sequence[str], what: str) -> list[int]:
    """The positions of the tokens of a word, "the:2" for its second occurrence.

    Raises InputError if the word is missing or occurs several times.

    >>> word_positions("cat", ["the", "cat", "sat"], "query"), word_positions("the:2", ["the", "cat", "the"], "query")
    ([1], [2])
    """
    runs = numbered_occurrences(what, word, tokens)
    if len(runs) == 1:
        return list(runs[0])
    if runs:
        shown = "; ".join(f"{what}={_written(run)} (“{_around(tokens, run)}”)" for run in runs[:6])
        raise InputError(f"{what} as a word that occurs once", got=f"“{word}” at {len(runs)} positions", fix=f"write {shown}")
    near = [token for token in tokens if word in token]
    if near:
        fix = f"name the token, {what}={near[0]!r}, or its position"
        raise InputError(f"{what} as a word that is made of whole tokens", got=f"“{word}” inside of “{near[0]}”", fix=fix)
    shown = " ".join(tokens[:40]) + (" …" if len(tokens) > 40 else "")
    raise InputError(f"{what} as a word of the text", got=f"“{word}”; the tokens are: {shown}", fix="choose one of them")


def _written(run: Sequence[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"slice({run[0]}, {run[-1] + 1})"


def _around(tokens: Sequence[str], run: Sequence[int]) -> str:
    first, stop = max(0, run[0] - _NEAR), min(len(tokens), run[-1] + 1 + _NEAR)
    return " ".join(tokens[first:stop])
