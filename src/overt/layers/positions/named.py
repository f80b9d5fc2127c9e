"""Positions by their names: added to what a layer reads, or to its scores. Rotary positions have a file of their own.

| name         | kind                | acts on            | learned          | source                                        |
|--------------|---------------------|--------------------|------------------|-----------------------------------------------|
| "sinusoidal" | `Sinusoidal`        | inputs             | nothing          | Vaswani et al. 2017, section 3.5              |
|              | `LearnedPositions`  | inputs             | a vector a place | Gehring et al. 2017, section 3.1              |
| "rotary"     | `Rotary`            | queries and keys   | nothing          | Su et al. 2021, section 3.2.2                 |
| "relative"   | `RelativePositions` | scores             | a table a head   | Shaw et al. 2018; Raffel et al. 2020          |
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
from overt.layers.parts.registered import Held
from overt.layers.positions.angles import frequencies, waves
from overt.layers.positions.base import Positions, beside, checked_places
from overt.layers.positions.rotary import Rotary


class AddedPositions(Positions):
    """Positions that have a vector for each place, added to what stands there."""

    width: int

    def vectors(self, places: Tensor) -> Tensor:
        """The vector of each place: (..., n) → (..., n, width)."""
        raise NotImplementedError

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        """x + the vectors of its places, 0 to n − 1 unless given: (..., n, width)."""
        states(type(self).__name__, "x", x, self.width, option="width")
        places = torch.arange(x.shape[-2], device=x.device) if places is None else checked_places(places, x)
        return x + beside(self.vectors(places).to(x.dtype), x)

    def inputs(self, x: Tensor, places: Tensor) -> Tensor:
        """x + the vectors of its places, as Carion et al. 2020 tell queries and keys of every layer."""
        return self(x, places)


class Sinusoidal(AddedPositions):
    """A fixed vector for each place: P_(p, 2i) = sin(p · base^(−2i / width)), P_(p, 2i + 1) = cos(p · base^(−2i / width)).

    Vaswani et al. 2017, section 3.5. `Sinusoidal(512)(x)` is x + P, the Transformer's use at the bottom; any length, computed and
    not stored, in float64 and then in the dtype of x. An odd width ends in a sine.

    Shapes: x (..., n, width) → the same; places (n,) or (B, n).

    >>> Sinusoidal(4)(torch.zeros(3, 4))
    tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 0.8415,  0.5403,  0.0100,  0.9999],
            [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """

    def __init__(self, width: int, base: float = 10000.0):
        super().__init__()
        widths("Sinusoidal", width=width)
        check.positive("base", base)
        self.width, self.base = width, base

    def vectors(self, places: Tensor) -> Tensor:
        """Sines at even features, cosines at odd ones: (..., n, width)."""
        cosines, sines = waves(places, frequencies(self.width, self.base, places.device))
        return torch.stack((sines, cosines), dim=-1).flatten(-2)[..., : self.width]  # (..., n, width)

    def extra_repr(self) -> str:
        """What it was built with."""
        return f"{self.width}, base={self.base}"


class LearnedPositions(AddedPositions):
    """A learned vector for each of `maximum` places. Gehring et al. 2017, section 3.1; as in BERT and GPT-2.

    They start as normal numbers of deviation 0.02. A place beyond the table is an InputError (on a GPU, where looking at places would
    wait for it, torch's own).

    Shapes: x (..., n, width) → the same; places (n,) or (B, n).

    >>> learned = LearnedPositions(maximum=16, width=4)
    >>> x = torch.zeros(2, 3, 4)
    >>> torch.equal(learned(x)[1], learned.table[:3])
    True
    """

    def __init__(self, maximum: int, width: int):
        super().__init__()
        widths("LearnedPositions", maximum=maximum, width=width)
        self.maximum, self.width = maximum, width
        self.table = nn.Parameter(torch.empty(maximum, width).normal_(std=0.02))

    def vectors(self, places: Tensor) -> Tensor:
        """The rows of the table: (..., n, width)."""
        self._within(places)
        return nn.functional.embedding(places.long(), self.table)

    def _within(self, places: Tensor) -> None:
        if torch.compiler.is_compiling() or places.device.type != "cpu" or not places.numel():
            return
        low, high = int(places.min()), int(places.max())
        if low < 0 or high >= self.maximum:
            raise InputError(
                f"LearnedPositions has a vector for each place from 0 to {self.maximum - 1}",
                got=f"places {low} to {high}",
                fix="build it with a larger maximum, or use sinusoidal or rotary positions, which have none",
            )

    def extra_repr(self) -> str:
        """What it was built with."""
        return f"maximum={self.maximum}, {self.width}"


class RelativePositions(Positions):
    """A learned number for each head and distance, added to the scores: table[h, bucket(j − i)], `overt.RelativePositionBias`.

    `kind="log"` groups distances as T5 does (Raffel et al. 2020, section 2.1), `kind="clip"` has a bucket a distance up to
    ±(buckets − 1) / 2 (Shaw et al. 2018, section 3.2, as a scalar). Where nothing attends to what comes later,
    `bidirectional=False` uses all logarithmic buckets for what came before. The table starts at zero: no order, until it is
    learned. One module given to several layers shares its table among them, as in T5.

    >>> RelativePositions(heads=8).bias(None).block(torch.arange(5), torch.arange(5)).shape
    torch.Size([8, 5, 5])
    """

    def __init__(self, heads: int, buckets: int = 32, kind: str = "log", bidirectional: bool = True, max_distance: int = 128):
        super().__init__()
        widths("RelativePositions", heads=heads, buckets=buckets, max_distance=max_distance)
        self.kind, self.bidirectional, self.max_distance = kind, bidirectional, max_distance
        self.table = nn.Parameter(torch.zeros(heads, buckets))
        self.bias(None)  # refuses what is no table of this kind

    def bias(self, offset: int | Tensor | None) -> RelativePositionBias:
        """The table as it is now."""
        return RelativePositionBias(self.table, self.kind, self.bidirectional, self.max_distance, offset)

    def extra_repr(self) -> str:
        """What it was built with."""
        heads, buckets = self.table.shape
        return f"heads={heads}, buckets={buckets}, kind={self.kind!r}, bidirectional={self.bidirectional}"


class ALiBiPositions(Positions):
    """A penalty that grows with distance, −slope_h · |j − i|, added to the scores: `overt.ALiBi` with the paper's slopes.

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
        """What it was built with."""
        return f"heads={len(self.slopes)}"


class GivenBias(Positions):
    """A bias of overt.biases that a caller hands to a layer; an offset of its own stays."""

    def __init__(self, given: Bias):
        super().__init__()
        self.given = Held(given)

    def bias(self, offset: int | Tensor | None) -> Bias:
        """The bias, told where its queries stand."""
        bias = self.given.now()
        return replace(bias, offset=offset) if bias.offset is None else bias


def named(positions: Any, heads: int, head_width: int, width: int, causal: bool = False) -> Positions | None:
    """The positions that a layer is given: a name of the table above, a module, a bias of overt.biases, or None.

    In a causal layer the buckets of "relative" all go to what came before.

    >>> named("rotary", heads=8, head_width=64, width=512)
    Rotary(64, base=10000.0)
    """
    if positions is None or isinstance(positions, Positions):
        return positions
    if isinstance(positions, Bias):
        return GivenBias(positions)
    kinds: dict[str, Callable[[], Positions]] = {
        "sinusoidal": lambda: Sinusoidal(width),
        "rotary": lambda: Rotary(head_width),
        "relative": lambda: RelativePositions(heads, bidirectional=not causal),
        "alibi": lambda: ALiBiPositions(heads),
    }
    if not isinstance(positions, str):
        raise KindError(
            "positions are a name, a module of overt.layers or a bias of overt.biases",
            got=type(positions).__name__,
            fix="pass one of " + ", ".join(kinds) + "; a tensor is passed as bias= in the call",
        )
    if positions == "learned":
        raise InputError(
            "learned positions have a maximum, which their name does not say",
            got="'learned'",
            fix="pass overt.layers.LearnedPositions(maximum, width)",
        )
    if positions not in kinds:
        raise InputError(
            "positions have one of the names " + ", ".join(kinds), got=repr(positions), fix="choose one, or pass a module"
        )
    return kinds[positions]()
