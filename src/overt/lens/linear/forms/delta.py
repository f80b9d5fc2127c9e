"""Mixers that erase the old value of a key before writing: the delta rule, gated by head or by feature, and RWKV-7."""

import torch
from torch import Tensor

from overt.lens.linear.recurrence import Recurrence


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, *, scale: float = 1.0, start: Tensor | None = None
) -> Recurrence:
    """The delta rule: the old value of a key is replaced by the new one, in the proportion β.

        S_t = (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Schlag, Irie and Schmidhuber 2021, "Linear Transformers Are Secretly Fast Weight Programmers", section 4.2. Keys are already
    normalised, as the mixer uses them. Shapes: query, key (B, H, K, D), value (B, H, K, E), beta (B, H, K), start (B, H, D, E).

    >>> import torch
    >>> key = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]]])
    >>> delta_rule(key, key, torch.ones(1, 1, 3, 1), torch.ones(1, 1, 3)).weights([2])  # the third key replaces the first
    tensor([[[[0., 0., 1.]]]])
    """
    strong = beta[..., None] * key
    return Recurrence(scale * query, strong, value, erase=-strong, probe=key, start=start, kind="delta rule")


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    scale: float = 1.0,
    start: Tensor | None = None,
) -> Recurrence:
    """The delta rule with a decay of the state, one number per head.

        S_t = α_t (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule", section 3.1 (equation 10). Shapes:
    those of `delta_rule`, log_decay (B, H, K) of log α_t.

    >>> import torch
    >>> x, half = torch.ones(1, 1, 2, 1), torch.full((1, 1, 2), 0.5)
    >>> gated_delta_rule(x, x, x, half.log(), half).weights([1])
    tensor([[[[0.1250, 0.5000]]]])
    """
    return _gated(query, key, value, log_decay[..., None], beta, scale, start, "gated delta rule")


def kimi_delta_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    scale: float = 1.0,
    start: Tensor | None = None,
) -> Recurrence:
    """The delta rule with a decay of the state by feature, applied before it is read and overwritten.

        S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t−1} + β_t k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture", section 3 (equation 1). Shapes: those of
    `delta_rule`, log_decay (B, H, K, D) of log α_t.

    >>> import torch
    >>> x, half = torch.ones(1, 1, 2, 1), torch.full((1, 1, 2), 0.5)
    >>> kimi_delta_attention(x, x, x, half[..., None].log(), half).weights([1])
    tensor([[[[0.1250, 0.5000]]]])
    """
    return _gated(query, key, value, log_decay, beta, scale, start, "Kimi delta attention")


def rwkv7(
    receptance: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    removal_key: Tensor,
    rate: Tensor,
    *,
    start: Tensor | None = None,
) -> Recurrence:
    """RWKV-7's generalised delta rule: removal has its own key and rate.

        S_t = (diag(w_t) − (a_t ∘ κ_t) κ_tᵀ) S_{t−1} + k_t v_tᵀ        o_t = S_tᵀ r_t

    Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution", section 4.1 (its states are these transposed).
    `removal_key` is κ, normalised, and `key` the replacement key. The bonus that the layer adds after its norm is not part of the mixing.
    Shapes: value (B, H, K, E), all others (B, H, K, D), start (B, H, D, E).

    >>> import torch
    >>> x, half = torch.ones(1, 1, 2, 1), torch.full((1, 1, 2, 1), 0.5)
    >>> rwkv7(x, x, x, half.log(), x, half / 2).weights([1])
    tensor([[[[0.2500, 1.0000]]]])
    """
    return Recurrence(
        receptance, key, value, log_decay, erase=-rate * removal_key, probe=removal_key, start=start, kind="RWKV-7"
    )


def _gated(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    scale: float,
    start: Tensor | None,
    kind: str,
) -> Recurrence:
    strong, probe = beta[..., None] * key, torch.exp(log_decay) * key
    return Recurrence(scale * query, strong, value, log_decay, -strong, probe, start=start, kind=kind)
