"""The gated delta rule, with one decay a head (Gated DeltaNet) or one a channel (Kimi delta attention), chunked or step by step."""

import torch
from torch import Tensor

from overt.lens.capture.mixers.form import Form, MixerCall
from overt.lens.linear.recurrence import Recurrence

GATED = {"chunk_gated_delta_rule", "recurrent_gated_delta_rule", "fused_recurrent_gated_delta_rule"}
KIMI = {
    "chunk_kda",
    "fused_recurrent_kda",
    "chunk_kimi_delta_attention",
    "recurrent_kimi_delta_attention",
    "fused_recurrent_kimi_delta_attention",
}


class DeltaRule(Form):
    """S_j = a_j (I − β_j k_j k_jᵀ) S_{j−1} + β_j k_j v_jᵀ, with a_j a number or a diagonal matrix.

    Yang, Kautz and Hatamizadeh 2025, "Gated Delta Networks", equation 10; Kimi Team 2025, "Kimi Linear", section 3. With a diagonal
    matrix, S decays before the delta: (I − β k kᵀ) diag(a) S, so that k∘a is the probe.
    """

    functions = frozenset({*GATED, *(f"torch_{name}" for name in GATED), *KIMI, *(f"torch_{name}" for name in KIMI)})

    def read(self, call: MixerCall) -> Recurrence | str:
        """Arguments (B, N, H, D), normalised and scaled as the functions do it, in float32."""
        arguments = call.arguments
        if arguments.get("cu_seqlens") is not None:
            return "it runs packed sequences (cu_seqlens), whose bounds are not recorded"
        query, key = (_single(arguments[name]).transpose(1, 2) for name in ("query", "key"))
        if arguments.get("use_qk_l2norm_in_kernel"):
            query, key = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (query, key))
        value, beta = (_single(arguments[name]).transpose(1, 2) for name in ("value", "beta"))
        beta = beta[..., None]  # (B, H, N, 1)
        log_decay = _single(arguments["g"]).transpose(1, 2)
        log_decay = log_decay if log_decay.ndim == 4 else log_decay[..., None]  # (B, H, N, 1 or D)
        key = key.repeat_interleave(beta.shape[1] // key.shape[1], dim=1)
        scale = arguments.get("scale")
        return Recurrence(
            query=query * (query.shape[-1] ** -0.5 if scale is None else scale),
            key=key * beta,
            value=value,
            log_decay=log_decay,
            erase=-key * beta,
            probe=key * log_decay.exp(),
            start=arguments.get("initial_state"),
            kind="gated delta rule" if log_decay.shape[-1] == 1 else "Kimi delta attention",
        )

    def result(self, call: MixerCall, returned: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, H, E) and state (B, H, D, E)."""
        output, state = returned
        return output.transpose(1, 2), state


def _single(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32)
