"""Which dimensions of a model's tensors count tokens, tracked from function to function, and which functions mix tokens.

A function mixes tokens if it sums, scans, convolves or transforms along a dimension that counts them, or combines different tokens in
arithmetic. Attention also does; the caller excludes its product of weights and values.

Tokens begin at an embedding, at a convolution (its positions), and at any tensor from outside the model: all dimensions except the last
count them. A batch is also marked, which does no harm, because models do not sum over it.

Normalisation and pooling do not count as mixing: they take statistics of tokens, and return one number or vector for all of them.

Sizes do not show which dimension counts tokens, because a length may equal a width; a second run of a layer with other tokens would change
caches, counters and hooks. After a function without a rule a result is not `sure`: what depends on it is recorded or listed as missing.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from overt.lens.capture.token_axes.factors import RESHAPES, axis_marks, swaps, unmarked, with_marks
from overt.lens.capture.token_axes.labels import FunctionCall, Mixing, TensorLabel, TensorLabels, tensors_in
from overt.lens.capture.token_axes.layout import LAYOUT, elementwise, rearrange
from overt.lens.capture.token_axes.mixing import BEGIN, MIXING, fourier
from overt.lens.capture.token_axes.moved import MovedTokens
from overt.lens.capture.written_out.products import plain

_RULES = {**LAYOUT, **MIXING}


class TokenAxes(TensorLabels):
    """Tracks the dimensions that count tokens through a model."""

    def __init__(self):
        super().__init__()
        self.inputs: frozenset[int] = frozenset()
        self.moved: MovedTokens = MovedTokens(self)
        self.sequences: set[str] = set()  # marks of the dimensions along which the model attends

    def begin(self, args: tuple[Any, ...]) -> None:
        """Begin a run of the model with these arguments."""
        self.inputs = frozenset(id(leaf) for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
        self.moved.begin(self.inputs)
        self.sequences = set()

    def in_another_order(self) -> list[tuple[Mixing, nn.Module]]:
        """The modules that left the tokens in another order, after the model ended."""
        return self.moved.in_another_order(self.sequences)

    def observe(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, module: nn.Module
    ) -> Mixing | None:
        """Track one function. Returns how it mixed tokens, or None. Tensors of the innermost running `module` are not inputs."""
        step = FunctionCall(plain(name), func, args, kwargs, output)
        if not step.outputs and step.name != "__setitem__":
            return None
        operands, before = [], {}
        for tensor in tensors_in((*args, *kwargs.values())):
            if self.label(tensor) is None:
                self.know(tensor, self._from_outside(step.name, tensor, module))
            before[id(tensor)] = self.label(tensor) or TensorLabel(unmarked(tensor.shape))
            operands.append((tensor.shape, before[id(tensor)]))
        rule = fourier if step.name.startswith("fft_") else _RULES.get(step.name, elementwise)
        rule = rearrange if swaps(step.name, func) else rule
        mixing = rule(self, step)
        if step.name not in BEGIN:
            for output in step.outputs:
                self._inherit(output, operands)
        if rule is rearrange and operands and operands[0][1].weighted:
            for output in step.outputs:
                self.know(output, self.label(output)._replace(weighted=True))  # type: ignore[union-attr]
        self._attends(step)
        self.moved.observe(step, before, module, mixing)
        return mixing

    def _attends(self, step: FunctionCall) -> None:
        """Note the marks of attention's tokens: the queries of torch's functions, and the dimension of a softmax."""
        dim = {"scaled_dot_product_attention": -2, "multi_head_attention_forward": 0, "softmax": -1}.get(step.name)
        tensor = None if dim is None else step.argument(0, "query" if step.name != "softmax" else "input")
        if dim is not None and isinstance(tensor, Tensor) and tensor.ndim > 1:
            self.sequences |= axis_marks(self.axes(tensor)[dim])

    def _inherit(self, output: Tensor, operands: list[tuple[torch.Size, TensorLabel]]) -> None:
        """Whether a result is sure: if its operands are, or one of its size that comes from the input."""
        label = self.label(output) or TensorLabel(unmarked(output.shape))
        whole = any(item.sure and not item.constant and shape == output.shape for shape, item in operands)
        sure = label.sure and (whole or all(item.sure for _, item in operands))
        self.know(output, label._replace(sure=sure, constant=all(item.constant for _, item in operands)))

    def counts_tokens(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dimension of a tensor is known to count tokens."""
        label = self.label(tensor)
        return label is not None and len(label.axes) == tensor.ndim and bool(axis_marks(label.axes[dim]))

    def may_count_tokens(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dimension counts tokens, or this is unknown."""
        label = self.label(tensor)
        return label is None or not label.sure or self.counts_tokens(tensor, dim)

    def parts_of_input(self, tensor: Tensor) -> str | None:
        """A note on a tensor (B, ..., tokens, D) whose batch entries are parts of one input, such as windows; else None."""
        axes = self.axes(tensor)
        if len(axes) < 3:
            return None
        first, inside = axes[0], axis_marks(axes[-2]) - {"0"}  # the first dimension of an input may be a batch
        parts = [factor for factor in first if factor.mark in inside and factor.size > 1]
        if not parts:
            return None
        sizes, count = [factor.size for factor in parts], tensor.shape[0]
        text = (
            f"its {count} batch entries are {_grid(sizes)} parts of each of {count // math.prod(sizes)} inputs, as windows are"
        )
        if list(first[-len(parts) :]) == parts:
            text += f": entry {_entry_number(sizes)}"
        shifts = [factor.shift for factor in parts]
        return text + (f", of an input shifted by {_grid(shifts)}" if all(shifts) else "")

    def _from_outside(self, name: str, tensor: Tensor, module: nn.Module) -> TensorLabel:
        """The label of a tensor that no function made: all dimensions of the model's arguments except the last count tokens.

        Tensors of a module count nothing. Any other tensor was passed by name, is a cache, or comes from a kernel that torch's
        functions do not show: its last dimension but one counts tokens, unless the first function reshapes its heads.
        """
        if isinstance(tensor, nn.Parameter) or _holds(module, tensor):
            return TensorLabel(unmarked(tensor.shape), constant=True)
        is_input, hidden = id(tensor) in self.inputs, tensor.ndim > 3 and name in RESHAPES
        dims: Iterable[int] = [tensor.ndim - 2] if tensor.ndim > 2 and (is_input or not hidden) else []
        if is_input and tensor.ndim < 4:
            dims = range(tensor.ndim - 1)
        return TensorLabel(with_marks(tensor.shape, {dim: str(dim) for dim in dims}), sure=is_input or tensor.ndim == 3)


def _holds(module: nn.Module, tensor: Tensor) -> bool:
    """Whether a tensor is an attribute of the module, not one of its inputs."""
    inside = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
    return any(entry is tensor for entry in inside)


def _grid(sizes: list[Any]) -> str:
    return " × ".join(map(str, sizes))


def _entry_number(sizes: list[int]) -> str:
    """The number of a batch entry as a formula of its input and its index among the parts.

    >>> _entry_number([3, 4])
    '(input · 3 + row) · 4 + column'
    """
    names = {1: ["part"], 2: ["row", "column"]}.get(len(sizes), [f"part {number}" for number in range(1, len(sizes) + 1)])
    text = "input"
    for name, size in zip(names, sizes, strict=True):
        text = f"{text if text == 'input' else f'({text})'} · {size} + {name}"
    return text
