"""State spaces: the scans of Mamba and Mamba-2, whole or one step, from a step size Δ, a decay A, and B and C of each position.

Their functions have the arguments of `mamba_ssm`'s kernels, in its own code and in transformers. Δ is computed in the model's dtype,
all else in float32, like in these functions, or in float64. Shapes: N positions, H heads of E values, G groups that share B and C,
D numbers of state per value.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from overt.lens.capture.mixers.form import ONE_VALUE, Form, MixerCall, gated_norms
from overt.lens.linear.forms.state_space import mamba, mamba2
from overt.lens.linear.recurrence import Recurrence

PACKED = "it runs packed sequences (seq_idx), whose bounds are not recorded"
DIFFERS = "its Δ, A or D differs inside a head, so that a head has no single weight for a position"
GROUPS = "its B or C is no tensor of one vector a position, shared by all channels: such a scan is not reproduced"
GATE = "a gate, silu(z), multiplies its output after it"
CHANNELS = ONE_VALUE.format("Mamba") + " and number of its state"


class Mamba2Scan(Form):
    """S_t = exp(Δ_t A) S_{t−1} + Δ_t B_t x_tᵀ, o_t = S_tᵀ C_t + D x_t, with one A per head, over N positions.

    Dao and Gu 2024, "Transformers are SSMs", section 5. x (B, N, H, E), Δ (B, N, H), A (H,), B and C (B, N, G, D), D (H,) or (H, E),
    states (B, H, E, D).
    """

    functions: frozenset[str] = frozenset({"mamba2_chunk_scan", "mamba_chunk_scan_combined"})

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of the arguments, with positions after the heads."""
        arguments = call.arguments
        if arguments.get("seq_idx") is not None or arguments.get("cu_seqlens") is not None:
            return PACKED
        dt = _step_size(arguments["dt"], arguments.get("dt_bias"), arguments.get("dt_softplus", False))
        dt = dt.clamp(*arguments.get("dt_limit", (0.0, math.inf))).transpose(1, 2)  # (B, H, N)
        value, key, query = (_single(part).transpose(1, 2) for part in (_value(arguments), arguments["B"], arguments["C"]))
        start = arguments.get("initial_states")
        return _mamba2(value, dt, arguments["A"], key, query, arguments.get("D"), None if start is None else _single(start).mT)

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, H, E), returned with or without the state."""
        state = returned[1] if isinstance(returned, tuple) else None
        # transformers' function ignores a gate.
        gate = call.arguments.get("z") if call.name == "mamba_chunk_scan_combined" else None
        gate = None if gate is None else gate.transpose(1, 2)
        return _ungated(call, self.written(call, returned), gate), None if state is None else state.mT

    def written(self, call: MixerCall, returned: Any) -> Tensor:
        """With its gate."""
        return (returned[0] if isinstance(returned, tuple) else returned).transpose(1, 2)

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """Name the gate, with or without a norm."""
        return gated_norms(module) or (GATE,)


class MambaScan(Form):
    """S_t = exp(Δ_t A) ∘ S_{t−1} + Δ_t B_t x_t, o_t = S_t · C_t + D x_t, with A for each channel and number of its state.

    Each of the H channels is a head with one value. Gu and Dao 2023, "Mamba", section 3. x and Δ (B, H, N), A (H, D), B and C
    (B, D, N), D (H,), states (B, H, D). The gate z (B, H, N) is divided out of the output.
    """

    functions: frozenset[str] = frozenset({"mamba_selective_scan", "selective_scan_fn"})
    after: tuple[str, ...] = (GATE, CHANNELS)

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of the arguments, with positions after the channels."""
        arguments = call.arguments
        if arguments["B"].ndim != 3 or arguments["C"].ndim != 3:
            return GROUPS
        bias, dt = arguments.get("delta_bias"), arguments["dt" if "dt" in arguments else "delta"]
        dt = _step_size(dt, None if bias is None else bias[:, None], arguments.get("delta_softplus", False))
        return _mamba(_value(arguments), dt, arguments["A"], arguments["B"].mT, arguments["C"].mT, arguments.get("D"))

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, H, N), returned with or without the state."""
        state = returned[1] if isinstance(returned, tuple) else None
        # The function rounds its states to the dtype of x, and the layer continues with the output in this dtype.
        output, gate = self.written(call, returned).to(_value(call.arguments).dtype), call.arguments.get("z")
        output = _ungated(call, output, None if gate is None else gate[..., None])
        return output, None if state is None else state[..., None]

    def written(self, call: MixerCall, returned: Any) -> Tensor:
        """With its gate."""
        return (returned[0] if isinstance(returned, tuple) else returned)[..., None]


class StateUpdate(Form):
    """One more position of Mamba, from a state (B, H, D), or of Mamba-2, from a state (B, H, E, D); it overwrites the state."""

    functions: frozenset[str] = frozenset(
        {"mamba2_selective_state_update", "mamba_selective_state_update", "selective_state_update"}
    )

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of one position: x and Δ (B, H) or (B, H, E), A (H, D) or (H, E, D), B and C (B, D) or (B, G, D)."""
        arguments, state = call.arguments, call.arguments["state"]
        value, dt, bias, D = _value(arguments), arguments["dt"], arguments.get("dt_bias"), arguments.get("D")
        softplus, start = arguments.get("dt_softplus", False), _single(state).clone()
        if state.ndim == 3:
            dt = _step_size(dt, bias, softplus)[..., None]
            return _mamba(value[..., None], dt, arguments["A"], arguments["B"][:, None], arguments["C"][:, None], D, start)
        same = [_repeats(dt, 2), _repeats(arguments["A"], 1), _repeats(arguments["A"], 2), bias is None or _repeats(bias, 1)]
        if not all(same):
            return DIFFERS
        dt = _step_size(dt[..., 0], None if bias is None else bias[:, 0], softplus)[..., None]  # (B, H, 1)
        query, key, value = (_single(part)[:, :, None] for part in (arguments["C"], arguments["B"], value))
        return _mamba2(value, dt, arguments["A"][:, 0, 0], key, query, D, start.mT)

    def result(self, call: MixerCall, returned: Tensor) -> tuple[Tensor, Tensor | None]:
        """Output (B, H) or (B, H, E), and the overwritten state."""
        gate, state = call.arguments.get("z"), call.arguments["state"]
        channels = state.ndim == 3
        gate = None if gate is None else gate.reshape(*gate.shape[:2], 1, -1)
        return _ungated(call, self.written(call, returned), gate), state[..., None] if channels else state.mT

    def written(self, call: MixerCall, returned: Any) -> Tensor:
        """With its gate."""
        return returned.reshape(*returned.shape[:2], 1, -1)

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """The sentences of the same layer's scan."""
        channels = getattr(module, "A_log", None)
        return (GATE, CHANNELS) if channels is not None and channels.ndim > 1 else gated_norms(module) or (GATE,)


def _mamba2(
    value: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, start: Tensor | None
) -> Recurrence | str:
    """The recurrence of Mamba-2, whose D (H,) or (H, E) must be one number per head."""
    if D is not None and D.ndim > 1 and not _repeats(D, 1):
        return DIFFERS
    D = None if D is None else _single(D if D.ndim == 1 else D[:, 0])
    return mamba2(value, _single(dt), _single(A), B, C, D, start=start)


def _mamba(
    value: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, start: Tensor | None = None
) -> Recurrence:
    """The recurrence of Mamba in float32 or float64."""
    value, dt, A, B, C = map(_single, (value, dt, A, B, C))
    return mamba(value, dt, A, B, C, None if D is None else _single(D), start=start)


def _step_size(dt: Tensor, bias: Tensor | None, softplus: bool) -> Tensor:
    """Δ in the dtype of `dt`, with its bias and then softplus applied."""
    dt = dt.detach() if bias is None else dt.detach() + bias.detach().to(dt.dtype)
    return functional.softplus(dt) if softplus else dt


def _ungated(call: MixerCall, output: Tensor, gate: Tensor | None) -> Tensor:
    """The output (B, H, N, E) divided by its gate, silu of `gate`.

    Where the gate is too small to divide by, as in padding, the result is the recurrence's own output, which the model does not read.
    """
    if gate is None:
        return output
    gate, limits = functional.silu(gate.detach()), torch.finfo(output.dtype)
    passes = gate.abs() > limits.tiny / limits.eps
    alone = output / gate
    if isinstance(call.alone, str) or bool(passes.all()):
        return alone
    return torch.where(passes, alone, call.alone.output().to(alone.dtype))


def _value(arguments: dict[str, Any]) -> Tensor:
    """The argument x, by any of its names."""
    return next(arguments[name] for name in ("hidden_states", "x", "u") if name in arguments)


def _repeats(tensor: Tensor, dim: int) -> bool:
    """Whether a dimension repeats one number."""
    return not tensor.stride(dim) or bool((tensor == tensor.narrow(dim, 0, 1)).all())


def _single(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
