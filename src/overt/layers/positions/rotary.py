"""Rotary positions: queries and keys are rotated by their positions, so their dot product depends on the distance."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from overt.attention import check
from overt.errors import InputError
from overt.layers.parts.checks import states, widths
from overt.layers.positions.angles import cosines_and_sines, frequencies
from overt.layers.positions.base import Positions, broadcastable, checked_positions
from overt.layers.positions.rotary_scaling import Scaling, as_scaling


class Rotary(Positions):
    """Each pair of features (a, b) of a head is rotated by the angle p · θ_i at position p, with θ_i = base^(−2i / m).

        a' = a cos(p θ_i) − b sin(p θ_i)        b' = b cos(p θ_i) + a sin(p θ_i)

    Su et al. 2021 (RoFormer), section 3.2.2. A rotation does not change lengths, and the dot product of a query at position i and a key
    at position j depends only on i − j. `width` is a head's. Pair i is features (i, i + m/2), as in Llama and GPT-NeoX, or
    (2i, 2i + 1) with `interleaved=True`, as in RoFormer and GPT-J. With `fraction` only the first m = fraction · width features rotate.

    `scaling` stretches positions beyond the length trained on: a Hugging Face `rope_scaling` such as
    `{"rope_type": "linear", "factor": 4.0}`, or an object of the table in `overt.layers.positions.rotary_scaling`.

    Angles and frequencies are float64, the rotation is computed in float32 or better, and the result has the dtype of x.

    Shapes: x (..., H, n, width) → the same; positions (n,) or (B, n). Raises InputError and KindError for invalid inputs.

    >>> Rotary(2).heads(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
    tensor([[[1.0000, 0.0000],
             [0.5403, 0.8415]]])
    """

    def __init__(
        self,
        width: int,
        base: float = 10000.0,
        *,
        interleaved: bool = False,
        fraction: float = 1.0,
        scaling: Scaling | Mapping[str, Any] | None = None,
    ):
        super().__init__()
        widths("Rotary", width=width)
        check.positive("base", base)
        self.width = width
        self.base = base
        self.interleaved = interleaved
        self.fraction = fraction
        self.rotated: int = _rotated(width, fraction)
        self.scaling: Scaling = as_scaling(scaling, base, fraction)
        self._cosines_and_sines(torch.zeros(1, dtype=torch.long, device="cpu"))  # refuses a scaling for another width

    def heads(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys, rotated by their positions."""
        states("Rotary", "heads", x, self.width, option="width")
        positions = checked_positions(positions, x)
        precise = torch.promote_types(x.dtype, torch.float32)
        cosines, sines = self._cosines_and_sines(positions)
        cosines, sines = broadcastable(cosines.to(precise), x), broadcastable(sines.to(precise), x)  # (B, ..., n, rotated)
        features = x[..., : self.rotated].to(precise)
        result = (features * cosines + self._partner(features) * sines).to(x.dtype)  # (..., H, n, rotated)
        return result if self.rotated == self.width else torch.cat((result, x[..., self.rotated :]), dim=-1)

    def _cosines_and_sines(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of each feature and of its partner: two of (..., n, rotated)."""
        plain = frequencies(self.rotated, self.base, positions.device)
        cosines, sines = cosines_and_sines(positions, self.scaling.frequencies(plain, self.base, positions))
        cosines, sines = cosines * self.scaling.magnitude, sines * self.scaling.magnitude  # (..., n, rotated / 2)
        return self._paired(cosines, cosines), self._paired(-sines, sines)

    def _paired(self, first: Tensor, second: Tensor) -> Tensor:
        """First and second features of pairs, in the order of the features: (..., rotated)."""
        if self.interleaved:
            return torch.stack((first, second), dim=-1).flatten(-2)
        return torch.cat((first, second), dim=-1)

    def _partner(self, x: Tensor) -> Tensor:
        """The other feature of each pair: (..., rotated)."""
        if self.interleaved:
            return self._paired(x[..., 1::2], x[..., 0::2])
        return x.roll(self.rotated // 2, dims=-1)

    def extra_repr(self) -> str:
        """The non-default options."""
        options = {
            "interleaved": (self.interleaved, False),
            "fraction": (self.fraction, 1.0),
            "scaling": (self.scaling, Scaling()),
        }
        return ", ".join(
            [
                f"{self.width}, base={self.base}",
                *(f"{name}={value}" for name, (value, default) in options.items() if value != default),
            ]
        )


def _rotated(width: int, fraction: float) -> int:
    """The number of features that rotate: int(fraction · width), rounded like Hugging Face's."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise InputError("fraction of Rotary above 0 and at most 1", got=repr(fraction), fix="pass such a number")
    rotated = int(width * fraction)
    if rotated < 2 or rotated % 2:
        raise InputError(
            "an even number of features to rotate, at least 2, since they rotate in pairs",
            got=f"{rotated} of {width} features (fraction={fraction})",
            fix="choose an even width, or another fraction",
        )
    return rotated
