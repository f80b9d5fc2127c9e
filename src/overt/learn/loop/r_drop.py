"""R-Drop: each batch passes through the model twice, with different dropout, and the difference of the predictions is penalised.

A model with dropout is an ensemble, but inference uses one model without dropout. Penalising the difference between two samples
brings this model closer to all of them (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", section 2).
"""

import torch
from torch import Tensor, nn

from overt.learn.loop.loss import differentiable_sum, rows_at_once, scoring_inputs


def disagreement(states: Tensor, output: nn.Linear) -> Tensor:
    """Σ_n ½ (KL(p_n ‖ q_n) + KL(q_n ‖ p_n)); p and q are the softmax of `output` for the first and the second half of the states.

    With a = log p − log q, a row's term is ½ Σ_v (p_v − q_v) a_v, and its gradients in the scores of p and of q are

        ½ (p (a − E_p a) + p − q)    and    ½ (q (E_q a − a) + q − p)

    so the scores are computed a few rows at a time, as in `cross_entropy`, and dropped. It can be differentiated only once. Liang et
    al. 2021, equation 2.

    Shapes: states (2N, width) → a sum, ().

    >>> output, states = nn.Linear(8, 100), torch.randn(5, 8)
    >>> round(disagreement(torch.cat([states, states]), output).item(), 5)
    0.0
    """
    return differentiable_sum(_sum_over_rows, *scoring_inputs(states, output))


def _sum_over_rows(states: Tensor, weight: Tensor, bias: Tensor, gradients: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The sum over all rows, and its gradients."""
    state_gradient, weight_gradient, bias_gradient = gradients
    low_weight, high_dtype = weight.to(states.dtype), torch.promote_types(states.dtype, torch.float32)
    total = torch.zeros((), dtype=high_dtype, device=states.device)
    halves, gradient_halves = states.chunk(2), state_gradient.chunk(2)
    block = rows_at_once(states, weight)
    for first in range(0, len(halves[0]), block):
        both = [half[first : first + block] for half in halves]
        logs = [torch.addmm(bias.to(rows.dtype), rows, low_weight.T).to(high_dtype).log_softmax(1) for rows in both]
        p, q = (log.exp() for log in logs)
        ratio = logs[0].sub_(logs[1])  # log p − log q, (n, V)
        difference = p - q
        total += (difference * ratio).sum() / 2
        p_gradient = ((ratio - (p * ratio).sum(1, keepdim=True)) * p).add_(difference).div_(2)
        q_gradient = (((q * ratio).sum(1, keepdim=True) - ratio) * q).sub_(difference).div_(2)
        for rows, half, gradient in zip(both, gradient_halves, (p_gradient, q_gradient), strict=True):
            bias_gradient += gradient.sum(0)
            gradient = gradient.to(rows.dtype)
            torch.mm(gradient, low_weight, out=half[first : first + block])
            weight_gradient += gradient.T @ rows
    return total
