"""Kinds of positions and their names: added to the inputs of a layer, or to its scores. Rotary positions are in `rotary`.

| name         | kind                | acts on            | learned          | source                                        |
|--------------|---------------------|--------------------|------------------|-----------------------------------------------|
| "sinusoidal" | `Sinusoidal`        | inputs             | nothing          | Vaswani et al. 2017, section 3.5              |
|              | `LearnedPositions`  | inputs             | the vectors      | Gehring et al. 2017, section 3.1              |
| "rotary"     | `Rotary`            | queries and keys   | nothing          | Su et al. 2021, section 3.2.2                 |
| "relative"   | `RelativePositions` | scores             | a table per head | Shaw et al. 2018; Raffel et al. 2020          |
| "alibi"      | `ALiBiPositions`    | scores             | nothing          | Press et al. 2022, section 3                  |
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.biases import ALiBi, Bias, RelativePositionBias, alibi_slopes
from overt.errors import InputError, KindError
from overt.layers.parts.checks import states, widths
from overt.layers.parts.registered import SAVED_NAME, RegisteredPiece
from overt.layers.positions.angles import cosines_and_sines, frequencies
from overt.layers.positions.base import Positions, broadcastable, checked_positions
from overt.layers.positions.rotary import Rotary


class AddedPositions(Positions):
    """Positions that add a vector to each token."""

    width: int

    def vectors(self, positions: Tensor) -> Tensor:
        """The vector of each position: (..., n) → (..., n, width)."""
        raise NotImplementedError

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x + the vectors of its positions, by default 0 to n − 1: (..., n, width)."""
        states(type(self).__name__, "x", x, self.width, option="width")
        positions = torch.arange(x.shape[-2], device=x.device) if positions is None else checked_positions(positions, x)
        return x + broadcastable(self.vectors(positions).to(x.dtype), x)

    def inputs(self, x: Tensor, positions: Tensor) -> Tensor:
        """x + the vectors of its positions, in queries and keys of every layer as in Carion et al. 2020."""
        return self(x, positions)


class Sinusoidal(AddedPositions):
    """A fixed vector for each position: P_(p, 2i) = sin(p · base^(−2i / width)), P_(p, 2i + 1) = cos(p · base^(−2i / width)).

    Vaswani et al. 2017, section 3.5. `Sinusoidal(512)(x)` is x + P, as on the embeddings of the Transformer; for any length: P is
    computed, not stored, in float64, and rounded to the dtype of x. An odd width ends in a sine.

    Shapes: x (..., n, width) → the same; positions (n,) or (B, n).

    >>> Sinusoidal(4)(torch.zeros(3, 4))
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8415,  0.5403,  0.0100,  0.9999],
            [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """

    def __init__(self, width: int, base: float = 10000.0):
        super().__init__()
        widths("Sinusoidal", width=width)
        check.positive("base", base)
        self.width: int = width
        self.base = base

    def vectors(self, positions: Tensor) -> Tensor:
        """Sines at even features, cosines at odd ones: (..., n, width)."""
        cosines, sines = cosines_and_sines(positions, frequencies(self.width, self.base, positions.device))
        return torch.stack((sines, cosines), dim=-1).flatten(-2)[..., : self.width]  # (..., n, width)

    def extra_repr(self) -> str:
        """The options of the constructor."""
        return f"{self.width}, base={self.base}"


class LearnedPositions(AddedPositions):
    """A learned vector for each of `maximum` positions. Gehring et al. 2017, section 3.1; as in BERT and GPT-2.

    They start as normal numbers of standard deviation 0.02. A position beyond the table is an InputError (on a GPU torch's own error,
    since reading the positions would wait for the GPU).

    Shapes: x (..., n, width) → the same; positions (n,) or (B, n).

    >>> learned = LearnedPositions(maximum=16, width=4)
    >>> x = torch.zeros(2, 3, 4)
    >>> torch.equal(learned(x)[1], learned.table[:3])
    True
    """

    def __init__(self, maximum: int, width: int):
        super().__init__()
        widths("LearnedPositions", maximum=maximum, width=width)
        self.maximum = maximum
        self.width: int = width
        self.table: nn.Parameter = nn.Parameter(torch.empty(maximum, width).normal_(std=0.02))

    def vectors(self, positions: Tensor) -> Tensor:
        """The rows of the table: (..., n, width)."""
        self._check_range(positions)
        return nn.functional.embedding(positions.long(), self.table)

    def _check_range(self, positions: Tensor) -> None:
        if torch.compiler.is_compiling() or positions.device.type != "cpu" or not positions.numel():
            return
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= self.maximum:
            raise InputError(
                f"positions from 0 to {self.maximum - 1}, for which LearnedPositions has vectors",
                got=f"positions {low} to {high}",
                fix="build it with a larger maximum, or use sinusoidal or rotary positions, which have none",
            )

    def extra_repr(self) -> str:
        """The options of the constructor."""
        return f"maximum={self.maximum}, {self.width}"


class RelativePositions(Positions):
    """A learned number for each head and distance, added to the scores: table[h, bucket(j − i)], `overt.RelativePositionBias`.

    `kind="log"` groups distances as T5 does (Raffel et al. 2020, section 2.1), `kind="clip"` has a bucket for each distance up to
    ±(buckets − 1) / 2 (Shaw et al. 2018, section 3.2, as a scalar). If no query attends to later keys,
    `bidirectional=False` uses all logarithmic buckets for earlier keys. The table starts at zero, so order has no influence before
    training. Layers that get the same module share its table, as in T5.

    >>> RelativePositions(heads=8).bias(None).block(torch.arange(5), torch.arange(5)).shape
    torch.Size([8, 5, 5])
    """

    def __init__(self, heads: int, buckets: int = 32, kind: str = "log", bidirectional: bool = True, max_distance: int = 128):
        super().__init__()
        widths("RelativePositions", heads=heads, buckets=buckets, max_distance=max_distance)
        self.kind = kind
        self.bidirectional = bidirectional
        self.max_distance = max_distance
        self.table: nn.Parameter = nn.Parameter(torch.zeros(heads, buckets))
        self.bias(None)  # refuses an invalid kind or number of buckets

    def bias(self, offset: int | Tensor | None) -> RelativePositionBias:
        """The bias with the current table."""
        return RelativePositionBias(self.table, self.kind, self.bidirectional, self.max_distance, offset)

    def extra_repr(self) -> str:
        """The options of the constructor."""
        heads, buckets = self.table.shape
        return f"heads={heads}, buckets={buckets}, kind={self.kind!r}, bidirectional={self.bidirectional}"


class ALiBiPositions(Positions):
    """A penalty proportional to the distance, −slope_h · |j − i|, added to the scores: `overt.ALiBi` with the paper's slopes.

    >>> ALiBiPositions(heads=2).bias(0).block(torch.arange(2), torch.arange(2))[0]
    tensor([[-0.0000, -0.0625],
            [-0.0625, -0.0000]])
    """

    slopes: Tensor

    def __init__(self, heads: int):
        super().__init__()
        widths("ALiBiPositions", heads=heads)
        self.register_buffer("slopes", alibi_slopes(heads))

    def bias(self, offset: int | Tensor | None) -> ALiBi:
        """The slopes."""
        return ALiBi(self.slopes, offset)

    def extra_repr(self) -> str:
        """The options of the constructor."""
        return f"heads={len(self.slopes)}"


class BiasPositions(Positions):
    """A bias of overt.biases that a caller passes to a layer as its positions; its own offset, if any, stays."""

    def __init__(self, bias: Bias):
        super().__init__()
        setattr(self, SAVED_NAME, RegisteredPiece(bias))

    def bias(self, offset: int | Tensor | None) -> Bias:
        """The bias, with this offset if it has none."""
        bias = getattr(self, SAVED_NAME).current()
        return replace(bias, offset=offset) if bias.offset is None else bias


def named(positions: Any, heads: int, head_width: int, width: int, causal: bool = False) -> Positions | None:
    """The module of a layer's `positions`: a name of the table above, a module, a bias of overt.biases, or None.

    In a causal layer all buckets of "relative" are for earlier keys.

    >>> named("rotary", heads=8, head_width=64, width=512)
    Rotary(64, base=10000.0)
    """
    if positions is None or isinstance(positions, Positions):
        return positions
    if isinstance(positions, Bias):
        return BiasPositions(positions)
    kinds: dict[str, Callable[[], Positions]] = {
        "sinusoidal": lambda: Sinusoidal(width),
        "rotary": lambda: Rotary(head_width),
        "relative": lambda: RelativePositions(heads, bidirectional=not causal),
        "alibi": lambda: ALiBiPositions(heads),
    }
    if not isinstance(positions, str):
        raise KindError(
            "positions as a name, a module of overt.layers or a bias of overt.biases",
            got=type(positions).__name__,
            fix="pass one of " + ", ".join(kinds) + "; a tensor is passed as bias= in the call",
        )
    if positions == "learned":
        raise InputError(
            "positions that need no argument beside their name",
            got="'learned', which need a maximum",
            fix="pass overt.layers.LearnedPositions(maximum, width)",
        )
    if positions not in kinds:
        raise InputError("positions as one of " + ", ".join(kinds), got=repr(positions), fix="choose one, or pass a module")
    return kinds[positions]()
