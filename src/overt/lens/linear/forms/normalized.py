"""Mixers that divide by a sum of their weights: linear attention, mLSTM, RWKV-4."""

from dataclasses import replace

import torch
from torch import Tensor

from overt.lens.linear.chunks import Chunks
from overt.lens.linear.recurrence import Recurrence


def linear_attention(query: Tensor, key: Tensor, value: Tensor, *, epsilon: float = 0.0) -> Recurrence:
    """Causal linear attention, whose weights sum to one if the features are positive.

        o_t = Σ_{j≤t} (φ(q_t) · φ(k_j)) v_j / (Σ_{j≤t} φ(q_t) · φ(k_j) + ε)

    Katharopoulos et al. 2020, "Transformers are RNNs", section 3.3; Performers (Choromanski et al. 2020) have random features. `query`
    and `key` (B, H, K, D) are the features φ; value (B, H, K, E).

    >>> import torch
    >>> x = torch.ones(1, 1, 4, 2)
    >>> linear_attention(x, x, x).weights([3])
    tensor([[[[0.2500, 0.2500, 0.2500, 0.2500]]]])
    """
    unscaled = Recurrence(query, key, value, kind="linear attention")
    return replace(unscaled, normalizer=_sums(unscaled) + epsilon)


def mlstm(query: Tensor, key: Tensor, value: Tensor, log_forget: Tensor, log_input: Tensor) -> Recurrence:
    """The matrix memory of the xLSTM, with exponential gates and a normalizer.

        C_t = f_t C_{t−1} + i_t k_t v_tᵀ     n_t = f_t n_{t−1} + i_t k_t     h_t = C_tᵀ q_t / max(|n_tᵀ q_t|, 1)

    Beck et al. 2024, "xLSTM: Extended Long Short-Term Memory", section 2.3 (equations 19 to 27), with its stabiliser
    m_t = max(log f_t + m_{t−1}, log i_t), which keeps the gates in range and changes no weight. The key includes its 1/√D. Shapes:
    query, key (B, H, K, D), value (B, H, K, E), log_forget and log_input (B, H, K).

    >>> import torch
    >>> x, zero = torch.ones(1, 1, 3, 1), torch.zeros(1, 1, 3)
    >>> mlstm(x, x, x, torch.full((1, 1, 3), 0.5).log(), zero).weights([2])  # 1/4, 1/2 and 1, divided by their sum
    tensor([[[[0.1429, 0.2857, 0.5714]]]])
    """
    log_decay, log_key, largest = _stabilized(log_forget, log_input)
    scaled = Recurrence(query, log_key.exp()[..., None] * key, value, log_decay[..., None], kind="mLSTM")
    return replace(scaled, normalizer=torch.maximum(_sums(scaled).abs(), (-largest).exp()))


def rwkv4(key: Tensor, value: Tensor, log_decay: Tensor, bonus: Tensor) -> Recurrence:
    """RWKV-4's time mixing: an average over positions with one decay per channel and no query, so each channel is a head.

        o_t = (Σ_{j<t} e^{(t−1−j) log w + k_j} v_j + e^{u + k_t} v_t) / (Σ_{j<t} e^{(t−1−j) log w + k_j} + e^{u + k_t})

    Peng et al. 2023, "RWKV: Reinventing RNNs for the Transformer Era", section 3.1 (equation 16). Its weights are positive and sum to
    one. Exponents are shifted as in `mlstm`. Shapes: key, value (B, C, K), log_decay (C,) of log w ≤ 0, bonus (C,) of u.

    >>> import torch
    >>> x = torch.zeros(1, 1, 3)
    >>> rwkv4(x, x, torch.tensor([0.0]), torch.tensor([2.0]).log()).weights([2])
    tensor([[[[0.2500, 0.2500, 0.5000]]]])
    """
    decays, log_key, largest = _stabilized(log_decay[:, None].expand(key.shape), key)
    before = torch.nn.functional.pad(largest[..., :-1], (1, 0), value=-torch.inf)  # m of the state that each position reads
    shift = torch.maximum(before, key + bonus[:, None])
    query, diagonal = (before - shift).exp(), (key + bonus[:, None] - shift).exp()
    columns = query[..., None], log_key.exp()[..., None], value[..., None], decays[..., None]
    unscaled = Recurrence(*columns, diagonal=diagonal, reads="before", kind="RWKV-4")
    return replace(unscaled, normalizer=_sums(unscaled))


def _stabilized(log_decay: Tensor, log_key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logs of decays and keys of the state divided by e^m, m_t = max(log_decay_t + m_{t−1}, log_key_t), and m: all ≤ 0 but m."""
    steps = []
    for decay, entered in zip(log_decay.unbind(-1), log_key.unbind(-1), strict=True):
        steps.append(torch.maximum(decay + steps[-1], entered) if steps else entered)
    largest = torch.stack(steps, dim=-1) if steps else log_key
    decays = log_decay[..., 1:] + largest[..., :-1] - largest[..., 1:]
    decays = torch.nn.functional.pad(decays, (1, 0))  # the first position has no state to decay
    return decays, log_key - largest, largest


def _sums(recurrence: Recurrence) -> Tensor:
    """The sum of each row's weights: (B, H, Q)."""
    return Chunks(replace(recurrence, value=torch.ones_like(recurrence.value[..., :1]))).output()[..., 0]
