"""Query, key and value in a trained model: the word's attention in every layer and head, and the six steps in one head."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from overt.attention.scores import Dot
from overt.errors import InputError
from overt.explain.encoded import Encoded, Word, choose, truncation_notes
from overt.explain.explanation import Explanation, Link, Looks, Shown, StepRow, Timing, step_rows
from overt.explain.opening import Opening, opening
from overt.explain.recipes.compare import compared
from overt.explain.recipes.recorded import recorded
from overt.explain.recipes.timing import timed
from overt.explain.recipes.two_texts import CrossHead
from overt.lens.captured import CapturedCall
from overt.lens.head import Head
from overt.lens.recording import Recording, record
from overt.lens.statistics.verified import Verified

View = Head | CrossHead

# MOSTLY: least mean weight on a neighbour for "usually"; ALWAYS: for "always", which also requires MOSTLY of every single word.
ALWAYS, MOSTLY = 0.9, 0.5
_NEIGHBOURS = {"the previous token": -1, "the next token": 1}


class ReadText(NamedTuple):
    """A text with its recorded attention in a model."""

    encoded: Encoded
    recording: Recording
    notes: list[str]

    @property
    def layers(self) -> list[list[Head]]:
        """Every head of every layer that attends over the text; layers that mix tokens by a state are excluded."""
        length = len(self.encoded.ids)
        attending = [call for call in self.recording.calls if isinstance(call, CapturedCall)]
        calls = [call for call in attending if (call.queries, call.keys) == (length, length)]
        layers = [[Head(captured, head) for head in captured.heads] for captured in calls]
        return [heads for heads in layers if heads[0].query.shape[-1]]  # without query and key there is nothing to explain


def read(model: Any, text: str, truncate: bool = False) -> ReadText:
    """Run the model on the text under `record`."""
    encoded = model.encode(text, truncate)
    with record(model.network) as recording:
        model.run(encoded)
    recording.tokens = encoded.tokens
    text_read = ReadText(encoded, recording, truncation_notes(encoded, truncate))
    _ = recording.layers  # a model without attention raises here
    if not text_read.layers:
        raise InputError(
            "a model whose layers attend over the text's tokens with queries and keys",
            got=f"{model.name}, whose attention has the layers {', '.join(dict.fromkeys(recording.layers))}",
            fix="choose another text model",
        )
    return text_read


def qkv(
    model: Any,
    text: str,
    word: str | None = None,
    *,
    other: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    truncate: bool = False,
    loop: bool = False,
    page: bool = False,
) -> Explanation:
    """Explain how one word of the text attends, to its own text or to another one.

    The head shown is `layer` and `head`, counted from 0, by default the last layer's strongest link to another word.
    With `other`, the queries of one text attend to the keys and values of the other in the same head.
    The default word is the last one, or for a `page` the start of the last layer's strongest link between content words.
    """
    source = read(model, text, truncate)
    target = source if other is None else read(model, other, truncate)
    chosen, views = choose(source.encoded, word), _views(source, target)
    opened = _opening(source) if page and word is None else None
    if opened is not None:
        layer, (chosen, head) = opened
    verified = source.recording.verify() if other is None else None
    explanation = explained(
        views, chosen, source.encoded, target.encoded, name=model.name, layer=layer, head=head, verified=verified
    )
    shown_layer, shown_head = explanation.shown
    return replace(
        explanation,
        loop=_timed(views[shown_layer][shown_head]) if loop else None,
        notes=_notes(chosen, source, target, model, verified),
        why=f"the strongest link between content words in layer {layer}" if opened else explanation.why,
        recorded=lambda: _recorded(source, target, model),
    )


def _recorded(source: ReadText, target: ReadText, model: Any) -> Shown:
    """The recording of the text; for two texts the calls with the queries of one and the keys and values of the other."""
    if source is target:
        heads = [[(member.captured.number, member.head) for member in layer] for layer in source.layers]
        return Shown(source.recording, heads, model=model.network)
    layers = []
    for query_heads, key_heads in zip(source.layers, target.layers, strict=True):
        call = query_heads[0].call
        query = torch.cat([head.query for head in query_heads])
        key, value = torch.cat([head.key for head in key_heads]), torch.cat([head.value for head in key_heads])
        layers.append((query, key, value, {"score": call.score, "normalizer": call.normalizer}))
    recording = recorded(layers, source.encoded.tokens, target.encoded.tokens)
    return Shown(recording, [[(index, head) for head in range(len(layer))] for index, layer in enumerate(source.layers)])


def explained(
    views: list[list[View]],
    chosen: Word,
    source: Encoded,
    target: Encoded,
    *,
    name: str,
    layer: int | None = None,
    head: int | None = None,
    verified: Verified | None = None,
) -> Explanation:
    """Explain the chosen word of `source` by the heads `views[layer][head]`; `target` may be another text."""
    word_pieces = chosen.pieces if source is target else ()
    links = _links(views, chosen, target, word_pieces)
    (shown_layer, shown_head), why = _shown(views, links, layer, head)
    view = views[shown_layer][shown_head]
    rows = [[view.weights(chosen.index)[0, 0].tolist() for view in heads] for heads in views]
    return Explanation(
        recipe="qkv",
        text=source.text,
        other=None if source is target else target.text,
        tokens=target.tokens,
        query_tokens=source.tokens,
        word=chosen.index,
        special=target.special,
        source=f"{name}, {len(views)} layers × {_head_count(views)} heads",
        rows=rows,
        shown=(shown_layer, shown_head),
        why=why,
        score_name="q·k",
        scale_name=scale_name(view),
        normalizer="softmax",
        query=view.query[0, chosen.index].tolist(),
        steps=_steps(view, chosen.index, target.tokens),
        output=view.steps(chosen.index).output[0, 0].tolist(),
        matrix=view.weights()[0].tolist(),
        links=links,
        looks=_looks(rows, target, word_pieces),
        residual=verified and verified.difference,
        bound=verified and verified.bound,
    )


def compare(model: Any, text: str, against: str, word: str | None = None, **options: Any) -> list[Explanation]:
    """The same word and head in two sentences; the options are `qkv`'s, and the head is chosen in the first sentence."""
    first = qkv(model, text, word, **options)
    layer, head = first.shown
    same = {**options, "layer": layer, "head": head}
    second = replace(qkv(model, against, word, **same), why="the same head as in the first sentence")
    truncate = options.get("truncate", False)
    pieces = choose(model.encode(text, truncate), word), choose(model.encode(against, truncate), word)
    return compared(first, second, pieces)


def scale_name(view: View) -> str:
    """The divisor of the raw scores: √D, another number, or nothing."""
    factor = _factor(view)
    width = view.query.shape[-1]
    if abs(factor * width**0.5 - 1) < 1e-6:
        return f"√{width}"
    return "" if factor == 1 else f"{1 / factor:g}"


def _opening(source: ReadText) -> tuple[int, Opening] | None:
    """The last layer with a link between content words, and its strongest link."""
    layers = enumerate(source.layers)
    openings = ((layer, opening(heads, source.encoded, source.encoded)) for layer, heads in reversed(list(layers)))
    return next(((layer, best) for layer, best in openings if best is not None), None)


def _views(source: ReadText, target: ReadText) -> list[list[View]]:
    """Every head of every layer, over one text, or with the queries of one and the keys and values of the other."""
    if source is target:
        return [list(heads) for heads in source.layers]
    return [[CrossHead(*pair) for pair in zip(*both, strict=True)] for both in zip(source.layers, target.layers, strict=True)]


def _factor(view: View) -> float:
    score = view.call.score
    factor = score.factor(view.query) if isinstance(score, Dot) else 1.0
    return float(factor) if not isinstance(factor, torch.Tensor) or factor.numel() == 1 else 1.0


def _head_count(views: Sequence[Sequence[View]]) -> str:
    counts = sorted({len(heads) for heads in views})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _links(views: list[list[View]], word: Word, target: Encoded, word_pieces: Sequence[int]) -> list[Link]:
    """The strongest link of each layer to another word, special tokens and the word's own pieces excluded."""
    excluded = {*target.special, *word_pieces}
    indices = [index for index in range(len(target.ids)) if index not in excluded]
    plain = [index for index in range(len(target.ids)) if index not in target.special]
    links = []
    for layer, heads in enumerate(views):
        weights = np.array([view.weights(word.index)[0, 0].numpy(force=True) for view in heads])  # (H, K)
        if not indices or not (weights[:, indices] > 0).any():
            continue
        head, best = np.unravel_index(weights[:, indices].argmax(), (len(heads), len(indices)))
        index = indices[int(best)]
        # The position rule needs one sentence: positions in two sentences are unrelated.
        rule = pattern(heads[int(head)].weights()[0].numpy(force=True), plain) if word_pieces else ""
        links.append(Link(layer, int(head), index, target.tokens[index], float(weights[int(head), index]), rule))
    return links


def _shown(views: list[list[View]], links: list[Link], layer: int | None, head: int | None) -> tuple[tuple[int, int], str]:
    """The head to show, and the reason."""
    if layer is not None and not 0 <= layer < len(views):
        raise InputError(f"a layer from 0 to {len(views) - 1}", got=f"--layer {layer}", fix="choose one of them")
    shown_layer = len(views) - 1 if layer is None else layer
    if head is not None:
        if not 0 <= head < len(views[shown_layer]):
            raise InputError(
                f"a head from 0 to {len(views[shown_layer]) - 1} in layer {shown_layer}",
                got=f"--head {head}",
                fix="choose one of them",
            )
        return (shown_layer, head), f"chosen: layer {shown_layer}, head {head}"
    strongest = next((link for link in links if link.layer == shown_layer), None)
    which = "the last layer's" if layer is None else f"layer {shown_layer}'s"
    if strongest is None:
        return (shown_layer, 0), f"{which} first head, since none has a link to another word"
    return (shown_layer, strongest.head), f"{which} strongest link to another word"


def _looks(rows: list[list[list[float]]], target: Encoded, word_pieces: Sequence[int]) -> Looks:
    """The targets of each head's largest weight: a special token, the word itself, or another word."""
    strongest = [int(np.argmax(row)) for heads in rows for row in heads]
    counts = {
        name: sum(target.tokens[index] == name for index in strongest if index in target.special) for name in _special(target)
    }
    attended = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    names = " and ".join(f"{name} ({counts[name]})" for name in attended) if len(attended) > 1 else "".join(attended)
    return Looks(len(strongest), sum(counts.values()), sum(index in word_pieces for index in strongest), names)


def _special(target: Encoded) -> list[str]:
    return list(dict.fromkeys(target.tokens[index] for index in target.special))


def _steps(view: View, index: int, tokens: list[str]) -> list[StepRow]:
    """The six steps for each token: q·k, divided, weight, value, weight · value."""
    steps = view.steps(index)
    query, key, value = (tensor[0].float() for tensor in (view.query[:, index], view.key, view.value))
    return step_rows(tokens, key @ query, steps.masked[0, 0], steps.weights[0, 0], key, value)


def _timed(view: View) -> Timing:
    if view.call.bias is not None:
        raise InputError(
            "scores without a bias for the loop form", got="a model that adds one to its scores", fix="leave out --loop"
        )
    return timed(view.query[0], view.key[0], view.value[0], view.call.score, view.mask())


def _notes(word: Word, source: ReadText, target: ReadText, model: Any, verified: Verified | None) -> list[str]:
    """Notes on this picture, a sentence each."""
    crossed = source is not target
    notes = [*filter(None, [word.note]), *source.notes, *(target.notes if crossed else []), *model.notes]
    if crossed:
        notes.append(
            "The model read each text alone; then the queries of the first attended to the keys and values of the second in the same head. "
            "It was not trained for that."
        )
    return [*notes, *closing_notes(target.encoded, verified)]


def closing_notes(target: Encoded, verified: Verified | None) -> list[str]:
    """Notes on every picture of a trained model: its special tokens, whether it was recomputed, and what weights do not mean."""
    special = _special(target)
    said = "is a special token" if len(special) == 1 else "are special tokens"
    notes = [f"{' and '.join(special)} {said} and counted separately."] if special else []
    if verified is not None and not verified.holds:
        notes.append(
            f"The recomputed output differs from the model's by {verified.difference:.1e}, more than rounding explains."
        )
    return [*notes, "Weights show what this head attended to, not why, and not what the model concluded."]


def pattern(weights: np.ndarray, positions: Sequence[int]) -> str:
    """The name of the position rule that weights (N, N) follow at these positions, words without special tokens; empty if there is none.

    >>> shifted = np.eye(4, k=-1)
    >>> pattern(shifted, [0, 1, 2, 3]), pattern(0.6 * shifted + 0.1, [0, 1, 2, 3]), pattern(np.full((4, 4), 0.25), range(4))
    ('always the previous token', 'usually the previous token', '')
    """
    among = set(positions)
    for name, step in _NEIGHBOURS.items():
        shares = [float(weights[position, position + step]) for position in positions if position + step in among]
        if len(shares) < 2 or np.mean(shares) < MOSTLY:
            continue
        always = np.mean(shares) >= ALWAYS and min(shares) >= MOSTLY
        return f"{'always' if always else 'usually'} {name}"
    return ""
