"""Cross-entropy over a large vocabulary, a few rows of scores at a time.

With 10,000 words, the scores of one batch are the largest matrix of the whole update. Their gradient has a closed form, so each block
of rows is scored, replaced in place by its gradient, multiplied by the weights, and dropped while it is still in the cache.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from overt.errors import InputError

# _BLOCK: numbers in a block of scores; 10 MB, which fits a CPU's cache. _BLOCK_ON_ACCELERATORS: accelerators need larger blocks.
_BLOCK, _BLOCK_ON_ACCELERATORS = 5 * 2**19, 2**26


def cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """The summed cross-entropy of `output(states)` with label smoothing; no (N, V) matrix is allocated.

    Σ_n −Σ_v q_nv log softmax(z_n)_v with z = output(states) and q_nv = (1 − ε) [v = y_n] + ε / V, that is

        Σ_n  log Σ_v exp z_nv − (1 − ε) z_n,y − ε mean_v z_nv,      gradient in z:  softmax(z_n)_v − q_nv

    Szegedy et al. 2016, section 7 (smoothing); Vaswani et al. 2017, section 5.4, with ε = 0.1. Under autocast the products are in its
    dtype and the softmax in float32. It can be differentiated once only.

    Shapes: states (N, width), labels (N,) from 0 to V − 1 → a sum, (). Raises InputError for other shapes.

    >>> output, states, labels = nn.Linear(8, 100), torch.randn(5, 8), torch.arange(5)
    >>> plain = nn.functional.cross_entropy(output(states), labels, label_smoothing=0.1, reduction="sum")
    >>> torch.allclose(cross_entropy(states, output, labels, 0.1), plain)
    True
    """
    if states.ndim != 2 or labels.shape != states.shape[:1]:
        raise InputError(
            "one label (N,) for each row of states (N, width)",
            got=f"states {tuple(states.shape)}, labels {tuple(labels.shape)}",
            fix="select the tokens that are not padding, as in states[real], labels[real]",
        )
    inputs, total = scoring_inputs(states, output), partial(_sum_over_rows, labels, smoothing)
    if torch.is_grad_enabled():
        return differentiable_sum(total, *inputs)
    with torch.autocast(states.device.type, enabled=False):
        return total(*inputs)


def scoring_inputs(states: Tensor, output: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """The states in the dtype of their products, the weight, and the bias, zeros if there is none."""
    bias = output.weight.new_zeros(output.out_features) if output.bias is None else output.bias
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    return states.to(dtype), output.weight, bias


def rows_at_once(states: Tensor, weight: Tensor) -> int:
    """The number of rows that are scored in one block."""
    return max(1, (_BLOCK if states.is_cpu else _BLOCK_ON_ACCELERATORS) // len(weight))


def differentiable_sum(total: Callable[..., Tensor], states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The sum `total(states, weight, bias, gradients)`; `total` writes the states' gradient, and adds to those of weight and bias."""
    return _SumWithGradients.apply(total, states, weight, bias)  # pyright: ignore[reportReturnType]


class _SumWithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, total: Callable[..., Tensor], states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        gradients = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
        with torch.autocast(states.device.type, enabled=False):
            result = total(states, weight, bias, gradients)
        ctx.save_for_backward(*gradients)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *(gradients[0].to(tensor.dtype) * tensor for tensor in ctx.saved_tensors)


def _sum_over_rows(
    labels: Tensor, smoothing: float, states: Tensor, weight: Tensor, bias: Tensor, gradients: Any = None
) -> Tensor:
    """The sum over all rows; its gradients are written, if there are tensors for them."""
    low_weight, high_dtype = weight.to(states.dtype), torch.promote_types(states.dtype, torch.float32)
    total = torch.zeros((), dtype=high_dtype, device=states.device)
    block = rows_at_once(states, weight)
    for first in range(0, len(states), block):
        rows, columns = states[first : first + block], labels[first : first + block, None]
        scores = torch.addmm(bias.to(rows.dtype), rows, low_weight.T).to(high_dtype)  # (n, V)
        row_max = scores.amax(1, keepdim=True)
        expected = (1 - smoothing) * scores.gather(1, columns) + smoothing * scores.mean(1, keepdim=True)
        weights = scores.sub_(row_max).exp_()
        sums = weights.sum(1, keepdim=True)
        total += (sums.log() + row_max - expected).sum()
        if gradients is not None:
            state_gradient, weight_gradient, bias_gradient = gradients
            gradient = weights.div_(sums).sub_(smoothing / len(weight))
            gradient.scatter_add_(1, columns, gradient.new_full(columns.shape, smoothing - 1))
            bias_gradient += gradient.sum(0)
            gradient = gradient.to(rows.dtype)
            torch.mm(gradient, low_weight, out=state_gradient[first : first + block])
            weight_gradient += gradient.T @ rows
    return total
