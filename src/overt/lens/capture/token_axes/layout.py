"""Which dimensions of a result count tokens: a rule for each function that rearranges, slices or joins tensors."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from overt.attention.check import broadcasts_to
from overt.lens.capture.token_axes.factors import (
    RESHAPES,
    SPLITS,
    Axes,
    Axis,
    Factor,
    axis_marks,
    index_entries,
    indexed,
    named_dims,
    part,
    reshaped,
    swapped,
    unmarked,
    with_marks,
    without,
)
from overt.lens.capture.token_axes.labels import (
    LOOP,
    SHIFT,
    FunctionCall,
    Mixing,
    TensorLabel,
    TensorLabels,
    is_numbers,
    tensors_in,
)

_ARITHMETIC = {
    "add",
    "sub",
    "mul",
    "multiply",
    "div",
    "true_divide",
    "lerp",
    "addcmul",
    "addcdiv",
    "maximum",
    "minimum",
    "where",
}
_ARITHMETIC |= {"__add__", "__radd__", "__sub__", "__rsub__", "rsub", "__mul__", "__rmul__", "__iadd__", "__imul__", "__isub__"}
REDUCTIONS = {"sum", "nansum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "var", "std", "median", "var_mean"}
NORMS = {"norm", "linalg_norm", "linalg_vector_norm"}
_RESIZING = {"interpolate", "repeat", "tile", "repeat_interleave"}
_RESIZING |= {f"adaptive_{kind}_pool{dims}d" for kind in ("avg", "max") for dims in (1, 2, 3)}

JOINS = {"cat", "concat", "stack"}
NEW = {f"new_{kind}" for kind in ("zeros", "ones", "full", "empty", "tensor")}
NEW |= {f"{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn")}

Rule = Callable[[TensorLabels, FunctionCall], Mixing | None]


def elementwise(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Any function without its own rule: dimensions keep their places, counted from the last."""
    operands = tensors_in((*step.args, *step.kwargs.values()))
    position, met = labels.position(step)
    shifted = False
    for output in step.outputs:
        fitting = [tensor for tensor in operands if broadcasts_to(tensor.shape, output.shape)]
        axes = [_met([labels.axes(tensor) for tensor in fitting], dim, output) for dim in range(-output.ndim, 0)]
        shifted |= any(apart for _, apart in axes)
        if not fitting and operands:
            labels.give(output, None, position)
        else:
            labels.give(output, tuple(axis for axis, _ in axes), position)
    if step.name in _ARITHMETIC and met:
        return LOOP
    return SHIFT if step.name in _ARITHMETIC and shifted else None


def new(labels: TensorLabels, step: FunctionCall) -> None:
    """A tensor without numbers of another tensor: its dimensions have no marks."""
    for output in step.outputs:
        labels.give(output, unmarked(output.shape))


def resize(labels: TensorLabels, step: FunctionCall) -> None:
    """The same dimensions, perhaps with other sizes."""
    axes = labels.axes(step.args[0])
    for output in step.outputs:
        labels.give(output, _resized(axes, output.shape) if len(axes) == output.ndim else None)


def same(labels: TensorLabels, step: FunctionCall) -> None:
    """The order along a dimension changes, so shifts become unknown."""
    for output in step.outputs:
        axes = labels.axes(step.args[0])
        labels.give(output, _unshifted(axes))


def embedding(labels: TensorLabels, step: FunctionCall) -> None:
    """A tensor in which tokens begin: all of its dimensions except the last get marks.

    Embeddings of positions hold no tokens, so they are not shifted against tokens.
    """
    for output in step.outputs[:1]:
        time_first = step.name == "_pad_packed_sequence" and not step.argument(2, "batch_first", False)
        dims = (1, 0) if time_first else range(output.ndim - 1)
        axes = with_marks(output.shape, {dim: str(number) for number, dim in enumerate(dims)})
        labels.give(output, _unshifted(axes) if step.name == "embedding" and _counts_up(step.argument(0, "input")) else axes)


def attention(labels: TensorLabels, step: FunctionCall) -> None:
    """The output of fused attention has its queries' places; its values share the dimensions before them."""
    query, value = (labels.axes(step.argument(*part)) for part in ((0, "query"), (2, "value")))
    for output in step.outputs:
        before = [_met([query, value], dim, output)[0] for dim in range(-output.ndim, -2)]
        labels.give(output, (*before, *query[-2:-1], (Factor(output.shape[-1]),)))


def rearrange(labels: TensorLabels, step: FunctionCall) -> None:
    """Dimensions are split, joined or permuted."""
    label = labels.label(step.args[0]) if step.args else None
    for output in step.outputs:
        if label is None:
            labels.give(output, None)
            continue
        in_order = step.name in RESHAPES
        axes = reshaped(label.axes, output.shape) if in_order else swapped(label.axes, step.func, step.args, step.kwargs)
        labels.give(output, axes, label.position)


def index(labels: TensorLabels, step: FunctionCall) -> None:
    """Parts of a tensor, by numbers and slices or by a tensor of numbers."""
    tensor, [output] = step.args[0], step.outputs
    label = TensorLabel(labels.axes(tensor))
    taken = indexed(label.axes, step.args[1], output.shape)
    if taken is not None:
        before = labels.label(tensor)
        position = taken.position if taken.position is not None else None if before is None else before.position
        return labels.give(output, taken.axes, position)
    # An index of tensors chooses along the first dimensions; the dimensions after them keep their places.
    counted = any(axis_marks(axis) for axis in label.axes[:-1])
    behind: list[Axis] = []
    for axis, size, before in zip(reversed(label.axes), reversed(output.shape[1:]), reversed(tensor.shape), strict=False):
        behind.insert(0, axis if size == before else (Factor(size),))
    first = output.shape[: output.ndim - len(behind)]
    return labels.give(output, (*((Factor(size, "0" if counted and size > 1 else "", None),) for size in first), *behind))


def write(labels: TensorLabels, step: FunctionCall) -> None:
    """`target[index] = value`: the target counts tokens like the value, or where tokens are written one after another."""
    target, index, value = step.args[:3]
    if not is_numbers(target) or not is_numbers(value):
        return
    label = labels.label(value)
    entries = list(index) if isinstance(index, tuple) else [index]
    if label is None or not label.sure or any(isinstance(entry, Tensor | list) for entry in entries):
        labels.give(target, None)
        return
    entries = index_entries(index, target.ndim)
    axes, behind = list(labels.axes(target)), 0
    for dim in reversed(range(target.ndim)):
        if not isinstance(entries[dim], slice):
            alone = label.position is not None and not axis_marks(axes[dim])
            axes[dim] = (Factor(target.shape[dim], "1", None),) if alone else axes[dim]
            continue
        behind += 1
        axis = label.axes[-behind] if behind <= len(label.axes) else ()
        if axis_marks(axis) and not axis_marks(axes[dim]):
            start, _, step_size = entries[dim].indices(target.shape[dim])
            shift = axis[0].shift if len(axis) == 1 and step_size == 1 else None
            axes[dim] = (Factor(target.shape[dim], next(iter(axis_marks(axis))), None if shift is None else shift - start),)
    labels.give(target, tuple(axes))


def select(labels: TensorLabels, step: FunctionCall) -> None:
    """One number of a dimension, or all of them separately: each one is then a single token."""
    axes = labels.axes(step.args[0])
    dim, first = step.argument(1, "dim", 0) % len(axes), int(step.argument(2, "index")) if step.name == "select" else 0
    for number, output in enumerate(step.outputs, first):
        labels.give(output, without(axes, {dim}), number if axis_marks(axes[dim]) else None)


def split(labels: TensorLabels, step: FunctionCall) -> None:
    """A part of one dimension, or consecutive parts of it."""
    axes, narrows = labels.axes(step.args[0]), step.name == "narrow"
    dim, start = step.argument(1 if narrows else 2, "dim", 0) % len(axes), int(step.argument(2, "start")) if narrows else 0
    for output in step.outputs:
        size = output.shape[dim]
        alone = start if size == 1 and axis_marks(axes[dim]) else None
        labels.give(output, (*axes[:dim], part(axes[dim], start, start + size, size), *axes[dim + 1 :]), alone)
        start += size


def stack(labels: TensorLabels, step: FunctionCall) -> None:
    """A new dimension, which counts tokens if the tensors hold different ones."""
    tensors, [output] = tensors_in(step.args[:1] or step.kwargs.values()), step.outputs
    positions = {label.position for tensor in tensors if (label := labels.label(tensor)) is not None}
    dim = step.argument(1, "dim", 0) % output.ndim
    axes = list(labels.axes(tensors[0]))
    axes.insert(dim, (Factor(len(tensors), "1" if len(positions - {None}) > 1 else "", None),))
    labels.give(output, tuple(axes))


def cat(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Tensors concatenated; along a dimension that is neither tokens nor batch, shifted tokens meet."""
    tensors, [output] = tensors_in(step.args[:1] or step.kwargs.values()), step.outputs
    dim = step.argument(1, "dim", 0) % output.ndim
    alike = [labels.axes(tensor) for tensor in tensors if tensor.ndim == output.ndim]
    met = [_met(alike, dim - output.ndim, output) for dim in range(output.ndim)]
    axes = [axis for axis, _ in met]
    positions = {label.position for tensor in tensors if (label := labels.label(tensor)) is not None} - {None}
    start, marked = 0, []
    for member in alike:
        if axis_marks(member[dim]):
            marked.append((member[dim], start))
        start += math.prod(factor.size for factor in member[dim])
    mark = next(iter(axis_marks(marked[0][0])), "") if marked else "1" if len(positions) > 1 else ""
    shift = marked[0][0][0].shift - marked[0][1] if len(marked) == 1 and marked[0][0][0].shift is not None else None
    axes[dim] = (Factor(output.shape[dim], mark, shift),)
    labels.give(output, tuple(axes))
    return SHIFT if dim > 0 and any(apart for _, apart in met) else None


def pad(labels: TensorLabels, step: FunctionCall) -> None:
    """Padding in front shifts a dimension."""
    axes, pads = list(labels.axes(step.args[0])), list(step.argument(1, "pad"))
    for number in range(len(pads) // 2):
        dim = len(axes) - 1 - number
        size = step.outputs[0].shape[dim]
        axes[dim] = (
            part(axes[dim], -pads[2 * number], size - pads[2 * number], size) if axis_marks(axes[dim]) else (Factor(size),)
        )
    labels.give(step.outputs[0], tuple(axes))


def roll(labels: TensorLabels, step: FunctionCall) -> None:
    """A dimension is shifted, with its end moved to the front."""
    axes = list(labels.axes(step.args[0]))
    shifts, dims = step.argument(1, "shifts"), step.argument(2, "dims")
    pairs = zip(*(part if isinstance(part, list | tuple) else [part] for part in (shifts, dims)), strict=False)
    for shift, dim in pairs if dims is not None else []:
        axes[dim] = tuple(
            f._replace(shift=None if f.shift is None or len(axes[dim]) > 1 else f.shift - int(shift)) for f in axes[dim]
        )
    labels.give(step.outputs[0], tuple(axes))


def unfold(labels: TensorLabels, step: FunctionCall) -> None:
    """Windows along a dimension; a sum over a window mixes its tokens."""
    axes, output = labels.axes(step.args[0]), step.outputs[0]
    if output.ndim != len(axes) + 1:  # of images: channels · window, windows
        channels = step.args[0].shape[-3]
        window = Factor(output.shape[-2] // channels, "window 1", None)
        return labels.give(output, (*axes[:-3], (Factor(channels), window), (Factor(output.shape[-1], "1"),)))
    dim = step.argument(1, "dimension") % len(axes)
    overlap = step.argument(2, "size") > step.argument(3, "step")
    mark = next(iter(axis_marks(axes[dim])), "")
    windows = (*axes[:dim], (Factor(output.shape[dim], mark, None),), *axes[dim + 1 :])
    return labels.give(output, (*windows, (Factor(output.shape[-1], f"window {mark}" if mark and overlap else "", None),)))


def reduce(labels: TensorLabels, step: FunctionCall) -> Mixing | None:
    """Dimensions are summed or averaged; this mixes tokens only over windows."""
    axes = labels.axes(step.args[0]) if step.args and is_numbers(step.args[0]) else None
    default = step.argument(2 if step.name in NORMS else 1, "dim")
    if axes is None or isinstance(default, Tensor | bool):
        return elementwise(labels, step)
    dims, label = named_dims(default, len(axes)), labels.label(step.args[0])
    for output in step.outputs:
        left = tuple((Factor(1),) if dim in dims else axis for dim, axis in enumerate(axes))
        labels.give(
            output, left if output.ndim == len(axes) else without(axes, dims), None if label is None else label.position
        )
    return SHIFT if any(mark.startswith("window") for dim in dims for mark in axis_marks(axes[dim])) else None


def _met(operands: list[Axes], dim: int, output: Tensor) -> tuple[Axis, bool]:
    """One dimension of a result of several operands, counted from the last, and whether the operands are shifted."""
    size = output.shape[dim]
    some = [axes[dim] for axes in operands if len(axes) >= -dim and math.prod(f.size for f in axes[dim]) == size]
    some = [axis for axis in some if axis_marks(axis)]
    if not some:
        return (Factor(size),), False
    shifts = {axis[0].shift for axis in some if len(axis) == 1 and axis[0].shift is not None}
    best = next((axis for axis in some if len(axis) == 1 and axis[0].shift is not None), some[0])
    return best, len(shifts) > 1


def _unshifted(axes: Axes) -> Axes:
    """The same dimensions with unknown shifts."""
    return tuple(tuple(factor._replace(shift=None) for factor in axis) for axis in axes)


def _counts_up(indices: Tensor) -> bool:
    """Whether indices are positions: each row increases by one from index to index."""
    return not indices.is_meta and indices.ndim > 0 and indices.shape[-1] > 1 and bool((indices.diff() == 1).all())


def _resized(axes: Axes, shape: Any) -> Axes:
    """The same dimensions with other sizes."""
    return tuple(
        axis
        if math.prod(factor.size for factor in axis) == size
        else (Factor(size, next(iter(axis_marks(axis)), "") if size > 1 else "", None),)
        for axis, size in zip(axes, shape, strict=True)
    )


LAYOUT: dict[str, Rule] = {
    "embedding": embedding,
    "stack": stack,
    "cat": cat,
    "concat": cat,
    "pad": pad,
    "roll": roll,
    "flip": same,
    "__getitem__": index,
    "__setitem__": write,
    "select": select,
    "unbind": select,
    "narrow": split,
    "unfold": unfold,
    "_pad_packed_sequence": embedding,
    "scaled_dot_product_attention": attention,
    **dict.fromkeys(NEW, new),
    **dict.fromkeys(_RESIZING, resize),
    **dict.fromkeys(REDUCTIONS | NORMS, reduce),
    **dict.fromkeys(SPLITS, split),
    **dict.fromkeys(RESHAPES, rearrange),
}
