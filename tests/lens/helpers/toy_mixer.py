"""A small torch module that mixes tokens by a gated delta rule, written out step by step, and says so to a recording."""

import torch
from torch import Tensor, nn

from overt.lens.capture.barrier import guarded, unseen
from overt.lens.capture.sink import CaughtMixer
from overt.lens.capture.watching import at_work
from overt.lens.linear import Recurrence, gated_delta_rule


class ToyMixer(nn.Module):
    """x + the mixing, of (B, N, width); `decay_error` is added to the log decays that it computes with, not to those it reports."""

    def __init__(self, width: int = 12, heads: int = 3, decay_error: float = 0.0, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.heads, self.decay_error = heads, decay_error
        self.inputs = nn.Linear(width, 3 * width + 2 * heads, dtype=dtype)
        self.out_proj = nn.Linear(width, width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        *parts, decay, beta = self.inputs(x).split([x.shape[-1]] * 3 + [self.heads] * 2, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, N, D)
        key = nn.functional.normalize(key, dim=-1)
        log_decay, beta = nn.functional.logsigmoid(decay).mT, beta.sigmoid().mT  # (B, H, N)
        output = _stepped(query, key, value, log_decay + self.decay_error, beta)
        catcher = at_work()
        if catcher is not None:
            recurrence = gated_delta_rule(query, key, value, log_decay, beta)
            _report(catcher, recurrence, output)
        return x + self.out_proj(output.transpose(1, 2).flatten(-2))


def _stepped(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    state, outputs = torch.zeros_like(key.mT @ value), []
    for step in range(key.shape[2]):
        state = state * log_decay[:, :, step, None, None].exp()
        read = (key[:, :, step, :, None] * state).sum(-2)  # (B, H, E)
        delta = beta[:, :, step, None] * (value[:, :, step] - read)
        state = state + key[:, :, step, :, None] * delta[:, :, None]
        outputs.append((query[:, :, step, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=2)


def _report(catcher, recurrence: Recurrence, output: Tensor) -> None:
    def report() -> None:
        with unseen():
            catcher.keep_mixer(CaughtMixer(recurrence, output, "the toy mixer", ("nothing stands before it",), ("a toy",)))

    guarded(catcher.failed, report)
