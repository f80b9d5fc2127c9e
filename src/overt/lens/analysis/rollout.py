"""Attention multiplied through all layers down to the input tokens, and the mean weights of one layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.by_block import WeightsByBlock, one_pass
from overt.lens.captured import Captured
from overt.lens.head import Index, positions
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.tokens import is_cross_attention

# _MIN_ROWS, _MAX_ROWS: bounds on the rows of the result that are multiplied by the layers at a time (a quarter of all rows).
_MIN_ROWS, _MAX_ROWS = 128, 512


@torch.no_grad()
def rollout(recording: RecordedCalls, layer: int | None = None, rows: Index = None) -> Tensor:
    """The share of each input token in each token's vector, if only attention and the residual mixed tokens.

        rollout_l = Ā_l · Ā_(l−1) · … · Ā_0        Ā = ½(A + I), A the mean of the layer's weights over its heads

    Abnar and Zuidema 2020, section 3. `layer` is the number of the last call that counts (from 0; None: all), `rows` are
    the tokens of that layer. If weights do not sum to 1 (a sink, a query that may attend to no key), the rows of A + I are
    divided by their sums, so that rows of the result sum to 1. The mean is over recorded heads only.

    Limits: it assumes that residual and attention count the same, that all values have the same norm, and that feed-forward layers and
    normalisation do the same to all tokens. It was proposed because it correlates with the effect of erasing tokens, which
    docs/reading.md measures.

    Shapes: (B, rows, n), in shares of 1. Memory holds the result, a few hundred rows of a product and a block of weights; the weights
    are recomputed for each part of the result. Raises InputError for a recording of several passes, of cross-attention, or of
    layers of different lengths.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with overt.lens.record(model) as recording:
    ...     _ = model(torch.randn(1, 5, 8))
    >>> overt.lens.rollout(recording).sum(-1).allclose(torch.ones(5))
    True
    """
    layers = _self_attention_calls(recording, layer, "rollout")
    length = layers[0].keys
    wanted = positions("row", rows, length)
    size = min(max(length // 4, _MIN_ROWS), _MAX_ROWS)
    first = WeightsByBlock(layers[-1])
    result = torch.empty(first.batch, len(wanted), length, dtype=first.call.dtype, device=first.call.query.device)
    for start in progress(range(0, len(wanted), size), "multiplying layers"):
        chosen = torch.tensor(wanted[start : start + size], device=result.device)
        part = torch.nn.functional.one_hot(chosen, length).to(result.dtype).expand(result.shape[0], -1, -1)  # (B, rows, n)
        for captured in reversed(layers):
            part = _multiplied_by_layer(part, captured)
        result[:, start : start + size] = part
    return result


@torch.no_grad()
def mean_attention(recording: RecordedCalls, layer: int | None = None, rows: Index = None) -> Tensor:
    """The mean weights of one layer over its heads: the baseline of `rollout` (Abnar and Zuidema 2020, section 4).

    `layer` is the number of the call (None: the last). Above the first layer the keys are already mixtures of tokens, so a weight on
    a position is not a weight on its token.

    Shapes: (B, rows, n). Raises InputError as `rollout` does.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> overt.lens.mean_attention(recording, rows=slice(0, 2)).shape
    torch.Size([1, 2, 5])
    """
    by_block = WeightsByBlock(_self_attention_calls(recording, layer, "mean attention")[-1])
    wanted = positions("row", rows, by_block.queries)
    if not wanted:
        return by_block.rows(0, 0).mean(1)
    if wanted != list(range(by_block.queries)):
        return torch.cat([by_block.rows(row, row + 1).mean(1) for row in wanted], dim=1)
    return torch.cat([weights.mean(1) for _, _, weights in by_block.blocks()], dim=1)


def _multiplied_by_layer(part: Tensor, captured: Captured) -> Tensor:
    """Multiply rows (B, rows, n) of a product from the right by ½(A + I) of one more layer."""
    result = torch.zeros_like(part, memory_format=torch.contiguous_format)
    for first, stop, weights in WeightsByBlock(captured).blocks():
        mean = weights.mean(1)  # (B, block, n)
        shares = part[..., first:stop] / (mean.sum(-1) + 1)[:, None]  # (B, rows, block)
        result += shares @ mean
        result[..., first:stop] += shares
    return result


def _self_attention_calls(recording: RecordedCalls, layer: int | None, what: str) -> Sequence[Captured]:
    """The calls up to number `layer`. Raises InputError unless all are self-attention over one sequence."""
    calls = one_pass(recording, what)
    lengths = {(captured.queries, captured.keys, captured.batch) for captured in calls}
    other = [captured for captured in calls if is_cross_attention(captured) or captured.queries != captured.keys]
    if len(lengths) > 1 or other:
        shapes = ", ".join(f"{captured.layer} {captured.queries} × {captured.keys}" for captured in calls)
        raise InputError(
            f"layers of self-attention over one sequence, for {what}",
            got=shapes,
            fix="record one stack of layers alone, with record(model.encoder) or record(model, layers=[…])",
        )
    if layer is None:
        return calls
    numbers = [recording.number_of(captured) for captured in calls]
    if layer not in numbers:
        there = ", ".join(map(str, numbers))
        raise InputError(f"one of the recorded calls, {there}", got=f"layer {layer}", fix="choose one of them")
    return calls[: numbers.index(layer) + 1]
