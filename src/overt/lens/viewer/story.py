"""What a page has beside its recordings: what a recipe tells of them, and what makes it live."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Story:
    """The names of the steps, what is explained, and why; lists have one entry for each recording, whose sequence it tells of.

    `recipe` names the steps: "qkv" for learned queries, keys and values, "hidden" for the states of a layer that are joined with their
    contexts, "plain" for the vectors themselves. `words` are the tokens that are explained, `states` the queries' own vectors (Q, D) where
    the recorded queries were made of them. `still` is what stands on the page without its script, as HTML.
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

    `constants` are texts that the script has under these names, `behind` is HTML that follows the script; `script_sources` and
    `connections` are what the page's policy allows beside its own script.
    """

    boot: str = "lens/viewer/web/boot.js"
    styles: Sequence[str] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    behind: str = ""
    script_sources: Sequence[str] = ()
    connections: Sequence[str] = ()


FROZEN = Live()
