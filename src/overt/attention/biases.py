"""Biases: numbers added to the scores before they are normalised. A tensor that broadcasts to (..., Q, K) is one.

The classes here compute theirs from positions, a block at a time, so that nothing of size Q × K is built. The distance from
query i to key j is j − (i + offset), with `offset=None` for K − Q, aligned at the end as `Causal` is; a tensor (B,) gives each
batch entry one, as rows of a cache need that differ in length.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.check import align_left, bias_tensor, broadcasts, float_tensor, kind_of, whole_number
from overt.attention.pieces import (
    SelectHeads,
    inherit_only_with,
    number,
    piece,
    select_heads,
    whole_numbers,
    within_64_bits,
)
from overt.errors import InputError, KindError

__all__ = ["ALiBi", "Bias", "RelativePositionBias", "alibi_slopes"]


class Bias:
    """What biases share: once bound to the sizes of a call, they compute what is added, block by block.

    >>> block = ALiBi(torch.tensor([1.0])).bind(3, 2, 2).block(torch.arange(2), torch.arange(2))
    >>> isinstance(ALiBi(torch.tensor([1.0])), Bias), block.tolist()
    (True, [[[-0.0, -1.0], [-1.0, -0.0]]])
    """

    offset: int | Tensor | None = None

    by_distance: ClassVar[bool] = False
    """Whether the numbers depend on the distance and the head alone: native kernels then read Q + K − 1 of them, not Q × K."""

    trailing: ClassVar[dict[str, int] | None] = None
    """Of each tensor of a bound bias, by its name, how many dimensions follow those of batch and heads; None where that is not known."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_only_with("block", cls, Bias, ("by_distance", "trailing", "of_block"))

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The same bias for a call with this number of leading dimensions and the lengths Q and K."""
        raise NotImplementedError

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What is added for these rows and keys: broadcastable to (..., rows, keys)."""
        raise NotImplementedError

    def added_pairs(self) -> Tensor | None:
        """The tensor (..., Q or 1, K or 1) that a bound bias holds, if that is all that it is."""
        return None

    def for_heads(self, select: SelectHeads) -> "Bias | None":
        """A bound bias with `select` applied to its tensors; None where it is not known which of their dimensions is the heads'."""
        return select_heads(self, select)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The bound bias of these rows and keys alone: the first of them is 0.

        >>> ALiBi(torch.tensor([1.0]), offset=0).of_block(slice(2, 4), slice(3, 6)).block(torch.arange(1), torch.arange(2))
        tensor([[[-1., -2.]]])
        """
        return BiasBlock(self, rows.start, keys.start)

    @property
    def leading(self) -> tuple[int, ...]:
        """The dimensions before (rows, keys) that a block has."""
        raise NotImplementedError

    @property
    def source(self) -> Tensor:
        """The tensor that the bias is computed from."""
        raise NotImplementedError

    def _distance(self, rows: Tensor, keys: Tensor) -> Tensor:
        return keys - (rows[:, None] + (0 if self.offset is None else self.offset))  # (rows, keys), or (B, …, 1, rows, keys)

    def _offset_of(self, leading: int, queries: int, keys: int) -> int | Tensor:
        return keys - queries if self.offset is None else within_64_bits(align_left(type(self).__name__, self.offset, leading))

    def _offset_of_block(self, rows: slice, keys: slice) -> int | Tensor:
        return (0 if self.offset is None else self.offset) + rows.start - keys.start

    def _check_offset(self) -> None:
        if self.offset is not None:
            whole_numbers(type(self).__name__, "offset", self.offset)


@piece
class ALiBi(Bias):
    """Attention with linear biases: −slope_h · |j − i| for head h. Press et al. 2022, section 3.

    `slopes` is (H,), one a head; `alibi_slopes(heads)` gives the paper's. Under a causal mask this is the paper's bias; without
    one it is symmetric.

    >>> ALiBi(torch.tensor([0.5]), offset=0).block(torch.arange(2), torch.arange(2))
    tensor([[[-0.0000, -0.5000],
             [-0.5000, -0.0000]]])
    """

    slopes: Tensor
    offset: int | Tensor | None = None

    by_distance: ClassVar[bool] = True
    trailing: ClassVar[dict[str, int] | None] = {"slopes": 0, "offset": 2}

    def __post_init__(self) -> None:
        _check_table("slopes of overt.ALiBi", self.slopes, 1, "(H,)")
        number("the slopes of overt.ALiBi", self.slopes)
        self._check_offset()

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """With the offset known."""
        return ALiBi(self.slopes, self._offset_of(leading, queries, keys))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys: (H, rows, keys), after the batch where offsets differ."""
        return -self.slopes[:, None, None] * self._distance(rows, keys).abs()  # (..., H, rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The same slopes, the offset counted from the first row and key."""
        return ALiBi(self.slopes, self._offset_of_block(rows, keys))

    def for_heads(self, select: SelectHeads) -> "Bias | None":
        """The selected heads' slopes, still (H,) where it is one."""
        slopes = select(self.slopes[:, None], 1)
        offset = select(self.offset, 2) if isinstance(self.offset, Tensor) else self.offset
        return None if slopes is None or offset is None else ALiBi(slopes.reshape(-1), offset)

    @property
    def source(self) -> Tensor:
        """The slopes."""
        return self.slopes

    @property
    def leading(self) -> tuple[int, ...]:
        """One bias a head."""
        return tuple(self.slopes.shape)


def alibi_slopes(heads: int) -> Tensor:
    """The paper's slopes: 2^(−8/H), 2^(−16/H), … for a power of two, and every second of the next one's for the rest.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    if heads < 1:
        raise InputError("at least one head", got=str(heads), fix="pass the number of heads")
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-8 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return torch.tensor([*slopes, *between[: heads - power]])


@piece
class RelativePositionBias(Bias):
    """A learned number for each distance and head, table[h, bucket(j − i)].

    `table` is (H, R) or (R,). `buckets="clip"` has one bucket a distance from −m to m, R = 2m + 1, the ends taking all that is
    farther (Shaw et al. 2018, section 3.2, as a scalar bias). `buckets="log"` is T5's (Raffel et al. 2020, section 2.1): half of
    the R buckets a side where `bidirectional` (otherwise keys after the query share bucket 0), half of those exact, the rest
    growing with the logarithm up to `max_distance`.

    >>> table = torch.tensor([10.0, 20.0, 30.0])
    >>> RelativePositionBias(table, offset=0).block(torch.arange(3), torch.arange(3))
    tensor([[20., 30., 30.],
            [10., 20., 30.],
            [10., 10., 20.]])
    """

    table: Tensor
    buckets: str = "clip"
    bidirectional: bool = True
    max_distance: int = 128
    offset: int | Tensor | None = None

    by_distance: ClassVar[bool] = True
    trailing: ClassVar[dict[str, int] | None] = {"table": 1, "offset": 2}

    def __post_init__(self) -> None:
        _check_table("table of overt.RelativePositionBias", self.table, 2, "(H, R) or (R,)")
        self._check_offset()
        self._check_buckets()

    def _check_buckets(self) -> None:
        size = self.table.shape[-1]
        if self.buckets not in ("clip", "log"):
            raise InputError('buckets to be "clip" or "log"', got=repr(self.buckets), fix="choose one of them")
        if self.buckets == "clip" and size % 2 == 0:
            raise InputError(
                "an odd number of clipped buckets, R = 2m + 1, in overt.RelativePositionBias",
                got=f"a table of shape {tuple(self.table.shape)}",
                fix="count the distances −m to m",
            )
        if self.buckets == "log" and size < 4:
            raise InputError(
                "4 or more logarithmic buckets in overt.RelativePositionBias", got=str(size), fix="enlarge the table"
            )
        if not isinstance(self.bidirectional, bool):
            raise KindError(
                "bidirectional of overt.RelativePositionBias to be True or False",
                got=kind_of(self.bidirectional),
                fix="pass bidirectional=True for keys on both sides",
            )
        exact = size // (4 if self.bidirectional else 2) if self.buckets == "log" else 0
        whole_number("max_distance of overt.RelativePositionBias", self.max_distance, minimum=exact + 1)

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """With the offset known."""
        offset = self._offset_of(leading, queries, keys)
        return RelativePositionBias(self.table, self.buckets, self.bidirectional, self.max_distance, offset)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys: (H, rows, keys) or (rows, keys), after the batch where offsets differ."""
        buckets = self.bucket(self._distance(rows, keys))
        if self.table.ndim == 1 or buckets.ndim == 2:
            return self.table[..., buckets]
        heads = torch.arange(self.table.shape[0], device=self.table.device)[:, None, None]
        return self.table[heads, buckets]  # (..., H, rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The same table, the offset counted from the first row and key."""
        return replace(self, offset=self._offset_of_block(rows, keys))

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance j − i."""
        size = self.table.shape[-1]
        if self.buckets == "clip":
            return distance.clamp(-(size // 2), size // 2) + size // 2
        if not self.bidirectional:
            return _log_bucket((-distance).clamp(min=0), size, self.max_distance)
        half = size // 2
        return _log_bucket(distance.abs(), half, self.max_distance) + half * (distance > 0)

    @property
    def source(self) -> Tensor:
        """The table."""
        return self.table

    @property
    def leading(self) -> tuple[int, ...]:
        """One table a head, or one for all."""
        return tuple(self.table.shape[:-1])


@piece
class SumOfBiases(Bias):
    """What both biases add."""

    first: Bias
    second: Bias

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, as_bias(getattr(self, name)))

    trailing: ClassVar[dict[str, int] | None] = {}

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """Both bound."""
        return SumOfBiases(self.first.bind(leading, queries, keys), self.second.bind(leading, queries, keys))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The sum of their numbers."""
        return self.first.block(rows, keys) + self.second.block(rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """Both of these rows and keys."""
        return SumOfBiases(self.first.of_block(rows, keys), self.second.of_block(rows, keys))

    @property
    def leading(self) -> tuple[int, ...]:
        """The first dimensions that both broadcast to."""
        return torch.broadcast_shapes(self.first.leading, self.second.leading)

    @property
    def source(self) -> Tensor:
        """The first bias's."""
        return self.first.source


@piece
class TensorBias(Bias):
    """A tensor that broadcasts, aligned right, against (..., Q, K), as a bias that gives its blocks: what `attend` makes of a tensor."""

    tensor: Tensor

    def __post_init__(self) -> None:
        bias_tensor(self.tensor)

    trailing: ClassVar[dict[str, int] | None] = {"tensor": 2}

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """With two dimensions at least, if the last two are of size 1 or those of the call."""
        broadcasts("bias", self.tensor, queries, keys, leading)
        tensor = self.tensor
        return self if tensor.ndim > 1 else TensorBias(tensor.reshape((1,) * (2 - tensor.ndim) + tuple(tensor.shape)))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The tensor's rows and keys; dimensions of size 1 stay."""
        tensor = self.tensor if self.tensor.shape[-2] == 1 else self.tensor[..., rows, :]
        return tensor if tensor.shape[-1] == 1 else tensor[..., keys]

    def added_pairs(self) -> Tensor:
        """The tensor."""
        return self.tensor

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The tensor's rows and keys."""
        tensor = self.tensor if self.tensor.shape[-2] == 1 else self.tensor[..., rows, :]
        return TensorBias(tensor if tensor.shape[-1] == 1 else tensor[..., keys])

    @property
    def leading(self) -> tuple[int, ...]:
        """Its dimensions before the last two."""
        return tuple(self.tensor.shape[:-2])

    @property
    def source(self) -> Tensor:
        """The tensor."""
        return self.tensor


@dataclass(frozen=True, eq=False)
class BiasBlock(Bias):
    """Some rows and keys of a bound bias: those from `first_row` and `first_key` on."""

    inner: Bias
    first_row: int
    first_key: int

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What the bias adds for the rows and keys that these are in it."""
        return self.inner.block(rows + self.first_row, keys + self.first_key)

    @property
    def by_distance(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where the bias is."""
        return self.inner.by_distance

    @property
    def leading(self) -> tuple[int, ...]:
        """The bias's."""
        return self.inner.leading

    @property
    def source(self) -> Tensor:
        """The bias's."""
        return self.inner.source


def as_bias(bias: "Bias | Tensor") -> Bias:
    """A bias that computes blocks, from what a caller passes: itself, or a tensor in a `TensorBias`.

    >>> as_bias(torch.zeros(2, 3)).bind(0, 2, 3).block(torch.arange(1), torch.arange(3)).shape
    torch.Size([1, 3])
    """
    if isinstance(bias, Bias):
        return bias
    return TensorBias(bias)


def sum_of(first: "Bias | Tensor | None", second: "Bias | Tensor | None") -> "Bias | Tensor | None":
    """The sum of two biases, either of which may be None, as a bias that computes it a block at a time.

    >>> bias = sum_of(ALiBi(torch.tensor([1.0]), offset=0), torch.ones(2, 2))
    >>> bias.block(torch.arange(2), torch.arange(2))
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    return second if first is None else first if second is None else SumOfBiases(as_bias(first), as_bias(second))


def _log_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    exact = buckets // 2
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return torch.where(distance < exact, distance, far)


def _check_table(name: str, tensor: Any, max_dimensions: int, shape: str) -> None:
    float_tensor(name, tensor)
    if not 1 <= tensor.ndim <= max_dimensions:
        raise InputError(f"{name} of shape {shape}", got=str(tuple(tensor.shape)), fix="drop or add dimensions")


def __dir__() -> list[str]:
    return __all__
