"""Weights times the norm of the vector that they weight: the amount that each token adds to a layer's output."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.by_block import BLOCK, WeightsByBlock
from overt.lens.capture.recordable import required_model
from overt.lens.captured import Captured
from overt.lens.head import Head, Index, positions
from overt.lens.linear.captured import CapturedMixer
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.output_norms import output_matrix, output_norms


def norm_weights(recording: RecordedCalls, model: nn.Module) -> "NormWeights":
    """The norm of the vector that each key adds to each query's output, ‖α_ij f(x_j)‖ with f(x) = (x W_V + b_V) W_O.

    Kobayashi et al. 2020, section 3: attention adds vectors α_ij f(x_j), and a large weight on a short vector adds little. `model` is the
    recorded model: a recording has the values x W_V + b_V but no parameters, so W_O is read from the model.

    `norms[layer, head]` is one head, with `weights(rows, keys)`, `lengths()` and `received()`. `norms.layer(layer, rows)` takes all
    heads together, ‖Σ_h α_ij^h f^h(x_j)‖, where opposite vectors cancel. `layer` is a number or a module's name.

    Limits: the residual, normalisation and the bias of W_O do not count, nor whether later layers read the direction of a long vector.

    Raises InputError if no output matrix is certain or the recording has summaries, KindError without the model.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> norms = overt.lens.norm_weights(recording, attention)
    >>> norms[0, 1].weights(rows=2).shape, norms.layer(0).shape
    (torch.Size([1, 1, 5]), torch.Size([1, 5, 5]))
    """
    return NormWeights(recording, required_model(model))


@dataclass(frozen=True, eq=False)
class NormHead:
    """The weights of one head times the norms of its vectors."""

    head: Head
    model: nn.Module

    def __repr__(self) -> str:
        return f"<norms of head {self.head.head} of {self.head.layer}>"

    def lengths(self) -> Tensor:
        """The norm ‖f(x_j)‖ of each key's vector: (B, K)."""
        norms, reason = output_norms(self.head, self.model)
        if norms is None:
            raise _unknown(reason, mixer=isinstance(self.head.captured, CapturedMixer))
        return norms

    def weights(self, rows: Index = None, keys: Index = None) -> Tensor:
        """The norms ‖α_ij f(x_j)‖ of any block: (B, rows, keys)."""
        lengths = self.lengths() if keys is None else self.lengths()[:, self.head.keys_of(keys)]
        return self.head.weights(rows, keys).abs() * lengths[:, None]

    def received(self) -> Tensor:
        """The mean norm that each key adds to the queries: (B, K); for weights that are not negative."""
        return self.head.received() * self.lengths()


@dataclass(frozen=True, eq=False)
class NormWeights:
    """A recording whose weights are multiplied by the norms of their vectors; see `norm_weights`."""

    recording: RecordedCalls
    model: nn.Module

    def __repr__(self) -> str:
        count = len(self.recording)
        return f"<norms of {count} {'call' if count == 1 else 'calls'} of {type(self.model).__name__}>"

    def __getitem__(self, layer_and_head: tuple[int | str, int]) -> NormHead:
        """One head: `norms[layer, head]`."""
        return NormHead(self.recording[layer_and_head], self.model)

    @torch.no_grad()
    def layer(self, layer: int | str, rows: Index = None) -> Tensor:
        """The norms ‖Σ_h α_ij^h f^h(x_j)‖, all recorded heads of a call as one vector: (B, rows, K)."""
        captured = self.recording.call_of(layer)
        by_block, products = WeightsByBlock(captured), self._products(captured)
        wanted = positions("row", rows, by_block.queries)
        size = max(1, BLOCK // max(1, math.prod(by_block.call.batch) * by_block.keys))
        norms = torch.empty(by_block.batch, len(wanted), by_block.keys, dtype=by_block.call.dtype, device=products.device)
        for start in progress(range(0, len(wanted), size), "measuring norms"):
            weights = by_block.some_rows(wanted[start : start + size]).double()  # (B, H, rows, K)
            squares = weights * torch.einsum("bkhg,bgqk->bhqk", products, weights)
            norms[:, start : start + size] = squares.sum(1).clamp(min=0).sqrt()
        return norms

    def _products(self, captured: Captured) -> Tensor:
        """The products f^h(x_j) · f^g(x_j), which give the norm of any weighted sum over heads: (B, K, H, H).

        In float64, because vectors that cancel leave a small difference of large squares.
        """
        values = torch.stack([Head(captured.opened(), head).value for head in captured.heads], dim=1).double()  # (B, H, K, E)
        matrix = output_matrix(self.model, captured.layer, captured.total, values.shape[-1])
        if isinstance(matrix, str):
            raise _unknown(matrix)
        matrix = matrix[:, list(captured.heads)].double().to(values.device)  # (width, H, E)
        products = torch.einsum("whd,wge->hgde", matrix, matrix)  # (H, H, E, E)
        halves = (torch.einsum("bkd,gde->bgke", *pair) for pair in zip(values.unbind(1), products, strict=True))
        return torch.stack([torch.einsum("bgke,bgke->bkg", half, values) for half in halves], dim=2)


def _unknown(reason: str, mixer: bool = False) -> InputError:
    mixer_fix = "overt.lens.contributions(recording, model, target=…) follows the gate and the norm after a mixer"
    return InputError(
        "a layer with values and a known output matrix, for norm-based weights",
        got=reason,
        fix=mixer_fix if mixer else 'record a layer of a known kind with keep="qkv", or use the plain weights',
    )
