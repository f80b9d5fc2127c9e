"""Rotary positions beyond the length that a model was trained on: scaled frequencies θ_i.

m features rotate, so i = 0 … m/2 − 1. L is the training length, s the factor of its extension, and a feature pair makes
L θ_i / 2π rotations within L.

| rope_type  | frequencies                                                     | source                                           |
|------------|-----------------------------------------------------------------|--------------------------------------------------|
| "default"  | θ_i                                                             | Su et al. 2021, section 3.2.2                    |
| "linear"   | θ_i / s                                                         | Chen et al. 2023, section 2.3                    |
| "dynamic"  | θ_i · g^(−2i / (m − 2)), g = s n / L − (s − 1), n the length    | Peng et al. 2023, section 3 ("Dynamic NTK")      |
| "yarn"     | r θ_i + (1 − r) θ_i / s, r falling from 1 to 0 over i           | Peng et al. 2023, section 3 ("YaRN")             |
| "llama3"   | r θ_i + (1 − r) θ_i / s, r rising with the rotations in L       | Llama 3.1's own code, `apply_scaling`            |
| "longrope" | θ_i / t_i, with one list of t within L and another beyond it    | Ding et al. 2024, section 3                      |

"yarn" and "longrope" also multiply cosines and sines, and so queries and keys, by a magnitude. Fields are named as in Hugging
Face's configurations, so that the two can be read side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from overt.attention import check
from overt.errors import InputError, KindError


@dataclass(frozen=True)
class Scaling:
    """Unchanged frequencies, "default"."""

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """The frequencies θ_i = base^(−2i / m), scaled for a call at these positions: (m / 2,)."""
        return plain

    @property
    def magnitude(self) -> float:
        """The factor of cosines and sines."""
        return 1.0


@dataclass(frozen=True)
class LinearScaling(Scaling):
    """Position interpolation: position p is rotated like p / factor before."""

    factor: float

    def __post_init__(self) -> None:
        check.positive("factor", self.factor)

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """θ_i / s."""
        return plain / self.factor


@dataclass(frozen=True)
class DynamicScaling(Scaling):
    """A base that grows with the length of the call (one more than its largest position) if that exceeds the original.

    As in Hugging Face the longest row of a batch decides, and keys in a cache keep the rotation of the call that stored them.
    """

    factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        check.positive("factor", self.factor)
        check.whole_number("original_max_position_embeddings", self.original_max_position_embeddings)

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """θ_i · g^(−2i / (m − 2)): the first unchanged, the last divided by g."""
        stretched = (_length(positions).to(plain.dtype) / self.original_max_position_embeddings).clamp(min=1)
        growth = self.factor * stretched - (self.factor - 1)
        return plain * growth ** -torch.linspace(0, 1, len(plain), dtype=plain.dtype, device=plain.device)


@dataclass(frozen=True)
class YarnScaling(Scaling):
    """Fast pairs unchanged, slow ones interpolated, and a ramp over the index between; sharper attention for longer texts.

    The ramp runs from the pair with `beta_fast` rotations within the original length to the one with `beta_slow` rotations;
    `truncate` rounds both outwards. The magnitude is `attention_factor`, or 0.1 ln s + 1, or, with both factors, the quotient of
    0.1 · mscale · ln s + 1 and 0.1 · mscale_all_dim · ln s + 1.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        check.whole_number("original_max_position_embeddings", self.original_max_position_embeddings)
        for name in ("factor", "beta_fast", "beta_slow"):
            check.positive(name, getattr(self, name))
        if self.attention_factor is not None:
            check.positive("attention_factor", self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name):  # 0 means none
                check.positive(name, getattr(self, name))
        if self.beta_fast < self.beta_slow:
            raise InputError(
                "beta_fast at least as large as beta_slow",
                got=f"beta_fast={self.beta_fast}, beta_slow={self.beta_slow}",
                fix="exchange the two",
            )

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """r θ_i + (1 − r) θ_i / s."""
        if base <= 1:
            raise InputError(
                "a base above 1 under YarnScaling", got=repr(base), fix="pass the base of the model, often 10000.0"
            )
        first, last = self._ramp(2 * len(plain), base)
        index = torch.arange(len(plain), dtype=plain.dtype, device=plain.device)
        return _interpolated(plain, self.factor, 1 - ((index - first) / (last - first)).clamp(0, 1))

    def _ramp(self, rotated: int, base: float) -> tuple[float, float]:
        """The index of the last unchanged pair and of the first interpolated pair."""

        def index(rotations: float) -> float:
            return rotated * math.log(self.original_max_position_embeddings / (rotations * 2 * math.pi)) / (2 * math.log(base))

        first, last = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, rotated - 1)
        return first, last if last != first else last + 0.001

    @property
    def magnitude(self) -> float:
        """The attention factor."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._mscale(self.mscale) / self._mscale(self.mscale_all_dim)
        return self._mscale(1.0)

    def _mscale(self, weight: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * weight * math.log(self.factor) + 1.0


@dataclass(frozen=True)
class Llama3Scaling(Scaling):
    """Pairs with at least `high_freq_factor` rotations within the original length unchanged, pairs below `low_freq_factor` / s."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        check.whole_number("original_max_position_embeddings", self.original_max_position_embeddings)
        for name in ("factor", "low_freq_factor", "high_freq_factor"):
            check.positive(name, getattr(self, name))
        if self.high_freq_factor <= self.low_freq_factor:
            raise InputError(
                "high_freq_factor above low_freq_factor",
                got=f"low_freq_factor={self.low_freq_factor}, high_freq_factor={self.high_freq_factor}",
                fix="exchange the two, or increase high_freq_factor",
            )

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """r θ_i + (1 − r) θ_i / s."""
        rotations = self.original_max_position_embeddings * plain / (2 * math.pi)
        ramp = (rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return _interpolated(plain, self.factor, ramp.clamp(0, 1))


@dataclass(frozen=True)
class LongScaling(Scaling):
    """A divisor for each pair, found by search: `short_factor` for calls within the original length, `long_factor` beyond it.

    The magnitude is `attention_factor`, or √(1 + ln s / ln L). As in Hugging Face the longest row of a batch decides.
    """

    short_factor: Sequence[float]
    long_factor: Sequence[float]
    original_max_position_embeddings: int
    factor: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        check.whole_number("original_max_position_embeddings", self.original_max_position_embeddings, minimum=2)
        for name in ("factor", "attention_factor"):
            if getattr(self, name) is not None:
                check.positive(name, getattr(self, name))
        if self.factor is None and self.attention_factor is None:
            raise InputError(
                'a factor or an attention_factor for the scaling "longrope"',
                fix="pass factor = max_position_embeddings / original_max_position_embeddings",
            )
        for name in ("short_factor", "long_factor"):
            for divisor in getattr(self, name):
                check.positive(f"each number in {name}", divisor)

    def frequencies(self, plain: Tensor, base: float, positions: Tensor) -> Tensor:
        """θ_i / t_i."""
        for name in ("short_factor", "long_factor"):
            if len(getattr(self, name)) != len(plain):
                raise InputError(
                    f"{len(plain)} numbers as {name}, one for each pair of features that rotate",
                    got=str(len(getattr(self, name))),
                    fix="pass the width and fraction of the model that the numbers are from",
                )
        short = plain.new_tensor(self.short_factor)
        long = plain.new_tensor(self.long_factor)
        return plain / torch.where(_length(positions) > self.original_max_position_embeddings, long, short)

    @property
    def magnitude(self) -> float:
        """The attention factor."""
        if self.attention_factor is not None:
            return self.attention_factor
        stretch = 1.0 if self.factor is None else max(self.factor, 1.0)
        return math.sqrt(1 + math.log(stretch) / math.log(self.original_max_position_embeddings))


SCALINGS: dict[str, type[Scaling]] = {
    "default": Scaling,
    "linear": LinearScaling,
    "dynamic": DynamicScaling,
    "yarn": YarnScaling,
    "llama3": Llama3Scaling,
    "longrope": LongScaling,
}


def as_scaling(scaling: Any, base: float, fraction: float) -> Scaling:
    """The scaling of a Hugging Face `rope_scaling` or `rope_parameters`, of an object above, or "default" for None.

    >>> as_scaling({"rope_type": "linear", "factor": 4.0}, base=10000.0, fraction=1.0)
    LinearScaling(factor=4.0)
    """
    if scaling is None:
        return Scaling()
    if isinstance(scaling, Scaling):
        return scaling
    if not isinstance(scaling, Mapping):
        raise KindError(
            "scaling as a mapping as in Hugging Face's configurations, or an object of overt.layers.positions.rotary_scaling",
            got=repr(scaling),
            fix='pass one such as {"rope_type": "linear", "factor": 4.0}',
        )
    settings = {name: value for name, value in scaling.items() if value is not None}
    kind = _kind(settings)
    for name, argument, value in (("rope_theta", "base", base), ("partial_rotary_factor", "fraction", fraction)):
        if settings.pop(name, value) != value:
            raise InputError(
                f"{name} equal to the {argument} of Rotary, {value}",
                got=f"{scaling[name]}",
                fix=f"pass {argument}={scaling[name]}",
            )
    return _from_settings(kind, settings)


def _kind(settings: dict[str, Any]) -> str:
    """The name of the scaling, from its settings."""
    names = {str(settings.pop(name)) for name in ("rope_type", "type") if name in settings}
    if len(names) != 1 or not names <= SCALINGS.keys():
        raise InputError(
            "one rope_type of " + ", ".join(SCALINGS),
            got=" and ".join(sorted(names)) or "none",
            fix="choose one, or write a subclass of overt.layers.positions.rotary_scaling.Scaling",
        )
    return names.pop()


def _from_settings(kind: str, settings: dict[str, Any]) -> Scaling:
    required = {field.name: field.default is MISSING for field in fields(SCALINGS[kind])}
    missing = [name for name, needed in required.items() if needed and name not in settings]
    unknown = [name for name in settings if name not in required]
    if missing or unknown:
        fix = "leave out " + ", ".join(unknown) if unknown else "add " + ", ".join(missing)
        if not unknown and "original_max_position_embeddings" in missing:
            fix += "; where a configuration has no original length, it is its max_position_embeddings"
        raise InputError(
            f'{", ".join(required) or "no settings"} for the scaling "{kind}"', got=", ".join(settings) or "none", fix=fix
        )
    return SCALINGS[kind](**settings)


def _interpolated(plain: Tensor, factor: float, unchanged: Tensor) -> Tensor:
    return unchanged * plain + (1 - unchanged) * plain / factor


def _length(positions: Tensor) -> Tensor:
    """One more than the largest position, 0 if there is none."""
    return positions.max() + 1 if positions.numel() else positions.new_zeros(())
