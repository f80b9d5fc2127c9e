"""Functions other than attention that mix tokens: a rule for each kind."""

from typing import Any

from torch import Tensor, nn

from overt.lens.capture.token_axes.factors import Axis, Factor, axis_marks, named_dims, unmarked, with_marks
from overt.lens.capture.token_axes.labels import (
    CELL,
    FOURIER,
    LINEAR,
    LOOP,
    NEIGHBOURS,
    PRODUCT,
    SAMPLING,
    SCAN,
    FunctionCall,
    Mixing,
    TensorLabels,
    tensors_in,
)
from overt.lens.capture.token_axes.layout import Rule, elementwise, embedding, reduce, resize
from overt.lens.capture.written_out.products import arguments, operand_letters

_RECURRENT = {"lstm": "an LSTM", "gru": "a GRU", "rnn_tanh": "an RNN", "rnn_relu": "an RNN"}
_CELLS = {"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
_CONVOLUTIONS = {f"conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3)}
_POOLS = {f"{kind}_pool{dims}d" for kind in ("avg", "max", "lp") for dims in (1, 2, 3)}
_SCANS = {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"}
_MULTIPLICATIONS = {"mul", "multiply", "__mul__", "__rmul__", "__imul__"}
_SUMS = {"sum", "nansum", "mean"}
PRODUCTS = {"matmul", "bmm", "mm", "mv", "baddbmm", "einsum", "linear", "addmm", "addbmm", "_sparse_mm", "_sparse_addmm"}

# BEGIN: functions whose results have known token dimensions for any input.
BEGIN = {"embedding", "_pad_packed_sequence", *_RECURRENT, *_CONVOLUTIONS}


def recurrent(labels: TensorLabels, step: FunctionCall) -> Mixing:
    """torch's recurrent kernels; their last states count layers and entries of the batch."""
    embedding(labels, step)
    for state in step.outputs[1:]:
        labels.give(state, unmarked(state.shape))
    return Mixing("recurrent", _RECURRENT[step.name])


def cell(labels: TensorLabels, step: FunctionCall) -> Mixing:
    """One step of a recurrent layer; a second step continues its state."""
    elementwise(labels, step)
    return CELL


def convolution(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Overlapping windows mix their positions; after a convolution the dimensions of positions are known."""
    tensor, weight, output = step.argument(0, "input"), step.argument(1, "weight"), step.outputs[0]
    sizes = tuple(weight.shape[2:])
    before = labels.axes(tensor)[-len(sizes) :]
    marks = {dim: next(iter(axis_marks(before[dim])), "1" if sizes[dim] > 1 else "") for dim in range(-len(sizes), 0)}
    if not any(marks.values()):
        marks = dict.fromkeys(marks, "1")
    axes = with_marks(output.shape, {dim % output.ndim: mark for dim, mark in marks.items()})
    labels.give(output, (*labels.axes(tensor)[:1], *axes[1:]) if output.ndim == weight.ndim else axes)
    return _windows("a convolution", sizes, step.argument(3, "stride", 1), tensor.shape[-len(sizes) :])


def pool(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Pooling over overlapping windows."""
    tensor, size = step.argument(0, "input"), step.argument(1, "kernel_size")
    resize(labels, step)
    count = int(step.name[-2])
    sizes = tuple(size) if isinstance(size, list | tuple) else (size,) * count
    stride = step.argument(2, "stride")
    return _windows("pooling", sizes, sizes if stride is None or stride == [] else stride, tensor.shape[-count:])


def scan(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """A running sum along a dimension."""
    axes = labels.axes(step.args[0])
    elementwise(labels, step)
    dim = step.argument(1, "dim")
    if not isinstance(dim, int) or not axes or not axis_marks(axes[dim]):
        return None
    # A running sum of scores (tokens against tokens) counts positions; it brings no token's features to another token.
    others = [axis for number, axis in enumerate(axes) if number != dim % len(axes)]
    return (
        None
        if _whole(axes[dim]) and any(_whole(axis) and axis_marks(axis) == axis_marks(axes[dim]) for axis in others)
        else SCAN
    )


def fourier(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """A Fourier transform along a dimension."""
    axes, kind = labels.axes(step.args[0]), step.name.removeprefix("fft_")
    resize(labels, step)
    several = kind.endswith(("n", "2"))
    dims = step.argument(2, "dim", None if kind.endswith("n") else (-2, -1) if several else -1)
    transforms = (
        kind.startswith(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")) and "shift" not in kind and "freq" not in kind
    )
    return FOURIER if transforms and any(axis_marks(axes[dim]) for dim in named_dims(dims, len(axes))) else None


def product(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """A product that sums over tokens, or combines single tokens."""
    output = step.outputs[0]
    tensors, letters = operand_letters(step.name, arguments(step.name, step.args, step.kwargs), output)
    if not tensors:
        labels.give(output, None)
        return None
    counted: dict[str, Axis] = {}
    for tensor, names in zip(tensors, letters, strict=False):
        if step.name == "linear" and tensor is tensors[1]:
            continue
        for letter, axis in zip(names, labels.axes(tensor), strict=True):
            if axis_marks(axis):
                counted.setdefault(letter, axis)
    position, met = labels.position(step)
    labels.give(
        output,
        tuple(counted.get(letter, (Factor(size),)) for letter, size in zip(letters[-1], output.shape, strict=True)),
        position,
    )
    summed = [axis for letter, axis in counted.items() if letter not in letters[-1]]
    if any(isinstance(tensor, nn.Parameter) for tensor in tensors):
        # Tokens joined with their features are the patches of one token, or the input of a head that reads all tokens.
        over_tokens = any(all(factor.mark for factor in axis) for axis in summed)
        return LINEAR if over_tokens or any(f.mark.startswith("window") for axis in summed for f in axis) else None
    return PRODUCT if summed else LOOP if met else None


def multiplication(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """A product element by element; tokens become weighted if one operand has one number per token, and the other has features."""
    mixing = elementwise(labels, step)
    operands, [output] = tensors_in(step.args), step.outputs
    if len(operands) == 2 and any(_weights(labels, *pair) for pair in (operands, operands[::-1])):
        labels.know(output, labels.label(output)._replace(weighted=True))  # type: ignore[union-attr]
    return mixing


def weighted_sum(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """A sum or a mean; over weighted tokens it is a product of weights and tokens."""
    label, mixing = labels.label(step.args[0]) if step.args else None, reduce(labels, step)
    dims = step.argument(1, "dim")
    if label is None or not label.weighted or isinstance(dims, Tensor | bool):
        return mixing
    return PRODUCT if any(axis_marks(label.axes[dim]) for dim in named_dims(dims, len(label.axes))) else mixing


def sampling(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Values between tokens at computed positions, as in deformable attention; no mixing if values or positions are fixed."""
    values, grid, [output] = step.argument(0, "input"), step.argument(1, "grid"), step.outputs
    fixed = any((label := labels.label(tensor)) is not None and label.constant for tensor in (values, grid))
    labels.give(output, (*labels.axes(values)[:2], *labels.axes(grid)[1:-1]))
    return None if fixed else SAMPLING


def bag(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Sums of embeddings, which mix tokens if their table holds tokens."""
    table, [output] = step.argument(1, "weight"), step.outputs
    label, axes = labels.label(table), labels.axes(table)
    labels.give(output, ((Factor(len(output), next(iter(axis_marks(axes[0])), "0"), None),), *axes[1:]))
    return NEIGHBOURS if label is not None and not label.constant and axis_marks(axes[0]) else None


def _weights(labels: TensorLabels, weights: Tensor, features: Tensor) -> bool:
    """Whether `weights` has one number for each token of `features`."""
    known = [label for part in (weights, features) if (label := labels.label(part)) is not None and not label.constant]
    if len(known) < 2 or weights.ndim != features.ndim:
        return False
    counted = zip(labels.axes(weights), labels.axes(features), weights.shape, features.shape, strict=True)
    marked, narrower = False, False
    for axis, other, size, wide in counted:
        marked |= bool(axis_marks(axis) & axis_marks(other))
        narrower |= size == 1 < wide and not axis_marks(other)
    return marked and narrower


def _windows(what: str, sizes: tuple[int, ...], stride: Any, lengths: Any) -> Mixing | None:
    """How windows mix tokens: only if they overlap; adjacent windows turn patches into tokens."""
    strides = tuple(stride) if isinstance(stride, list | tuple) else (stride,) * len(sizes)
    strides = strides * len(sizes) if len(strides) == 1 else strides
    if not any(size > step and length > 1 for size, step, length in zip(sizes, strides, lengths, strict=False)):
        return None
    return Mixing(what, f"{what} over {' × '.join(map(str, sizes))} positions")


def _whole(axis: Axis) -> bool:
    """Whether a dimension counts all tokens from the first to the last, so it is not cut into chunks."""
    return len(axis) == 1 and axis[0].whole


MIXING: dict[str, Rule] = {
    **dict.fromkeys(_RECURRENT, recurrent),
    **dict.fromkeys(_CELLS, cell),
    **dict.fromkeys(_CONVOLUTIONS, convolution),
    **dict.fromkeys(_POOLS, pool),
    **dict.fromkeys(_SCANS, scan),
    **dict.fromkeys(PRODUCTS, product),
    **dict.fromkeys(_MULTIPLICATIONS, multiplication),
    **dict.fromkeys(_SUMS, weighted_sum),
    "grid_sample": sampling,
    "embedding_bag": bag,
}
