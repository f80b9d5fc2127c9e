"""A mask that transformers hands to a model: an ordinary mask to all that computes with it, ranges of keys to overt's attention.

Most models hand a mask on untouched, and then nothing of size Q × K is made. Some compute with it: they index it, add to it, join it
with a mask of their own. Then it is the tensor that it says it is, and what they compute is an ordinary tensor without ranges.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from overt.attention.masks import Ranges


class LazyMask(Tensor):
    """A mask (B, 1, Q, K) of transformers, bool or 0 and the lowest number, whose entries are made when an operation reads them.

    Query i of a sequence may attend to keys low_i ≤ j < high_i; `low` and `high` are integers (B or 1, 1, Q). Shape, dtype and device
    are those of the whole tensor. `ranges` says both edges, to whom has the very mask that was made: every operation gives an
    ordinary tensor, and a write into the mask, or into a view of it, ends its ranges.

    >>> low, high = torch.zeros(1, 1, 2, dtype=torch.long), torch.tensor([[[1, 2]]])
    >>> mask = LazyMask(low, high, (1, 1, 2, 2), torch.bool)
    >>> mask.ranges() is not None, type(mask[0]) is torch.Tensor, mask[0].int()
    (True, True, tensor([[[1, 0],
             [1, 1]]], dtype=torch.int32))
    """

    low: Tensor
    high: Tensor
    _whole: Tensor | None
    _watched: bool

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, low: Tensor, high: Tensor, shape: tuple[int, int, int, int], dtype: torch.dtype):
        """A tensor of this shape and dtype without memory of its own."""
        return Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=low.device)

    def __init__(self, low: Tensor, high: Tensor, shape: tuple[int, int, int, int], dtype: torch.dtype):
        self.low, self.high, self._whole, self._watched = low, high, None, True

    def ranges(self) -> Ranges | None:
        """The edges as a mask of overt; None once the mask was written to, or where torch cannot tell whether it was."""
        if self._whole is not None and (not self._watched or self.is_inference() or self._version > 0):
            return None
        return Ranges(self.low, self.high)

    def whole(self) -> Tensor:
        """All entries, (B, 1, Q, K), made once."""
        if self._whole is None:
            rows, keys = (torch.arange(size, device=self.device) for size in self.shape[-2:])
            allowed = Ranges(self.low, self.high).block(rows, keys).expand(self.shape)  # (B, 1, Q, K)
            self._whole = allowed.contiguous() if self.dtype == torch.bool else added(allowed, self.dtype)
        return self._whole

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Run an operation on all entries."""
        if func is torch.ops.aten.detach.default:  # `.data` too, whose writes torch does not count
            args[0]._watched = False
        args, kwargs = tree_map_only(cls, cls.whole, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """The entries, as any tensor shows them."""
        return repr(self.whole())

    # What reads a tensor's memory, or copies the tensor as an object, is no operation that torch dispatches.
    def numpy(self, *, force: bool = False) -> Any:
        """All entries as an array."""
        return self._memory().numpy(force=force)

    def tolist(self) -> Any:
        """All entries as lists."""
        return self.whole().tolist()

    def data_ptr(self) -> int:
        """Where the entries are in memory."""
        return self._memory().data_ptr()

    def untyped_storage(self) -> Any:
        """The memory of the entries."""
        return self._memory().untyped_storage()

    def _memory(self) -> Tensor:
        self._watched = False  # what is written there is not counted
        return self.whole()

    def __deepcopy__(self, memo: dict) -> Tensor:
        """A tensor of its own."""
        return self.whole().clone()

    def __reduce_ex__(self, proto: Any) -> Any:
        """An ordinary tensor is what is saved."""
        return self.whole().__reduce_ex__(proto)


def added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores: 0 where a query may attend, the lowest number of the dtype elsewhere."""
    return torch.where(allowed, torch.zeros((), dtype=dtype, device=allowed.device), torch.finfo(dtype).min)
