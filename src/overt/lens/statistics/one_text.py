"""One text of a recorded call without the padding of its batch, for maps, arcs and means."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.biases import Bias, TensorBias
from overt.attention.kernels.call import Call
from overt.attention.masks import Dense, Mask, Ranges
from overt.attention.masks.base import mask_of_block
from overt.errors import InputError
from overt.lens.capture.ranges import MaskReader, in_ranges
from overt.lens.captured import Captured, CapturedCall, select_entries, sliceable
from overt.lens.statistics.padding import attended_keys, text_queries
from overt.lens.tokens import Tokens


class OneText(NamedTuple):
    """A call of only one text, its tokens, and the positions of its queries and keys in the padded call."""

    captured: CapturedCall
    tokens: Tokens
    rows: range
    keys: range


def unpadded_text(captured: Captured, tokens: Tokens, entry: int) -> OneText:
    """One text of a call without padding; the call must have query, key and a batch.

    Raises InputError for an entry that does not exist, and for a call without these parts.
    """
    if not 0 <= entry < captured.batch:
        there = f"0 to {captured.batch - 1}"
        raise InputError(f"a recorded sequence, {there}", got=f"sequence={entry}", fix="choose one of them")
    if not isinstance(captured, CapturedCall) or not _separable(captured.call):
        raise InputError(
            f"a call of {captured.layer} whose texts can be separated",
            got=f"{type(captured).__name__}, whose weights belong to the whole batch",
            fix="record one text, with its query and key",
        )
    spans = _spans(captured, captured.checked_call(), tokens)
    whole = range(captured.queries), range(captured.keys)
    return _one_text(captured, captured.call, tokens, entry, *(spans[entry] if spans else whole))


def unpadded_texts(captured: Captured, tokens: Tokens) -> list[OneText] | None:
    """Each text of a call without padding; None if there is no padding, or if it cannot be removed.

    Padding is removed if it is at the ends of a text and no query of any head may attend to it, so the weights stay the same.
    Summaries and linear mixers stay unchanged.
    """
    if not isinstance(captured, CapturedCall) or not _separable(captured.call):
        return None
    call = captured.checked_call()
    spans = _spans(captured, call, tokens)
    if spans is None or all((len(rows), len(keys)) == (captured.queries, captured.keys) for rows, keys in spans):
        return None
    return [_one_text(captured, call, tokens, entry, *span) for entry, span in enumerate(spans)]


def _separable(call: Call) -> bool:
    return call.query.ndim in (3, 4) and len(call.batch) == call.query.ndim - 2 and sliceable(call)


def _spans(captured: CapturedCall, call: Call, tokens: Tokens) -> list[tuple[range, range]] | None:
    """The queries and keys of each text, from the first to the last that is not padding; None if a text has none."""
    reader = MaskReader()
    in_text = text_queries(captured, tokens, reader).expand(captured.batch, -1)
    attended = attended_keys(call, reader).expand(captured.batch, -1)
    if not bool(in_text.any(-1).all() and attended.any(-1).all()):
        return None
    if captured.queries == captured.keys and tokens.one_sequence(captured):
        attended = in_text = attended | in_text
    return list(zip(map(_span, in_text), map(_span, attended), strict=True))


def _span(present: Tensor) -> range:
    positions = present.nonzero()
    return range(int(positions[0]), int(positions[-1]) + 1)


def _one_text(captured: CapturedCall, call: Call, tokens: Tokens, entry: int, rows: range, keys: range) -> OneText:
    after = call.query.ndim - 1  # dimensions after the batch dimension
    lengths = slice(rows.start, rows.stop), slice(keys.start, keys.stop)

    def part(tensor: Tensor, positions: slice) -> Tensor:
        return select_entries(tensor, [entry], after)[..., positions, :]

    one = replace(
        call,
        query=part(call.query, lengths[0]),
        key=part(call.key, lengths[1]),
        value=part(call.value, lengths[1]),
        mask=None if call.mask is None else _mask(call, entry, *lengths),
        bias=None if call.bias is None else _bias(call.bias, entry, after, *lengths),
        batch=(1, *call.batch[1:]),
    )
    strings = _tokens(captured, tokens, entry, *lengths)
    facts = {"batch": 1, "queries": len(rows), "keys": len(keys), "versions": ()}
    return OneText(replace(captured, call=one, output=part(captured.output, lengths[0]), **facts), strings, rows, keys)


def _mask(call: Call, entry: int, rows: slice, keys: slice) -> Mask | None:
    device, after = call.query.device, call.query.ndim - 1
    ranges = in_ranges(call.mask, call.queries, call.keys, device)
    if ranges is not None:
        edges = (select_entries(edge, [entry], after - 1) for edge in (ranges.low, ranges.high))
        row_edges = (edge if edge.shape[-1] == 1 else edge[..., rows] for edge in edges)
        low, high = ((edge - keys.start).clamp(0, keys.stop - keys.start) for edge in row_edges)
        return None if bool((low == 0).all() and (high == keys.stop - keys.start).all()) else Ranges(low, high)
    positions = (torch.arange(size.stop - size.start, device=device) for size in (rows, keys))
    block = mask_of_block(call.mask, rows, keys, (call.queries, call.keys)).block(*positions)
    return Dense(select_entries(block, [entry], after))


def _bias(bias: Bias, entry: int, after: int, rows: slice, keys: slice) -> Bias:
    pairs = bias.added_pairs()
    if pairs is not None:
        return TensorBias(select_entries(pairs, [entry], after)).of_block(rows, keys)
    part = bias.of_block(rows, keys)
    if len(bias.leading) < after - 1:
        return part  # the same for all texts
    positions = (torch.arange(size.stop - size.start, device=bias.source.device) for size in (rows, keys))
    return TensorBias(select_entries(part.block(*positions), [entry], after))


def _tokens(captured: CapturedCall, tokens: Tokens, entry: int, rows: slice, keys: slice) -> Tokens:
    """The strings of one text; no strings if the recording's do not fit this call."""
    if not tokens.fit(captured):
        return Tokens()
    sides = []
    for words, positions in ((tokens.query_words(captured), rows), (tokens.key_words(captured), keys)):
        assert words is not None
        sides.append([words[entry if len(words) > 1 else 0][positions]])
    return Tokens(*sides)
