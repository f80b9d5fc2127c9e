"""What is known of a model's tensors: which of their dimensions count tokens, and how a function may mix those."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from overt.lens.capture.token_axes.factors import Axes, unmarked


class Mixing(NamedTuple):
    """One way of mixing tokens: its kind, a phrase that says it, and whether attention's own steps look like it too.

    A kind that has to `repeat` mixes only where the same module does it more than once.
    """

    kind: str
    says: str
    like_attention: bool = False
    repeat: bool = False


PRODUCT = Mixing("product", "products that sum over tokens, not followed from a softmax", like_attention=True)
LINEAR = Mixing("linear", "a matrix of parameters over tokens")
SCAN = Mixing("scan", "running sums over tokens", like_attention=True)
SHIFT = Mixing("shift", "tokens added to their shifted neighbours", like_attention=True)
LOOP = Mixing("loop", "a recurrence over tokens", like_attention=True, repeat=True)
CELL = Mixing("cell", "a recurrence from step to step", repeat=True)
FOURIER = Mixing("fourier", "a Fourier transform over tokens")


class TensorLabel(NamedTuple):
    """What a tensor's dimensions count, and which token alone it is of, if one was taken out.

    It is not `sure` where a function was not understood on the way: then dimensions without a mark may count tokens all the same. It is
    `constant` where the tensor comes from the model alone.
    """

    axes: Axes
    position: int | None = None
    sure: bool = True
    constant: bool = False


class FunctionCall(NamedTuple):
    """One function of torch as a model called it."""

    name: str
    func: Callable
    args: tuple
    kwargs: dict[str, Any]
    output: Any

    def argument(self, number: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.args[number] if len(self.args) > number else self.kwargs.get(name, default)

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors of numbers that it gave."""
        each = self.output if isinstance(self.output, list | tuple) else [self.output]
        return [tensor for tensor in each if is_numbers(tensor)]


class TensorLabels:
    """Keeps the label of every tensor that a model has at hand."""

    def __init__(self):
        self.known: dict[int, tuple[weakref.ref[Tensor], TensorLabel]] = {}

    def of(self, tensor: Any) -> TensorLabel | None:
        """What is known of a tensor."""
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def know(self, tensor: Tensor, label: TensorLabel) -> None:
        """Keep a label for as long as its tensor lives."""
        key = id(tensor)
        self.known[key] = weakref.ref(tensor, lambda _: self.known.pop(key, None)), label

    def axes(self, tensor: Any) -> Axes:
        """What the dimensions of a tensor count, as far as is known."""
        label = self.of(tensor)
        return label.axes if label is not None and len(label.axes) == tensor.ndim else unmarked(tensor.shape)

    def give(self, tensor: Tensor, axes: Axes | None, position: int | None = None) -> None:
        """Keep what the dimensions of a result count; None, or what does not fit its sizes, is not known."""
        fits = axes is not None and [math.prod(factor.size for factor in axis) for axis in axes] == list(tensor.shape)
        self.know(tensor, TensorLabel(axes if fits and axes is not None else unmarked(tensor.shape), position, sure=fits))

    def position(self, step: FunctionCall) -> tuple[int | None, bool]:
        """Of which token alone a result is, and whether several met in it."""
        labels = [self.of(tensor) for tensor in tensors_in((*step.args, *step.kwargs.values()))]
        positions = {label.position for label in labels if label is not None and label.position is not None}
        return max(positions, default=None), len(positions) > 1


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of numbers among some values, lists of them opened."""
    return list(_each(values))


def _each(values: Any) -> Iterator[Tensor]:
    for value in values:
        if is_numbers(value):
            yield value
        elif isinstance(value, list | tuple):
            yield from (each for each in value if is_numbers(each))


def is_numbers(value: Any) -> bool:
    """Whether this is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and not value.is_nested and (value.is_floating_point() or value.is_complex())
