"""Mixers of flash-linear-attention whose states decay: retention, gated linear attention, linear attention, RWKV-6 and 7, HGRN.

Their functions take (B, N, H, D), sum in float32, scale a query by 1/√D if no scale is passed, and return output and state. Decays are
logs. With `state_v_first` the states they take and leave are (B, H, E, D).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from overt.lens.capture.mixers.form import ONE_VALUE, Form, MixerCall, channelwise
from overt.lens.capture.mixers.normalized import summed_weights
from overt.lens.capture.mixers.packed import restarted, text_starts
from overt.lens.capture.token_axes.labels import SHIFT, Mixing
from overt.lens.linear.forms.decaying import gated_linear_attention, lightning_attention, retention, rwkv6
from overt.lens.linear.recurrence import Recurrence

BACKWARDS = "it runs from the last position to the first"
BY_VALUE = "the features of a value decay separately, so that a head has no single weight for a position"
UNKNOWN = "it mixes tokens by flash-linear-attention's {}, whose weights are not recorded"
_WAYS = ("chunk", "fused_chunk", "fused_recurrent", "fused_mul_recurrent", "parallel")


def functions(*mixers: str) -> frozenset[str]:
    """The names of all functions of these mixers.

    >>> sorted(functions("gla"))[:2]
    ['chunk_gla', 'fused_chunk_gla']
    """
    return frozenset(f"{way}_{mixer}" for way in _WAYS for mixer in mixers)


def refused(arguments: dict[str, Any]) -> str | None:
    """The reason why arguments of these functions cannot be recorded, or None."""
    present = [reason for name, reason in _REFUSED.items() if arguments.get(name) is not None and arguments[name] is not False]
    beta = arguments.get("beta")
    by_value = beta is not None and beta.ndim > 3 and beta.shape[-1] > 1
    return next(iter(present), BY_VALUE if by_value else None)


SPLIT = "its positions are spread over several devices (cp_context), of which one is observed"
_REFUSED = {"cp_context": SPLIT, "reverse": BACKWARDS, "gv": BY_VALUE}


def by_head(tensor: Tensor) -> Tensor:
    """(B, N, H, …) as (B, H, N, …), in float32 or float64."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).transpose(1, 2)


def feature_first_state(arguments: dict[str, Any], state: Tensor | None) -> Tensor | None:
    """A state argument or result of these functions as (B, H, D, E)."""
    first = arguments.get("state_v_first") or arguments.get("transpose_state_layout")
    return state.mT if state is not None and first else state


def query_scale(arguments: dict[str, Any], query: Tensor) -> float:
    """The factor of the weights; D^−½ if none is passed."""
    scale = arguments.get("scale")
    return query.shape[-1] ** -0.5 if scale is None else scale


class FlashLinear(Form):
    """A mixer of flash-linear-attention."""

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of the arguments; `cu_seqlens` marks several sequences packed into one row."""
        arguments = call.arguments
        if (reason := refused(arguments)) is not None:
            return reason
        first = next(arguments[name] for name in ("q", "query", "r", "x") if name in arguments)
        starts = text_starts(arguments.get("cu_seqlens"), first.shape[0], first.shape[1], arguments.get("initial_state"))
        if isinstance(starts, str):
            return starts
        call.starts = starts
        alone = restarted(self.recurrence(call.name, arguments), starts)
        return _normalized(alone, None) if starts and alone.normalizer is not None else alone

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence of these arguments."""
        raise NotImplementedError

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, H, E) and state; a normalized mixer's state includes the sum of its keys."""
        output, state = returned[0], returned[1]
        state = state[0] if isinstance(state, tuple) else state
        one_text = state is not None and state.ndim == 4 and not call.starts
        return output.transpose(1, 2), feature_first_state(call.arguments, state) if one_text else None

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """Name a gate after the mixing, separate or in a norm."""
        gated = any("g_" in name for name, _ in module.named_children())
        gate = ("a gate, of a projection of the input, multiplies its output after it",) if gated else ()
        return super().around(module) or gate


def _normalized(recurrence: Recurrence, keys: Tensor | None) -> Recurrence:
    """Linear attention divided by the sum of its weights, including the sum of earlier `keys`."""
    plain = replace(recurrence, normalizer=None)
    return replace(plain, normalizer=summed_weights(plain, keys) + 1e-10)


class Decaying(FlashLinear):
    """S_t = diag(α_t) S_{t−1} + k_t v_tᵀ, o_t = scale · S_tᵀ q_t, with α by feature (GLA, HGRN-2), by head, fixed, or 1."""

    functions: frozenset[str] = functions("gla", "simple_gla", "retention", "lightning_attn", "linear_attn")

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence by the function's name and its arguments for the decay."""
        query, key, value = (by_head(arguments[letter]) for letter in "qkv")
        start, normalized = arguments.get("initial_state"), arguments.get("normalize", False)
        start, keys = start if isinstance(start, tuple) else (start, None)
        options: dict[str, Any] = {"scale": query_scale(arguments, query), "start": feature_first_state(arguments, start)}
        heads = torch.arange(query.shape[1], dtype=torch.float, device=query.device)
        if name.endswith("retention"):
            return retention(query, key, value, 1 - 2 ** (-5 - heads), **options)
        if name.endswith("lightning_attn"):
            depth = arguments["layer_idx"] / arguments["num_layers"]
            return lightning_attention(query, key, value, 8 / len(heads) * (1 - depth) * heads, **options)
        decay = next((arguments[name] for name in ("gk", "g", "g_gamma") if arguments.get(name) is not None), None)
        if decay is None:
            plain = Recurrence(options["scale"] * query, key, value, start=options["start"], kind="linear attention")
            return _normalized(plain, None if keys is None else by_head(keys).mT) if normalized else plain
        if arguments.get("g_gamma") is decay:
            return lightning_attention(query, key, value, -decay.detach(), **options)
        log_decay = by_head(decay)
        return gated_linear_attention(query, key, value, log_decay if log_decay.ndim == 4 else log_decay[..., None], **options)


class RWKV6(FlashLinear):
    """S_t = diag(w_t) S_{t−1} + k_t v_tᵀ, o_t = scale · (S_{t−1} + diag(u) k_t v_tᵀ)ᵀ r_t. Peng et al. 2024, "Eagle and Finch"."""

    functions: frozenset[str] = functions("rwkv6")

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence, with the scale multiplied into the receptance."""
        receptance, key, value, log_decay = (by_head(arguments[letter]) for letter in "rkvw")
        receptance = receptance * query_scale(arguments, receptance)
        bonus, start = arguments["u"].detach().to(receptance.dtype), arguments.get("initial_state")
        return rwkv6(receptance, key, value, log_decay, bonus, start=start)


class RWKV7(FlashLinear):
    """S_t = (diag(w_t) + b_t a_tᵀ) S_{t−1} + k_t v_tᵀ, o_t = scale · S_tᵀ r_t. Peng et al. 2025, "RWKV-7 Goose"."""

    functions: frozenset[str] = functions("rwkv7", "dplr_delta_rule")

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence: one function gets the removal key κ and its rate (a = −κ, b = κ ∘ rate), the others a and b."""
        receptance, decay = ("q", "gk") if "q" in arguments else ("r", "w")
        query, key, value, log_decay = (by_head(arguments[part]) for part in (receptance, "k", "v", decay))
        probe = by_head(arguments["a"])
        if "kk" in arguments:
            removal = by_head(arguments["kk"])
            erase, probe = removal * probe, -removal
        else:
            erase = by_head(arguments["b"])
        query, start = query * query_scale(arguments, query), arguments.get("initial_state")
        return Recurrence(query, key, value, log_decay, erase, probe, start=start, kind="RWKV-7")

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """Name the term that the layer adds after its norm."""
        bonus = (
            ("a norm of each head, and then its own value times a bonus is added, after it",) if hasattr(module, "r_k") else ()
        )
        return (*super().around(module), *bonus)


class HGRN(FlashLinear):
    """h_t = exp(g_t) ∘ h_{t−1} + x_t for each of C channels, each a head of one value. Qin et al. 2023, "HGRN", section 3.2."""

    functions: frozenset[str] = functions("hgrn")
    after: tuple[str, ...] = ("a norm over all channels multiplied with a gate, after it", ONE_VALUE.format("HGRN"))

    def recurrence(self, name: str, arguments: dict[str, Any]) -> Recurrence:
        """The recurrence of x and g (B, N, C) and states (B, C)."""
        value, log_decay = (by_head(arguments[letter][..., None]) for letter in "xg")
        ones, start = torch.ones_like(value), arguments.get("initial_state")
        start = None if start is None else start[..., None, None]
        return Recurrence(ones, ones, value, log_decay, start=start, kind="HGRN")

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, C) and state (B, C)."""
        output, state = returned
        return channelwise(output, None if call.starts else state)


class NotRecorded(Form):
    """Mixers of flash-linear-attention that are not such a recurrence, or whose form is not written yet."""

    functions: frozenset[str] = functions(
        *("abc", "attn", "based", "comba", "cyfa", "deltaformer", "forgetting_attn", "gated_delta_product", "gdn2"),
        *("gsa", "iplr_delta_rule", "lightnet", "log_linear_attn", "mesa_net", "moba", "momentum_delta_rule", "nsa"),
        *("parallax", "path_attn", "precond_gated_delta_rule", "precond_kda", "rebased", "rwkv4", "stickbreaking_attn"),
        *("titans", "ttt_linear", "wall_attn"),
    )

    def read(self, call: MixerCall) -> str:
        """The reason, with the function's name."""
        return UNKNOWN.format(call.name)


class Neighbours(Form):
    """Convolutions and shifts of flash-linear-attention before a mixer, in kernels that torch does not show."""

    functions: frozenset[str] = frozenset({"causal_conv1d", "causal_conv1d_update", "token_shift"})

    def neighbours(self, call: MixerCall) -> Mixing:
        """The mixing of a convolution, by its matrix (C, positions), or of a shift."""
        weight = call.arguments.get("weight")
        return SHIFT if weight is None else Mixing("a convolution", f"a convolution over {weight.shape[-1]} positions")
