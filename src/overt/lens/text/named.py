"""The position of a token that a caller names by its word: one rule for queries and keys, in every analysis."""

import difflib
import operator
import re
from collections.abc import Sequence
from typing import Any

from overt.drawing.numbers import visible
from overt.errors import InputError, KindError

_MARKS = ("##", "Ġ", "▁")  # marks of the beginning or continuation of a word in raw pieces of a vocabulary
_PIECES = 12  # the most tokens that may spell one word
_LISTED = 12
_OF_ONE_TEXT = "read one text, as head.of_text(0) of a batch, or pass a number"


def position_named(what: str, name: Any, words: Sequence[Sequence[str]] | None, length: int) -> int:
    """The position, counted from 0, of a query or key: a number, a word ("it"), or a word and its occurrence ("the:2").

    Case counts only if the word occurs in both cases. Raises KindError for another type, InputError for a number beyond the text and
    for a word that does not occur, occurs several times, or is several tokens.

    >>> position_named("query", "it:2", [["it", "saw", "it"]], 3), position_named("key", -1, None, 3)
    (2, 2)
    """
    if isinstance(name, str):
        return _position_of_word(what, name, words)
    try:
        number = operator.index(name)
    except TypeError as error:
        raise KindError(f"a {what} as a word or a number", got=repr(name), fix=f'write {what}="it" or {what}=5') from error
    if isinstance(name, bool) or not -length <= number < length:
        raise InputError(f"a {what} of this head, 0 to {length - 1}", got=f"{what} {name}", fix="choose one of them")
    return number % length


def _position_of_word(what: str, name: str, words: Sequence[Sequence[str]] | None) -> int:
    if words is None:
        fix = f"call recording.tokenizer(tokenizer) or set recording.tokens, or pass the {what}'s number"
        raise InputError(f"a recording with tokens, to find a {what} by its word", got=f"{name!r} without them", fix=fix)
    matches = []
    for number, sentence in enumerate(words):
        try:
            matches.append(_chosen(what, name, sentence)[0])
        except InputError as error:
            if len(words) == 1:
                raise
            raise InputError(error.expected, f"{error.got} in text {number} of {len(words)}", fix=_OF_ONE_TEXT) from None
    if len(set(matches)) > 1:
        positions = ", ".join(map(str, matches))
        got = f"{name!r}, at {positions}"
        raise InputError(f"a {what} at the same position in every text", got=got, fix=_OF_ONE_TEXT)
    return matches[0]


def _chosen(what: str, name: str, sentence: Sequence[str]) -> tuple[int, ...]:
    matches = numbered_occurrences(what, name, sentence)
    if not matches:
        raise InputError(f"a {what} among the tokens of the text", got=repr(name), fix=_near(name, sentence))
    if len(matches) > 1:
        positions = " and ".join(str(position[0]) for position in matches)
        fix = f"write {what}={f'{name}:2'!r} for the second, or pass its number"
        raise InputError(f"a {what} that occurs once", got=f"{name!r}, at {positions}", fix=fix)
    if len(matches[0]) > 1:
        pieces = ", ".join(f"{position} {visible(str(sentence[position]))!r}" for position in matches[0])
        raise InputError(
            f"a {what} that is one token",
            got=f"{name!r}, which is {len(matches[0])}: {pieces}",
            fix=f"pass the number of one of them, {what}={matches[0][-1]} for the last",
        )
    return matches[0]


def numbered_occurrences(what: str, name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    """The tokens of each occurrence of a word, or of a numbered one, "the:2". Raises InputError for a number beyond the last."""
    matches, (text, _, count) = occurrences(name, sentence), name.rpartition(":")
    numbered = occurrences(text, sentence) if not matches and text and count.isdigit() else []
    if numbered and not 1 <= int(count) <= len(numbered):
        raise InputError(
            f"an occurrence of {text!r}, 1 to {len(numbered)}", got=repr(name), fix=f"write {what}={f'{text}:1'!r}"
        )
    return [numbered[int(count) - 1]] if numbered else matches


def occurrences(name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    """The tokens of each occurrence of a word: whole words if tokens have spans, else equal tokens, else runs that spell the word.

    >>> occurrences("It", ["it", "saw", "a", "##n", "it"]), occurrences("an", ["it", "saw", "a", "##n", "it"])
    ([(0,), (4,)], [(2, 3)])
    """
    return _whole_words(name, sentence) or _equal_tokens(name, sentence) or _runs(name, sentence)


def _whole_words(name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    """The tokens of each whole word of the text that equals the name, by the tokenizer's spans."""
    spans = [getattr(token, "span", None) for token in sentence]
    if not name or not sentence or any(span is None for span in spans):
        return []
    text = [" "] * max(span[1] for span in spans)  # type: ignore[index]
    tokens = [
        (index, *span)  # type: ignore[misc]
        for index, (token, span) in enumerate(zip(sentence, spans, strict=True))
        if not getattr(token, "special", False)
    ]
    for index, start, stop in tokens:
        if stop - start == len(sentence[index]):
            text[start:stop] = sentence[index]
    before, after = (r"(?<!\w)" if name[0].isalnum() else ""), (r"(?!\w)" if name[-1].isalnum() else "")
    for options in (re.NOFLAG, re.IGNORECASE):
        runs = []
        for match in re.finditer(before + re.escape(name) + after, "".join(text), options):
            run = [token for token in tokens if token[1] < match.end() and token[2] > match.start()]
            if run and (run[0][1], run[-1][2]) == match.span():
                runs.append(tuple(token[0] for token in run))
        if runs:
            return runs
    return []


def _equal_tokens(name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    """The single tokens that equal the name, as text or as the tokenizer's piece; case counts only if it decides."""
    plain, wanted = [_bare(str(token)) for token in sentence], _bare(name)
    for same in (
        lambda position: plain[position] == wanted or getattr(sentence[position], "piece", None) == name,
        lambda position: plain[position].casefold() == wanted.casefold(),
    ):
        if matches := [(position,) for position in range(len(plain)) if same(position)]:
            return matches
    return []


def _runs(name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    plain, wanted = [_bare(str(token)).casefold() for token in sentence], _bare(name).casefold()
    matches = []
    for start in range(len(plain) if wanted else 0):
        text = ""
        for stop in range(start, min(start + _PIECES, len(plain)) if plain[start] else start):
            text += plain[stop]
            if text == wanted:
                matches.append(tuple(range(start, stop + 1)))
            if text == wanted or not wanted.startswith(text):
                break
    return matches


def _bare(text: str) -> str:
    for mark in _MARKS:
        text = text.removeprefix(mark) if len(text) > len(mark) else text
    return text.strip()


def _near(name: str, sentence: Sequence[str]) -> str:
    plain = dict.fromkeys(visible(_bare(str(token))) for token in sentence)
    if near := difflib.get_close_matches(name, plain, n=3, cutoff=0.6):
        return f"near it are: {', '.join(near)}"
    return f"choose one of them: {', '.join([*plain][:_LISTED])}" + (", …" if len(plain) > _LISTED else "")
