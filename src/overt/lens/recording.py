"""Record the attention of an unmodified model while it runs; its outputs stay equal to the bit."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from torch import nn

from overt.drawing.html import PAGE_LIMIT
from overt.drawing.progress import progress
from overt.lens.capture.adapters import catching
from overt.lens.capture.options import record_options
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import Recorder
from overt.lens.captured import Captured
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.summarized import CELLS, TOP
from overt.lens.storage.joined import RecordedPasses
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
    tokenizer: Any = None,
    query_tokens: Strings | None = None,
    key_tokens: Strings | None = None,
    limit: int = LIMIT,
    top: int = TOP,
    map_size: int | tuple[int, int] = CELLS,
    one_pass: bool = False,
) -> Iterator["Recording"]:
    """Record every call of attention inside `model` while the block runs: `with record(model) as recording: model(x)`.

    It catches torch's `scaled_dot_product_attention`, `nn.MultiheadAttention`, `overt.attend`, functions of Hugging Face's registry,
    and attention that a model writes out. The model runs unmodified, in training or evaluation, and its outputs are equal to the bit.
    If torch runs a layer as one kernel, on its fast path, query, key and value are computed from the layer's parameters, and a note of
    the call reports it. Errors of the recording never reach the model: `recording.missing`, a list of (module, reason), has the call
    and the text of the error.

    `layers` selects calls, by their number within a pass (from 0) or by the name of a module around them; `heads` selects heads.
    Layers and heads always have the model's own numbers.

    `keep="qkv"` copies query, key, value and output, linear in the length, and refers to masks; all results are recomputed from these.
    In generation each key is stored once, and successive calls of a layer are joined to one (`Recording.passes` has each).
    `keep="summary"` computes statistics while the model runs: entropy, received, the `top` largest weights of each query, a map of
    `map_size` cells (a number for both sides or (rows, keys)), the residual and the roles. No statistic grows with Q × K. A summary takes
    about a tenth of the bytes for long texts (heads of 64, from about 1,000 tokens on); for short texts, and with small or grouped heads,
    the maps make it as large or larger: pass a smaller `map_size`. With `one_pass=True` overt's kernel replaces torch's fused function
    and computes output and statistics together, if it supports the call and no gradients are needed: the model's outputs are then equal
    within rounding, not to the bit, and recording a long text takes little longer than running the model on it.
    `offload="cpu"` moves the recording to the CPU call by call, `"disk"` to files of a private folder that is removed with the
    recording. A call beyond `limit` bytes, or beyond the free space of the disk, is not recorded, and `missing` has its size.

    A `tokenizer` decodes the token ids that the model reads: a Hugging Face tokenizer, slow or fast, a processor that holds one,
    a `tokenizers.Tokenizer` or overt's own. `recording.tokenizer(tokenizer)` does the same later. Parts of a picture are named by
    row and column without a tokenizer, positions of sound by seconds with a feature extractor of transformers as `tokenizer`.
    `query_tokens` and `key_tokens` name the positions without a tokenizer: a list of strings, or one list per batch element. One of the
    two is enough for self-attention; for an encoder–decoder they are the decoder's tokens and the encoder's.

    Raises InputError for a tokenizer of another vocabulary: before the model runs if the sizes of vocabulary and table differ, after
    the block if the model read no ids, or ids that the tokenizer does not have.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 8))
    >>> recording.layers, recording[0, 1].weights().shape
    (['self_attn'], torch.Size([1, 5, 5]))
    """
    model = recordable(model)
    tokens = Tokens.checked(query_tokens, key_tokens, tokenizer, model)
    recording = Recording(type(model).__name__, strings=tokens)
    steps = progress(count(), "summarising")
    options = record_options(layers, heads, keep, offload, tokens, limit, top, map_size, steps, one_pass)
    recorder = Recorder(model, options, tokens.texts, recording.recorded, recording.missing)
    try:
        with catching(recorder):
            yield recording
    finally:
        steps.close()
        recording.pass_count = recorder.pass_count
    recorder.note_unmatched()
    recording.refusal = None if recording.recorded.stored else recorder.refusal
    recording.mixing = recorder.note_mixing()
    if tokenizer is not None and recorder.pass_count:
        tokens.texts.check()


@dataclass(eq=False, repr=False)
class ModelPass(RecordedCalls):
    """The recorded calls of one pass of a model, or of all passes, with the page that shows them."""

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
        padding: bool = False,
    ) -> str:
        """The recording as one HTML file that works offline: every head is a map that zooms down to single weights.

        Writes the page to `path`, whole or not at all, and returns the path; returns the page itself without a path.
        `heads` is None for all heads, "top 16" for the sixteen of the lowest entropy, or a list of (layer, head). The page recomputes
        single weights, within 1e-3, from query, key and value, which it stores as int16 with a scale for each vector, or as float32
        if they are few; `exact=False` removes them. Pass the recorded `model` to add the norms of the values after its output matrix.
        `opened` is the (layer, head, token) whose steps are shown first. The padding of several texts is removed unless `padding`.

        Raises InputError, before anything is built, for a page of more than `limit` bytes, for tokens that match no call, and for
        an empty recording.

        >>> import torch, overt
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with overt.lens.record(layer, key_tokens=["the", "cat", "sat"]) as recording:
        ...     _ = layer(torch.randn(1, 3, 8))
        >>> recording.page()[:15]
        '<!doctype html>'
        """
        from overt.lens.viewer import page

        return page(self, path, heads=heads, title=title, exact=exact, model=model, opened=opened, limit=limit, padding=padding)

    def widget(self, *, height: int = 720, **options: Any) -> Any:
        """The page in a notebook, `height` pixels high; `options` are the options of `page`, except `path`.

        Works in Jupyter, VS Code, Colab and marimo through anywidget (extra `widget`). Raises MissingExtra without it.
        """
        from overt.lens.viewer.widget import widget

        return widget(self, height=height, **options)


@dataclass(eq=False, repr=False)
class Recording(ModelPass):
    """The recorded attention of a model: every call with its heads.

    `layers`, `passes`, `recording[layer, head]` (a `Head`), `verify()`, `roles()`, `missing` (attention that could not be
    recorded, with the reason), `bytes`; a recording prints as a table. `recording.tokenizer(tokenizer)` decodes the token ids, and
    `recording.tokens = [...]` names the positions without a tokenizer.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with overt.lens.record(layer) as recording:
    ...     _ = layer(torch.randn(1, 5, 8))
    >>> recording, recording.verify().difference < 1e-6
    (<recording of TransformerEncoderLayer: 1 call of attention, 1 pass>, True)
    """

    recorded: RecordedPasses = field(default_factory=RecordedPasses)

    def __post_init__(self) -> None:
        self.calls: Sequence[Captured] = self.recorded

    @property
    def passes(self) -> list[ModelPass]:
        """The recorded calls by pass, one entry for each run of the model."""
        return [
            ModelPass(
                self.model, calls, self.missing, self.strings, 1, number, self.mixing, self.file, self.measured, self.refusal
            )
            for number, calls in enumerate(self.recorded.by_pass(self.pass_count))
        ]

    def plot(self, path: str | os.PathLike[str] | None = None, figure: str = "heads", **options: Any) -> Any:
        """Draw a figure for print. Returns a matplotlib Figure, and writes it to `path`, if any, as PDF, SVG or PNG.

        `figure` is "heads" (every head as a small map), "entropy" (the entropy of each head, by layer) or, with `layer=` and `head=`,
        "map" or "head" (one head's weights) or "arcs" (the strongest links of one head over the tokens). Other `options`:
        `overt.lens.figures`. Raises InputError for another figure or file ending.
        """
        from overt.lens.figures.plotting import plot

        return plot(self, path, figure, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording to one safetensors file, whole or not at all; `overt.lens.load` reads it on any machine.

        A custom mask is written as its bool tensor. Raises InputError for a custom score or normalizer: code is not written.
        """
        from overt.lens.storage.write import write

        write(self, self.recorded, path)
