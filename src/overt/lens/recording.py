"""Record what a model attends to while it runs, unmodified, its outputs unchanged to the bit."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from overt.errors import InputError, KindError
from overt.explain.page import PAGE_LIMIT
from overt.lens.capture.adapters import LOOKED_FOR, catching
from overt.lens.capture.options import in_bytes, wanted
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import Keeper
from overt.lens.captured import Captured, Kept
from overt.lens.head import Head
from overt.lens.statistics.roles import Role, measured, roles
from overt.lens.statistics.summarized import CELLS, TOP, Summarized, SummarizedHead
from overt.lens.statistics.verified import Comparison, Coverage, Verified, recomputed
from overt.lens.tokens import Strings, Tokens

LIMIT = 4 * 2**30


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
    keep: str = "qkv",
    offload: str | None = None,
    query_tokens: Strings | None = None,
    key_tokens: Strings | None = None,
    limit: int = LIMIT,
    top: int = TOP,
    map_size: int | tuple[int, int] = CELLS,
) -> Iterator["Recording"]:
    """Record every attention inside `model` for as long as the block runs: `with record(model) as recording: model(x)`.

    Caught are torch's `scaled_dot_product_attention`, `nn.MultiheadAttention`, `overt.attend`, Hugging Face's registry and
    attention that is written out. The model runs as it is, in training or evaluation, and its outputs are the same to the bit.
    Where torch runs a layer on its fast path, as one kernel, query, key and value are computed beside it from the layer's parameters,
    and a note of the call says so. What fails beside the model never reaches it: the call stands in `recording.missing`, a list of
    (module, reason), with the error's text.

    `layers` keeps only these calls, by their number within a pass (from 0) or by the name of a module that they are in;
    `heads` only these heads. Numbers of layers and heads stay the model's own whatever is left out.

    `keep="qkv"` keeps copies of query, key, value and output, linear in the length, and masks by reference, from which everything
    is recomputed; in generation every step's keys count. `keep="summary"` takes the statistics while the model runs, about a
    tenth of that, at any length: entropy, received, the `top` largest weights of each query, a map of `map_size` cells, a number
    for both sides or (rows, keys), the residual and the roles. Nothing of it grows with Q × K.
    `offload="cpu"` moves what is kept to the CPU call by call, `"disk"` into files of a private folder that is removed with the
    recording. A call that goes beyond `limit` bytes, or what the disk has left, is not kept and stands in `missing` with the sizes.

    `query_tokens` and `key_tokens` are one string for each position, or a list of them for each batch element; one of them is
    enough where queries and keys are of one sequence, and an encoder–decoder has its decoder's and its encoder's.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 8))
    >>> recording.layers, recording[0, 1].weights().shape
    (['self_attn'], torch.Size([1, 5, 5]))
    """
    model = recordable(model)
    tokens = Tokens.of(query_tokens, key_tokens)
    recording = Recording(type(model).__name__, strings=tokens)
    keeper = Keeper(
        model, recording.calls, recording.missing, wanted(layers, heads, keep, offload, tokens, limit, top, map_size)
    )
    try:
        with catching(keeper):
            yield recording
    finally:
        recording.turns = keeper.turns
    keeper.note_unseen()
    recording.mixing = keeper.note_mixing()


@dataclass(eq=False, repr=False)
class Calls:
    """Recorded calls of attention, to be looked at by layer and head."""

    model: str
    calls: list[Captured] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    strings: Tokens = field(default_factory=Tokens)
    turns: int = 0
    in_pass: int | None = None
    mixing: list[str] = field(default_factory=list)
    file: Path | None = None  # where it was loaded from

    @property
    def tokens(self) -> Strings | None:
        """The strings of the keys' tokens, or a list of them for each batch element; setting them sets the queries' too."""
        words = self.strings.keys
        return words[0] if words is not None and len(words) == 1 else words

    @tokens.setter
    def tokens(self, given: Strings | None) -> None:
        self.strings = Tokens.of(given, given)

    @property
    def bytes(self) -> int:
        """What is held of all calls together, in memory and in files; masks that are the model's own are not counted."""
        return sum(captured.bytes for captured in self.calls)

    @property
    def layers(self) -> list[str]:
        """The module that made each kept call, in call order; a module called twice is there twice."""
        return [captured.layer for captured in self._present()]

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, place: tuple[int | str, int]) -> Head:
        """One head of one call: `recording[5, 11]`, or by the module's name, `recording["encoder.layer.5", 11]`."""
        if not isinstance(place, tuple) or len(place) != 2:
            raise KindError("a head is named by two things, recording[layer, head]", got=repr(place), fix="pass both")
        layer, head = place
        captured = self._named(layer) if isinstance(layer, str) else self._numbered(layer)
        if head not in captured.heads:
            there = f"0 to {captured.total - 1}" if len(captured.heads) == captured.total else str(list(captured.heads))
            raise InputError(f"{captured.layer} has the recorded heads {there}", got=repr(head), fix="name one of them")
        return self._head(captured.opened(), head)

    def heads(self) -> Iterator[Head]:
        """Every recorded head, call by call."""
        opened = (captured.opened() for captured in self._present())
        return (self._head(captured, head) for captured in opened for head in captured.heads)

    def verify(self) -> Verified:
        """Recompute every call from its query, key and value, and compare with the model's own attention output.

        Calls of which summaries are kept were compared when they were summarised. Printed, it says too how many of the model's
        token-mixing layers these calls are, and of an empty recording why it is empty.
        """
        if not self.calls:
            return Verified((), self._coverage(), f"nothing was recorded, so nothing is verified: {self._why_empty()}")
        return Verified(tuple(_compared(captured.opened()) for captured in self.calls), self._coverage())

    def roles(self) -> list[Role]:
        """What each head does in this recording, with the score that decides it; give `tokens` to tell words apart."""
        opened = (captured.opened() for captured in self._present())
        return [each for captured in opened for each in roles(captured, _shares(captured, self.strings))]

    def page(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        heads: str | Sequence[tuple[int | str, int]] | None = None,
        title: str | None = None,
        exact: bool = True,
        model: nn.Module | None = None,
        opened: tuple[int | str, int, int] | None = None,
        limit: int = PAGE_LIMIT,
    ) -> str:
        """Everything in one HTML file that works offline: every head as a map, from the whole of it to single weights.

        Written to `path`, whole or not at all; the path is returned, or the page itself where none is given. `heads` shows all,
        "top 16" the sixteen of the lowest entropy, a list of (layer, head) those. The page recomputes single weights, within
        1e-3, from query, key and value, which it holds as int16 with a scale for each vector unless they are few; `exact=False`
        leaves them out. `model` is the one that was recorded, where norms behind its output matrix are wanted too. `opened` is the
        (layer, head, token) whose steps are in sight first.

        Raises InputError, before anything is built, for a page of more than `limit` bytes, for tokens that match no call, and for
        a recording of nothing.

        >>> import torch, overt
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with overt.lens.record(layer, key_tokens=["the", "cat", "sat"]) as recording:
        ...     _ = layer(torch.randn(1, 3, 8))
        >>> recording.page()[:15]
        '<!doctype html>'
        """
        from overt.lens.viewer import page

        return page(self, path, heads=heads, title=title, exact=exact, model=model, opened=opened, limit=limit)

    def widget(self, *, height: int = 720, **options: Any) -> Any:
        """The page in a notebook, `height` pixels high; the other options are those of `page`, without its path.

        It works in Jupyter, VS Code, Colab and marimo, by anywidget: pip install "overt[notebook]". Raises MissingExtra without it.
        """
        from overt.lens.viewer.widget import widget

        return widget(self, height=height, **options)

    def __repr__(self) -> str:
        return f"<recording of {self.model}: {_many(len(self.calls), 'call')} of attention, {_many(self.turns, 'pass')}>"

    def __str__(self) -> str:
        return _table(self)

    def _head(self, captured: Captured, head: int) -> Head:
        return (SummarizedHead if isinstance(captured, Summarized) else Head)(captured, head, self.strings)

    def _number(self, captured: Captured) -> int:
        return captured.number if self.in_pass is None else captured.place

    def _numbered(self, number: int) -> Captured:
        calls = self._present()
        if -len(calls) <= number < 0:
            return calls[number]
        found = [captured for captured in calls if self._number(captured) == number]
        if not found:
            numbers = ", ".join(str(self._number(captured)) for captured in calls)
            raise InputError(
                f"this recording holds the calls {numbers}", got=f"layer {number}", fix="see recording.layers for their names"
            )
        return found[0]

    def _named(self, name: str) -> Captured:
        found = [captured for captured in self._present() if captured.layer == name or captured.layer.startswith(f"{name}.")]
        if not found:
            names = ", ".join(dict.fromkeys(self.layers))
            raise InputError("a layer is named by the module that attends", got=repr(name), fix=f"name one of: {names}")
        if len(found) > 1:
            numbers = ", ".join(str(self._number(captured)) for captured in found)
            raise InputError(
                "a name stands for one call of attention",
                got=f"{name!r}, which made the calls {numbers}",
                fix="name the call by its number, or one pass: recording.passes[0][name, head]",
            )
        return found[0]

    def _present(self) -> list[Captured]:
        if not self.calls:
            raise self._why_empty()
        return self.calls

    def _why_empty(self) -> InputError:
        if not self.turns and not self.missing:
            return InputError(
                "a recording holds what the model did inside the block",
                got="a model that did not run in it",
                fix="run it there: with overt.lens.record(model) as recording: model(x)",
            )
        reasons = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing))
        return InputError(
            f"a recording needs attention to record; looked for were {LOOKED_FOR}",
            got=f"{self.model}, which called none of them" + (f" ({reasons})" if reasons else ""),
            fix='record a model that attends (a Hugging Face model with attn_implementation="sdpa")',
        )

    def _coverage(self) -> Coverage | None:
        """How many of the token-mixing layers are here; None for a file that does not say which there were."""
        recorded = {captured.layer for captured in self.calls}
        others = {*self.mixing} - recorded
        listed = others & {name for name, _ in self.missing}
        return Coverage(len(recorded), len(listed), len(recorded | others)) if self.mixing else None


@dataclass(eq=False, repr=False)
class Recording(Calls):
    """What a model attended to while it was recorded, every call and head of it.

    `layers`, `passes`, `recording[layer, head]` (a `Head`), `verify()`, `roles()`, `missing` (attention that could not be
    recorded, with the reason), `bytes`; printed, it is a table. `recording.tokens = [...]` attaches the tokens' strings.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 8))
    >>> recording, recording.verify().difference < 1e-6
    (<recording of TransformerEncoderLayer: 1 call of attention, 1 pass>, True)
    """

    @property
    def passes(self) -> list[Calls]:
        """The same calls, one entry for each time that the model ran."""
        return [
            Calls(
                self.model,
                [each for each in self.calls if each.turn == turn],
                self.missing,
                self.strings,
                1,
                turn,
                self.mixing,
                self.file,
            )
            for turn in range(self.turns)
        ]

    def plot(self, path: str | os.PathLike[str] | None = None, figure: str = "heads", **options: Any) -> Any:
        """Draw a figure for print and give it, a matplotlib Figure; write it too, as PDF, SVG or PNG, where there is a `path`.

        `figure` is "heads" (every head as a small map), "head" (one head's weights), "arcs" (its strongest links over the tokens), both
        with `layer=` and `head=`, or "entropy" (how spread out each head is, by layer). Other `options` are those of `overt.lens.figures`.
        Raises InputError for another figure or ending.
        """
        from overt.lens.figures.plotting import plot

        return plot(self, path, figure, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, whole or not at all; `overt.lens.load` reads it, anywhere.

        A mask of the caller's own is written as the bool tensor that it makes. A score or normalizer of the caller's own is code,
        which is not written: raises InputError.
        """
        from overt.lens.storage.saving import save

        save(self, path)


def _compared(captured: Captured) -> Comparison:
    if isinstance(captured, Summarized):
        return captured.comparison
    assert isinstance(captured, Kept)
    return recomputed(captured)


def _shares(captured: Captured, tokens: Tokens) -> tuple[dict[str, float], ...]:
    if isinstance(captured, Summarized):
        return captured.shares_with(tokens)
    assert isinstance(captured, Kept)
    return measured(captured, tokens)


def _table(calls: Calls) -> str:
    rows = [("call", "layer", "heads", "queries", "keys", "caught at")]
    for captured in calls._present():
        heads = str(captured.total) if len(captured.heads) == captured.total else f"{len(captured.heads)} of {captured.total}"
        lengths = str(captured.queries), str(captured.keys)
        rows.append((str(calls._number(captured)), captured.layer, heads, *lengths, captured.source))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    header = f"{calls.model}: {_many(len(calls.calls), 'call')} of attention in {_many(calls.turns, 'pass')}"
    missed = [f"not recorded: {names}: {reason}" for reason, names in _reasons(calls).items()]
    return "\n".join([header, *lines, f"{in_bytes(calls.bytes)} are kept", *_notes(calls), *missed])


def _notes(calls: Calls) -> list[str]:
    """Each note once, with the calls that it is about."""
    about: dict[str, list[str]] = {}
    for captured in calls.calls:
        for note in captured.notes:
            about.setdefault(note, []).append(str(calls._number(captured)))
    return [f"call {', '.join(numbers)}: {note}" for note, numbers in about.items()]


def _reasons(calls: Calls) -> dict[str, str]:
    """Each reason once, with the layers that it is about."""
    about: dict[str, list[str]] = {}
    for name, reason in calls.missing:
        about.setdefault(reason, []).append(name)
    return {
        reason: ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} layers)"
        for reason, names in about.items()
    }


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"
