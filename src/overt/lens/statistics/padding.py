"""Which queries are tokens of the text: rows of padding are left out where a head is described by a mean over its queries."""

import math

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.masks import Ranges
from overt.lens.capture.ranges import MaskReader, in_ranges
from overt.lens.captured import MASKED_GAP, Captured, CapturedCall, by_head, head_count
from overt.lens.tokens import Tokens

_AT_ONCE = 2**22  # numbers of a mask that are looked at together


def text_queries(captured: Captured, tokens: Tokens, masks: MaskReader | None = None) -> Tensor:
    """Whether each query is a token of the text, (1 or B, Q): not padding, by its token or by the mask.

    In self-attention over one sequence a query is padding too whose key no query may attend to; so it is known without a tokenizer.
    """
    words = tokens.query_words(captured) or [[""] * captured.queries]
    in_text = torch.tensor(
        [[not getattr(token, "padding", False) for token in sentence] for sentence in words], dtype=torch.bool
    )
    if not isinstance(captured, CapturedCall):
        output = getattr(captured, "output", None)
        return in_text if output is None else in_text.to(output.device)
    in_text = in_text.to(captured.output.device)
    # Queries that continue a cache, or one with unused slots, are not the positions of their keys.
    if captured.queries != captured.keys or not captured.queries or not tokens.one_sequence(captured):
        return in_text
    return in_text & attended_keys(captured.checked_call(), MaskReader() if masks is None else masks)


def attended_keys(call: Call, masks: MaskReader) -> Tensor:
    """Which keys any query of any head may attend to: (1 or B, K)."""
    device = call.query.device
    if call.mask is None and call.bias is None:
        return torch.ones(1, call.keys, dtype=torch.bool, device=device)
    if masks_nothing(call.bias) and (ranges := in_ranges(call.mask, call.queries, call.keys, device, masks.read)) is not None:
        return _in_any_range(without_uniform_rows(ranges, call.bias), call)
    keys = torch.arange(call.keys, device=device)
    attended = torch.zeros(1, call.keys, dtype=torch.bool, device=device)
    together = max(_AT_ONCE // max(math.prod(call.batch) * call.keys, 1), 1)
    for rows in torch.arange(call.queries, device=device).split(together):
        attended = attended | by_head(call, _allowed(call, rows, keys).any(-2), last=1).any(1)
    return attended


def masks_nothing(bias: Bias | None) -> bool:
    """Whether a bias masks no key: a tensor may hold −inf or its dtype's lowest number, which does."""
    if bias is None or bias.by_distance:
        return True
    pairs = bias.added_pairs()
    if pairs is None:
        return False
    if not pairs.numel() or pairs.shape[-1] == 1:
        return True
    low, high = torch.aminmax(pairs.detach())
    return bool(high - low < MASKED_GAP / 2)


def without_uniform_rows(ranges: Ranges, bias: Bias | None) -> Ranges:
    """The ranges, empty for rows to which the bias adds so large a number that rounding makes all of their scores equal."""
    pairs = None if bias is None else bias.added_pairs()
    if pairs is None or pairs.shape[-1] != 1:
        return ranges
    uniform = (pairs - MASKED_GAP == pairs)[..., 0]  # (..., Q or 1)
    return Ranges(*(torch.where(uniform, 0, edge) for edge in (ranges.low, ranges.high)))


def unmasked(scores: Tensor, largest: Tensor) -> Tensor:
    """Which scores of rows, with these largest ones, no mask has lowered."""
    return scores > (largest - MASKED_GAP).nan_to_num(-torch.inf, torch.inf, -torch.inf)


def uniform_rows(largest: Tensor) -> Tensor:
    """Rows whose largest score is so low that rounding makes all of their scores equal: those of a mask that leaves no key."""
    return (largest < 0) & largest.isfinite() & (largest - MASKED_GAP == largest)


def _allowed(call: Call, rows: Tensor, keys: Tensor) -> Tensor:
    """Which keys these rows may attend to, by mask and bias: broadcastable to (..., rows, K)."""
    allowed = torch.ones(len(rows), len(keys), dtype=torch.bool, device=keys.device)
    if call.mask is not None:
        allowed = allowed & call.mask.block(rows, keys)
    if call.bias is not None:
        added = call.bias.block(rows, keys).detach().float()
        largest = added.amax(-1, keepdim=True)
        allowed = allowed & unmasked(added, largest) & ~uniform_rows(largest)
    return allowed


def _in_any_range(ranges: Ranges, call: Call) -> Tensor:
    """Which keys are in a row's range: (B, K)."""
    low, high = (
        edge.long().expand(*call.batch, call.queries).reshape(-1, head_count(call) * call.queries)
        for edge in (ranges.low, ranges.high)
    )
    some = (high > low).long()
    edges = torch.zeros(low.shape[0], call.keys + 1, dtype=torch.long, device=low.device)
    return edges.scatter_add_(1, low, some).scatter_add_(1, high, -some).cumsum(1)[:, :-1] > 0
