"""The real-gated linear recurrent unit of Griffin and RecurrentGemma: one number of state for each channel."""

from typing import Any

import torch
from torch import Tensor

from overt.lens.capture.mixers.form import ONE_VALUE, Form, MixerCall, channelwise
from overt.lens.linear.recurrence import Recurrence


class LinearUnit(Form):
    """h_t = a_t h_{t−1} + x_t for each of C channels. De et al. 2024, "Griffin", section 2.4.

    Each channel is a head with one value. x (B, N, C) is the input after its gate; a (B, N, C).
    """

    parameters: frozenset[str] = frozenset({"hidden_states", "recurrent_gate", "reset", "recurrent_states"})
    after: tuple[str, ...] = (
        "an input gate and a normalisation before it: the values are what they leave",
        "a gate, an activation of another projection, multiplies its output after it",
        ONE_VALUE.format("the unit"),
    )

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence, with decay 0 where the positions restart."""
        value, decay, reset, start = (
            call.arguments[name] for name in ("hidden_states", "recurrent_gate", "reset", "recurrent_states")
        )
        value, log_decay = ((part.detach().transpose(1, 2)[..., None]) for part in (value, (decay * ~reset).float().log()))
        ones = torch.ones_like(value, dtype=torch.float32)  # (B, C, N, 1)
        start = None if start is None else start[..., None, None]
        return Recurrence(ones, ones, value.float(), log_decay=log_decay, start=start, kind="linear recurrent unit")

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """Output (B, N, C) and state (B, C)."""
        return channelwise(*returned)
