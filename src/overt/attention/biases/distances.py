"""Biases by distance: linear biases (ALiBi), and biases learned for distances or ranges of distances."""

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.biases.base import Bias
from overt.attention.check import describe, float_tensor, whole_number
from overt.attention.pieces import SelectHeads, number, piece
from overt.errors import InputError, KindError


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
        """The bias with its offset resolved."""
        return ALiBi(self.slopes, self._bound_offset(leading, queries, keys))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys: (H, rows, keys), after the batch if offsets differ."""
        return -self.slopes[:, None, None] * self._distance(rows, keys).abs()  # (..., H, rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The same slopes, with the offset counted from the first row and key."""
        return ALiBi(self.slopes, self._offset_of_block(rows, keys))

    def for_heads(self, select: SelectHeads) -> "Bias | None":
        """The slopes of the selected heads, with shape (H,) even for one head."""
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
    """The paper's slopes: 2^(−8/H), 2^(−16/H), … for a power of two; for other H, every second slope of the next power fills up.

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

    `table` is (H, R) or (R,). `buckets="clip"` has one bucket for each distance from −m to m, R = 2m + 1; the buckets at the ends
    include all larger distances (Shaw et al. 2018, section 3.2, as a scalar bias). `buckets="log"` is T5's (Raffel et al. 2020,
    section 2.1): half of the R buckets a side if `bidirectional` (otherwise keys after the query share bucket 0), half of those
    exact, the others growing with the logarithm up to `max_distance`.

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
                got=describe(self.bidirectional),
                fix="pass bidirectional=True for keys on both sides",
            )
        exact = size // (4 if self.bidirectional else 2) if self.buckets == "log" else 0
        whole_number("max_distance of overt.RelativePositionBias", self.max_distance, minimum=exact + 1)

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The bias with its offset resolved."""
        offset = self._bound_offset(leading, queries, keys)
        return RelativePositionBias(self.table, self.buckets, self.bidirectional, self.max_distance, offset)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The bias of these rows and keys: (H, rows, keys) or (rows, keys), after the batch if offsets differ."""
        buckets = self.bucket(self._distance(rows, keys))
        if self.table.ndim == 1 or buckets.ndim == 2:
            return self.table[..., buckets]
        heads = torch.arange(self.table.shape[0], device=self.table.device)[:, None, None]
        return self.table[heads, buckets]  # (..., H, rows, keys)

    def of_block(self, rows: slice, keys: slice) -> "Bias":
        """The same table, with the offset counted from the first row and key."""
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
        """(H,) if each head has a table, () if all heads share one."""
        return tuple(self.table.shape[:-1])


def _log_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    exact = buckets // 2
    share = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return torch.where(distance < exact, distance, far)


def _check_table(name: str, tensor: Any, max_dimensions: int, shape: str) -> None:
    float_tensor(name, tensor)
    if not 1 <= tensor.ndim <= max_dimensions:
        raise InputError(f"{name} of shape {shape}", got=str(tuple(tensor.shape)), fix="drop or add dimensions")
