"""The model's input for a text: the words of its sentence, in the case and with the signs of the training data."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overt.learn.processing.casing import CasedWord, Pieces, cased_words, in_capitals, in_title_case, usual
from overt.learn.processing.edges import edges
from overt.learn.processing.edits import GAP, Edit, apply, joined, token_spans
from overt.learn.processing.english import contracted
from overt.learn.processing.placeholders import placeholders
from overt.learn.processing.spans import REMOVED, Span, find_spans

# _ENDING: the end of a sentence that is not one plain sign, or an ellipsis inside.
_ENDING = re.compile(r"[.!?]{2,}|[.!?]*…[.!?…]*")
_SENTENCE_GOES_ON = re.compile(r"[\"'”’)]*(?:\s+[^\W\d_A-Z]|,)")
_SENTENCE_BEFORE = re.compile(r"[.!?…][\"'”’)]*\s[\s\"'“‘(¿¡]*$")
_NEAR = 8
_FINAL = re.compile(r"[.!?…:;,][\"'”’)\]]*$")
_QUESTION = re.compile(
    r"(?:who|whom|whose|what|where|when|why|how|which|is|are|am|was|were|do|does|did|can|could|will|would|shall|should|have|has)"
    r"(?:n['’]?t)? (?!to\b|not\b|an?\b|fun\b|your\b)",
    re.IGNORECASE,
)
_SIGNS = {"“": '"', "”": '"', "„": '"', "’": "'", "‘": "'", "—": "-"}
# _ACRONYMS: words in capitals that are other words in lower case.
_ACRONYMS = {"WHO", "AIDS", "CAT", "PIN", "SIM", "CAR", "ART", "ACT", "ICE", "AIR", "RAM", "BIT", "SAT", "MAC", "PET", "SUV"}


class PreparedText(NamedTuple):
    """A prepared text: `source` is the model's input, "" for a text without words, which is copied.

    `edits` of text[start:stop] produce `source`, and `positions` are their positions in it; text[:start] and text[stop:] surround
    the translation. `capitals`: the text is in capitals; `capital`: it begins with one; `bare`: it has no final sign.
    """

    text: str
    source: str
    start: int
    stop: int
    edits: list[Edit]
    positions: list[tuple[int, int]]
    capitals: bool = False
    capital: bool = False
    bare: bool = False

    @property
    def copied(self) -> bool:
        """Whether the text has no words, so that its translation is the text itself."""
        return not self.source

    @property
    def plain(self) -> bool:
        """Whether the model reads the text unchanged, and its output is unchanged."""
        return self.source == self.text and not self.edits

    @property
    def gap(self) -> int:
        """The largest number of letters between two tokens in the text: mark-up and emoji are no tokens."""
        return GAP + max([self.start, *(edit.stop - edit.start for edit in self.edits)])

    def labels(self, tokens: Sequence[str]) -> list[str]:
        """The tokens that the model read, with protected spans in place of their placeholders."""
        positions = zip(self.edits, self.positions, strict=True)
        marks = [(at, edit.content) for edit, at in positions if edit.kind == "placeholder"]
        return labelled(tokens, token_spans(self.source, tokens), marks)


def labelled(
    tokens: Sequence[str], spans: Sequence[tuple[int, int]], contents: Sequence[tuple[tuple[int, int], str]]
) -> list[str]:
    """Tokens with replaced contents at some positions: the first token of a position gets the content, further ones "…"."""
    result = list(tokens)
    for (start, stop), content in contents:
        inside = [number for number, (first, last) in enumerate(spans) if start <= first < last <= stop]
        for number in inside:
            mark = "▁" if result[number].startswith("▁") else ""
            result[number] = mark + content if number == inside[0] else "…"
    return result


@dataclass(frozen=True)
class Preparation:
    """Prepares texts for a model: `pieces` counts the pieces of a word, `languages` are source and target."""

    pieces: Pieces
    languages: tuple[str, ...] = ()

    def __call__(self, text: str) -> PreparedText:
        """Find the parts of a text that are not prose, and the model's input."""
        spans = find_spans(text)
        start, stop = edges(text, spans)
        words = cased_words(text, [span[:2] for span in spans])
        if not words or start >= stop:
            return PreparedText(text, "", 0, len(text), [], [])
        words = [word for word in words if start <= word.start and word.stop <= stop]
        capitals = in_capitals(words, self.pieces)
        title = not capitals and in_title_case(text[start:stop], words, self.pieces)
        protected = list(_protected(text, spans, start, stop, self.languages))
        treated = bool(capitals or title or protected or (start, stop) != (0, len(text)))
        edits, opens = protected, capitals or title or start > 0 or any(edit.kind == "placeholder" for edit in protected)
        for others in (self._respelled(text, words, capitals, title, opens), _signs(text, start, stop)):
            edits = joined(edits, others)
        edited = apply(text[start:stop], [edit._replace(start=edit.start - start, stop=edit.stop - start) for edit in edits])
        source, bare = edited.text, treated and not _FINAL.search(text[start:stop])
        if bare and len(words) > 1 and not _FINAL.search(source):
            source += "?" if _QUESTION.match(source) else "."
        capital = treated and bool(words) and words[0].text[0].isupper()
        return PreparedText(text, source, start, stop, edits, edited.positions, capitals, capital, bare)

    def _respelled(self, text: str, words: list[CasedWord], capitals: bool, title: bool, opens: bool) -> Iterator[Edit]:
        """The edits of words: lower case for capitals, with `opens` also of the first word; apostrophes."""
        for number, word in enumerate(words):
            spelled, kind = word.text.replace("’", "'"), ""
            if self.languages[:1] == ("en",):
                spelled = contracted(text, word.start, word.stop) or spelled
            first = number == 0 or bool(_SENTENCE_BEFORE.search(text[max(0, word.start - _NEAR) : word.start]))
            shouted = word.shouted and word.text not in _ACRONYMS and self.pieces(spelled.lower()) == 1
            if capitals:
                spelled = usual(spelled, self.pieces, first=first)
            elif shouted:
                spelled, kind = usual(spelled, self.pieces, first=first), "emphasis"
            elif ((number == 0 and opens) or title) and len(word.text) > 1 and word.text.istitle():
                spelled = usual(spelled, self.pieces, first=number == 0)
            if spelled != word.text:
                yield Edit(word.start, word.stop, spelled, kind)


def _protected(text: str, spans: list[Span], start: int, stop: int, languages: tuple[str, ...]) -> Iterator[Edit]:
    """The edits of the protected spans between two positions; a removed mark takes a duplicate space with it."""
    free, last = placeholders(text, languages), start
    for number, span in enumerate(spans):
        if not start <= span.start < span.stop <= stop:
            continue
        first, end, kind = span.start, span.stop, "left"
        placeholder, pattern = next(free[span.kind], ("", "")) if span.kind not in REMOVED else ("", "")
        pair = None if span.partner is None else min(number, span.partner)
        if placeholder:
            kind = "placeholder"
            placeholder += "%" * text[first:end].endswith("%")
        elif pair == number:
            kind = "right"
            touches = any(other.start == end + 1 for other in spans)
            end += text[end : end + 1] == " " and end + 1 < stop and not touches
        else:
            first -= first > last and text[first - 1] == " "
            between = pair is None and text[first - 1 : first].isalnum() and text[end : end + 1].isalnum()
            placeholder = " " if between else ""
        yield Edit(first, end, placeholder, kind, text[first:end], pattern, pair)
        last = end


def _signs(text: str, start: int, stop: int) -> Iterator[Edit]:
    """The edits of signs: straight quotes, one sign at the end of a sentence, no ellipsis inside."""
    for match in _ENDING.finditer(text, start, stop):
        content = match.group()
        if _SENTENCE_GOES_ON.match(text, match.end()):
            if "." in content or "…" in content:
                yield Edit(*match.span(), "", "left", content)
            continue
        yield Edit(*match.span(), "?" if "?" in content else "!" if "!" in content else ".", "ending", content)
    for number in range(start, stop):
        if plain := _SIGNS.get(text[number]):
            between = plain == "-" and text[number - 1 : number].isalnum() and text[number + 1 : number + 2].isalnum()
            yield Edit(number, number + 1, " - " if between else plain)
