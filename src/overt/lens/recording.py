"""Record what a model attends to while it runs, unmodified, its outputs unchanged to the bit."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from overt.drawing.html import PAGE_LIMIT
from overt.lens.capture.adapters import catching
from overt.lens.capture.options import record_options
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import Recorder
from overt.lens.captured import Captured
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.summarized import CELLS, TOP
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
    options = record_options(layers, heads, keep, offload, tokens, limit, top, map_size)
    recorder = Recorder(model, recording.calls, recording.missing, options)
    try:
        with catching(recorder):
            yield recording
    finally:
        recording.pass_count = recorder.pass_count
    recorder.note_unseen()
    recording.mixing = recorder.note_mixing()


@dataclass(eq=False, repr=False)
class ModelPass(RecordedCalls):
    """The calls of one pass of a model, or of all passes, with the page that shows them."""

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


@dataclass(eq=False, repr=False)
class Recording(ModelPass):
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
    def passes(self) -> list[ModelPass]:
        """The same calls, one entry for each time that the model ran."""
        by_pass: list[list[Captured]] = [[] for _ in range(self.pass_count)]
        for captured in self.calls:
            by_pass[captured.pass_index].append(captured)
        return [
            ModelPass(self.model, calls, self.missing, self.strings, 1, number, self.mixing, self.file)
            for number, calls in enumerate(by_pass)
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
        from overt.lens.storage.write import write

        write(self, path)
