"""A call as the flat kernels take it: tensors, numbers, the mask as a program; and what they compute of it."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import additive, dot, dot_scores, mask_program, supported
from overt.attention.scores import AdditiveForm, Score


def served(call: Call) -> Tensor:
    """The output, by the kernels."""
    form = call.form
    bias, inverse_temperature = bias_and_inverse_temperature(call)
    sink = call.normalizer.sink
    rest = (
        list(call.batch),
        *mask_of(call),
        bias,
        bias is not None and not isinstance(call.bias, Tensor),
        None if sink is None else sink.to(call.dtype),
        inverse_temperature,
        call.dropout,
        torch.randint(2**62, (), device=call.query.device) if call.dropout > 0 else None,
    )
    temperature = learned_temperature(call)
    if isinstance(form, AdditiveForm):
        weight = form.weight.to(call.dtype)
        weight = weight if temperature is None else weight / temperature.squeeze(-1)  # (..., D)
        output = additive.additive(additive.AdditiveInputs(call.query, call.key, call.value, weight, form.activation, *rest))
    else:
        assert form is not None  # the plan chose this path
        output = dot.dot(dot.DotInputs(*dot_scores.as_dot_product(call, form, temperature), *rest))
    return output.to(call.query.dtype)


def mask_of(call: Call) -> tuple[list[int], list[Tensor]]:
    """The mask's program and the arrays that it reads."""
    if call.mask is None:
        return [], []
    return mask_program.lowered(call.mask, call.query.shape[-2], call.key.shape[-2], call.query.device)


def bias_of(call: Call) -> Tensor | None:
    """What is added to each score, (..., Q or 1, K or 1); of a bias by distance, (..., Q + K − 1) numbers."""
    if call.bias is None:
        return None
    if isinstance(call.bias, Tensor):
        return call.bias.reshape((1,) * (2 - call.bias.ndim) + tuple(call.bias.shape))
    # The last query's row, over all positions that a key can have: distance j − i stands at j − i + Q − 1.
    last, count = max(call.queries - 1, 0), max(call.queries + call.keys - 1, 0)
    device = call.query.device
    return call.bias.block(torch.arange(last, last + 1, device=device), torch.arange(count, device=device)).squeeze(-2)


def bias_and_inverse_temperature(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """Bias and 1 / temperature, None for 1. A learned temperature divides the scores and the bias instead, and so has a gradient."""
    bias, temperature = bias_of(call), call.normalizer.temperature
    if not isinstance(temperature, Tensor):
        if temperature == 1:
            return bias, None
        return bias, torch.full((), 1 / temperature, dtype=torch.float64, device=call.query.device)
    if (learned := learned_temperature(call)) is not None:
        return None if bias is None else bias / learned.squeeze(-1), None  # a bias by distance, (..., Q + K - 1)
    return bias, (1 / temperature.double()).reshape(temperature.shape[:-2])


def learned_temperature(call: Call) -> Tensor | None:
    """The temperature (..., 1, 1), where it is learned."""
    temperature = call.normalizer.temperature
    if not isinstance(temperature, Tensor) or not supported.is_learned(temperature):
        return None
    return temperature if temperature.ndim else temperature[None, None]


def scored(call: Call) -> Call:
    """A ready call whose additive scores come from the native kernel, where it can compute them: it holds no (..., Q, K, D)."""
    form = call.form
    if not isinstance(form, AdditiveForm):
        return call
    if supported.MISSING and not torch.compiler.is_compiling():
        native.warn_if_missing()
    return call if supported.scores_refusal(call) else replace(call, score=NativeScores(*form))


@dataclass(frozen=True, eq=False)
class NativeScores(Score):
    """`overt.Additive`, its scores computed by the native kernel in one pass."""

    weight: Tensor
    activation: str

    def __call__(self, query: Tensor, key: Tensor) -> Any:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], self.weight.shape[:-1])
        return additive.additive_scores(query, key, self.weight.to(query.dtype), self.activation, batch)
