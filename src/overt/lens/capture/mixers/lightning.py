"""Lightning attention as in MiniMax: a fixed decay for each head, in blocks or step by step, inside the layer's forward."""

from typing import Any

from torch import Tensor, nn

from overt.lens.capture.mixers.form import Form, MixerCall
from overt.lens.linear.recurrence import Recurrence


class Lightning(Form):
    """S_j = exp(−s) S_{j−1} + k_j v_jᵀ with a slope s for each head. Qin et al. 2024, "Lightning Attention-2", section 3.

    Query, key and value are the result of the projection's activation, and the output is the argument of the norm after it.
    """

    method = "forward"
    names: frozenset[str] = frozenset(
        {"slope_rate", "query_decay", "key_decay", "diagonal_decay", "qkv_proj", "act_fn", "norm"}
    )
    reads_after = True
    read_by = "norm"
    kind = "lightning attention"

    def prepare(self, call: MixerCall) -> Tensor | None:
        """A copy of the state in the cache."""
        cache, state = call.arguments.get("past_key_values"), None
        if cache is not None:
            state = cache.get_linear_cache(call.module.layer_idx)
        return None if state is None else state.clone()

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of the activations (B, N, H · 3 · D), which are zero at masked positions."""
        module: Any = call.module
        mask = call.arguments.get("attention_mask")
        activations = call.inner["act_fn"][1].detach()
        if mask is not None:
            activations = (activations * mask[:, :, None]).to(activations.dtype)
        query, key, value = activations.unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2).chunk(3, dim=-1)
        slopes = module.slope_rate.detach().float()[None]  # (1, H, 1, 1)
        log_decay = -slopes.expand(key.shape[0], -1, key.shape[2], -1)
        return Recurrence(query, key, value, log_decay=log_decay, start=call.before, kind=self.kind)

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, H · E), the argument of the norm."""
        (output, *_), _ = call.inner["norm"]
        state = returned[1] if call.arguments.get("past_key_values") is not None else None
        return self.by_head(call.module, output), state

    def by_head(self, module: nn.Module, output: Tensor) -> Tensor:
        """The output by head, from (B, N, H · E)."""
        return output.unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)  # type: ignore[arg-type]

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """Name the norm over all heads and the gate."""
        return (f"{type(module.norm).__name__} over all heads, and a gate, the sigmoid of a projection, after it",)
