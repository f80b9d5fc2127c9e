"""The delta rule: plain (DeltaNet), with one decay per head (Gated DeltaNet) or per channel (Kimi delta attention)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from overt.lens.capture.mixers.flash_linear import FlashLinear, by_head, feature_first_state, functions, query_scale
from overt.lens.linear.forms.delta import delta_rule, gated_delta_rule, kimi_delta_attention
from overt.lens.linear.recurrence import Recurrence

GATED = {"chunk_gated_delta_rule", "recurrent_gated_delta_rule"}
KIMI = {"chunk_kimi_delta_attention", "recurrent_kimi_delta_attention", "fused_recurrent_kimi_delta_attention"}


class DeltaRule(FlashLinear):
    """S_j = a_j (I − β_j k_j k_jᵀ) S_{j−1} + β_j k_j v_jᵀ, with a_j one, a number or a diagonal matrix.

    Yang, Kautz and Hatamizadeh 2025, "Gated Delta Networks", equation 10; Kimi Team 2025, "Kimi Linear", section 3. With a diagonal
    matrix, S decays before the delta: (I − β k kᵀ) diag(a) S, so the probe is k∘a. transformers has the functions of
    flash-linear-attention in plain torch, with longer argument names.
    """

    functions: frozenset[str] = functions("gated_delta_rule", "kda", "delta_rule") | {
        *(f"{prefix}{name}" for prefix in ("", "torch_") for name in GATED | KIMI),
        *("torch_chunk_kda", "torch_fused_recurrent_kda", "torch_fused_recurrent_gated_delta_rule"),
    }

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence of arguments (B, N, H, D), normalised, gated and scaled like in the functions, in float32."""
        query, key, value = (
            by_head(arguments[name[0] if name[0] in arguments else name]) for name in ("query", "key", "value")
        )
        if arguments.get("use_qk_l2norm_in_kernel"):
            query, key = (part * (part.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for part in (query, key))
        beta, log_decay = _strength(arguments, value), _log_decay(arguments)
        key = key.repeat_interleave(value.shape[1] // key.shape[1], dim=1)
        start = feature_first_state(arguments, arguments.get("initial_state"))
        options: dict[str, Any] = {"scale": query_scale(arguments, query), "start": start}
        if log_decay is None:
            return delta_rule(query, key, value, beta, **options)
        if log_decay.shape[-1] > 1:
            return kimi_delta_attention(query, key, value, log_decay, beta, **options)
        return gated_delta_rule(query, key, value, log_decay[..., 0], beta, **options)


def _strength(arguments: dict[str, Any], value: Tensor) -> Tensor:
    """β as (B, H, N); 1 if none is passed."""
    beta = arguments.get("beta")
    if beta is None:
        return torch.ones_like(value[..., 0])
    beta = by_head(beta)
    if arguments.get("use_beta_sigmoid_in_kernel"):
        beta = beta.sigmoid() * (2 if arguments.get("allow_neg_eigval") else 1)
    return beta if beta.ndim == 3 else beta[..., 0]


def _log_decay(arguments: dict[str, Any]) -> Tensor | None:
    """log a as (B, H, N, 1 or D), or None without decay; gated like in the kernels if requested.

    −exp(A) softplus(g + bias), or with a lower bound: lower · sigmoid(exp(A) (g + bias)).
    """
    decay = next((arguments[name] for name in ("g", "gk") if arguments.get(name) is not None), None)
    if decay is None:
        return None
    decay = by_head(decay)
    decay = decay if decay.ndim == 4 else decay[..., None]
    if not arguments.get("use_gate_in_kernel"):
        return decay
    log_rate, bias, lower = (arguments.get(name) for name in ("A_log", "dt_bias", "lower_bound"))
    if bias is not None:
        decay = decay + bias.detach().to(decay.dtype).view(decay.shape[1], 1, -1)
    rate = 1.0 if log_rate is None else log_rate.detach().to(decay.dtype).view(-1, 1, 1).exp()
    return -rate * functional.softplus(decay) if lower is None else lower * (rate * decay).sigmoid()
