"""What a page has in addition to its recordings: its title, the names of its texts, what a recipe says of them, and what makes it live."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from torch import Tensor

from overt.drawing.numbers import shorten
from overt.lens.recorded_calls import RecordedCalls

_TITLE = 72  # letters of the text in a page's title


@dataclass(frozen=True)
class Story:
    """The names of the steps, what is explained, and why; lists have one entry for each recording, whose sequence it tells of.

    `recipe` names the steps: "qkv" for learned queries, keys and values, "hidden" for the states of a layer that are joined with their
    contexts, "plain" for the vectors themselves. `words` are the tokens that are explained, `states` the queries' own vectors (Q, D) where
    the recorded queries were made of them. `still` is what the page shows without its script, as HTML.
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
        """What the page's script reads of it."""
        names = ("heading", "source", "why", "notes", "loops", "words", "sides")
        return {name: getattr(self, name) for name in names} | {"compared": len(self.words) > 1}


@dataclass(frozen=True)
class Live:
    """What makes a page live: the module that it begins with, in place of the viewer's own, and what it needs.

    `behind` is HTML that follows the script; `script_sources` and `connections` are what its policy allows in addition to its own script.
    """

    boot: str = "lens/viewer/web/boot.js"
    styles: Sequence[str] = ()
    behind: str = ""
    script_sources: Sequence[str] = ()
    connections: Sequence[str] = ()


FROZEN = Live()


def page_title(calls: RecordedCalls) -> str:
    """The beginning of the text that the model read, in one line; the model's name where that is not known."""
    return one_line(next(iter(calls.texts), "")) or calls.model


def origin(calls: RecordedCalls) -> dict[str, Any]:
    """The file that the recording was loaded from, the day when it was saved (else today), and how many layers and heads it has."""
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
    """The beginning of each text, for the page's chooser: as it was, or its tokens."""
    count = 1 + max((head["batch"] for head in heads), default=-1)
    texts = [text for calls in recordings for text in calls.texts]
    if len(texts) == count:
        return [one_line(text) for text in texts]
    first = {head["batch"]: head["keys"] for head in reversed(heads)}
    return [
        "" if first.get(batch) is None else one_line(" ".join(word for word, _ in words[first[batch]][:_TITLE]))
        for batch in range(count)
    ]
