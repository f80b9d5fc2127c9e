"""The attention between two texts: how each token written by a decoder attends to the tokens read by its encoder."""

from dataclasses import replace
from typing import Any, NamedTuple

from overt.errors import InputError
from overt.explain.encoded import Encoded, Word
from overt.explain.explanation import Explanation, Shown
from overt.explain.opening import opening
from overt.explain.recipes.qkv import View, closing_notes, explained
from overt.lens.head import Head
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.recording import Recording
from overt.lens.tokens import Tokens
from overt.lens.tokens import is_cross_attention as is_between

_ROWS = "Each row is a token that the decoder writes: its query depends on the tokens before it, not on the token itself."


class Written(NamedTuple):
    """A text written while another was read, with the attention recorded in one pass: row t wrote token t."""

    name: str
    read: Encoded
    text: Encoded
    recording: Recording

    @property
    def layers(self) -> list[list[Head]]:
        """Every head of every layer that attends from the written text to the text read."""
        shape = (len(self.text.ids), len(self.read.ids))
        calls = [call for call in self.recording.calls if is_between(call) and (call.queries, call.keys) == shape]
        return [[Head(captured, head) for head in captured.heads] for captured in calls]


def between(written: Written, word: int | None = None) -> Explanation:
    """Explain a written token: by default the start of the head's strongest link between content words, else the first token.

    The head shown is the one that covers the source text best: it has the largest mean_j max_i w_ij, the mean over the source
    tokens of the largest weight from any written token. Special tokens are excluded.
    """
    views: list[list[View]] = [list(heads) for heads in written.layers]
    if not views:
        raise InputError(
            "a model whose decoder attends to its encoder with queries and keys",
            got=f"{written.name}, whose attention has the layers {', '.join(dict.fromkeys(written.recording.layers)) or 'none'}",
            fix="choose a model with cross-attention",
        )
    verified = written.recording.verify()
    layer, head, coverage = _best_coverage(views, written)
    why = f"the head that reads most of the source text: a source token's largest weight is {coverage:.2f} on average"
    notes = [_ROWS, *closing_notes(written.read, verified)]
    if word is None:
        opened = opening([views[layer][head]], written.text, written.read)
        word = 0 if opened is None else opened.word.index
    options: dict[str, Any] = {"name": written.name, "layer": layer, "head": head, "verified": verified}
    explanation = explained(views, Word(word, (word,)), written.text, written.read, **options)
    return replace(explanation, why=why, notes=notes, recorded=lambda: _recorded(written))


def _recorded(written: Written) -> Shown:
    """The calls between the two texts, numbered as layers; other calls of the model have other tokens."""
    layers = written.layers
    calls = [replace(heads[0].captured, number=index) for index, heads in enumerate(layers)]
    strings = Tokens.from_strings(written.text.tokens, written.read.tokens)
    recording = RecordedCalls(written.name, calls, strings=strings, pass_count=1)
    return Shown(recording, [[(index, head.head) for head in heads] for index, heads in enumerate(layers)])


def _best_coverage(views: list[list[View]], written: Written) -> tuple[int, int, float]:
    """The head with the best coverage of the source text, and its coverage."""
    rows = [index for index in range(len(written.text.ids)) if index not in written.text.special]
    columns = [index for index in range(len(written.read.ids)) if index not in written.read.special]
    coverage = {
        (layer, head): float(view.weights()[0][rows][:, columns].max(dim=0).values.mean())
        for layer, heads in enumerate(views)
        for head, view in enumerate(heads)
    }
    (layer, head), best = max(coverage.items(), key=lambda entry: entry[1])
    return layer, head, best
