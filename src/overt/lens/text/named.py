"""The position of a token that a caller names by its word: one rule for queries and keys, in every analysis."""

import difflib
import operator
from collections.abc import Sequence
from typing import Any

from overt.drawing.numbers import visible
from overt.errors import InputError, KindError

_MARKS = ("##", "Ġ", "▁")  # how vocabularies mark the beginning or the continuation of a word, where tokens are raw pieces
_PIECES = 12  # tokens that one word is looked for in
_LISTED = 12


def position_named(what: str, name: Any, words: Sequence[Sequence[str]] | None, length: int) -> int:
    """The position, counted from 0, of a query or key: a number, a word ("it"), or a word and its occurrence ("the:2").

    Case counts only if the word occurs in both cases. Raises KindError for what is neither, InputError for a number beyond the text, a
    word that is not there, that occurs several times, or that is several tokens.

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
    matches = {tuple(_chosen(what, name, sentence)) for sentence in words}
    if len(matches) > 1:
        positions = ", ".join(str(position[0]) for position in sorted(matches))
        raise InputError(
            f"a {what} at the same position in every text",
            got=f"{name!r}, at {positions}",
            fix="record one text, or pass a number",
        )
    return matches.pop()[0]


def _chosen(what: str, name: str, sentence: Sequence[str]) -> tuple[int, ...]:
    matches, (text, _, count) = occurrences(name, sentence), name.rpartition(":")
    if not matches and text and count.isdigit():
        numbered = occurrences(text, sentence)
        if numbered and not 1 <= int(count) <= len(numbered):
            raise InputError(
                f"an occurrence of {text!r}, 1 to {len(numbered)}", got=repr(name), fix=f"write {what}={f'{text}:1'!r}"
            )
        matches = numbered[int(count) - 1 : int(count)]
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


def occurrences(name: str, sentence: Sequence[str]) -> list[tuple[int, ...]]:
    """The tokens of each occurrence of a word: single tokens, or, where there is none, runs of tokens that spell it together.

    >>> occurrences("It", ["it", "saw", "a", "##n", "it"]), occurrences("an", ["it", "saw", "a", "##n", "it"])
    ([(0,), (4,)], [(2, 3)])
    """
    plain, wanted = [_bare(str(token)) for token in sentence], _bare(name)
    for same in (lambda text: text == wanted, lambda text: text.casefold() == wanted.casefold()):
        if matches := [(position,) for position, text in enumerate(plain) if same(text)]:
            return matches
    return _runs(plain, wanted.casefold())


def _runs(plain: list[str], wanted: str) -> list[tuple[int, ...]]:
    matches = []
    for start in range(len(plain) if wanted else 0):
        text = ""
        for stop in range(start, min(start + _PIECES, len(plain))):
            text += plain[stop].casefold()
            if text == wanted:
                matches.append(tuple(range(start, stop + 1)))
            if not wanted.startswith(text):
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
