"""Attention followed through all layers down to the tokens, and one layer's weights beside it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from overt.errors import InputError
from overt.lens.analysis.by_block import WeightsByBlock, one_pass
from overt.lens.captured import Captured
from overt.lens.head import Rows, places
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.tokens import between

# Rows of the result that are carried through the layers at once: a quarter of it, within these bounds.
_FEWEST, _MOST = 128, 512


@torch.no_grad()
def rollout(recording: RecordedCalls, layer: int | None = None, rows: Rows = None) -> Tensor:
    """How much of each token's vector comes from each token of the input, if attention and the residual were all that mixed them.

        rollout_l = Ā_l · Ā_(l−1) · … · Ā_0        Ā = ½(A + I), A the mean of the layer's weights over its heads

    Abnar and Zuidema 2020, section 3. `layer` is the number of the last call that counts (from 0; None: all), `rows` the tokens
    of that layer that are asked for. Where weights do not sum to 1 (a sink, a query that may attend to nothing), the rows of A + I
    are divided by their own sums, so rows of the result sum to 1. Only recorded heads are in the mean.

    What it leaves out: it takes residual and attention to weigh the same, every value to be as long as every other, and what feed-forward
    layers and normalisation do to be the same for all tokens. It was proposed for its correlation with the effect of erasing
    tokens, which docs/reading.md measures.

    Shapes: (B, rows, n), in shares of 1. Beside the result, a few hundred rows of it and a block of weights are held; each
    such part computes the weights again. Raises InputError for a recording of several passes or of more than one sequence.

    >>> import torch, overt
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    >>> with overt.lens.record(model) as recording:
    ...     _ = model(torch.randn(1, 5, 8))
    >>> overt.lens.rollout(recording).sum(-1).allclose(torch.ones(5))
    True
    """
    layers = _tower(recording, layer, "rollout")
    length = layers[0].keys
    wanted = places("row", rows, length)
    size = min(max(length // 4, _FEWEST), _MOST)
    first = WeightsByBlock(layers[-1])
    found = torch.empty(first.batch, len(wanted), length, dtype=first.call.dtype, device=first.call.query.device)
    for start in range(0, len(wanted), size):
        own = torch.tensor(wanted[start : start + size], device=found.device)
        part = torch.nn.functional.one_hot(own, length).to(found.dtype).expand(found.shape[0], -1, -1)  # (B, rows, n)
        for captured in reversed(layers):
            part = _back(part, captured)
        found[:, start : start + size] = part
    return found


@torch.no_grad()
def mean_attention(recording: RecordedCalls, layer: int | None = None, rows: Rows = None) -> Tensor:
    """The weights of one layer, the mean over its heads: what `rollout` is compared with (Abnar and Zuidema 2020, section 4).

    `layer` is the number of the call (None: the last). Above the first layer, the vectors that are attended to are mixtures
    already, so a weight on a place is no weight on its token.

    Shapes: (B, rows, n). Raises InputError as `rollout` does.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> overt.lens.mean_attention(recording, rows=slice(0, 2)).shape
    torch.Size([1, 2, 5])
    """
    weighed = WeightsByBlock(_tower(recording, layer, "raw attention")[-1])
    wanted = places("row", rows, weighed.queries)
    if not wanted:
        return weighed.rows(0, 0).mean(1)
    if wanted != list(range(weighed.queries)):
        return torch.cat([weighed.rows(row, row + 1).mean(1) for row in wanted], dim=1)
    return torch.cat([weights.mean(1) for _, _, weights in weighed.blocks()], dim=1)


def _back(part: Tensor, captured: Captured) -> Tensor:
    """Rows of a product (B, rows, n), multiplied by one more layer's ½(A + I) from the right."""
    found = torch.zeros_like(part, memory_format=torch.contiguous_format)
    for first, stop, mean in _means(captured):  # (B, block, n)
        shares = part[..., first:stop] / (mean.sum(-1) + 1)[:, None]  # (B, rows, block)
        found += shares @ mean
        found[..., first:stop] += shares
    return found


def _means(captured: Captured) -> Iterator[tuple[int, int, Tensor]]:
    for first, stop, weights in WeightsByBlock(captured).blocks():
        yield first, stop, weights.mean(1)


def _tower(recording: RecordedCalls, layer: int | None, what: str) -> list[Captured]:
    """The calls from the first to the one of this number, if all are self-attention over one sequence."""
    calls = one_pass(recording, what)
    lengths = {(captured.queries, captured.keys, captured.batch) for captured in calls}
    other = [captured for captured in calls if between(captured) or captured.queries != captured.keys]
    if len(lengths) > 1 or other:
        shapes = ", ".join(f"{captured.layer} {captured.queries} × {captured.keys}" for captured in calls)
        raise InputError(
            f"{what} follows one sequence through layers of self-attention",
            got=shapes,
            fix="record one tower of the model alone, by record(model.encoder) or record(model, layers=[…])",
        )
    if layer is None:
        return calls
    numbers = [recording.number_of(captured) for captured in calls]
    if layer not in numbers:
        there = ", ".join(map(str, numbers))
        raise InputError(f"this recording holds the calls {there}", got=f"layer {layer}", fix="name one of them")
    return calls[: numbers.index(layer) + 1]
