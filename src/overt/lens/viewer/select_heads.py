"""Which heads a page shows, and whether they fit: the size is estimated before anything is built."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.attention import check
from overt.attention.summary import gathered
from overt.drawing.numbers import in_bytes
from overt.errors import InputError, KindError
from overt.lens.captured import Captured, CapturedCall, by_head, fresh
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.summarized import mixer_entropy
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.viewer.mixer_terms import mixer_bytes
from overt.lens.viewer.packing import map_side, stays_whole
from overt.lens.viewer.precision import needs_floats
from overt.lens.viewer.statistics import cut
from overt.lens.viewer.terms import computable

HeadNames = str | Sequence[tuple[int | str, int]] | None
_FIXED = 280_000  # bytes of the page's script, style and still picture


def chosen(calls: RecordedCalls, heads: HeadNames, exact: bool, limit: int) -> list[Captured]:
    """The calls, each reduced to the requested heads; refuses a page of more than `limit` bytes.

    `heads` is None for all, "top 16" for the sixteen of the lowest entropy, or a list of (layer, head).
    """
    check.whole_number("limit", limit)
    present = [captured for captured in calls.nonempty_calls() if captured.heads and captured.queries and captured.keys]
    if not present:
        raise InputError("recorded attention", got="none", fix="see recording.missing for the reasons")
    requested = _requested(calls, present, heads)
    if calls.strings.keys is not None and not any(calls.strings.fit(captured) for captured, _ in requested):
        calls.strings.key_words(requested[0][0])  # raises the error of tokens that match no call
        calls.strings.query_words(requested[0][0])
    needed = estimated([(captured, indices) for captured, indices in requested], calls, exact)
    if needed > limit:
        count, texts = sum(len(indices) for _, indices in requested), max(captured.batch for captured, _ in requested)
        raise PageTooLarge(count, texts, needed, limit, exact)
    return [cut(captured.opened(), indices) for captured, indices in requested]


class PageTooLarge(InputError):
    """A page of these heads, of about `needed` bytes, more than its limit."""

    def __init__(self, heads: int, texts: int, needed: int, limit: int, exact: bool):
        self.arguments = heads, texts, needed, limit, exact
        count = f"{heads} heads" if texts == 1 else f"{heads} heads of {texts} texts"
        names = 'heads="top {}" or heads=[(layer, head)]', "exact=False", "raise limit="
        super().__init__(
            f"a page of at most {in_bytes(limit)}, which browsers open quickly",
            got=f"{count} that need about {in_bytes(needed)}",
            fix=self._fix(*names),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.arguments

    def in_command(self) -> InputError:
        """The error with the options of `overt view` in its fix."""
        enough = f"pass --limit {math.ceil(self.arguments[2] / 10**6)}"
        return InputError(self.expected, self.got, self._fix('--heads "top {}"', "--summary", enough))

    def _fix(self, heads: str, summary: str, limit: str) -> str:
        """The advice: fewer heads if one head fits, else fewer texts; a summary has no single weights to remove."""
        count, texts, needed, most, exact = self.arguments
        if most <= _FIXED:  # not even an empty page fits
            return limit
        fewer = count * (most - _FIXED) // (needed - _FIXED)
        ways = [f"show fewer heads with {heads.format(fewer)}"] if fewer else ["record fewer texts"] if texts > 1 else []
        ways += [f"leave out single weights with {summary}"] if exact else []
        return ", ".join([*ways, f"or {limit}"]) if ways else limit


def _requested(calls: RecordedCalls, present: Sequence[Captured], heads: HeadNames) -> list[tuple[Captured, tuple[int, ...]]]:
    if heads is None:
        return [(captured, captured.heads) for captured in present]
    if isinstance(heads, str):
        count = re.fullmatch(r"top ([1-9]\d{0,5})", heads.strip())
        if count is None:
            raise InputError('"top 16" or a list of (layer, head) as heads', got=repr(heads), fix='write heads="top 16"')
        pairs = _sharpest(present, int(count[1]))
    else:
        pairs = _listed(calls, heads)
    requested: dict[int, tuple[Captured, list[int]]] = {}
    for captured, head in pairs:
        indices = requested.setdefault(captured.number, (captured, []))[1]
        indices.extend([head] if head not in indices else [])
    return [(captured, tuple(indices)) for captured, indices in requested.values()]


def _listed(calls: RecordedCalls, heads: Any) -> list[tuple[Captured, int]]:
    if not isinstance(heads, Sequence) or not heads or not all(isinstance(head, Sequence) and len(head) == 2 for head in heads):
        raise KindError("a list of at least one (layer, head) as heads", got=repr(heads), fix="write heads=[(5, 11)]")
    return [((view := calls[layer, head]).captured, view.head) for layer, head in heads]


def _sharpest(present: Sequence[Captured], count: int) -> list[tuple[Captured, int]]:
    """The heads with the lowest mean entropy relative to the entropy of equal weights."""
    spread = [
        (share, captured, head)
        for captured in present
        for head, share in zip(captured.heads, _spread(captured.opened()), strict=True)
    ]
    best = sorted(spread, key=lambda entry: entry[0])[:count]
    order = {id(entry): index for index, entry in enumerate(spread)}
    return [(captured, head) for _, captured, head in sorted(best, key=lambda entry: order[id(entry)])]


@torch.no_grad()
def _spread(captured: Captured) -> list[float]:
    if isinstance(captured, CapturedSummary):
        entropy = captured.summary.entropy  # (B, H, Q)
    elif isinstance(captured, CapturedMixer):
        entropy = mixer_entropy(captured)
    else:
        assert isinstance(captured, CapturedCall)
        call = replace(fresh(captured.checked_call()), dropout=0.0)
        entropy = by_head(call, gathered(call, top=1).entropy, last=1)
        entropy = entropy[:, [captured.copies.index(head) for head in captured.heads]]
    return (entropy.mean((0, 2)) / math.log(max(2, captured.keys))).nan_to_num(nan=2.0).tolist()


def estimated(requested: Sequence[tuple[Captured, tuple[int, ...]]], calls: RecordedCalls, exact: bool) -> int:
    """The estimated bytes of a page of these heads, before it is built."""
    side = map_side(requested, exact)
    whole = stays_whole(requested)
    size = sum(_page_bytes(captured.opened(), len(heads), side, whole, exact) for captured, heads in requested)
    words = sum(
        len(token.encode("utf-8", "replace")) + 4
        for sides in (calls.strings.queries, calls.strings.keys)
        if sides is not None
        for side in sides
        for token in side
    )
    words += sum(16 * lookup.ids.numel() for lookup in calls.strings.texts.lookups)  # words, pieces and their marks
    return _FIXED + size * 4 // 3 + 2 * words


def _page_bytes(captured: Captured, heads: int, side: int, whole: bool, exact: bool) -> int:
    queries, keys = captured.queries, captured.keys
    # Two maps, one byte per cell: most compress well, maps of noisy weights hardly.
    size = captured.batch * heads * (8 * queries + 4 * keys + 2 * min(side, queries) * min(side, keys) + 2000)
    if isinstance(captured, CapturedMixer) and exact:
        return size + mixer_bytes(captured, heads)
    if not isinstance(captured, CapturedCall) or not exact:
        return size + captured.batch * heads * 64 * queries
    return size + _vectors(captured, heads, 4 if whole or needs_floats(captured) else 2)


def _vectors(captured: CapturedCall, heads: int, number: int) -> int:
    """The bytes of the input for single weights: vectors, mask and bias, or the weights themselves."""
    call, queries, keys, batch = captured.call, captured.queries, captured.keys, captured.batch
    shared = min(heads, call.key.shape[-3]) if call.query.ndim >= 4 else 1
    scale = 0 if number == 4 else 4
    value = shared * keys * (call.value.shape[-1] * number + scale)
    if not computable(captured):
        return batch * (value + heads * queries * (keys * number + scale))
    query = heads * queries * (call.query.shape[-1] * number + scale)
    key = shared * keys * (call.query.shape[-1] * number + scale)
    return batch * (value + query + key) + _tables(call, queries, keys)


def _tables(call: Any, queries: int, keys: int) -> int:
    """The bytes of mask and bias if they hold a number for each query and key; masks with one run per row turn out smaller."""
    pairs = None if call.bias is None else call.bias.added_pairs()
    tensors = [leaf for leaf in [getattr(call.mask, "allowed", None), pairs] if isinstance(leaf, Tensor)]
    square = [leaf for leaf in tensors if leaf.shape[-1] == keys and leaf.ndim > 1 and leaf.shape[-2] == queries]
    return sum(leaf.numel() // 8 if leaf.dtype == torch.bool else leaf.numel() * 4 for leaf in square) + 8 * queries
