"""Mixers that divide their output by a normalizer, and store both in a frame that does not overflow: mLSTM and RWKV-4.

Their states are exp(−m_j) times the plain ones, with a running maximum m_j = max(log a_j + m_{j−1}, i_j) of the logs of the written
keys. In this frame a position decays by a_j exp(m_{j−1} − m_j) and writes exp(i_j − m_j), both at most 1.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from overt.lens.capture.mixers.form import ONE_VALUE, Form, MixerCall, channelwise
from overt.lens.linear.chunks import Chunks
from overt.lens.linear.recurrence import Recurrence

_NOTHING = -1e4  # a log decay below this is a decay of 0; its exp is 0 in float64


class MLSTM(Form):
    """C_t = f_t C_{t−1} + i_t k_t v_tᵀ, n_t = f_t n_{t−1} + i_t k_t, h_t = C_tᵀ q_t / (max(|n_t · q_t|, 1) + ε), i_t = exp(ĩ_t).

    Beck et al. 2024, "xLSTM", section 2.3. Query, key (B, H, N, D), value (B, H, N, E), gates before their activations (B, H, N).
    """

    method = "forward"  # the method of xLSTM's backend
    parameters: frozenset[str] = frozenset({"query", "key", "value", "igate", "fgate", "c_initial", "n_initial", "m_initial"})
    after: tuple[str, ...] = ("a norm of each head and a gate, the sigmoid of a projection, after it",)

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence in the frame of its running maximum."""
        query, key, value, igate, fgate = (
            call.arguments[name].detach() for name in ("query", "key", "value", "igate", "fgate")
        )
        start, normalizer, maximum = (call.arguments[f"{letter}_initial"] for letter in "cnm")
        before = igate.new_zeros(igate.shape[:2], dtype=torch.float64) if maximum is None else maximum.flatten(2)[..., 0]
        decay, write, maximum = framed(functional.logsigmoid(fgate.float()), igate, before)
        recurrence = Recurrence(
            query=query.float() * query.shape[-1] ** -0.5,
            key=key.float() * write.exp().float()[..., None],
            value=value,
            log_decay=decay[..., None].float(),
            start=start,
            kind="mLSTM",
        )
        read = summed_weights(recurrence, None if normalizer is None else normalizer[..., None])
        epsilon = getattr(getattr(call.module, "config", None), "eps", 1e-6)
        return replace(recurrence, normalizer=torch.maximum(read.abs(), (-maximum).exp().float()) + epsilon)

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, H, N, E), returned with or without the states."""
        output, states = returned if isinstance(returned, tuple) else (returned, None)
        return output, None if states is None else states[0]


class RWKV4(Form):
    """o_t = (Σ_{j<t} exp(−(t−1−j) w + k_j) v_j + exp(u + k_t) v_t) / (the same sum without v), for each of C channels.

    Peng et al. 2023, "RWKV", equation 16. Each channel is a head with one value. Key and value (B, N, C), decay and first (C,).
    """

    functions: frozenset[str] = frozenset({"rwkv_linear_attention", "rwkv_linear_attention_cpu"})
    after: tuple[str, ...] = (
        "a gate, the sigmoid of the receptance, multiplies its output after it",
        ONE_VALUE.format("RWKV-4"),
    )

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence in the frame of its running maximum."""
        # The exponential is computed in the parameter's dtype, like in the function.
        decay, first = -call.arguments["time_decay"].detach().exp().double(), call.arguments["time_first"].detach().double()
        key, value = (call.arguments[name].detach().transpose(1, 2) for name in ("key", "value"))  # (B, C, N)
        start = call.arguments.get("state")
        total, count, before = (None, None, key.new_full(key.shape[:2], -torch.inf)) if start is None else start
        key = key.double()
        faded, write, maximum = framed(decay[:, None].expand(key.shape), key, before)
        last = torch.cat([before[..., None].double(), maximum[..., :-1]], dim=-1)  # the maximum before each position
        larger = torch.maximum(last, key + first[:, None])
        recurrence = Recurrence(
            query=(last - larger).exp().float()[..., None],
            key=write.exp().float()[..., None],
            value=value.float()[..., None],
            log_decay=faded.float()[..., None],
            diagonal=(key + first[:, None] - larger).exp().float(),
            reads="before",
            start=None if total is None else total[..., None, None],
            kind="RWKV-4",
        )
        return replace(recurrence, normalizer=summed_weights(recurrence, None if count is None else count[..., None, None]))

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, C) and state (B, C)."""
        output, state = returned
        return channelwise(output, None if state is None else state[0])


def framed(log_decay: Tensor, log_write: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logs of decay and of writing (..., N) in the frame of their running maximum m, which begins with `before` (...); and m.

    >>> framed(torch.tensor([-1.0, -1.0]), torch.tensor([0.0, 5.0]), torch.tensor(2.0))[2]
    tensor([1., 5.], dtype=torch.float64)
    """
    log_decay, log_write, before = (part.double() for part in (log_decay, log_write, before))
    faded = log_decay.cumsum(-1)
    maximum = faded + torch.maximum(before[..., None], (log_write - faded).cummax(-1).values)
    earlier = torch.cat([before[..., None], maximum[..., :-1]], dim=-1)
    decay = (log_decay + earlier - maximum).clamp(max=0)
    # An empty state has a maximum like −1e38, so its decay is set to 0 to keep sums of logs exact.
    return torch.where(decay < _NOTHING, -torch.inf, decay), log_write - maximum, maximum


def summed_weights(recurrence: Recurrence, start: Tensor | None) -> Tensor:
    """The output of each query if every value is 1, including a start state (B, H, D, 1): (B, H, Q)."""
    ones = recurrence.value.new_ones(*recurrence.value.shape[:3], 1, dtype=torch.float32)
    return Chunks(replace(recurrence, value=ones, start=start)).output()[..., 0]
