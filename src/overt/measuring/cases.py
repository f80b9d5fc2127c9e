"""What is measured: a kind of work, its shape, and the numbers that it is done on."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from overt.errors import InputError

WORKS = {
    "additive": "additive attention, forward",
    "gradients": "additive attention, forward and backward",
    "memory": "memory of additive gradients, above the inputs",
    "summary": "top 8, entropy, received, 512 × 512 map; dot",
}


@dataclass(frozen=True)
class Case:
    """One kind of work at one shape: queries (*batch, Q, D), keys (*batch, K, D), values (*batch, K, D).

    >>> case = Case("additive", (8,), 256, 256, 128)
    >>> case.name, case.terms
    ('additive-8x256x256x128', 67108864)
    """

    work: str
    batch: tuple[int, ...]
    queries: int
    keys: int
    features: int
    quick: bool = False

    @classmethod
    def named(cls, name: str) -> "Case":
        """The case that has this name."""
        work, _, shape = name.partition("-")
        *batch, queries, keys, features = map(int, shape.split("x"))
        return cls(work, tuple(batch), queries, keys, features)

    @property
    def shape(self) -> tuple[int, ...]:
        """(*batch, Q, K, D)."""
        return (*self.batch, self.queries, self.keys, self.features)

    @property
    def name(self) -> str:
        """The work and the shape, as `--case` takes it."""
        return f"{self.work}-{'x'.join(map(str, self.shape))}"

    @property
    def terms(self) -> int:
        """B · Q · K · D: the activations of additive scores, the products of dot-product scores."""
        return prod(self.shape)

    @property
    def backward(self) -> bool:
        """Whether gradients are computed too."""
        return self.work in ("gradients", "memory")


_SHAPES = [
    (1, 1024, 1024, 128),
    (8, 256, 256, 128),
    (1, 4096, 4096, 64),
    (32, 40, 40, 256),
    (128, 10, 128, 1024),
    (1280, 1, 66, 1024),
]
CASES = [
    *(
        Case(work, (batch,), *lengths, quick=lengths[0] in (40, 256))
        for work in ("additive", "gradients")
        for batch, *lengths in _SHAPES
    ),
    Case("memory", (1,), 16384, 16384, 128),
    Case("summary", (1, 8), 8192, 8192, 64),
]


def chosen(names: list[str], quick: bool = False) -> list[Case]:
    """The cases of these names, or whose names begin so; all of them, or the quick ones, where none is named.

    >>> [case.name for case in chosen(["memory", "summary"])]
    ['memory-1x16384x16384x128', 'summary-1x8x8192x8192x64']
    """
    for name in names:
        if not any(case.name.startswith(name) for case in CASES):
            listed = "".join(f"\n  {case.name}" for case in CASES)
            cure = f"pass one of these or its beginning:{listed}\nor leave --case out, to have all"
            raise InputError("a case has a name of the list", got=repr(name), cure=cure)
    return [case for case in CASES if (not quick or case.quick or names) and (not names or case.name.startswith(tuple(names)))]


@dataclass(frozen=True)
class Inputs:
    """The tensors that every contender is given; without `upstream` there is no backward pass."""

    query: Tensor  # (*batch, Q, D)
    key: Tensor  # (*batch, K, D)
    value: Tensor  # (*batch, K, D)
    weight: Tensor  # (D,)
    upstream: Tensor | None  # (*batch, Q, D)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What additive attention is differentiated in."""
        return self.query, self.key, self.value, self.weight


def drawn(case: Case, dtype: torch.dtype) -> Inputs:
    """The inputs of a case: normal, the same at every call."""
    numbers = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers, dtype=dtype)

    query = normal(*case.batch, case.queries, case.features)
    key, value = (normal(*case.batch, case.keys, case.features) for _ in range(2))
    weight = normal(case.features) / case.features**0.5
    return Inputs(
        query, key, value, weight, torch.randn(query.shape, generator=numbers, dtype=dtype) if case.backward else None
    )
