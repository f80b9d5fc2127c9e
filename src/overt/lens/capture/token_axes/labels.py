"""Labels of a model's tensors: which of their dimensions count tokens, and how a function may mix tokens."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from overt.lens.capture.token_axes.factors import Axes, unmarked
from overt.lens.capture.token_axes.origins import Origins


class Mixing(NamedTuple):
    """One way of mixing tokens: its kind, a phrase for it, and whether steps of attention also look like it.

    A kind with `repeat` mixes tokens only if the same module does it more than once.
    """

    kind: str
    says: str
    like_attention: bool = False
    repeat: bool = False


PRODUCT = Mixing("product", "products that sum over tokens, not tracked from a softmax", like_attention=True)
LINEAR = Mixing("linear", "a matrix of parameters over tokens")
SCAN = Mixing("scan", "running sums over tokens", like_attention=True)
SHIFT = Mixing("shift", "tokens added to their shifted neighbours", like_attention=True)
LOOP = Mixing("loop", "a recurrence over tokens", like_attention=True, repeat=True)
CELL = Mixing("cell", "a recurrence from step to step", repeat=True)
FOURIER = Mixing("fourier", "a Fourier transform over tokens")
SAMPLING = Mixing("sampling", "values sampled at positions that the model computes")
NEIGHBOURS = Mixing("neighbours", "an index that brings them to others", like_attention=True)
CHANNELS = Mixing("channels", "attention over edges that has a weight for each channel")
EDGE_VALUES = Mixing("edge values", "attention over edges that have values of their own")
ORDER = Mixing("order", "an index that puts them into another order")


class TensorLabel(NamedTuple):
    """The axes of a tensor, and the position of its token if it holds only one.

    A label is not `sure` after an unknown function: dimensions without a mark may then also count tokens. It is `constant` if the
    tensor depends only on the model, and `weighted` if each token was multiplied by its own number. `origins` are the tokens from which
    an index took its numbers.
    """

    axes: Axes
    position: int | None = None
    sure: bool = True
    constant: bool = False
    weighted: bool = False
    origins: tuple[Origins, ...] = ()


class FunctionCall(NamedTuple):
    """One call of a torch function by a model."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    def argument(self, number: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.args[number] if len(self.args) > number else self.kwargs.get(name, default)

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors of numbers that the function returned."""
        item = self.output if isinstance(self.output, list | tuple) else [self.output]
        return [tensor for tensor in item if is_numbers(tensor)]


class TensorLabels:
    """The labels of all live tensors of a model."""

    def __init__(self):
        self.known: dict[int, tuple[weakref.ref[Tensor], TensorLabel]] = {}

    def label(self, tensor: Any) -> TensorLabel | None:
        """The label of a tensor, if it has one."""
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def know(self, tensor: Tensor, label: TensorLabel) -> None:
        """Store a label while its tensor is alive."""
        key = id(tensor)
        self.known[key] = weakref.ref(tensor, lambda _: self.known.pop(key, None)), label

    def axes(self, tensor: Any) -> Axes:
        """The axes of a tensor, as far as they are known."""
        label = self.label(tensor)
        return label.axes if label is not None and len(label.axes) == tensor.ndim else unmarked(tensor.shape)

    def give(self, tensor: Tensor, axes: Axes | None, position: int | None = None) -> None:
        """Store the axes of a result; None, or axes of other sizes, mean unknown axes."""
        fits = axes is not None and [math.prod(factor.size for factor in axis) for axis in axes] == list(tensor.shape)
        self.know(tensor, TensorLabel(axes if fits and axes is not None else unmarked(tensor.shape), position, sure=fits))

    def position(self, step: FunctionCall) -> tuple[int | None, bool]:
        """The position of a result's token, if its operands hold single tokens, and whether these tokens differ."""
        labels = [self.label(tensor) for tensor in tensors_in((*step.args, *step.kwargs.values()))]
        positions = {label.position for label in labels if label is not None and label.position is not None}
        return max(positions, default=None), len(positions) > 1


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors of numbers among some values and in lists of them."""
    return list(_tensors(values))


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if is_numbers(value):
            yield value
        elif isinstance(value, list | tuple):
            yield from (part for part in value if is_numbers(part))


def is_numbers(value: Any) -> bool:
    """Whether the value is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and not value.is_nested and (value.is_floating_point() or value.is_complex())
