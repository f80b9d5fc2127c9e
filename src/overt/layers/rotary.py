"""Rotary positions: queries and keys turn with their place, so that their dot product knows how far apart they stand."""

import torch
from torch import Tensor

from overt import check
from overt.errors import InputError
from overt.layers.inputs import states, widths
from overt.layers.order import Positions, beside, checked_places
from overt.layers.waves import frequencies, waves


class Rotary(Positions):
    """Each pair of features (a, b) of a head turns by the angle p · θ_i at place p, with θ_i = base^(−2i / m).

        a' = a cos(p θ_i) − b sin(p θ_i)        b' = b cos(p θ_i) + a sin(p θ_i)

    Su et al. 2021 (RoFormer), section 3.2.2. Turning keeps lengths, and the dot product of a query turned at i and a key turned at
    j depends on i − j alone. `width` is that of a head. Pair i is features (i, i + m/2), as in Llama and GPT-NeoX, or
    (2i, 2i + 1) with `interleaved=True`, as in RoFormer and GPT-J. `fraction` turns only the first m = fraction · width features.

    Angles and frequencies are float64, the turning is float32 or better, and the result has the dtype of x.

    Shapes: x (..., H, n, width) → the same; places (n,) or (B, n). Raises InputError and KindError for what does not fit.

    >>> Rotary(2).heads(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([0, 1]))
    tensor([[[1.0000, 0.0000],
             [0.5403, 0.8415]]])
    """

    def __init__(self, width: int, base: float = 10000.0, *, interleaved: bool = False, fraction: float = 1.0):
        super().__init__()
        widths("Rotary", width=width)
        check.positive("base", base)
        self.width, self.base, self.interleaved, self.fraction = width, base, interleaved, fraction
        self.turned = _turned(width, fraction)

    def heads(self, x: Tensor, places: Tensor) -> Tensor:
        """Queries or keys, turned by their places."""
        states("Rotary", "heads", x, self.width)
        places = checked_places(places, x)
        precise = torch.promote_types(x.dtype, torch.float32)
        cosines, sines = waves(places, frequencies(self.turned, self.base, x.device))
        cosines, sines = beside(cosines.to(precise), x), beside(sines.to(precise), x)  # (B, ..., n, turned / 2)
        first, second = self._pairs(x.to(precise))
        pairs = first * cosines - second * sines, second * cosines + first * sines
        turned = torch.stack(pairs, dim=-1).flatten(-2) if self.interleaved else torch.cat(pairs, dim=-1)  # (..., n, turned)
        return torch.cat((turned.to(x.dtype), x[..., self.turned :]), dim=-1)

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.interleaved:
            return x[..., 0 : self.turned : 2], x[..., 1 : self.turned : 2]
        return x[..., : self.turned // 2], x[..., self.turned // 2 : self.turned]

    def extra_repr(self) -> str:
        """What it was built with."""
        options = {"interleaved": (self.interleaved, False), "fraction": (self.fraction, 1.0)}
        return ", ".join([f"{self.width}, base={self.base}", *(f"{n}={v}" for n, (v, usual) in options.items() if v != usual)])


def _turned(width: int, fraction: float) -> int:
    """How many features turn: int(fraction · width), as Hugging Face rounds it."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise InputError("Rotary turns a fraction of the features", got=repr(fraction), cure="pass a number above 0, at most 1")
    turned = int(width * fraction)
    if turned < 2 or turned % 2:
        raise InputError(
            "Rotary turns pairs of features, so their number is even and at least 2",
            got=f"{turned} of {width} features (fraction={fraction})",
            cure="choose an even width, or another fraction",
        )
    return turned
