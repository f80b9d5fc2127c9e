"""The mask that transformers passes to a model: ranges of keys for overt's attention, an ordinary tensor for other code.

Most models pass the mask on unchanged, and then nothing of size Q × K is allocated. Some models compute with it: they index it, add to
it, or combine it with another mask. Then its entries are computed, and the result is an ordinary tensor without ranges.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from overt.attention.masks import Ranges


class LazyMask(Tensor):
    """A mask (B, 1, Q, K) of transformers, bool or 0 and the lowest number, whose entries are computed when an operation reads them.

    Query i may attend to the keys low_i ≤ j < high_i; `low` and `high` are integers (B or 1, 1, Q), and `positions` are those of the
    first query and the first key in the text. Shape, dtype and device are the full tensor's. `ranges` returns the ranges of an
    unchanged mask: every operation returns an ordinary tensor, and after a write into the mask or a view of it there are no ranges.

    >>> low, high = torch.zeros(1, 1, 2, dtype=torch.long), torch.tensor([[[1, 2]]])
    >>> mask = LazyMask(low, high, (1, 1, 2, 2), torch.bool)
    >>> mask.ranges() is not None, type(mask[0]) is torch.Tensor, mask[0].int()
    (True, True, tensor([[[1, 0],
             [1, 1]]], dtype=torch.int32))
    """

    low: Tensor
    high: Tensor
    positions: tuple[int, int] | None
    _entries: Tensor | None
    _writes_counted: bool

    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, low: Tensor, high: Tensor, shape: tuple[int, int, int, int], dtype: torch.dtype, positions: Any = None
    ) -> "LazyMask":
        """Create a tensor of this shape and dtype without memory."""
        return Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=low.device)

    def __init__(
        self,
        low: Tensor,
        high: Tensor,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        positions: tuple[int, int] | None = None,
    ):
        self.low, self.high, self.positions = low, high, positions
        self._entries, self._writes_counted = None, True

    def ranges(self) -> Ranges | None:
        """The ranges as a mask of overt; None if the mask was written to, or if torch does not count writes to it."""
        if self._entries is not None and (not self._writes_counted or self.is_inference() or self._version > 0):
            return None
        return Ranges(self.low, self.high)

    def entries(self) -> Tensor:
        """All entries, (B, 1, Q, K), computed once."""
        if self._entries is None:
            rows, keys = (torch.arange(size, device=self.device) for size in self.shape[-2:])
            allowed = Ranges(self.low, self.high).block(rows, keys).expand(self.shape)  # (B, 1, Q, K)
            self._entries = allowed.contiguous() if self.dtype == torch.bool else additive_mask(allowed, self.dtype)
        return self._entries

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation on the entries."""
        if func is torch.ops.aten.detach.default:  # also from `.data`, whose writes torch does not count
            args[0]._writes_counted = False
        with_entries, options = tree_map_only(cls, cls.entries, (args, kwargs or {}))
        return func(*with_entries, **options)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """The representation of the entries."""
        return repr(self.entries())

    # Reading a tensor's memory and copying the tensor as an object are not operations that torch dispatches.
    def numpy(self, *, force: bool = False) -> Any:
        """The entries as a NumPy array."""
        return self._memory().numpy(force=force)

    def tolist(self) -> Any:
        """The entries as nested lists."""
        return self.entries().tolist()

    def data_ptr(self) -> int:
        """The address of the entries."""
        return self._memory().data_ptr()

    def untyped_storage(self) -> Any:
        """The memory of the entries."""
        return self._memory().untyped_storage()

    def _memory(self) -> Tensor:
        self._writes_counted = False  # torch does not count writes to it
        return self.entries()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Copy as an ordinary tensor."""
        return self.entries().clone()

    def __reduce_ex__(self, proto: Any) -> Any:
        """Pickle as an ordinary tensor."""
        return self.entries().__reduce_ex__(proto)


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to a mask for addition to scores: 0 if a query may attend, else the lowest number of the dtype."""
    return torch.where(allowed, torch.zeros((), dtype=dtype, device=allowed.device), torch.finfo(dtype).min)
