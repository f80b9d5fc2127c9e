"""Scores that a model writes out, from the product of query and key to the function that turns them into weights."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import sum_of
from overt.attention.check import aligned_right
from overt.attention.kernels.call import Call
from overt.attention.scores import Dot
from overt.lens.capture.ranges import MaskReader, MaskReading

SAME = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach"}
MASKED = -9.9e3  # a score at most this is masked; models write −1e4, which is −9984 in bfloat16
SHAPED = {"view", "reshape", "unflatten", "flatten", "unsqueeze", "squeeze", "__getitem__"}


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores on their way to a softmax: scale · query · key + added, in the shapes of the model's product.

    `among_tokens` is true if queries and keys are tokens, as far as is known; it is false for a product with parameters.
    `zeroed` marks scores that the model multiplied with the zeros of a mask: a low number that is added next masks them.
    """

    query: Tensor
    key: Tensor
    scale: float = 1.0
    added: tuple[Tensor, ...] = ()
    among_tokens: bool = False
    zeroed: Tensor | None = None

    def after(self, name: str, operands: list[Any], position: int, output: Tensor) -> "Scores | None":
        """The scores after one more function, which gets them as argument `position`; None if its effect is unknown."""
        if (
            name in SAME
            or (name == "log_softmax" and operands[1] in (-1, output.ndim - 1))
            or (name in SHAPED and output.shape[-2:] == (self.query.shape[-2], self.key.shape[-2]))
        ):
            return self
        if name == "masked_fill" and position == 0:
            return self._filled(operands[1], operands[2])
        if name == "where" and position == 1 and len(operands) == 3:
            return self._filled(~operands[0], operands[2])
        simple = len([operand for operand in operands if operand is not None]) == 2 and (
            position == 0 or name in ("mul", "add", "max", "maximum")
        )
        return self._combined(name, operands[1 - position], position) if simple else None

    def _combined(self, name: str, other: Any, position: int) -> "Scores | None":
        """The scores after a function of the scores and one other number or tensor."""
        number = _number(other)
        if name in ("mul", "div") and number:
            factor = number if name == "mul" else 1 / number
            return replace(self, scale=self.scale * factor, added=tuple(tensor * factor for tensor in self.added))
        if name == "mul" and isinstance(other, Tensor) and bool(((other == 0) | (other == 1)).all()):
            return replace(self, zeroed=other.detach() == 0) if self.zeroed is None and not self.added else None
        if name in ("add", "sub") and isinstance(other, Tensor):
            return self._with(other.detach() if name == "add" else -other.detach())
        if name in ("add", "sub") and position == 0 and number is not None:
            return self  # one number added to all scores does not change a softmax
        floor = name in ("max", "maximum", "clamp", "clamp_min") and number is not None and number <= MASKED
        return self if floor else None  # a floor that only masked scores reach

    def _with(self, other: Tensor) -> "Scores | None":
        """The scores plus a tensor. Scores that a mask has zeroed are masked if the tensor is low there."""
        if self.zeroed is None:
            return replace(self, added=(*self.added, other))
        filled = replace(self, zeroed=None)._filled(self.zeroed, other)
        return None if filled is None else replace(filled, added=(*filled.added, torch.where(self.zeroed, 0, other)))

    def _filled(self, masked: Tensor, value: Any) -> "Scores | None":
        number, lowest = _number(value), torch.finfo(self.query.dtype).min
        if isinstance(value, Tensor) and number is None:
            number = float(torch.where(masked, value, -math.inf).max())
        if number is None or number > MASKED or (number > lowest and bool(masked.all(-1).any())):
            return None
        floor = torch.full((), -math.inf if number == -math.inf else lowest, dtype=self.query.dtype, device=masked.device)
        return replace(self, added=(*self.added, torch.where(masked, floor, torch.zeros_like(floor))))

    def call(self, like: Tensor, value: Tensor, masks: MaskReader) -> Call:
        """The call of attention with these scores; `like` are its weights (..., Q, K)."""
        query, key, *added = (_shaped(tensor, like) for tensor in (self.query, self.key, *self.added))
        mask, bias = None, None
        for tensor in added:
            read = MaskReading(*(aligned_right(item, query.ndim) for item in masks.read(tensor)))  # as torch broadcasts it
            mask = read.mask if mask is None else mask if read.mask is None else mask & read.mask
            bias = sum_of(bias, read.bias)
        if value.dtype in (torch.float16, torch.bfloat16):  # GPT-J's scores are in float32 for half values
            value = value.to(query.dtype)
        return Call.checked(query, key, value, score=Dot(self.scale), mask=mask, bias=bias)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shaped(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor with the leading dimensions of `like`: B·H split in two, or heads of groups joined to one."""
    if tensor.ndim > like.ndim == 4:
        return tensor.flatten(1, -3)
    merged = tensor.ndim == 3 and like.ndim == 4 and tensor.shape[0] == like.shape[0] * like.shape[1]
    return tensor.unflatten(0, like.shape[:2]) if merged else tensor
