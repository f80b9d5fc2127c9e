"""Restore a prepared text's parts in its translation: protected spans, marks, capitals and signs, in their positions."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from overt.learn.processing.edits import Edit, token_spans
from overt.learn.processing.prepared import PreparedText, labelled

# PLACED, MISSING: kinds of notes, each followed by ": " and its subject.
PLACED = "the model dropped what it had to copy, and attention chose its place"
MISSING = "a number of the source is not in the translation"

_FINAL = re.compile(r"[.!?]+(?=[\"'”’»)\]\s]*(?:\s|$))")
_NUMBER = re.compile(r"(?<![\w.,:])(?:\d{3,}|(\d{1,2}):(\d\d))(?![\w:])(?! ?[ap]\.?m)")
_LAST_SIGN = re.compile(r"\s*[.!?]+$")


class ModelOutput(NamedTuple):
    """A model's output: its text, its tokens and the tokens read, without their end tokens.

    `attention` gives the weights of each written token on each token read, (T, S); None if the model has none.
    """

    text: str
    tokens: Sequence[str]
    source_tokens: Sequence[str]
    attention: Callable[[], Tensor | None]


class Restored(NamedTuple):
    """A finished translation, and notes on its uncertain parts."""

    text: str
    notes: list[str]


class _Change(NamedTuple):
    """A change: output[start:stop] becomes `content`."""

    start: int
    stop: int
    content: str
    edit: Edit | None = None


def failures(prepared: PreparedText, text: str) -> list[str]:
    """The protected spans and numbers of a source that the model's text lacks, or contains twice."""
    spans = [edit.content for edit in prepared.edits if edit.kind == "placeholder" and len(re.findall(edit.pattern, text)) != 1]
    return [*spans, *missing_numbers(prepared, text)]


def missing_numbers(prepared: PreparedText, text: str) -> list[str]:
    """Numbers of at least three digits and times of day that the model read but did not write.

    >>> missing_numbers(PreparedText("", "At 14:30 in 1987, room 217.", 0, 0, [], []), "À 14h30 en 1977, salle 217.")
    ['1987']
    """
    hidden = [at for at, edit in zip(prepared.positions, prepared.edits, strict=True) if edit.kind == "placeholder"]
    missing = []
    for match in _NUMBER.finditer(prepared.source):
        hour, minutes = match[1], match[2]
        pattern = match[0]
        if hour is not None:
            pattern = rf"0?{int(hour)} ?(?:h|:|heures?)? ?{'(?:00)?' if minutes == '00' else minutes}"
        inside = any(start <= match.start() < stop for start, stop in hidden)
        if not inside and not re.search(rf"(?<!\d){pattern}(?!\d)", text):
            missing.append(match[0])
    return missing


def restore(prepared: PreparedText, output: ModelOutput) -> Restored:
    """Restore the translation of the text from the model's output for its source."""
    aligned = _Aligned(prepared, output)
    plain, changes, notes = _signs_restored(prepared, output.text), [], []
    for number, edit in enumerate(prepared.edits):
        if edit.kind == "placeholder":
            matched, placed = _placeholder(edit, number, aligned)
            changes += matched
            notes += [f"{PLACED}: {edit.content}"] if placed else []
        elif edit.kind == "emphasis":
            words = list(aligned.words(*prepared.positions[number]))
            changes += [_Change(start, stop, output.text[start:stop].upper()) for start, stop in words]
        elif edit.kind in ("left", "right"):
            changes.append(aligned.mark(number))
    changes += _endings(prepared, output.text)
    begins = any(change.start == 0 and change.edit and change.edit.kind == "placeholder" for change in changes)
    if prepared.capital and not begins:
        plain = plain[:1].upper()[:1] + plain[1:]
    text = _applied(plain, changes)
    notes += [f"{MISSING}: {number}" for number in missing_numbers(prepared, output.text)]
    return Restored(prepared.text[: prepared.start] + text + prepared.text[prepared.stop :], notes)


def written_labels(prepared: PreparedText, text: str, tokens: Sequence[str]) -> list[str]:
    """The tokens that the model wrote, with protected spans in place of the copied placeholders."""
    edits = [edit for edit in prepared.edits if edit.kind == "placeholder"]
    marks = [(match.span(), edit.content) for edit in edits if (match := re.search(edit.pattern, text))]
    return labelled(tokens, token_spans(text, tokens), marks)


def _applied(text: str, changes: Sequence[_Change]) -> str:
    """Apply all changes to a text; a change that begins inside another is applied after it, so none is lost."""
    parts, position = [], 0
    for change in sorted(changes, key=lambda change: (change.start, change.stop)):
        if change.start < position and change.edit is None:
            continue
        start = max(change.start, position)
        parts += [text[position:start], change.content]
        position = max(change.stop, position)
    return "".join([*parts, text[position:]])


def _placeholder(edit: Edit, number: int, aligned: "_Aligned") -> tuple[list[_Change], bool]:
    """The changes that write a protected span once, and whether attention chose its place."""
    matches = [match.span() for match in re.finditer(edit.pattern, aligned.output.text)]
    if not matches:
        return [aligned.span(number)], True
    [(start, stop), *others] = matches
    removed = [_Change(first - (aligned.output.text[first - 1 : first] == " "), last, "") for first, last in others]
    return [_Change(start, stop, edit.content, edit), *removed], False


def _signs_restored(prepared: PreparedText, text: str) -> str:
    """The text with the source's capitals, quotes, apostrophes and dashes, letter by letter."""
    if prepared.capitals:
        text = "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in text)
    source = prepared.text[prepared.start : prepared.stop]
    if re.search(r"\w’\w", source):
        text = re.sub(r"(?<=\w)'(?=\w)", "’", text)
    if "“" in source:
        text = re.sub(r'"([^"]*)"', r"“\1”", text)
    return re.sub(r"(?<= )-(?= )", "—", text) if "—" in source else text


def _endings(prepared: PreparedText, text: str) -> Iterator[_Change]:
    """The source's final signs of sentences, and none if the source has none."""
    finals, sources = [list(_FINAL.finditer(line)) for line in (text, prepared.source)]
    for edit, (start, _) in zip(prepared.edits, prepared.positions, strict=True):
        if edit.kind != "ending":
            continue
        index = next((i for i, match in enumerate(sources) if match.start() <= start < match.end()), None)
        if index is None or (len(finals) != len(sources) and index != len(sources) - 1):
            continue
        if not finals:
            yield _Change(len(text), len(text), edit.content)
            continue
        match = finals[index if len(finals) == len(sources) else -1]
        spaces = len(text[: match.start()]) - len(text[: match.start()].rstrip()) if edit.content[0] in ".…" else 0
        yield _Change(match.start() - spaces, match.end(), edit.content)
    if prepared.bare and (sign := _LAST_SIGN.search(text)):
        yield _Change(*sign.span(), "")


class _Aligned:
    """Aligns positions of the source with the output: each written token belongs to the token with its largest attention weight."""

    def __init__(self, prepared: PreparedText, output: ModelOutput):
        self.prepared, self.output = prepared, output
        self._best: list[int] | None = None

    @property
    def best(self) -> list[int]:
        """For each written token its source token; without attention, the one at the same share of the length."""
        if self._best is None:
            weights, (rows, columns) = self.output.attention(), (len(self.output.tokens), len(self.output.source_tokens))
            even = [row * columns // max(rows, 1) for row in range(rows)]
            self._best = even if weights is None or not columns else weights[:rows, :columns].argmax(-1).tolist()
            self._read = token_spans(self.prepared.source, self.output.source_tokens)
            self._written = token_spans(self.output.text, self.output.tokens)
        return self._best

    def words(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The words of the output that correspond to source[start:stop]; for signs, the signs."""
        best, text = self.best, self.output.text
        inside = {number for number, (first, last) in enumerate(self._read) if first < stop and start < last}
        signs = not any(letter.isalnum() for letter in self.prepared.source[start:stop])
        matched = {}
        for number, (first, last) in enumerate(self._written):
            if best[number] in inside and first < last and signs != any(letter.isalnum() for letter in text[first:last]):
                word = (first, last) if signs else _word_at(text, first)
                matched[word] = None
        return list(matched)

    def mark(self, number: int) -> _Change:
        """The place of a mark: around the words between it and its partner, or with the word before or after it."""
        edit, positions, source = self.prepared.edits[number], self.prepared.positions, self.prepared.source
        opens = edit.kind == "right"
        others = enumerate(self.prepared.edits)
        partner = next((i for i, other in others if i != number and other.partner == edit.partner), None)
        if edit.partner is not None and partner is not None:
            first, last = (
                (positions[number][1], positions[partner][0]) if opens else (positions[partner][1], positions[number][0])
            )
        elif opens:
            first, last = _next_word(source, positions[number][1])
        else:
            first, last = _word_before(source, positions[number][0])
        words = self.words(first, last) if first < last else []
        if words:
            at = min(start for start, _ in words) if opens else max(stop for _, stop in words)
        elif first >= last and not opens and positions[number][0] == 0:
            at = 0
        else:
            at = self._share(positions[number][0])
        return _Change(at, at, edit.content, edit)

    def span(self, number: int) -> _Change:
        """The place of a protected span that was not copied: instead of its placeholder's words, or after the words before it."""
        edit, (start, stop) = self.prepared.edits[number], self.prepared.positions[number]
        text, taken = self.output.text, [other.pattern for other in self.prepared.edits if other.kind == "placeholder"]
        words = [(a, b) for a, b in self.words(start, stop) if not any(re.search(pattern, text[a:b]) for pattern in taken)]
        names = [(a, b) for a, b in words if text[a].isdigit() or (text[a].isupper() and (a > 0 or start == 0))]
        if names:
            return _Change(*names[0], edit.content, edit)
        before = self.words(*_word_before(self.prepared.source, start))
        if before:
            at = max(last for _, last in before)
            return _Change(at, at, f" {edit.content}", edit)
        if not self.prepared.source[:start].strip():
            return _Change(0, 0, f"{edit.content} ", edit)
        at = self._share(start)
        return _Change(at, at, f" {edit.content}", edit)

    def _share(self, position: int) -> int:
        """The end of the word at the same share of the output's length as a position of the source."""
        text = self.output.text
        ends = [match.end() for match in re.finditer(r"\w+", text)] or [len(text)]
        wanted = len(text) * position / max(len(self.prepared.source), 1)
        return min(ends, key=lambda end: abs(end - wanted))


def _word_at(text: str, position: int) -> tuple[int, int]:
    """The word around a position, including apostrophes and hyphens."""
    start = stop = position
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "'’-_"):
        start -= 1
    while stop < len(text) and (text[stop].isalnum() or text[stop] in "'’-_"):
        stop += 1
    return start, max(stop, position + 1)


def _word_before(text: str, position: int) -> tuple[int, int]:
    """The word or sign that ends before a position."""
    match = re.search(r"(?:[\w'’-]+|[^\w\s])\s*$", text[:position])
    return (match.start(), len(text[:position].rstrip())) if match else (position, position)


def _next_word(text: str, position: int) -> tuple[int, int]:
    """The word that begins after a position."""
    match = re.compile(r"[^\w]*([\w'’-]+)").match(text, position)
    return match.span(1) if match else (position, position)


def mean_attention(weights: Sequence[Tensor]) -> Tensor:
    """The mean attention weights of each written token on each token read, over layers and heads, from (1, heads, T, S) to (T, S).

    The largest of these means, in the step that writes a word, was its counterpart for 19 of 19 words of six sentences.
    """
    return torch.stack([weight[0].mean(0) for weight in weights]).mean(0)
