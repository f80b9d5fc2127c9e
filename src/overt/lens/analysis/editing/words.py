"""Positions of the text that an edit names: numbers, slices, and words as they are in the tokens that a model read."""

import re
from collections.abc import Sequence

from overt.errors import InputError
from overt.lens.analysis.editing.changes import Where

_NEAR = 3  # tokens on either side that an error shows


def positions_of(where: Where, first: int, count: int, tokens: Sequence[str] | None, what: str) -> list[int]:
    """The positions among `first`, `first` + 1, … that are named, counted from `first`; a word is looked for in `tokens`, one each.

    Raises InputError for a word that is not there, or in several places.

    >>> positions_of(slice(2, None), 1, 4, None, "query"), positions_of("cat", 0, 3, ["the", "cat", "sat"], "key")
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
    """The positions of the tokens that a word is written with, "the:2" for its second occurrence.

    Raises InputError where the word is not there, or several times.

    >>> word_positions("cat", ["the", "cat", "sat"], "query"), word_positions("the:2", ["the", "cat", "the"], "query")
    ([1], [2])
    """
    runs = _runs(word, tokens)
    name, _, occurrence = word.rpartition(":")
    if not runs and name and occurrence.isdigit():
        runs = _runs(name, tokens)[int(occurrence) - 1 : int(occurrence)] if int(occurrence) else []
    if len(runs) == 1:
        return runs[0]
    if runs:
        shown = "; ".join(f"{what}={_written(run)} (“{_around(tokens, run)}”)" for run in runs[:6])
        raise InputError(f"{what} as a word that occurs once", got=f"“{word}” at {len(runs)} positions", fix=f"write {shown}")
    near = [token for token in tokens if word in token]
    if near:
        fix = f"name the token, {what}={near[0]!r}, or its position"
        raise InputError(f"{what} as a word that is made of whole tokens", got=f"“{word}” inside of “{near[0]}”", fix=fix)
    shown = " ".join(tokens[:40]) + (" …" if len(tokens) > 40 else "")
    raise InputError(f"{what} as a word of the text", got=f"“{word}”; the tokens are: {shown}", fix="choose one of them")


def _runs(word: str, tokens: Sequence[str]) -> list[list[int]]:
    return _in_text(word, tokens) or [[position] for position, token in enumerate(tokens) if _is_token(token, word)]


def _is_token(token: str, word: str) -> bool:
    return token == word or getattr(token, "piece", None) == word


def _in_text(word: str, tokens: Sequence[str]) -> list[list[int]]:
    """The runs of tokens that spell the word where it is a word of the text, by the spans that a tokenizer knows."""
    spans = [getattr(token, "span", None) for token in tokens]
    if not tokens or any(span is None for span in spans):
        return []
    letters = [" "] * max(span[1] for span in spans)  # type: ignore[index]
    for token, (start, stop) in zip(tokens, spans, strict=True):  # type: ignore[misc]
        if stop - start == len(token) and not getattr(token, "special", False):
            letters[start:stop] = token
    before, after = (r"(?<!\w)" if word[0].isalnum() else ""), (r"(?!\w)" if word[-1].isalnum() else "")
    runs = []
    for match in re.finditer(before + re.escape(word) + after, "".join(letters)):
        run = [
            position
            for position, (token, (start, stop)) in enumerate(zip(tokens, spans, strict=True))  # type: ignore[misc]
            if start < match.end() and stop > match.start() and not getattr(token, "special", False)
        ]
        if run and (spans[run[0]][0], spans[run[-1]][1]) == match.span():  # type: ignore[index]
            runs.append(run)
    return runs


def _written(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"slice({run[0]}, {run[-1] + 1})"


def _around(tokens: Sequence[str], run: list[int]) -> str:
    first, stop = max(0, run[0] - _NEAR), min(len(tokens), run[-1] + 1 + _NEAR)
    return " ".join(tokens[first:stop])
