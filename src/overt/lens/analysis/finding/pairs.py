"""Labelled pairs: a text, its query words, its key words, and the distractors that could be confused with the key."""

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from overt.drawing.numbers import shorten, visible
from overt.errors import InputError, KindError
from overt.lens.text.tokens_of_text import DecodedText
from overt.reading import parse_json, reading

_SEPARATOR = "|"  # between the distractors in one cell of a table
_FIELDS = "text, query, key and, if there are any, distractors"


class LabelledPair(NamedTuple):
    """A text, a word or phrase `query` that should attend to another one, the `key`, and the `distractors` that compete with the key.

    A word that occurs several times is followed by the number of its occurrence: "the:2".
    """

    text: str
    query: str
    key: str
    distractors: tuple[str, ...] = ()


class LocatedPair(NamedTuple):
    """The tokens of a pair as positions in its text."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    distractors: tuple[tuple[int, ...], ...]


class ReadPair(NamedTuple):
    """A pair that heads were measured on: its text as the model read it, in labelled pieces, and the numbers of each head.

    The label is "query", "key", "distractor" or "". `right` is 1 if no competitor has as much weight as the key, ½ for equal weights,
    and `mass` is the weight on the key.
    """

    pieces: tuple[tuple[str, str], ...]
    right: tuple[float, ...]
    mass: tuple[float, ...]


def read_pairs(pairs: Any) -> list[LabelledPair]:
    """Read pairs from a .jsonl or .csv file, or from a list of LabelledPair, tuples or dictionaries.

    Raises InputError for a file that cannot be read, and for a pair that lacks a field, with the pair's number.

    >>> read_pairs([("The cat slept because it was tired", "it", "cat")])[0].key
    'cat'
    """
    if isinstance(pairs, str | os.PathLike):
        rows: Iterable[Any] = _rows(Path(pairs))
    elif isinstance(pairs, Iterable):
        rows = pairs
    else:
        raise KindError("pairs as a list, or the name of a .jsonl or .csv file", got=type(pairs).__name__)
    read = [_pair(number, row) for number, row in enumerate(rows, 1)]
    if not read:
        raise InputError("at least one labelled pair", got="none", fix=f"write one pair a line, with {_FIELDS}")
    return read


def _rows(path: Path) -> list[Any]:
    with reading(path, "a file of labelled pairs", "write one pair a line, as JSON or as CSV"):
        text = path.read_bytes().decode("utf-8-sig")
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [_parsed(path, number, line) for number, line in lines]
    if path.suffix.lower() == ".csv":
        return _table_rows(path, text)
    raise InputError("pairs in a .jsonl or .csv file", got=str(path), fix="give the file one of these endings")


def _table_rows(path: Path, text: str) -> list[Any]:
    """The rows of a table whose separator is a comma, a semicolon or a tab: the most frequent of these in its first line."""
    header = text.lstrip().partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count))
    columns = list(rows.fieldnames or [])
    if columns and not {"text", "query", "key"} <= set(columns):
        got = f"{path}, whose first line is {shorten(visible(header), 60)!r}"
        raise InputError("a table with the columns text, query and key", got=got, fix=f"name the columns: {_FIELDS}")
    return list(rows)


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return parse_json(line, strict=False)
    except ValueError:
        raise InputError(
            "a JSON object on each line", got=f"{path}, line {number}: {shorten(visible(line), 60)}", fix="complete it"
        ) from None


def _pair(number: int, row: Any) -> LabelledPair:
    fields = dict(zip(LabelledPair._fields, row, strict=False)) if isinstance(row, tuple | list) else row
    if not isinstance(fields, Mapping):
        raise InputError(f"a pair with {_FIELDS}", got=f"{type(row).__name__} as pair {number}", fix="pass a dictionary")
    texts = {name: fields.get(name) for name in ("text", "query", "key")}
    wrong = [name for name, value in texts.items() if not isinstance(value, str) or not value.strip()]
    if wrong:
        got = f"pair {number} with " + ", ".join(f"{name}={texts[name]!r}" for name in wrong)
        fix = "write words of the text, and not the numbers of tokens" if "text" not in wrong else f"its fields are {_FIELDS}"
        raise InputError("a text, a query and a key, each as words", got=got, fix=fix)
    listed = fields.get("distractors") or ()
    distractors = [word for word in listed.split(_SEPARATOR) if word.strip()] if isinstance(listed, str) else listed
    if not isinstance(distractors, Sequence) or not all(isinstance(word, str) and word.strip() for word in distractors):
        got = f"pair {number} with distractors={listed!r}"
        raise InputError(
            "distractors as a list of words", got=got, fix=f'write ["street"], or street{_SEPARATOR}road in a table'
        )
    text, query, key = map(str, texts.values())
    return LabelledPair(text, query, key, tuple(word.strip() for word in distractors))


def located(number: int, pair: LabelledPair, read: DecodedText, cut: bool) -> LocatedPair:
    """The tokens of a pair in the text as the model reads it; `cut`: without its end. Raises InputError with the number of the pair."""
    query, key, *distractors = (
        _phrase_tokens(number, phrase, pair.text, read, cut) for phrase in (pair.query, pair.key, *pair.distractors)
    )
    names = (pair.query, pair.key, *pair.distractors)
    spans = (query, key, *distractors)
    for first in range(len(spans)):
        for second in range(first + 1, len(spans)):
            if set(spans[first]) & set(spans[second]):
                raise InputError(
                    "a query, a key and distractors that have no token in common",
                    got=f"pair {number}, whose {names[first]!r} and {names[second]!r} overlap",
                    fix='name an occurrence, as "the:2", or other words',
                )
    return LocatedPair(query, key, tuple(distractors))


def pieces(read: DecodedText, tokens: LocatedPair) -> tuple[tuple[str, str], ...]:
    """The text of a pair in pieces, each labelled "query", "key", "distractor" or ""."""
    marked = dict.fromkeys((index for phrase in tokens.distractors for index in phrase), "distractor")
    marked |= dict.fromkeys(tokens.key, "key") | dict.fromkeys(tokens.query, "query")
    result, end = [("", "")], 0
    for index in sorted(marked):
        start, stop = read.tokens[index].span
        between, part = read.text[end:start], marked[index]
        if between.strip() or result[-1][1] != part:
            result += [(between, ""), ("", part)]
            between = ""
        result[-1] = result[-1][0] + between + read.text[start:stop], part
        end = stop
    return tuple((text, part) for text, part in (*result, (read.text[end:], "")) if text)


def _phrase_tokens(number: int, phrase: str, text: str, read: DecodedText, cut: bool) -> tuple[int, ...]:
    matches, word = _matches(phrase, read.text), phrase
    name, _, count = phrase.rpartition(":")
    if not matches and name and count.isdigit():
        numbered, word = _matches(name, read.text), name
        matches = numbered[int(count) - 1 : int(count)] if int(count) else []
    if not matches and _matches(word, text):
        got = f"pair {number}: {phrase!r}, behind the {len(read.tokens)} tokens that the model reads"
        if not cut:
            got = f"pair {number}: {phrase!r} in {shorten(visible(' '.join(read.tokens)), 60)!r}, as the tokenizer writes the text"
        raise InputError("words that the model reads", got=got, fix="shorten the text" if cut else "name words that it has")
    if not matches:
        fix = "check its spelling; a word that is part of another one is not found"
        raise InputError("words of the text", got=f"pair {number}: {phrase!r} in {shorten(visible(text), 60)!r}", fix=fix)
    if len(matches) > 1:
        got = f"pair {number}: {phrase!r}, which occurs {len(matches)} times"
        raise InputError("words that occur once", got=got, fix=f"write {f'{phrase}:1'!r} or {f'{phrase}:{len(matches)}'!r}")
    start, stop = matches[0]
    tokens = [
        (index, *token.span)
        for index, token in enumerate(read.tokens)
        if not token.special and token.span[0] < stop and token.span[1] > start
    ]
    if not tokens:
        got = f"pair {number}: {phrase!r}, which is a special token"
        raise InputError("words that the model reads", got=got, fix="name words of the text")
    if tokens[0][1] < start or tokens[-1][2] > stop:
        inside = next(index for index, first, last in tokens if first < start or last > stop)
        got = f"pair {number}: {word!r}, which is a part of the token {str(read.tokens[inside])!r}"
        raise InputError("words that begin and end where tokens do", got=got, fix="name the whole token's words")
    return tuple(index for index, _, _ in tokens)


def _matches(phrase: str, text: str) -> list[tuple[int, int]]:
    """The spans of a phrase: whole words, spaces as the tokenizer writes them, any case only if no span has the same case."""
    spaced = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", phrase))
    if not spaced:
        return []
    before, after = (r"(?<!\w)" if phrase.strip()[0].isalnum() else ""), (r"(?!\w)" if phrase.strip()[-1].isalnum() else "")
    exact = [match.span() for match in re.finditer(before + spaced + after, text)]
    return exact or [match.span() for match in re.finditer(before + spaced + after, text, re.IGNORECASE)]
