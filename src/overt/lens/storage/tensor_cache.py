"""Tensors that share memory: results are computed once for all layers, and expanded dimensions are cut."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class TensorCache:
    """Computes a result of a tensor once, and returns it again for the same memory: layers share tensors, such as masks."""

    def __init__(self):
        self._made: dict[tuple[Any, ...], tuple[StorageWeakRef, Any]] = {}

    def __call__(
        self, tensor: Tensor, make: Callable[[Tensor], Any], still: Callable[[Any, Tensor], bool] | None = None
    ) -> Any:
        """`make(tensor)`, cached until the memory is written to or `still(result, tensor)` is false."""
        self._made = {key: made for key, made in self._made.items() if not made[0].expired()}
        storage = tensor.untyped_storage()
        version = None if tensor.is_inference() else tensor._version
        key = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, version)
        if key not in self._made or (still is not None and not still(self._made[key][1], tensor)):
            self._made[key] = (StorageWeakRef(storage), make(tensor))
        return self._made[key][1]


def unexpanded(tensor: Tensor) -> Tensor:
    """The tensor with its expanded dimensions (stride 0) cut to size 1.

    >>> import torch
    >>> unexpanded(torch.arange(3)[:, None].expand(3, 4)).shape
    torch.Size([3, 1])
    """
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor
