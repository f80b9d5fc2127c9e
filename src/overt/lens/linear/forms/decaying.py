"""Mixers whose state only decays: retention, lightning attention, gated linear attention, RWKV-6."""

from torch import Tensor

from overt.lens.linear.recurrence import Recurrence


def retention(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, *, scale: float = 1.0, start: Tensor | None = None
) -> Recurrence:
    """Retention: one decay per head, the same at every position.

        S_t = γ S_{t−1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models", section 2.1 (equation 6). Rotary
    positions are already in query and key. Shapes: query, key (B, H, K, D), value (B, H, K, E), decay (H,) of γ from 0 to 1, start
    (B, H, D, E).

    >>> import torch
    >>> x = torch.ones(1, 1, 3, 1)
    >>> retention(x, x, x, torch.tensor([0.5])).weights([2])
    tensor([[[[0.2500, 0.5000, 1.0000]]]])
    """
    log_decay = decay.log()[None, :, None, None].expand(query.shape[0], -1, key.shape[2], 1)
    return Recurrence(scale * query, key, value, log_decay, start=start, kind="retention")


def lightning_attention(
    query: Tensor, key: Tensor, value: Tensor, slope: Tensor, *, scale: float = 1.0, start: Tensor | None = None
) -> Recurrence:
    """Lightning attention: retention with the decay exp(−slope) of each head.

        S_t = exp(−slope) S_{t−1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Qin et al. 2024, "Lightning Attention-2", section 3 (equation 4). Shapes: those of `retention`, slope (H,).

    >>> import torch
    >>> x = torch.ones(1, 1, 3, 1)
    >>> lightning_attention(x, x, x, torch.tensor([0.0])).weights([2])
    tensor([[[[1., 1., 1.]]]])
    """
    log_decay = -slope[None, :, None, None].expand(query.shape[0], -1, key.shape[2], 1)
    return Recurrence(scale * query, key, value, log_decay, start=start, kind="lightning attention")


def gated_linear_attention(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, *, scale: float = 1.0, start: Tensor | None = None
) -> Recurrence:
    """Gated linear attention: a decay for each feature and position, computed from the input.

        S_t = diag(α_t) S_{t−1} + k_t v_tᵀ        o_t = scale · S_tᵀ q_t

    Yang et al. 2023, "Gated Linear Attention Transformers with Hardware-Efficient Training", section 4.1 (equation 3). Shapes: query,
    key and log_decay (B, H, K, D), value (B, H, K, E), start (B, H, D, E).

    >>> import torch
    >>> x = torch.ones(1, 1, 2, 2)
    >>> gated_linear_attention(x, x, x, torch.tensor([1.0, 0.0]).log().expand(1, 1, 2, 2)).weights([1])  # one feature forgets
    tensor([[[[1., 2.]]]])
    """
    return Recurrence(scale * query, key, value, log_decay, start=start, kind="gated linear attention")


def rwkv6(
    receptance: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, bonus: Tensor, *, start: Tensor | None = None
) -> Recurrence:
    """RWKV-6: a position reads the state before it, and its own key has a bonus instead of a decay.

        S_t = diag(w_t) S_{t−1} + k_t v_tᵀ        o_t = (S_{t−1} + diag(u) k_t v_tᵀ)ᵀ r_t

    Peng et al. 2024, "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", section 4.2 (RWKV-5 has a constant w).
    Shapes: receptance, key, log_decay (B, H, K, D), value (B, H, K, E), bonus (H, D), start (B, H, D, E).

    >>> import torch
    >>> x = torch.ones(1, 1, 3, 1)
    >>> rwkv6(x, x, x, (x / 2).log(), torch.tensor([[3.0]])).weights([2])
    tensor([[[[0.5000, 1.0000, 3.0000]]]])
    """
    diagonal = (receptance * bonus[:, None] * key).sum(-1)
    return Recurrence(receptance, key, value, log_decay, diagonal=diagonal, reads="before", start=start, kind="RWKV-6")
