"""Weights that a model writes out, on their way to the values, and the resulting call of attention."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.kernels.blocked import query_block, query_rows, widened
from overt.attention.kernels.call import Call, unrounded
from overt.attention.mechanism import formula
from overt.attention.normalizers import Normalizer
from overt.attention.pieces import piece
from overt.errors import OvertError
from overt.lens.capture.ranges import MaskReader
from overt.lens.capture.token_axes.factors import (
    RESHAPES,
    Axes,
    Factor,
    indexed,
    marked_dims,
    reshaped,
    swapped,
    swaps,
    unmarked,
)
from overt.lens.capture.written_out.products import CallArguments
from overt.lens.capture.written_out.scored import SAME, SHAPED, Scores

WEIGHTS_RECORDED = "query and key are unknown here, so the model's own weights are recorded"
KEYS = "keys"
PART_OF_ROW = "these are the weights of"  # the beginning of a note on a part of a row's weights
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@piece
class ExpOfLogWeights(Normalizer):
    """A normalizer that turns logarithms of weights, which are recorded as a bias, into the weights.

    >>> ExpOfLogWeights()(torch.tensor([[0.25, 0.75]]).log(), torch.ones(1, 2, dtype=torch.bool))
    tensor([[0.2500, 0.7500]])
    """

    def __call__(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """exp(log w)."""
        return torch.exp(scores)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights on their way to the values: their axes, the number of keys of a whole row, and the scores behind them.

    `leading` are the dimensions before queries and keys at the weights' origin. `made_by` names the functions that made them from
    scores. `by_hand` marks exponentials that the model must still divide by their sum, `by_edge` weights divided by the sum of their
    row, one per edge. `owner` is the module that made the weights.
    """

    axes: Axes | None
    total: int
    leading: tuple[int, ...]
    scores: Scores | None
    undropped: Tensor | None = None
    dropout: float = 0.0
    by_hand: bool = False
    made_by: tuple[str, ...] = ("softmax",)
    by_edge: bool = False
    owner: nn.Module | None = None

    @classmethod
    def along(cls, output: Tensor, dim: int, scores: Scores | None, **more: Any) -> "Weights":
        """New weights with their keys along one dimension."""
        axes = list(unmarked(output.shape))
        axes[dim] = (Factor(output.shape[dim], KEYS),)
        return cls(tuple(axes), output.shape[dim], tuple(output.shape[:-2]), scores, **more)

    def dims(self, tensor: Tensor) -> list[int]:
        """The dimensions of the tensor that may count the keys; several only if there is a single key."""
        if self.axes is None:
            return []
        if self.total == 1:
            return [dim for dim in reversed(range(tensor.ndim)) if tensor.shape[dim] == 1]
        dims = marked_dims(self.axes)
        return dims if len(dims) == 1 and len(self.axes[dims[0]]) == 1 else []

    def part(self, tensor: Tensor, dim: int) -> str | None:
        """A note on which keys of a row these are; None for all keys."""
        size = tensor.shape[dim]
        if size == self.total or self.axes is None:
            return None
        [factor] = self.axes[dim]
        which = f"{size} keys" if factor.shift is None else f"keys {factor.shift} to {factor.shift + size - 1}"
        return f"{PART_OF_ROW} {which} of a {self.made_by[0]} over {self.total}: the others have other values, or none"

    def after(
        self, name: str, func: Callable[..., Any], call: CallArguments, before: Tensor, output: Tensor
    ) -> "Weights | None":
        """The weights after one more function, called with (args, kwargs); None if the result is not weights."""
        args, kwargs = call
        if name == "dropout":
            rate, active = _dropout(args, kwargs)
            return replace(self, undropped=before, dropout=rate) if active and rate > 0 else self
        if self.undropped is not None and name not in SAME | SHAPED:
            return replace(self, axes=None)
        if self.axes is None:
            return self
        if swaps(name, func):
            return replace(self, axes=swapped(self.axes, func, args, kwargs))
        if name in RESHAPES:
            return replace(self, axes=reshaped(self.axes, output.shape))
        if name in ("__getitem__", "narrow"):
            start, length = (*args[2:], None, None)[:2] if name == "narrow" else (None, None)
            index = args[1] if name == "__getitem__" else _narrowed(before.ndim, args[1], start, length)
            taken = indexed(self.axes, index, output.shape)
            lost = taken is None or (self.total > 1 and not marked_dims(taken.axes))
            return None if lost or taken is None else replace(self, axes=taken.axes)
        if output.shape[-2:] != before.shape[-2:]:
            return None
        made_by = (*self.made_by, name) if self.made_by[0] != "softmax" and name in NONLINEAR else self.made_by
        if output.shape == before.shape:
            return replace(self, made_by=made_by)
        # Dimensions before queries and keys were summed, as in a mean over heads.
        return replace(self, axes=(*unmarked(output.shape[:-2]), *self.axes[-2:]), made_by=made_by)


# NONLINEAR: functions other than a softmax that turn scores into weights.
NONLINEAR = {"sigmoid", "relu", "relu6", "hardsigmoid", "square", "pow", "silu", "gelu", "softplus", "elu", "leaky_relu"}
NONLINEAR |= {
    "clamp",
    "clamp_min",
    "threshold",
    "tanh",
    "abs",
    "where",
    "log_sigmoid",
    "logsigmoid",
    "__pow__",
    "masked_fill",
    "div",
}


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """Weights (..., Q, K) times values (..., K, E), the output (..., Q, E), and the scores behind the weights.

    `notes` are for a reader of the weights; `parts` describes the batch entries if they are parts of one input.
    """

    weights: Tensor
    value: Tensor
    output: Tensor
    dropout: float
    scores: Scores | None
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    owner: None = None

    def call(self, masks: MaskReader) -> tuple[Call, bool] | None:
        """The call, and whether it has query and key; None if it is not attention."""
        if self.scores is not None and self.scores.zeroed is None:
            try:
                call = self.scores.call(self.weights, self.value, masks)
            except (OvertError, RuntimeError):  # shapes that do not fit mean other scores
                call = None
            if call is not None and agrees(call, self.weights):
                return call, True
        return None if bool((self.weights < 0).any()) else (self.from_weights(), False)

    def from_weights(self) -> Call:
        """The call with the weights themselves, as logarithms, instead of query and key."""
        weights = self.weights.detach().to(torch.promote_types(self.weights.dtype, torch.float32))
        return call_of_weights(weights.shape, self.value, weights.nan_to_num(nan=0.0).log())


def call_of_weights(shape: torch.Size, value: Tensor, logs: Any) -> Call:
    """The call with the logarithms of its weights instead of query and key; `shape` is (..., Q, any)."""
    query, key = (value.new_zeros(*sizes[:-1], 0) for sizes in (shape, value.shape))
    return Call.checked(query, key, value, bias=logs, normalizer=ExpOfLogWeights())


def agrees(call: Call, weights: Tensor) -> bool:
    """Whether a call gives these weights (..., Q, K) in its first, middle and last rows."""
    return disagreement(call, weights) <= max(TOLERANCE[dtype] for dtype in (call.query.dtype, weights.dtype))


@torch.no_grad()
def disagreement(call: Call, weights: Tensor) -> float:
    """The largest difference of a call's weights from these in the first, middle and last row, ignoring NaN."""
    ready, largest = widened(call), 0.0
    with unrounded(call.query):
        for row in {0, call.queries // 2, call.queries - 1}:
            block = query_block(ready, query_rows(ready, row, row + 1), every_key=True, careful=False)
            recomputed = formula(block)[2]
            model = weights[..., row : row + 1, :].detach().to(recomputed.dtype)
            if recomputed.shape != model.shape:
                return math.inf
            largest = max(largest, float((recomputed - model).abs().nan_to_num(nan=0.0).max()))
    return largest


def _dropout(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, bool]:
    rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    return rate, args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))


def _narrowed(ndim: int, dim: int, start: Any, length: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % ndim) + (slice(int(start), int(start) + int(length)),)
