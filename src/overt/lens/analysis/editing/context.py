"""`edit`: a model whose attention is changed while the block runs."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from overt.drawing.numbers import columns
from overt.errors import InputError, KindError
from overt.lens.analysis.editing.changes import (
    PARTS,
    BlockedArcs,
    HeadChange,
    HeadScaled,
    PartPatched,
    RowsSet,
    TemperatureSet,
    Where,
    checked_heads,
    checked_number,
    checked_pattern,
    checked_positions,
)
from overt.lens.analysis.editing.editor import Editor, Fired
from overt.lens.analysis.editing.patching import OtherRun, other_run
from overt.lens.analysis.editing.paths import PathPatched, path_change, prepare
from overt.lens.capture.adapters import catching
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import is_in
from overt.lens.capture.torch_layers.fast_path_switch import fast_path_off
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.tokens import Strings, Tokens

Heads = tuple[int | str | None, int | None] | Sequence[tuple[int | str | None, int | None]] | None


class Edits:
    """Changes of a model's attention, made by `overt.lens.edit` and measured by `overt.lens.effect`.

    Each method adds a change and returns the edits, so that they chain. `head` is (layer, head), a list of such pairs, (layer, None)
    for all heads of a layer, or None for all heads of all layers; the layer is the number of a call within a pass or a module's name.
    `query` and `key` are positions of the text (a number, a slice, a list), a word of it, or None for all of them.

    >>> import overt
    >>> print(overt.lens.Edits().block(head=(5, 11), query=9, key=2).scale((4, 3), 0.5))
    block of L5H11, query 9, key 2; scale 0.5 of L4H3
    """

    def __init__(self):
        self.changes: list[HeadChange] = []

    def block(self, head: Heads = None, *, query: Where = None, key: Where = None) -> "Edits":
        """Block queries from some keys: the weights of these keys are zero, and the others are normalized without them."""
        return self.add(BlockedArcs(checked_heads(head), checked_positions("query", query), checked_positions("key", key)))

    def pattern(self, head: Heads, weights: Tensor | str, *, query: Where = None) -> "Edits":
        """Set rows of weights: (K,), (rows, K) or (B, rows, K), after dropout; or by name.

        "uniform" gives equal weight to each key that a query may attend to, "previous" the whole weight to the key before the query's
        own position, "first" to the first key. With `query`, rows belong to the named positions, in order of the text.
        """
        return self.add(RowsSet(checked_heads(head), checked_positions("query", query), pattern=checked_pattern(weights)))

    def scale(self, head: Heads, factor: float, *, query: Where = None) -> "Edits":
        """Multiply a head's output, and so its weights, by a number; 0 removes the head (Michel et al. 2019, section 2.1)."""
        number = checked_number("a factor", factor)
        return self.add(HeadScaled(checked_heads(head), checked_positions("query", query), factor=number))

    def temperature(self, head: Heads, temperature: float, *, query: Where = None) -> "Edits":
        """Divide scores, biases included, by a number before the normalization; a sink keeps its logit."""
        number = checked_number("a temperature", temperature, above=0.0)
        return self.add(TemperatureSet(checked_heads(head), checked_positions("query", query), temperature=number))

    def patch(
        self,
        head: Heads,
        from_: RecordedCalls,
        part: str = "output",
        *,
        query: Where = None,
        key: Where = None,
        source: tuple[int | str, int] | None = None,
    ) -> "Edits":
        """Replace a head's "output", "query", "key", "value" or "weights" by a recording's, position by position.

        The recording's head is the one of the same name, or `source`. `query` names positions for output, query and weights, `key` for
        key and value; without them, all positions are replaced, and the recording must have the same length.
        """
        if part not in PARTS:
            raise InputError(f"a part to patch, one of {', '.join(PARTS)}", got=repr(part), fix="choose one of them")
        if (key is not None and part not in ("key", "value")) or (query is not None and part in ("key", "value")):
            fix = f'write {"key" if query is not None else "query"}=… for part="{part}"'
            raise InputError(f"positions of the {part}", got="query=" if query is not None else "key=", fix=fix)
        where = checked_positions("query", query), checked_positions("key", key)
        other = OtherRun.checked(from_, source, part)
        return self.add(PartPatched(checked_heads(head), *where, part=part, source=other))

    def path(
        self,
        sender: tuple[int | str, int],
        receiver: Heads,
        into: str = "query",
        *,
        from_: RecordedCalls | None = None,
        source: tuple[int | str, int] | None = None,
        norms: str = "recomputed",
    ) -> "Edits":
        """Change only what one head writes into the "query", "key" or "value" of later heads (path patching).

        The sender's output is zero there, or taken from the recording `from_`. The heads between do not change, and the feed-forward layers
        between are recomputed. The norms between are recomputed too, or, with `norms="frozen"`, divide by the scales of the plain run
        (modules whose class is named LayerNorm or RMSNorm). The model runs twice more for a path, in a single pass, on copies of its input.
        """
        pairs = checked_heads([sender]), checked_heads(receiver)
        return self.add(path_change(pairs[0][0], pairs[1], into, from_, norms, source))

    def add(self, change: HeadChange) -> "Edits":
        """Add a change."""
        self.changes.append(change)
        return self

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes)) or "no edits"

    def __repr__(self) -> str:
        return f"<{self}>"


class OpenEdits(Edits):
    """The edits of a model while it runs: added changes apply from then on, and `report()` says what they changed."""

    def __init__(self, editor: Editor):
        super().__init__()
        self.editor = editor
        self.changes = editor.changes
        self.handle: RemovableHandle | None = None

    def report(self) -> str:
        """A table of the changes with their calls and rows, or "never"; below it the patches from other tokens or models."""
        rows = [("changed", "calls", "rows")]
        for change in self.changes:
            fired = self.editor.fired.get(id(change), Fired())
            rows.append((str(change), str(fired.calls) if fired.calls else "never", str(fired.rows)))
        texts = self.editor.tokens.texts
        model = type(self.editor.model).__name__
        notes = [other_run(change, texts, model) for change in self.changes if isinstance(change, PartPatched)]
        return "\n".join([*columns(rows, right=["calls", "rows"]), *filter(None, notes)])

    def add(self, change: HeadChange) -> Edits:
        """Add a change to the running model. Raises for a layer or a word that cannot be there."""
        refuse_unknown_layers(self.editor, change)
        refuse_words_without_tokens(self.editor.tokens, change)
        if isinstance(change, PathPatched) and self.handle is None:
            self.handle = self.editor.model.register_forward_pre_hook(self.prepare, with_kwargs=True)
        return super().add(change)

    def close(self) -> None:
        """Restore the model."""
        if self.handle is not None:
            self.handle.remove()
        self.handle = None

    def prepare(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the model's pass, run it for the inputs of the receivers of paths."""
        if self.handle is None:
            return
        self.close()
        for change in self.changes:
            if isinstance(change, PathPatched):
                prepare(module, change, edit, self.editor.continued, args, kwargs)
        self.handle = module.register_forward_pre_hook(self.prepare, with_kwargs=True)


def refuse_unknown_layers(editor: Editor, change: HeadChange) -> None:
    """Raise InputError for the name of a module that the model does not have."""
    names = [name for name, _ in editor.names.values()]
    for layer, _ in change.heads:
        if isinstance(layer, str) and not any(is_in(name, layer) for name in names):
            last = {name: name.rpartition(".")[2].lower() for name in names}
            attending = [name for name in names if "att" in last[name] and not re.search("norm|dropout", last[name])]
            attending = [name for name in attending if name.rpartition(".")[0] not in attending] or names
            fix = f"choose one of: {', '.join(attending[:6])}" + (", …" if len(attending) > 6 else "")
            raise InputError(f"the name of a module of {type(editor.model).__name__}", got=repr(layer), fix=fix)


def refuse_words_without_tokens(tokens: Tokens, change: HeadChange) -> None:
    """Raise KindError for a word if no tokens are known to find its positions."""
    for side, where in (("query", change.query), ("key", change.key)):
        if isinstance(where, str) and not (tokens.known or tokens.texts.vocabulary is not None):
            fix = f"pass edit(model, tokenizer=…), or a position, {side}=7"
            raise KindError(f"a tokenizer, to find {side}={where!r}", got="none", fix=fix)


@contextmanager
def edit(
    model: nn.Module,
    edits: Edits | None = None,
    *,
    tokenizer: Any = None,
    query_tokens: Strings | None = None,
    key_tokens: Strings | None = None,
) -> Iterator[OpenEdits]:
    """Change the attention of `model` while the block runs: `with edit(model) as edits: edits.block((5, 11), query=9, key=2)`.

    The changes are made at the calls that `record` reads, under any implementation: `block`, `pattern`, `scale`, `temperature` and
    `patch` of `Edits`. Only the changed rows of the changed heads are recomputed, from the call's own query, key, value, mask, bias and
    normalizer; all others are bit for bit the model's own. Positions count the tokens of the text, in generation too; a word
    needs the `tokenizer`, or `query_tokens` and `key_tokens` as for `record`. Weights that the model returns are those before
    the change. The block runs without gradients, as in torch.no_grad(), and without torch's fast path, whose single kernel hides the
    heads.

    A recording opened inside the block has the changed outputs, and its `verify()` reports them; one around the block has the originals.

    Raises InputError, by name, for a change that cannot be made, and after the block for a change that was never made.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.edit(attention) as edit:
    ...     _ = edit.block(head=(0, 1), query=4, key=0)
    ...     output = attention(x, x, x)[0]
    >>> print(edit.report())
    changed                        calls  rows
    block of L0H1, query 4, key 0      1     1
    """
    model = recordable(model)
    tokens = Tokens.checked(query_tokens, key_tokens, tokenizer, model)
    editor = Editor(model, [], tokens)
    opened = OpenEdits(editor)
    for change in edits.changes if edits is not None else []:
        opened.add(change)
    try:
        with torch.no_grad(), fast_path_off(), catching(editor):
            yield opened
    finally:
        opened.close()
    editor.refuse_unmatched()
