"""State-space mixers: Mamba-2 (SSD), Mamba's selective scan, and the real-gated linear recurrent unit."""

import torch
from torch import Tensor

from overt.lens.linear.recurrence import Recurrence


def mamba2(
    x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None, *, start: Tensor | None = None
) -> Recurrence:
    """Mamba-2, the state-space duality: one decay per head; heads of a group share keys and queries.

        S_t = exp(Δ_t A) S_{t−1} + Δ_t B_t x_tᵀ        o_t = S_tᵀ C_t + D x_t

    Dao and Gu 2024, "Transformers are SSMs", sections 2 and 5 (SSD), with the discretisation of Mamba. Shapes: x (B, H, K, E), step
    (B, H, K) of Δ after its softplus, a (H,) negative, b and c (B, G, K, N) with G a divisor of H, d (H,), start (B, H, N, E).

    >>> import torch
    >>> x, half = torch.ones(1, 1, 3, 1), torch.full((1, 1, 3), 0.5)
    >>> mamba2(x, half, torch.tensor([-2.0]), x, x, torch.tensor([7.0])).weights([2])  # e⁻²/2, e⁻¹/2, 1/2 + 7
    tensor([[[[0.0677, 0.1839, 7.5000]]]])
    """
    keys = b.repeat_interleave(x.shape[1] // b.shape[1], dim=1) * step[..., None]
    diagonal = None if d is None else d[None, :, None].expand(step.shape)
    log_decay = (step * a[:, None])[..., None]
    return Recurrence(c, keys, x, log_decay, diagonal=diagonal, start=start, kind="Mamba-2")


def mamba(
    x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None = None, *, start: Tensor | None = None
) -> Recurrence:
    """Mamba's selective scan: each channel has a decay for each of its state's entries, so each channel is a head.

        s_t = exp(Δ_t A) ∘ s_{t−1} + Δ_t B_t x_t        o_t = s_t · C_t + D x_t

    Gu and Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", section 3.2 (algorithm 2). Shapes: x and step
    (B, C, K) for C channels, a (C, N) negative, b and c (B, K, N), d (C,), start (B, C, N). Heads of the result: C, with E = 1.

    >>> import torch
    >>> x, half = torch.ones(1, 1, 2), torch.full((1, 1, 2), 0.5)
    >>> mamba(x, half, torch.tensor([[-2.0]]), torch.ones(1, 2, 1), torch.ones(1, 2, 1)).weights([1])
    tensor([[[[0.1839, 0.5000]]]])
    """
    log_decay = step[..., None] * a[:, None]  # (B, C, K, N)
    diagonal = None if d is None else d[None, :, None].expand(x.shape)
    state = None if start is None else start[..., None]
    key = b[:, None] * step[..., None]
    return Recurrence(c[:, None], key, x[..., None], log_decay, diagonal=diagonal, start=state, kind="Mamba")


def rg_lru(x: Tensor, gate: Tensor, log_decay: Tensor, *, start: Tensor | None = None) -> Recurrence:
    """The real-gated linear recurrent unit: one number of state per channel, so each channel is a head.

        h_t = a_t h_{t−1} + (1 − a_t²)^½ i_t x_t

    De et al. 2024, "Griffin: Mixing Gated Linear Recurrences with Local Attention", section 2.4 (equation 4). Shapes: x, gate of i_t
    and log_decay (B, C, K), start (B, C). Some models write the first position with 1 for the root; they pass it in `gate`.

    >>> import torch
    >>> x = torch.ones(1, 1, 2)
    >>> rg_lru(x, x, torch.full((1, 1, 2), 0.6).log()).weights([1])
    tensor([[[[0.4800, 0.8000]]]])
    """
    key = (-torch.expm1(2 * log_decay)).sqrt() * gate
    state = None if start is None else start[..., None, None]
    query = torch.ones_like(key[:, :1])[..., None]
    return Recurrence(query, key[..., None], x[..., None], log_decay[..., None], start=state, kind="RG-LRU")
