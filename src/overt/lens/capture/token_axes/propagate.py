"""Which dimensions of a model's tensors count tokens, followed from function to function, and which functions mix tokens.

A function mixes tokens where it sums, scans, convolves or transforms along a dimension that counts them, or brings different tokens
together in arithmetic. Attention does so too: its product of weights and values is taken out by whoever recognises it.

Tokens begin at an embedding, at a convolution (its positions), and at any tensor from outside the model, all of whose dimensions but the
last count them. A batch is marked so too; that does no harm, because models do not sum over it.

Normalisation and pooling are no mixing here: they take statistics of tokens, and give one number or vector for all of them.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from overt.lens.capture.token_axes.factors import RESHAPES, marks_of, swaps, unmarked, with_marks
from overt.lens.capture.token_axes.labels import Label, Labels, Mixing, Step, tensors_in
from overt.lens.capture.token_axes.layout import LAYOUT, elementwise, swap
from overt.lens.capture.token_axes.mixing import BEGIN, MIXING, fourier
from overt.lens.capture.written_out.products import plain

_RULES = {**LAYOUT, **MIXING}


class TokenAxes(Labels):
    """Follows the dimensions that count tokens through a model."""

    def __init__(self):
        super().__init__()
        self.inputs: frozenset[int] = frozenset()

    def begin(self, args: tuple) -> None:
        """The model begins, with these arguments."""
        self.inputs = frozenset(id(leaf) for leaf in tree_leaves(args) if isinstance(leaf, Tensor))

    def see(
        self, name: str, func: Callable, args: tuple, kwargs: dict[str, Any], output: Any, module: nn.Module
    ) -> Mixing | None:
        """Follow one function; how it mixed tokens, if it did. `module` is the innermost one that runs: what it holds is no input."""
        step = Step(plain(name), func, args, kwargs, output)
        if not step.outputs and step.name != "__setitem__":
            return None
        operands = []
        for tensor in tensors_in((*args, *kwargs.values())):
            if self.of(tensor) is None:
                self.know(tensor, self._from_outside(step.name, tensor, module))
            operands.append((tensor.shape, self.of(tensor) or Label(unmarked(tensor.shape))))
        rule = swap if swaps(step.name, func) else fourier if step.name.startswith("fft_") else None
        mixing = (rule or _RULES.get(step.name, elementwise))(self, step)
        if step.name not in BEGIN:
            for output in step.outputs:
                self._inherit(output, operands)
        return mixing

    def _inherit(self, output: Tensor, operands: list[tuple[torch.Size, Label]]) -> None:
        """How sure a result is: as its operands are, or as one that is as large and comes from the input."""
        label = self.of(output) or Label(unmarked(output.shape))
        whole = any(each.sure and not each.constant and shape == output.shape for shape, each in operands)
        sure = label.sure and (whole or all(each.sure for _, each in operands))
        self.know(output, label._replace(sure=sure, constant=all(each.constant for _, each in operands)))

    def counts_tokens(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dimension of a tensor counts tokens, as far as is known."""
        label = self.of(tensor)
        return label is not None and len(label.axes) == tensor.ndim and bool(marks_of(label.axes[dim]))

    def may_count_tokens(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dimension counts tokens, or its tensor was lost sight of on the way."""
        label = self.of(tensor)
        return label is None or not label.sure or self.counts_tokens(tensor, dim)

    def parts_of_input(self, tensor: Tensor) -> str | None:
        """What a reader has to know of a tensor (B, ..., tokens, D) whose batch entries are parts of one input, as windows are."""
        axes = self.axes(tensor)
        if len(axes) < 3:
            return None
        first, inside = axes[0], marks_of(axes[-2]) - {"0"}  # the first dimension of an input may be a batch
        parts = [factor for factor in first if factor.mark in inside and factor.size > 1]
        if not parts:
            return None
        sizes, count = [factor.size for factor in parts], tensor.shape[0]
        said = (
            f"its {count} batch entries are {_grid(sizes)} parts of each of {count // math.prod(sizes)} inputs, as windows are"
        )
        if list(first[-len(parts) :]) == parts:
            said += f": entry {_place(sizes)}"
        shifts = [factor.shift for factor in parts]
        return said + (f", of an input shifted by {_grid(shifts)}" if all(shifts) else "")

    def _from_outside(self, name: str, tensor: Tensor, module: nn.Module) -> Label:
        """A tensor that no function made: of what the model was called with, all dimensions but the last count tokens.

        What a module holds counts nothing. Anything else was passed by name, or is a cache, or comes from a kernel that torch's
        functions do not show: its tokens are the last dimension but one, unless its heads are laid out at once, which tells that
        they may be another.
        """
        if isinstance(tensor, nn.Parameter) or _holds(module, tensor):
            return Label(unmarked(tensor.shape), constant=True)
        is_input, hidden = id(tensor) in self.inputs, tensor.ndim > 3 and name in RESHAPES
        dims: Iterable[int] = [tensor.ndim - 2] if tensor.ndim > 2 and (is_input or not hidden) else []
        if is_input and tensor.ndim < 4:
            dims = range(tensor.ndim - 1)
        return Label(with_marks(tensor.shape, {dim: str(dim) for dim in dims}), sure=is_input or tensor.ndim == 3)


def _holds(module: nn.Module, tensor: Tensor) -> bool:
    """Whether a tensor is something that the module keeps, not something that it was called with."""
    inside = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
    return any(each is tensor for each in inside)


def _grid(sizes: list[Any]) -> str:
    return " × ".join(map(str, sizes))


def _place(sizes: list[int]) -> str:
    """How an entry of the batch is numbered by its input and its place among the parts, in words.

    >>> _place([3, 4])
    '(input · 3 + row) · 4 + column'
    """
    names = {1: ["part"], 2: ["row", "column"]}.get(len(sizes), [f"part {number}" for number in range(1, len(sizes) + 1)])
    said = "input"
    for name, size in zip(names, sizes, strict=True):
        said = f"{said if said == 'input' else f'({said})'} · {size} + {name}"
    return said
