"""Which queries are tokens of the text: a mean over a head's queries excludes rows of padding."""

import math

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.masks import Ranges
from overt.lens.capture.ranges import MaskReader, in_ranges
from overt.lens.captured import MASKED_GAP, Captured, CapturedCall, by_head, head_count
from overt.lens.tokens import Tokens

_AT_ONCE = 2**22  # numbers of a mask that are read together, which bounds the memory


def text_queries(captured: Captured, tokens: Tokens, masks: MaskReader | None = None) -> Tensor:
    """Whether each query is a token of the text, (1 or B, Q): not padding, by its token or by the mask.

    In self-attention over one sequence a query is also padding if no query may attend to its key, so no tokenizer is needed.
    """
    words = tokens.query_words(captured) or [[""] * captured.queries]
    in_text = torch.tensor(
        [[not getattr(token, "padding", False) for token in sentence] for sentence in words], dtype=torch.bool
    )
    if not isinstance(captured, CapturedCall):
        output = getattr(captured, "output", None)
        return in_text if output is None else in_text.to(output.device)
    in_text = in_text.to(captured.output.device)
    # The queries of a call with a cache, or with unused slots, do not have the positions of its keys.
    if captured.queries != captured.keys or not captured.queries or not tokens.one_sequence(captured):
        return in_text
    return in_text & attended_keys(captured.checked_call(), MaskReader() if masks is None else masks)


def attended_keys(call: Call, masks: MaskReader) -> Tensor:
    """The keys that any query of any head may attend to: (1 or B, K)."""
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
    """Whether a bias masks no key; a tensor with −inf or its dtype's lowest number masks keys."""
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
    """The ranges, empty for rows whose scores all become equal because the bias swamps them in rounding."""
    pairs = None if bias is None else bias.added_pairs()
    if pairs is None or pairs.shape[-1] != 1:
        return ranges
    uniform = (pairs - MASKED_GAP == pairs)[..., 0]  # (..., Q or 1)
    return Ranges(*(torch.where(uniform, 0, edge) for edge in (ranges.low, ranges.high)))


def unmasked(scores: Tensor, largest: Tensor) -> Tensor:
    """The scores that no mask has lowered, compared with the `largest` score of their row."""
    return scores > (largest - MASKED_GAP).nan_to_num(-torch.inf, torch.inf, -torch.inf)


def uniform_rows(largest: Tensor) -> Tensor:
    """Rows whose mask leaves no key: their largest score is so low that rounding makes all of their scores equal."""
    return (largest < 0) & largest.isfinite() & (largest - MASKED_GAP == largest)


def _allowed(call: Call, rows: Tensor, keys: Tensor) -> Tensor:
    """The keys that these rows may attend to, by mask and bias: broadcastable to (..., rows, K)."""
    allowed = torch.ones(len(rows), len(keys), dtype=torch.bool, device=keys.device)
    if call.mask is not None:
        allowed = allowed & call.mask.block(rows, keys)
    if call.bias is not None:
        added = call.bias.block(rows, keys).detach().float()
        largest = added.amax(-1, keepdim=True)
        allowed = allowed & unmasked(added, largest) & ~uniform_rows(largest)
    return allowed


def _in_any_range(ranges: Ranges, call: Call) -> Tensor:
    """The keys that are in any row's range: (B, K)."""
    low, high = (
        edge.long().expand(*call.batch, call.queries).reshape(-1, head_count(call) * call.queries)
        for edge in (ranges.low, ranges.high)
    )
    some = (high > low).long()
    edges = torch.zeros(low.shape[0], call.keys + 1, dtype=torch.long, device=low.device)
    return edges.scatter_add_(1, low, some).scatter_add_(1, high, -some).cumsum(1)[:, :-1] > 0
