"""Shape letters, checks of input and their messages.

The letters: B batch, H heads, Q queries, K keys, D features of query and key, E features of value. Checks read kinds and
shapes, never values, so they cost nothing and hold under `torch.compile`.
"""

import difflib
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from overt.errors import InputError, KindError, MissingExtra

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
    raise MissingExtra("attention", needs="torch 2.7 or later", extra="torch", installed=torch.__version__)

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # the dtypes in which attention takes its inputs


def shapes(**tensors: Any) -> str:
    """The shapes of all tensors in words, for messages.

    >>> import torch
    >>> shapes(query=torch.ones(2, 3), key=torch.ones(4, 3))
    'query (2, 3), key (4, 3)'
    """
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())


def attention_inputs(query: Any, key: Any, value: Any) -> None:
    """Refuse inputs that are not three floating-point tensors of one dtype and device that end in (length, features)."""
    for tensor in (query, key, value):
        if not isinstance(tensor, Tensor) or not is_float(tensor) or tensor.ndim < 2:
            _refuse_input({"query": query, "key": key, "value": value})
    if not query.device == key.device == value.device:
        tensors = {"query": query, "key": key, "value": value}
        raise KindError(
            "query, key and value to be on one device", got=_by_name(tensors, "device"), fix="move them with .to(device)"
        )
    if key.shape[-2] != value.shape[-2]:
        raise InputError(
            "key and value to have the same length K (dimension -2)",
            got=shapes(query=query, key=key, value=value),
            fix="pass one value for each key",
        )


def dense(tensor: Any, name: str = "tensor") -> None:
    """Refuse nested tensors, whose sequences have different lengths, and sparse, mkldnn and quantised tensors."""
    if not isinstance(tensor, Tensor):
        return
    short = name if name.isidentifier() else "tensor"
    if tensor.is_nested:
        raise KindError(
            "dense tensors",
            got="a nested tensor",
            fix="concatenate the sequences and pass mask=overt.masks.from_cu_seqlens(offsets, total)",
        )
    if tensor.layout != torch.strided:
        raise KindError("dense tensors", got=f"{name} of layout {tensor.layout}", fix=f"convert it: {short}.to_dense()")
    if tensor.is_quantized:
        raise KindError(
            "tensors that are not quantised", got=f"{name} of {tensor.dtype}", fix=f"convert it: {short}.dequantize()"
        )


def is_float(tensor: Tensor) -> bool:
    """Whether the tensor is dense and has a dtype that attention supports."""
    return tensor.dtype in _DTYPES and tensor.layout == torch.strided and not tensor.is_nested


def float_fix(name: str, tensor: Tensor) -> str:
    """How to convert the tensor to a floating-point dtype that attention supports."""
    if tensor.is_complex():
        return f"pass its real part, {name}.real, or both as features: torch.view_as_real({name}).flatten(-2)"
    if tensor.is_floating_point():
        return f"convert it: {name}.to(torch.bfloat16), times its scale if it has one"
    return f"convert the numbers: {name}.float()"


def _refuse_input(tensors: dict[str, Any]) -> None:
    """Raise the error of the first input that is no dense floating-point tensor ending in (length, features)."""
    for name, tensor in tensors.items():
        dense(tensor, name)
        if not isinstance(tensor, Tensor):
            raise KindError(
                "query, key and value to be all tensors, or all arrays of one library",
                got=f"{name} of type {type(tensor).__name__}",
                fix=f"convert it, as with torch.as_tensor({name})",
            )
        if not is_float(tensor):
            fix = float_fix(name, tensor)
            raise KindError(
                "query, key and value to hold floating-point numbers"
                + (", float64, float32, float16 or bfloat16" if tensor.is_floating_point() else ""),
                got=f"{name} of dtype {tensor.dtype}",
                fix=f"embed the tokens, or {fix}" if ".float()" in fix else fix,
            )
        if tensor.ndim < 2:
            raise InputError(
                "query, key and value to end in two dimensions, (length, features)",
                got=shapes(**tensors),
                fix=f"give {name} a length: {name}.unsqueeze(0)",
            )


def one_dtype(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse mixed dtypes: the caller must choose which one to use."""
    if not query.dtype == key.dtype == value.dtype:
        tensors = {"query": query, "key": key, "value": value}
        raise KindError(
            "query, key and value to have one dtype", got=_by_name(tensors, "dtype"), fix="convert them with .to(dtype)"
        )


def broadcast_leading(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """The leading dimensions (..., without length and features) of the call, query heads included.

    Sizes are equal or 1, which is shared by all. Only dimension -3 of inputs with four or more dimensions may have fewer key and
    value heads than query heads, if the number divides: grouped-query attention. Key and value then have the same number of heads,
    since one key head belongs to one value head; torch's documentation requires the same, and its kernels do not check it.
    """
    if query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return tuple(query.shape[:-2])
    grouped = min(query.ndim, key.ndim, value.ndim) >= 4
    sizes = []
    for position in range(-max(query.ndim, key.ndim, value.ndim), -2):
        q, k, v = (tensor.shape[position] if tensor.ndim >= -position else 1 for tensor in (query, key, value))
        heads = grouped and position == -3
        size = q if q != 1 else max(k, v) if 0 not in (k, v) else 0
        if heads and k != v and 1 not in (k, v):
            raise InputError(
                "key and value to have the same number of heads (dimension -3), or one of them a single head, shared by all",
                got=shapes(query=query, key=key, value=value),
                fix="pass one value head for each key head",
            )
        for other in (k, v):
            # Compared one by one: under torch.compile `in` does not recognize equal symbolic sizes.
            if other != 1 and other != size and not (heads and other != 0 and size % other == 0):
                raise InputError(
                    "the number of query heads to be a multiple of the number of key and value heads (dimension -3)"
                    if heads
                    else "leading dimensions to be equal or 1",
                    got=shapes(query=query, key=key, value=value),
                    fix="make the sizes equal, or 1 to share one among all"
                    if grouped
                    else "make the sizes equal; to group heads, give all three a batch and a head dimension, (B, H, length, features)",
                )
        sizes.append(size)
    return tuple(sizes)


def fits(name: str, shape: Sequence[int], target: Sequence[int], query: Tensor, key: Tensor) -> None:
    """Refuse a mask or bias whose shape does not broadcast, right-aligned, against (..., Q, K), or is ambiguous.

    One mask per head and one mask per batch entry have the same shape if B = H, so a tensor that omits one of the two is refused.
    """
    if not broadcasts_to(shape, target):
        raise InputError(
            f"{name} to broadcast, aligned right, against the weights (..., Q, K) = {tuple(target)}",
            got=f"{name} {tuple(shape)}, {shapes(query=query, key=key)}",
            fix=shape_fix(name, shape, target),
        )
    leading, missing = len(shape) - 2, len(target) - len(shape)
    if missing > 0 and leading > 0 and any(size != 1 for size in shape[:leading]):
        first = [start for start in range(missing + 1) if broadcasts_to(shape[:leading], target[start : start + leading])]
        if len(first) > 1:
            refuse_ambiguous(name, shape, [(start, missing - start) for start in first])


def refuse_ambiguous(name: str, shape: Sequence[int], readings: Sequence[tuple[int, int]], who: str = "") -> None:
    """Raise the error of a mask or bias that could mean several dimensions.

    Each reading is (dimensions before, dimensions after): it places the tensor's leading dimensions in (B, …, H, Q, K).
    """
    inside, total = len(shape) - 2, sum(readings[0]) + len(shape) - 2
    letters = ["B", *(f"D{index}" for index in range(1, total - 1)), "H"]
    forms, fixes = [], []
    for before, after in readings:
        index = ", ".join(["None"] * before + ([":"] * inside + ["None"] * after if after else []))
        entry = "batch entry" if before == 0 and inside == 1 else "head" if after == 0 and inside == 1 else ""
        forms.append(f"({', '.join([*letters[before : before + inside], 'Q', 'K'])})")
        fixes.append(f"{name}[{index}] for one a {entry}" if entry else f"{name}[{index}] for {forms[-1]}")
    weights = f"({', '.join([*letters, 'Q', 'K'])})"
    raise InputError(
        f"a {name}{who} as (Q, K) or {weights}, since {len(shape)} dimensions may be {' or '.join(forms)} here",
        got=f"a {name} {tuple(shape)}",
        fix=f"say which: {', '.join(fixes)}",
    )


def aligned_right(tensor: Any, dimensions: int) -> Any:
    """Prepend dimensions of size 1 until the tensor has as many dimensions as the weights, as torch's broadcasting does.

    >>> aligned_right(torch.ones(2, 5, 7), 4).shape
    torch.Size([1, 2, 5, 7])
    """
    missing = dimensions - tensor.ndim if isinstance(tensor, Tensor) else 0
    return tensor[(None,) * missing] if missing > 0 else tensor


def broadcasts_to(shape: Sequence[int], target: Sequence[int | None]) -> bool:
    """Whether a shape broadcasts, right-aligned, to exactly this target; None in the target is any size."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    return len(padded) == len(target) and all(
        actual == 1 or size is None or actual == size for actual, size in zip(padded, target, strict=True)
    )


def shape_fix(name: str, shape: Sequence[int], target: Sequence[int | None]) -> str:
    """How to reshape a tensor that does not fit, as far as its shape shows the cause.

    >>> shape_fix("bias", (2, 5, 7), (2, 4, 5, 7))
    'write bias[:, None, :, :], if the first dimension is the batch'
    >>> shape_fix("mask", (2, 1, 1, 7), (2, 5, 7))
    'remove a dimension of size 1: the weights have 3 dimensions'
    """
    missing = len(target) - len(shape)
    if missing < 0:
        excess = "a dimension" if missing == -1 else f"{-missing} dimensions"
        size = " of size 1" if list(shape).count(1) >= -missing else ""
        return f"remove {excess}{size}: the weights have {len(target)} dimensions"
    # A batch dimension in the position of the heads or the queries.
    if missing and len(shape) > 1 and broadcasts_to((shape[0], *(1,) * missing, *shape[1:]), target):
        index = f"{name}[:{', None' * missing}{', :' * (len(shape) - 1)}]"
        if len(shape) > 2:
            return f"write {index}, if the first dimension is the batch"
        tokens = ", or overt.masks.from_attention_mask(mask), if True or 1 is a token" if name == "mask" else ""
        return f"write {index} for one row of keys per batch entry{tokens}"
    return "make each dimension as long as the weights' or 1"


def not_a_class(name: str, value: Any) -> None:
    """Refuse a class if an instance is expected."""
    if isinstance(value, type):
        required = [
            parameter for parameter in inspect.signature(value).parameters.values() if parameter.default is parameter.empty
        ]
        needs = any(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in required)
        raise KindError(
            f"{name} to be an object",
            got=f"the class {value.__name__}",
            fix=f"make one: {value.__name__}({'…' if needs else ''})",
        )


def bias_tensor(bias: Any) -> None:
    """Refuse a bias that is not a floating-point tensor."""
    not_a_class("the bias", bias)
    dense(bias, "bias")
    if not isinstance(bias, Tensor) or not is_float(bias):
        fix = "convert it: torch.as_tensor(bias).float()"
        if isinstance(bias, Tensor):
            fix = "pass a bool tensor as mask=" if bias.dtype == torch.bool else float_fix("bias", bias)
        elif isinstance(bias, str):
            alibi = bias.lower() == "alibi"
            fix = (
                "make one: overt.ALiBi(overt.biases.alibi_slopes(heads))" if alibi else "pass a tensor, or one of overt.biases"
            )
        raise KindError(
            "the bias to be a floating-point tensor, which is added to the scores, or one of overt.biases",
            got=describe(bias),
            fix=fix,
        )


def broadcasts(name: str, tensor: Tensor, queries: int, keys: int, leading: int = 0) -> None:
    """Refuse a tensor whose last two sizes are neither 1 nor Q and K; the call has `leading` dimensions before them."""
    rows, columns = (1, 1, *tensor.shape)[-2:]
    if (rows != 1 and rows != queries) or (columns != 1 and columns != keys):
        target = (*(None,) * leading, queries, keys)
        raise InputError(
            f"a {name} to broadcast, aligned right, against the weights (..., Q, K) = (..., {queries}, {keys})",
            got=f"a {name} of shape {tuple(tensor.shape)}",
            fix=shape_fix(name, tensor.shape, target) if tensor.ndim <= len(target) else "cut it to the call's lengths",
        )


def float_tensor(name: str, tensor: Any) -> None:
    """Refuse anything but a floating-point tensor."""
    dense(tensor, name)
    if not isinstance(tensor, Tensor) or not is_float(tensor):
        fix = float_fix("tensor", tensor) if isinstance(tensor, Tensor) else "pass a float tensor"
        raise KindError(f"{name} to be a floating-point tensor", got=describe(tensor), fix=fix)


def same_device(name: str, tensor: Tensor, query: Tensor) -> None:
    """Refuse a tensor on a device other than the query's."""
    if tensor.device != query.device:
        raise KindError(
            f"{name} to be on the query's device",
            got=f"{name} on {tensor.device}, query on {query.device}",
            fix="move it with .to(query.device)",
        )


def probability(name: str, value: float) -> None:
    """Refuse anything but a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{name} to be a probability", got=repr(value), fix="pass a number from 0 to 1")


def positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError(f"{name} to be a number above 0", got=repr(value), fix="pass a positive number")


def whole_number(name: str, value: Any, minimum: int = 1) -> None:
    """Refuse anything but an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InputError(f"{name} to be a whole number of at least {minimum}", got=repr(value), fix=f"pass {minimum} or more")


def choice(name: str, value: Any, known: Iterable[Any], fixes: Mapping[Any, str] | None = None) -> None:
    """Refuse an unknown name, and suggest the known name with the closest spelling; `fixes` has the fixes of specific names."""
    known = list(known)
    if value not in known:
        close = difflib.get_close_matches(str(value), [str(item) for item in known], n=1, cutoff=0.7)
        fix = (fixes or {}).get(value) or (f"write {close[0]!r}" if close else "choose one of them")
        raise InputError(f"{name} to be one of {', '.join(map(repr, known))}", got=repr(value), fix=fix)


def align_left(who: str, tensor: Any, leading: int, last: int = 0) -> Any:
    """Align a tensor's first dimensions with the batch and its `last` ones with the end; two of size 1 follow if `last` is 0."""
    if not isinstance(tensor, Tensor):
        return tensor
    batch = tensor.ndim - last
    if batch > leading:
        raise InputError(
            f"overt.{who} to have at most one entry for each of the call's {leading} leading dimensions, aligned left",
            got=f"a tensor of shape {tuple(tensor.shape)}",
            fix="give query, key and value a batch dimension, or pass fewer dimensions here",
        )
    ones = (1,) * (leading - batch)
    return tensor.reshape(*tensor.shape[:batch], *ones, *(tensor.shape[batch:] if last else (1, 1)))


def describe(value: Any) -> str:
    """Describe a value in words: the dtype of a tensor or array, a class, or the value and its type."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return (
        f"a {type(value).__name__} of {value.dtype}" if hasattr(value, "dtype") else f"{value!r} of type {type(value).__name__}"
    )


def _by_name(tensors: dict[str, Any], attribute: str) -> str:
    return ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in tensors.items())
