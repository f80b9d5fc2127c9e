"""A page's content next to its recordings: its title, the names of its texts, a recipe's story, and a live model."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from torch import Tensor

from overt.drawing.numbers import shorten
from overt.lens.recorded_calls import RecordedCalls

_TITLE = 72  # the most letters of the text in a page's title


@dataclass(frozen=True)
class Story:
    """The names of the steps, the explained tokens, and the reasons; lists have one entry for each recording's sequence.

    `recipe` names the steps: "qkv" for learned queries, keys and values, "hidden" for the states of a layer that are joined with their
    contexts, "plain" for the vectors themselves. `words` are the explained tokens, `states` the vectors (Q, D) from which the recorded
    queries were made, if any. `still` is the page's HTML without its script.
    """

    recipe: str
    heading: str
    source: str
    why: Sequence[str]
    notes: Sequence[Sequence[str]]
    loops: Sequence[str]
    words: Sequence[int]
    still: str
    sides: Sequence[str] | None = None
    states: Sequence[Tensor | None] = ()

    def header(self) -> dict[str, Any]:
        """The story's fields that the page's script reads."""
        names = ("heading", "source", "why", "notes", "loops", "words", "sides")
        return {name: getattr(self, name) for name in names} | {"compared": len(self.words) > 1}


@dataclass(frozen=True)
class Live:
    """The parts of a live page: its main module, in place of the viewer's, and the module's resources.

    `behind` is HTML that follows the script; the page's policy also allows `script_sources` and `connections`.
    """

    boot: str = "lens/viewer/web/boot.js"
    styles: Sequence[str] = ()
    behind: str = ""
    script_sources: Sequence[str] = ()
    connections: Sequence[str] = ()


FROZEN = Live()


def page_title(calls: RecordedCalls) -> str:
    """The beginning of the text that the model read, in one line; the model's name if the text is unknown."""
    return one_line(next(iter(calls.texts), "")) or calls.model


def origin(calls: RecordedCalls) -> dict[str, Any]:
    """The recording's file, the day when it was saved (else today), and its numbers of layers and heads."""
    totals = {calls.number_of(captured): captured.total for captured in calls.nonempty_calls()}
    file = calls.file if calls.file is not None and calls.file.exists() else None
    day = date.today() if file is None else date.fromtimestamp(file.stat().st_mtime)
    return {
        "file": None if file is None else file.name,
        "date": day.isoformat(),
        "recorded": [len(totals), sum(totals.values())],
    }


def one_line(text: str) -> str:
    """The beginning of a text in one line."""
    return shorten(" ".join(text.split()), _TITLE)


def text_lines(recordings: Sequence[RecordedCalls], heads: Sequence[dict[str, Any]], words: list[Any]) -> list[str]:
    """The beginning of each text for the page's chooser: the text itself, or else its tokens."""
    count = 1 + max((head["batch"] for head in heads), default=-1)
    texts = [text for calls in recordings for text in calls.texts]
    if len(texts) == count:
        return [one_line(text) for text in texts]
    first = {head["batch"]: head["keys"] for head in reversed(heads)}
    return [
        "" if first.get(batch) is None else one_line(" ".join(word for word, _ in words[first[batch]][:_TITLE]))
        for batch in range(count)
    ]
