"""Arrays of NumPy or any library that supports DLPack: read as tensors; results return as arrays of the same library.

Only arrays in the CPU's memory are read, and no gradient passes through them. Memory is shared if possible: a NumPy array that is
read-only or has negative strides is copied, since no tensor can represent it.
"""

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from overt.attention.typing import SupportsDLPack
from overt.errors import KindError

__all__ = ["array_converter", "as_tensor", "is_array"]

_CPU = 1  # DLPack's device type of CPU memory


def is_array(value: Any) -> bool:
    """Whether the value is an array of another library than torch.

    >>> is_array(numpy.ones(2)), is_array(torch.ones(2)), is_array([1.0, 1.0])
    (True, False, False)
    """
    return not isinstance(value, Tensor) and isinstance(value, SupportsDLPack)


def array_converter(**inputs: Any) -> Callable[[Tensor], Any]:
    """Return the function that converts tensors to arrays of the inputs' library; KindError if the inputs come from several.

    >>> array_converter(query=numpy.ones(2))(torch.zeros(2))
    array([0., 0.], dtype=float32)
    """
    kinds = {type(array) for array in inputs.values()}
    first = next(iter(inputs.values()))
    all_numpy = all(issubclass(kind, numpy.ndarray) for kind in kinds)
    if not all_numpy and (len(kinds) > 1 or not hasattr(first, "__array_namespace__")):
        raise KindError(
            "query, key and value to be all tensors, or all arrays of one library, NumPy's or such that have __array_namespace__",
            got=", ".join(
                f"{name} of type {type(array).__module__}.{type(array).__qualname__}" for name, array in inputs.items()
            ),
            fix="convert them, as with torch.from_dlpack(array) or numpy.asarray(tensor)",
        )
    convert = Tensor.numpy if all_numpy else first.__array_namespace__().from_dlpack
    return lambda tensor: convert(tensor.detach())


def as_tensor(name: str, array: Any) -> Tensor:
    """Convert the array to a tensor.

    >>> as_tensor("query", numpy.zeros((1, 2), dtype="float32"))
    tensor([[0., 0.]])
    """
    if isinstance(array, numpy.ma.MaskedArray):
        raise KindError(f"{name} to be a plain array", got="a masked array", fix="fill it: array.filled(0)")
    device = int(array.__dlpack_device__()[0])
    if device != _CPU:
        raise KindError(
            f"{name} to be in the CPU's memory",
            got=f"an array on DLPack's device type {device}",
            fix="copy it to the CPU, or pass tensors: torch.from_dlpack(array)",
        )
    try:
        if not isinstance(array, numpy.ndarray):
            return torch.from_dlpack(array)
        shareable = array.flags.writeable and min(array.strides, default=0) >= 0
        return torch.from_numpy(array if shareable else array.copy())
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        kind = f"an array of dtype {getattr(array, 'dtype', 'unknown')}, which torch cannot read"
        raise KindError(f"{name} to be an array of numbers", got=kind, fix="convert its dtype") from error
