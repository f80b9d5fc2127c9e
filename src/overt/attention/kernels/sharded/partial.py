"""Attention to a subset of the keys as a part of attention to all: outputs merge, and gradients add up.

With lse_i = log Σ_j exp(s_ij) over a set of keys, outputs over two sets of keys merge to Σ_set exp(lse_set − lse) · output_set. The
gradients of a set need only the output and lse over all keys, and no other keys: the weight of key j is exp(s_ij − lse_i), and
∂L/∂s_ij = weight_ij · (value_j − output_i) · ∂L/∂output_i. (Milakov and Gimelshein 2018; Dao 2024, section 3.1; Liu et al. 2024.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import TensorBias, sum_of
from overt.attention.kernels.blocked import Block, blocked
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.plan import FLAT, TABLE, first_able
from overt.attention.kernels.sharded import flash
from overt.attention.normalizers import Normalizer, Softmax

Formula = Callable[[Block], tuple[Tensor, Tensor, Tensor, Tensor]]

# PARTIAL_TABLE: the refusal of each path for a part, in order of preference.
PARTIAL_TABLE: dict[str, Callable[[Call], str | None]] = {
    "native": flat_call.refusal,
    "torch": flash.refusal,
    "triton": TABLE["triton"],
    "blocked": TABLE["blocked"],
}


def partial(call: Call, formula: Formula) -> tuple[Tensor, Tensor]:
    """The output (..., Q, E) over this call's keys and each row's log-sum-exp (..., Q), −inf if it sees none."""
    path, _ = first_able(PARTIAL_TABLE, call)
    if path == "torch":
        return flash.partial(call)
    if path in FLAT:
        operator, inputs = flat_call.flattened(call)
        output, sums = operator.forward(inputs, True)
        return output, operator.lse(sums)

    def output_and_lse(block: Block) -> tuple[Tensor, Tensor]:
        _, masked, _, output = formula(block)
        return output, call.normalizer.logsumexp(masked, masked != -torch.inf)[..., None]

    output, lse = blocked(call, output_and_lse)
    return output, lse.squeeze(-1)


def resumed(call: Call, output: Tensor, lse: Tensor, formula: Formula) -> Tensor:
    """The output, with gradients for only this call's keys, from the output and log-sum-exp over all keys."""
    path, _ = first_able(PARTIAL_TABLE, call)
    if path == "torch":
        return flash.resumed(call, output, lse)
    if path in FLAT:
        operator, inputs = flat_call.flattened(call)
        return operator.resumed(inputs, output, lse)
    query, key, value = (tensor.to(call.dtype) for tensor in (call.query, call.key, call.value))
    temperature = call.normalizer.temperature
    # exp(s − lse) is exp(s + bias) with bias −lse for each row, times the temperature, by which scores and bias are divided.
    reduced = -torch.where(lse == -torch.inf, 0, lse)[..., None] * temperature  # (..., Q, 1)
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    exponential = replace(
        call,
        query=query,
        key=key,
        value=value,
        bias=sum_of(call.bias, TensorBias(reduced)),
        normalizer=Exponential(temperature),
    )
    (summed,) = blocked(exponential, lambda block: formula(block)[3:])
    return summed[..., :-1] - output * summed[..., -1:]


def merge(output: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merge the outputs and log-sum-exps of two sets of keys."""
    both = torch.logaddexp(lse, more_lse)
    none = both == -torch.inf
    first, second = (torch.exp(torch.where(none, -torch.inf, part - both))[..., None] for part in (lse, more_lse))
    return output * first + more * second, both


def with_sink(output: Tensor, lse: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp with a sink, a logit (...) without a value."""
    if sink is None:
        return output, lse
    logit = sink.to(lse.dtype)[..., None].expand_as(lse)
    return merge(output, lse, torch.zeros_like(output), logit)


def sink_gradient(output: Tensor, lse: Tensor, upstream: Tensor, sink: Tensor) -> Tensor:
    """The sink's gradient: its weight goes to no key, so it reduces the output."""
    weight = torch.exp(sink.to(lse.dtype)[..., None] - lse)
    return -(weight * (output * upstream).sum(-1)).sum(-1).sum_to_size(sink.shape)


@dataclass(frozen=True, eq=False)
class Exponential(Normalizer):
    """exp(s / T), for scores already reduced by their log-sum-exp."""

    temperature: Any

    def __call__(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """The weights."""
        return torch.exp(Softmax(self.temperature).divided_by_temperature(scores, allowed))
