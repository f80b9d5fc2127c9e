"""Rotary positions: queries and keys turn with their place, so that their dot product knows how far apart they stand."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from overt.attention import check
from overt.errors import InputError
from overt.layers.parts.checks import states, widths
from overt.layers.positions.angles import frequencies, waves
from overt.layers.positions.base import Positions, beside, checked_places
from overt.layers.positions.rotary_scaling import Scaling, scaling_of


class Rotary(Positions):
    """Each pair of features (a, b) of a head turns by the angle p · θ_i at place p, with θ_i = base^(−2i / m).

        a' = a cos(p θ_i) − b sin(p θ_i)        b' = b cos(p θ_i) + a sin(p θ_i)

    Su et al. 2021 (RoFormer), section 3.2.2. Turning keeps lengths, and the dot product of a query turned at i and a key turned at
    j depends on i − j alone. `width` is that of a head. Pair i is features (i, i + m/2), as in Llama and GPT-NeoX, or
    (2i, 2i + 1) with `interleaved=True`, as in RoFormer and GPT-J. `fraction` turns only the first m = fraction · width features.

    `scaling` stretches positions beyond the length trained on: a Hugging Face `rope_scaling` such as
    `{"rope_type": "linear", "factor": 4.0}`, or an object of the table in `overt.layers.positions.rotary_scaling`.

    Angles and frequencies are float64, the turning is float32 or better, and the result has the dtype of x.

    Shapes: x (..., H, n, width) → the same; places (n,) or (B, n). Raises InputError and KindError for what does not fit.

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
        self.width, self.base, self.interleaved, self.fraction = width, base, interleaved, fraction
        self.turned = _turned(width, fraction)
        self.scaling = scaling_of(scaling, base, fraction)
        self._waves(torch.zeros(1, dtype=torch.long, device="cpu"))  # refuses a scaling of other widths

    def heads(self, x: Tensor, places: Tensor) -> Tensor:
        """Queries or keys, turned by their places."""
        states("Rotary", "heads", x, self.width, option="width")
        places = checked_places(places, x)
        precise = torch.promote_types(x.dtype, torch.float32)
        cosines, sines = self._waves(places)
        cosines, sines = beside(cosines.to(precise), x), beside(sines.to(precise), x)  # (B, ..., n, turned)
        turning = x[..., : self.turned].to(precise)
        turned = (turning * cosines + self._partner(turning) * sines).to(x.dtype)  # (..., H, n, turned)
        return turned if self.turned == self.width else torch.cat((turned, x[..., self.turned :]), dim=-1)

    def _waves(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature and its partner are multiplied by: two of (..., n, turned)."""
        plain = frequencies(self.turned, self.base, places.device)
        cosines, sines = waves(places, self.scaling.frequencies(plain, self.base, places))
        cosines, sines = cosines * self.scaling.strength, sines * self.scaling.strength  # (..., n, turned / 2)
        return self._paired(cosines, cosines), self._paired(-sines, sines)

    def _paired(self, first: Tensor, second: Tensor) -> Tensor:
        """Firsts and seconds of pairs at the places where features have them: (..., turned)."""
        if self.interleaved:
            return torch.stack((first, second), dim=-1).flatten(-2)
        return torch.cat((first, second), dim=-1)

    def _partner(self, x: Tensor) -> Tensor:
        """The other feature of each pair: (..., turned)."""
        if self.interleaved:
            return self._paired(x[..., 1::2], x[..., 0::2])
        return x.roll(self.turned // 2, dims=-1)

    def extra_repr(self) -> str:
        """What it was built with."""
        options = {
            "interleaved": (self.interleaved, False),
            "fraction": (self.fraction, 1.0),
            "scaling": (self.scaling, Scaling()),
        }
        return ", ".join([f"{self.width}, base={self.base}", *(f"{n}={v}" for n, (v, usual) in options.items() if v != usual)])


def _turned(width: int, fraction: float) -> int:
    """How many features turn: int(fraction · width), as Hugging Face rounds it."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise InputError("Rotary turns a fraction of the features", got=repr(fraction), fix="pass a number above 0, at most 1")
    turned = int(width * fraction)
    if turned < 2 or turned % 2:
        raise InputError(
            "Rotary turns pairs of features, so their number is even and at least 2",
            got=f"{turned} of {width} features (fraction={fraction})",
            fix="choose an even width, or another fraction",
        )
    return turned
