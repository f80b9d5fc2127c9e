"""Weights times the length of what they weigh: how much each token adds to a layer's output."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.analysis.by_block import BLOCK, WeightsByBlock
from overt.lens.captured import Captured
from overt.lens.head import Head, Rows, places
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.output_norms import output_matrix, output_norms


def norm_weights(recording: RecordedCalls, model: nn.Module) -> "NormWeights":
    """The length of what each key adds to each query's output, ‖α_ij f(x_j)‖ with f(x) = (x W_V + b_V) W_O.

    Kobayashi et al. 2020, section 3: attention adds vectors α_ij f(x_j), and a large weight on a short vector adds little. `model` is the
    one that was recorded: a recording holds the values x W_V + b_V and no parameters, so W_O is looked for in the model.

    `found[layer, head]` is one head, with `weights(rows, keys)`, `lengths()` and `received()`; `found.layer(layer, rows)` takes all
    heads together, ‖Σ_h α_ij^h f^h(x_j)‖, where heads that pull apart cancel. `layer` is a number or a module's name.

    What it leaves out: the residual, normalisation, the bias of W_O, and that long vectors may point where nobody reads.

    Raises InputError where no output matrix is known for sure, or the recording kept summaries.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> found = overt.lens.norm_weights(recording, attention)
    >>> found[0, 1].weights(rows=2).shape, found.layer(0).shape
    (torch.Size([1, 1, 5]), torch.Size([1, 5, 5]))
    """
    return NormWeights(recording, model)


@dataclass(frozen=True, eq=False)
class NormHead:
    """One head's weights in lengths: those of the model's own vectors."""

    head: Head
    model: nn.Module

    @property
    def _lengths(self) -> Tensor:
        found = output_norms(self.head, self.model)
        if found.norms is None:
            raise _unknown(found.why)
        return found.norms

    def lengths(self) -> Tensor:
        """‖f(x_j)‖ of each key: (B, K)."""
        return self._lengths

    def weights(self, rows: Rows = None, keys: Rows = None) -> Tensor:
        """‖α_ij f(x_j)‖, any block: (B, rows, keys)."""
        lengths = self._lengths if keys is None else self._lengths[:, places("key", keys, self.head.keys)]
        return self.head.weights(rows, keys).abs() * lengths[:, None]

    def received(self) -> Tensor:
        """The mean over the queries of what each key adds to them: (B, K); streamed, for weights that are not negative."""
        return self.head.received() * self._lengths


@dataclass(frozen=True, eq=False)
class NormWeights:
    """A recording with every weight times the length of what it weighs; see `norm_weights`."""

    recording: RecordedCalls
    model: nn.Module

    def __getitem__(self, place: tuple[int | str, int]) -> NormHead:
        """One head: `found[layer, head]`."""
        return NormHead(self.recording[place], self.model)

    @torch.no_grad()
    def layer(self, layer: int | str, rows: Rows = None) -> Tensor:
        """‖Σ_h α_ij^h f^h(x_j)‖, all recorded heads of a call as one vector: (B, rows, K)."""
        captured = self._captured(layer)
        weighed, products = WeightsByBlock(captured), self._products(captured)
        wanted = places("row", rows, weighed.queries)
        size = max(1, BLOCK // max(1, math.prod(weighed.call.batch) * weighed.keys))
        found = torch.empty(weighed.batch, len(wanted), weighed.keys, dtype=weighed.call.dtype, device=products.device)
        for start in range(0, len(wanted), size):
            own = wanted[start : start + size]
            run = own == list(range(own[0], own[-1] + 1))
            parts = [weighed.rows(own[0], own[-1] + 1)] if run else [weighed.rows(row, row + 1) for row in own]
            weights = torch.cat(parts, dim=2).double()  # (B, H, rows, K)
            summed = weights * torch.einsum("bkhg,bgqk->bhqk", products, weights)
            found[:, start : start + size] = summed.sum(1).clamp(min=0).sqrt()
        return found

    def _products(self, captured: Captured) -> Tensor:
        """f^h(x_j) · f^g(x_j), from which the length of any weighted sum over heads follows: (B, K, H, H).

        In float64, since vectors that cancel leave a small difference of large squares.
        """
        values = torch.stack([Head(captured.opened(), head).value for head in captured.heads], dim=1).double()  # (B, H, K, E)
        matrix = output_matrix(self.model, captured.layer, captured.total, values.shape[-1])
        if isinstance(matrix, str):
            raise _unknown(matrix)
        own = matrix[:, list(captured.heads)].double()  # (width, H, E)
        both = torch.einsum("whd,wge->hgde", own, own)  # (H, H, E, E)
        halves = (torch.einsum("bkd,gde->bgke", value, turned) for value, turned in zip(values.unbind(1), both, strict=True))
        return torch.stack([torch.einsum("bgke,bgke->bkg", half, values) for half in halves], dim=2)

    def _captured(self, layer: int | str) -> Captured:
        calls = self.recording
        return calls.call_named(layer) if isinstance(layer, str) else calls.call_numbered(layer)


def _unknown(why: str) -> InputError:
    return InputError(
        "norm-based weights need the values and the matrix that reads the heads",
        got=why,
        fix='record a layer of a known kind with keep="qkv", or look at the plain weights',
    )
