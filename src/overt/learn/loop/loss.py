"""Cross-entropy over a large vocabulary, a few rows of scores at a time.

With 10,000 words, the scores of one batch are the largest matrix of the whole update. Their gradient is known in closed form as soon as
they are, so each block of rows is scored, turned into its gradient in place, multiplied out, and forgotten while it is in the cache.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from overt.errors import InputError

# Numbers in a block of scores: 10 MB, which a processor's cache holds; an accelerator wants work for all of it at once.
_BLOCK, _BLOCK_ON_ACCELERATORS = 5 * 2**19, 2**26


def cross_entropy(states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """The summed cross-entropy of `output(states)` with label smoothing; (N, V) numbers are never held at once.

    Σ_n −Σ_v q_nv log softmax(z_n)_v with z = output(states) and q_nv = (1 − ε) [v = y_n] + ε / V, that is

        Σ_n  log Σ_v exp z_nv − (1 − ε) z_n,y − ε mean_v z_nv,      gradient in z:  softmax(z_n)_v − q_nv

    Szegedy et al. 2016, section 7 (smoothing); Vaswani et al. 2017, section 5.4, with ε = 0.1. Under autocast the products are in its
    dtype and the softmax in float32. It is differentiated once.

    Shapes: states (N, width), labels (N,) from 0 to V − 1 → a sum, (). Raises InputError for labels that do not fit.

    >>> output, states, labels = nn.Linear(8, 100), torch.randn(5, 8), torch.arange(5)
    >>> plain = nn.functional.cross_entropy(output(states), labels, label_smoothing=0.1, reduction="sum")
    >>> torch.allclose(cross_entropy(states, output, labels, 0.1), plain)
    True
    """
    if states.ndim != 2 or labels.shape != states.shape[:1]:
        raise InputError(
            "cross_entropy takes one label for each row of states (N, width)",
            got=f"states {tuple(states.shape)}, labels {tuple(labels.shape)}",
            fix="choose the real tokens first, as in states[real], labels[real]",
        )
    bias = output.weight.new_zeros(output.out_features) if output.bias is None else output.bias
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    if not torch.is_grad_enabled():
        return _summed(states.to(dtype), output.weight, bias, labels, smoothing)
    return _Smoothed.apply(states.to(dtype), output.weight, bias, labels, smoothing)  # pyright: ignore[reportReturnType]


class _Smoothed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        gradients = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
        total = _summed(states, weight, bias, labels, smoothing, gradients)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *(above[0].to(each.dtype) * each for each in ctx.saved_tensors), None, None


def _summed(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float, gradients: Any = None) -> Tensor:
    """The sum over all rows; the gradients of states, weight and bias are written, or added, to what is given for them."""
    narrow, wide = weight.to(states.dtype), torch.promote_types(states.dtype, torch.float32)
    total = torch.zeros((), dtype=wide, device=states.device)
    block = max(1, (_BLOCK if states.device.type == "cpu" else _BLOCK_ON_ACCELERATORS) // len(weight))
    with torch.autocast(states.device.type, enabled=False):
        for first in range(0, len(states), block):
            some, named = states[first : first + block], labels[first : first + block, None]
            scores = torch.addmm(bias.to(some.dtype), some, narrow.T).to(wide)  # (n, V)
            top = scores.amax(1, keepdim=True)
            wanted = (1 - smoothing) * scores.gather(1, named) + smoothing * scores.mean(1, keepdim=True)
            weights = scores.sub_(top).exp_()
            sums = weights.sum(1, keepdim=True)
            total += (sums.log() + top - wanted).sum()
            if gradients is not None:
                to_states, to_weight, to_bias = gradients
                gradient = weights.div_(sums).sub_(smoothing / len(weight))
                gradient.scatter_add_(1, named, gradient.new_full(named.shape, smoothing - 1))
                to_bias += gradient.sum(0)
                gradient = gradient.to(some.dtype)
                torch.mm(gradient, narrow, out=to_states[first : first + block])
                to_weight += gradient.T @ some
    return total
