"""A recording's heads as the page needs them: a header of names and numbers, and blocks of bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from overt.attention.normalizers import Sum
from overt.attention.summary import Summary
from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.captured import Captured, CapturedCall
from overt.lens.head import Head
from overt.lens.linear.head import MixerHead
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.one_text import unpadded_texts
from overt.lens.statistics.roles import PLAIN, Role, roles
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.text.tokens_of_text import Token
from overt.lens.tokens import Tokens
from overt.lens.viewer.blocks import ArrayBlocks, plain
from overt.lens.viewer.mixer_terms import mixer_terms
from overt.lens.viewer.precision import corrected_log_sum_exp, needs_floats
from overt.lens.viewer.pyramids import cells, coded, signed_codes
from overt.lens.viewer.statistics import measured
from overt.lens.viewer.story import Story, origin, page_title, text_lines
from overt.lens.viewer.terms import HeadTerms, head_terms, row_sums
from overt.lens.viewer.with_model import norms_and_recipe

FORMAT, LINKS = 1, 100
Requested = Sequence[tuple[Captured, tuple[int, ...]]]
Opened = tuple[int | str, int, int] | None

_WHOLE = 2**20  # the most bytes of vectors that stay float32


def map_side(requested: Requested, exact: bool) -> int:
    """The cells along each side of the heads' base maps."""
    count = sum(len(heads) * captured.batch for captured, heads in requested)
    longest = max((max(captured.queries, captured.keys) for captured, _ in requested), default=0)
    return cells(longest, count, exact and not any(isinstance(captured.opened(), CapturedSummary) for captured, _ in requested))


def stays_whole(requested: Requested) -> bool:
    """Whether vectors are few enough to stay float32."""
    return sum(captured.bytes * len(heads) // max(1, len(captured.heads)) for captured, heads in requested) <= _WHOLE


@dataclass
class Packed:
    """The contents of the page: `header` is plain data, `blocks` the arrays that it refers to."""

    header: dict[str, Any]
    blocks: ArrayBlocks


@dataclass
class _Packing:
    calls: RecordedCalls
    side: int
    whole: bool
    exact: bool
    model: nn.Module | None
    story: Story | None = None
    first: int = 0  # the sequences of the recordings before this one
    blocks: ArrayBlocks = field(default_factory=ArrayBlocks)
    words: dict[tuple[Any, ...], int] = field(default_factory=dict)
    heads: list[dict[str, Any]] = field(default_factory=list)

    def text(self, words: Any, batch: int) -> int | None:
        """The number of a list of tokens."""
        if words is None:
            return None
        sentence = words[batch if len(words) > 1 else 0]
        return self.words.setdefault(tuple(zip(sentence, map(_token_facts, sentence), strict=True)), len(self.words))

    def tokenized(self) -> list[dict[str, Any] | None]:
        """The tokenizer's facts for each list of tokens: pieces, special tokens, and tokens after a space."""
        facts = [[facts for _, facts in words] for words in self.words]
        return [
            {
                "pieces": [piece for piece, _, _ in fact],
                "special": [special for _, special, _ in fact],
                "spaced": [s for *_, s in fact],
            }
            if None not in fact
            else None
            for fact in facts
        ]


def pack_heads(
    recordings: Sequence[tuple[RecordedCalls, Sequence[Captured]]],
    *,
    title: str | None = None,
    exact: bool = True,
    model: nn.Module | None = None,
    opened: Opened = None,
    story: Story | None = None,
    padding: bool = False,
) -> Packed:
    """Pack the calls of a recording, or of two recordings side by side, each call reduced to the requested heads.

    The padding of a batch is removed unless `padding`. The sequences of a second recording follow those of the first, so the same
    head of both texts becomes one head of two sequences.
    """
    requested = [(captured, captured.heads) for _, chosen in recordings for captured in chosen]
    first = recordings[0][0]
    packing = _Packing(first, map_side(requested, exact), stays_whole(requested), exact, model, story)
    packed_calls: list[dict[str, Any]] = []
    for calls, chosen in recordings:
        packing.calls, packing.first = calls, 1 + max((head["batch"] for head in packing.heads), default=-1)
        for captured in progress(chosen, "packing the page"):
            packed_calls += _texts(packing, len(packed_calls), captured, padding)
    packing.calls = first
    return Packed(_header(packing, recordings, packed_calls, title, opened), packing.blocks)


def _header(
    packing: _Packing,
    recordings: Sequence[tuple[RecordedCalls, Sequence[Captured]]],
    packed_calls: list[dict[str, Any]],
    title: str | None,
    opened: Opened,
) -> dict[str, Any]:
    first, story = packing.calls, packing.story
    return {
        "format": FORMAT,
        "title": title or page_title(first),
        "texts": text_lines([calls for calls, _ in recordings], packing.heads, list(packing.words)),
        "model": first.model,
        **origin(first),
        "passes": first.pass_count,
        "missing": [list(absence) for calls, _ in recordings for absence in calls.missing],
        "verified": _verified(packed_calls),
        "words": [[word for word, _ in words] for words in packing.words],
        "tokenized": packing.tokenized(),
        "calls": packed_calls,
        "heads": packing.heads,
        "start": _start(packing.heads) if opened is None else _head_index(packing, packed_calls, first[opened[0], opened[1]]),
        "opened": None if opened is None else {"token": opened[2]},
        "story": None if story is None else story.header(),
    }


def _token_facts(token: str) -> tuple[str, int, int] | None:
    """A token's piece, whether it is special, and whether a space precedes it; None if no tokenizer made it."""
    return (token.piece, int(token.special), int(token.spaced)) if isinstance(token, Token) else None


def _texts(packing: _Packing, call_index: int, captured: Captured, padding: bool) -> list[dict[str, Any]]:
    """Pack a call unchanged, or one call for each of its texts without padding."""
    strings, first = packing.calls.strings, packing.first
    texts = None if padding else unpadded_texts(captured, strings)
    if texts is None:
        return [_call(packing, call_index, captured, strings, first)]
    return [_call(packing, call_index + entry, text.captured, text.tokens, first + entry) for entry, text in enumerate(texts)]


def _call(packing: _Packing, call_index: int, captured: Captured, strings: Tokens, first: int) -> dict[str, Any]:
    """Pack one call, whose sequences count from `first`: adds its heads to the packing, and returns the other fields."""
    statistics = measured(captured, strings, packing.side)
    comparison = statistics.comparison
    notes = [*captured.notes, *_unmatched(strings, captured)]
    vectors = packing.exact and not isinstance(captured, CapturedSummary)
    store = _Store(
        packing.blocks,
        packing.blocks.begin() if vectors else 0,
        packing.whole or (isinstance(captured, CapturedCall) and needs_floats(captured)),
    )
    signed = bool(statistics.mixer)
    for index, role in enumerate(roles(statistics, statistics.shares, statistics.repetition)):
        head = replace(packing.calls.head_of(captured, role.head), tokens=strings)
        per_batch = _vectors(packing, head, store, notes) if vectors else [{} for _ in range(captured.batch)]
        for batch, fields_of_text in enumerate(per_batch):
            fields: dict[str, Any] = {"call": call_index, "head": role.head, "batch": first + batch}
            fields |= _role(role) | _words(packing, head, strings, batch)
            fields |= _statistics(packing, statistics.summary, (batch, index), not vectors, signed) | fields_of_text
            if "score" in fields_of_text and (fields_of_text["normalizer"] == "sum" or not store.whole):
                fields["lse"] = _divisors(store, head, statistics.summary, (batch, index))
            packing.heads.append(fields)
    notes.extend(store.notes())
    return {
        "number": packing.calls.number_of(captured),
        "layer": captured.layer,
        "pass": captured.pass_index,
        "source": captured.source,
        "total": captured.total,
        "queries": captured.queries,
        "keys": captured.keys,
        "notes": notes,
        "residual": comparison.difference,
        "bound": comparison.bound,
        "holds": comparison.difference <= comparison.bound,
        "note": comparison.note,
        "mixer": statistics.mixer or None,
        "around": list(statistics.around),
    }


def _role(role: Role) -> dict[str, Any]:
    return {"role": role.role, "roleScore": role.score, "roleScores": role.scores}


def _words(packing: _Packing, head: Head, strings: Tokens, batch: int) -> dict[str, Any]:
    if not strings.fit(head.captured):
        return {"queries": None, "keys": None}
    return {"queries": packing.text(head.query_tokens, batch), "keys": packing.text(head.key_tokens, batch)}


def _unmatched(strings: Tokens, captured: Captured) -> list[str]:
    """A note if the recording's tokens do not fit this call."""
    lengths = f"{captured.queries} queries and {captured.keys} keys"
    mismatch = (strings.keys is not None or strings.texts.vocabulary is not None) and not strings.fit(captured)
    return [f"there are not as many tokens as this call's {lengths}: positions are shown instead"] if mismatch else []


@dataclass
class _Store:
    """The block for the vectors of one call, whether they stay float32, and the largest error of weights from rounding."""

    blocks: ArrayBlocks
    block: int
    whole: bool
    off: float = 0.0
    terms: tuple[Head, HeadTerms | None] | None = None

    def head_terms(self, head: Head) -> HeadTerms | None:
        """The head's terms, cached."""
        if self.terms is None or self.terms[0] is not head:
            self.terms = head, head_terms(head)
        return self.terms[1]

    def vectors(self, vectors: Tensor) -> dict[str, Any]:
        """Store these vectors and return their addresses."""
        return self.blocks.vectors(vectors, self.block, self.whole)

    def floats(self, vectors: Tensor) -> dict[str, Any]:
        """Store these vectors as float32, because errors of the walk back add up over positions."""
        return self.blocks.vectors(vectors, self.block, True)

    def placed(self, values: dict[str, Any], first: bool = False) -> dict[str, Any]:
        """The values with their arrays stored in this call's block, or in block 0 if `first`."""
        arrays = {name: value for name, value in values.items() if isinstance(value, Tensor | np.ndarray)}
        return values | {name: self.blocks.put(value, 0 if first else self.block) for name, value in arrays.items()}

    def notes(self) -> list[str]:
        """The notes for a reader of the weights."""
        if self.whole or not self.off:
            return []
        return [
            f"query and key are stored as int16: the strongest weights differ from the recording's by at most {self.off:.0e}"
        ]


def _divisors(store: _Store, head: Head, summary: Summary, position: tuple[int, int]) -> list[Any]:
    """The divisors of the scores: the log-sum-exp corrected for rounded vectors, or the sum of each row."""
    terms = store.head_terms(head)
    assert terms is not None
    if isinstance(head.call.normalizer, Sum):
        return store.blocks.put(row_sums(head)[position[0]])
    assert summary.lse is not None
    corrected = corrected_log_sum_exp(
        terms, position[0], summary.lse[position], summary.top_weights[position], summary.top_keys[position]
    )
    store.off = max(store.off, corrected.off)
    return store.blocks.put(corrected.lse)


def _vectors(packing: _Packing, head: Head, store: _Store, notes: list[str]) -> list[dict[str, Any]]:
    """The page's input for single weights, for each batch element: vectors and terms, or the weights themselves."""
    if isinstance(head, MixerHead):
        return [mixer_terms(head, batch, store.floats, packing.blocks.put) for batch in range(head.captured.batch)]
    terms, value = store.head_terms(head), head.value
    norms, known = norms_and_recipe(head, packing.model)
    common = (
        known
        | ({} if packing.story is None else {"recipe": packing.story.recipe})
        | {"valueWidth": value.shape[-1], "normalizer": type(head.call.normalizer).__name__.lower()}
    )
    stored = head.weights() if terms is None else None
    note = "the page holds these weights themselves and does not recompute them"
    notes.extend([note] if stored is not None and note not in notes else [])
    entries = []
    for batch in range(head.captured.batch):
        fields = common | {"value": store.vectors(value[batch])}
        if norms is not None:
            fields["outNorm"] = packing.blocks.put(norms[batch].float())
        if terms is not None:
            fields |= _terms(store, terms, batch)
        if packing.story is not None and packing.story.states and (states := packing.story.states[packing.first]) is not None:
            fields["states"] = store.vectors(states)
        if stored is not None:
            fields["weights"] = store.vectors(stored[batch])
        entries.append(fields)
    return entries


def _terms(store: _Store, terms: HeadTerms, batch: int) -> dict[str, Any]:
    return {
        "query": store.vectors(terms.query[batch]),
        "key": store.vectors(terms.key[batch]),
        "score": terms.score,
        "bias": store.placed(terms.bias[batch]),
        "mask": store.placed(terms.mask[batch], first=True),
        "temperature": terms.temperature,
        "sink": terms.sink,
    }


def _statistics(
    packing: _Packing, summary: Summary, position: tuple[int, int], top: bool, signed: bool = False
) -> dict[str, Any]:
    """The statistics of a head at (batch, index), without its vectors; also its largest weights if no others are stored."""
    blocks, entropy = packing.blocks, plain(summary.entropy[position])
    fields = {
        "entropy": float(entropy.mean()) if entropy.size else math.nan,
        "entropies": blocks.put(entropy),
        "received": blocks.put(plain(summary.received[position])),
        "lse": None if summary.lse is None else blocks.put(plain(summary.lse[position])),
        "base": _base(blocks, summary, position, signed),
        "links": _links(blocks, summary, position),
    }
    if top:
        weights, keys = summary.top_weights[position].float(), summary.top_keys[position].int()
        fields["top"] = {"weights": blocks.put(weights), "keys": blocks.put(keys), "width": keys.shape[-1]}
    return fields


def _base(blocks: ArrayBlocks, summary: Summary, position: tuple[int, int], signed: bool) -> dict[str, Any] | None:
    maximum, mean, rows, keys = summary.map_max, summary.map_mean, summary.row_edges, summary.key_edges
    if maximum is None or mean is None or rows is None or keys is None:
        return None
    code = signed_codes if signed else coded
    maps = {"max": blocks.put(code(maximum[position])), "mean": blocks.put(code(mean[position]))}
    edges = {"rowEdges": blocks.put(rows.int()), "keyEdges": blocks.put(keys.int())}
    return {"rows": len(rows) - 1, "columns": len(keys) - 1} | maps | edges


def _links(blocks: ArrayBlocks, summary: Summary, position: tuple[int, int]) -> dict[str, Any]:
    """The strongest links of a head: weight, query and key of each, strongest first."""
    weights, keys = plain(summary.top_weights[position]), summary.top_keys[position].cpu().numpy()
    flat = weights.ravel()
    sizes = np.where((keys >= 0) & ~np.isnan(weights), np.abs(weights), -np.inf).ravel()
    best = np.argpartition(-sizes, LINKS - 1)[:LINKS] if len(sizes) > LINKS else np.arange(len(sizes))
    best = best[np.argsort(-sizes[best], kind="stable")]
    best = best[sizes[best] > -np.inf]
    rows = (best // max(1, weights.shape[-1])).astype(np.int32)
    return {
        "weights": blocks.put(flat[best].astype(np.float32)),
        "rows": blocks.put(rows),
        "keys": blocks.put(keys.ravel()[best]),
    }


def _verified(packed_calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    compared = [call for call in packed_calls if not math.isnan(call["residual"])]
    return {
        "difference": max((item["residual"] for item in compared), default=math.nan),
        "bound": max((item["bound"] for item in compared), default=math.nan),
        "holds": all(call["holds"] for call in packed_calls),
    }


def _head_index(packing: _Packing, packed_calls: Sequence[dict[str, Any]], requested: Head) -> int:
    """The index of a head among the page's heads."""
    heads = [(packed_calls[head["call"]]["number"], head["head"]) for head in packing.heads]
    head = (packing.calls.number_of(requested.captured), requested.head)
    if head not in heads:
        raise InputError(
            "one of the page's heads as the head that it opens with",
            got=f"{requested.layer}, head {requested.head}",
            fix="add it to heads",
        )
    return heads.index(head)


def _start(heads: Sequence[dict[str, Any]]) -> int:
    """The head that the page opens with: the sharpest one without a plain role."""
    first = [index for index, head in enumerate(heads) if head["batch"] == 0]
    telling = [index for index in first if heads[index]["role"] not in PLAIN] or first
    return min(telling, key=lambda index: (math.isnan(heads[index]["entropy"]), heads[index]["entropy"]), default=0)
