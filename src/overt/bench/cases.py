"""The cases of `overt bench`: a kind of work, its shape, and its inputs."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from overt.errors import InputError


@dataclass(frozen=True)
class DotKind:
    """The options of a case of dot products."""

    description: str
    causal: bool = False
    backward: bool = False
    dropout: float = 0.0
    biased: bool = False
    value_ratio: int = 1  # features of a value / features of a key
    group: int = 1  # heads that share keys and values
    documents: int = 0  # packed one after another; each attends only within itself
    tensor: str = ""  # a mask that is a bool tensor: "padding", "causal" or "scattered"


DOTS = {
    "dot": DotKind("dot products, forward"),
    "causal": DotKind("causal dot products, forward", causal=True),
    "dotgradients": DotKind("dot products, forward and backward", backward=True),
    "causalgradients": DotKind("causal dot products, forward and backward", causal=True, backward=True),
    "dropout": DotKind("dot products with dropout 0.1, forward and backward", backward=True, dropout=0.1),
    "bias": DotKind("dot products with a learned bias, forward and backward", backward=True, biased=True),
    "wide": DotKind("dot products, values twice as wide as keys, forward and backward", backward=True, value_ratio=2),
    "step": DotKind("one query for each head against cached keys, which four heads share", group=4),
    "batch": DotKind("one query for each head of many short texts, as in batched translation"),
    "half": DotKind("dot products in half precision, forward"),
    "halfcausal": DotKind("causal dot products in half precision, forward", causal=True),
    "halfgradients": DotKind("dot products in half precision, forward and backward", backward=True),
    "halfcausalgradients": DotKind("causal dot products in half precision, forward and backward", causal=True, backward=True),
    "packed": DotKind("32 packed documents, forward", documents=32),
    "packedgradients": DotKind("32 packed documents, forward and backward", documents=32, backward=True),
    "padding": DotKind("padding as a bool tensor, forward", tensor="padding"),
    "paddinggradients": DotKind("padding as a bool tensor, forward and backward", tensor="padding", backward=True),
    "tril": DotKind("a causal mask as a bool tensor, forward", tensor="causal"),
    "trilgradients": DotKind("a causal mask as a bool tensor, forward and backward", tensor="causal", backward=True),
    "scattered": DotKind("a bool tensor that allows 7 of 10 pairs, here and there, forward", tensor="scattered"),
    "scatteredgradients": DotKind("the same, forward and backward", tensor="scattered", backward=True),
}

BACKWARD: set[str] = {"gradients", *(work for work, kind in DOTS.items() if kind.backward)}


@dataclass(frozen=True)
class Case:
    """One kind of work at one shape: queries (*batch, Q, D), keys (*batch, K, D), values (*batch, K, D), except in `DOTS`.

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
    dtype: torch.dtype | None = None  # None: the dtype in the options

    @property
    def shape(self) -> tuple[int, ...]:
        """(*batch, Q, K, D)."""
        return (*self.batch, self.queries, self.keys, self.features)

    @property
    def name(self) -> str:
        """The work, the shape, and the case's number type if it has one, in the form of `--case`."""
        name = f"{self.work}-{'x'.join(map(str, self.shape))}"
        return name if self.dtype is None else f"{name}-{str(self.dtype).removeprefix('torch.')}"

    @property
    def terms(self) -> int:
        """B · Q · K · D: the activations of additive scores, the products of dot-product scores."""
        return prod(self.shape)

    @property
    def backward(self) -> bool:
        """Whether gradients are computed too."""
        return self.work in BACKWARD


_SHAPES = [
    (1, 1024, 1024, 128),
    (8, 256, 256, 128),
    (1, 4096, 4096, 64),
    (32, 40, 40, 256),
    (128, 10, 128, 1024),
    (1280, 1, 66, 1024),
]
_DOT_SHAPES = [
    (1, 8, 1024, 64),
    (1, 8, 4096, 64),
    (8, 8, 128, 64),
    (32, 4, 32, 32),
    (1, 1, 8192, 64),
    (1, 12, 512, 64),
    (16, 8, 20, 32),
    (4, 8, 512, 128),
]
CASES = [
    *(
        Case(work, (batch,), *lengths, quick=lengths[0] == 40)
        for work in ("additive", "gradients")
        for batch, *lengths in _SHAPES
    ),
    *(
        Case(work, (batch, heads), length, length, features, quick=length == 128)
        for work in ("dot", "causal", "dotgradients", "causalgradients")
        for batch, heads, length, features in _DOT_SHAPES
    ),
    *(Case(work, (1, 8), 1024, 1024, 64) for work in ("dropout", "bias", "wide")),
    Case("step", (1, 32), 1, 16384, 64),
    Case("batch", (256, 4), 1, 24, 32),
    *(
        Case(work, (batch, 8), length, length, 64, dtype=dtype)
        for work in ("half", "halfcausal", "halfgradients", "halfcausalgradients")
        for dtype in (torch.bfloat16, torch.float16)
        for batch, length in ((16, 16), (8, 128), (1, 1024))
    ),
    *(Case(work, (1, 8), 8254, 8254, 64) for work in ("packed", "packedgradients")),
    *(Case(work, (4, 8), 1024, 1024, 64) for work in DOTS if DOTS[work].tensor),
]
GPU_CASES = [
    *(
        Case(work, (8,), 2048, 2048, 128, quick=work == "additive", dtype=dtype)
        for work in ("additive", "gradients")
        for dtype in (torch.float32, torch.bfloat16)
    ),
]


def document_lengths(count: int, tokens: int) -> list[int]:
    """The lengths of packed documents: the last is about three times as long as the first.

    >>> document_lengths(3, 90)
    [20, 30, 40]
    """
    ends = [tokens * number * (number + count) // (2 * count**2) for number in range(count + 1)]
    return [end - start for start, end in pairwise(ends)]


def padded_lengths(entries: int, keys: int) -> list[int]:
    """The number of keys in each batch entry that are not padding.

    >>> padded_lengths(4, 1024)
    [256, 512, 768, 1024]
    """
    return [keys * number // entries for number in range(1, entries + 1)]


def scattered_pairs(rows: int, keys: int) -> Tensor:
    """A fixed random mask that allows seven of ten pairs: (rows, keys)."""
    return torch.rand((rows, keys), generator=torch.Generator().manual_seed(0)) < 0.7


def available_cases(kind: str, dtype: torch.dtype | None = None) -> list[Case]:
    """The cases for a kind of device. On a GPU each case has its own number type, unless `dtype` names one.

    >>> [case.name for case in available_cases("cuda", torch.float64) if case.work == "gradients"]
    ['gradients-8x2048x2048x128-float64']
    """
    if kind == "cpu":
        return CASES
    return GPU_CASES if dtype is None else list(dict.fromkeys(replace(case, dtype=dtype) for case in GPU_CASES))


def select_cases(names: list[str], quick: bool = False, kind: str = "cpu", dtype: torch.dtype | None = None) -> list[Case]:
    """The available cases whose names begin with one of `names`; by default all, or the quick ones.

    >>> [case.name for case in select_cases(["step", "batch"])]
    ['step-1x32x1x16384x64', 'batch-256x4x1x24x32']
    """
    cases = available_cases(kind, dtype)
    for name in names:
        if not any(case.name.startswith(name) for case in cases):
            listing = "".join(f"\n  {case.name}" for case in cases)
            fix = f"pass one of these or the beginning of one:{listing}\nor omit --case to run all"
            raise InputError("the name of a case", got=repr(name), fix=fix)
    return [case for case in cases if (not quick or case.quick or names) and (not names or case.name.startswith(tuple(names)))]


@dataclass(frozen=True)
class Inputs:
    """The tensors for every contender; without `upstream` there is no backward pass."""

    query: Tensor  # (*batch, Q, D)
    key: Tensor  # (*batch, K, D)
    value: Tensor  # (*batch, K, D)
    weight: Tensor  # (D,)
    upstream: Tensor | None  # (*batch, Q, D)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors that get gradients in additive attention."""
        return self.query, self.key, self.value, self.weight


def random_inputs(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> Inputs:
    """Normally distributed inputs of a case, the same at every call and on every device."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).to(device)

    query = normal(*case.batch, case.queries, case.features)
    key, value = (normal(*case.batch, case.keys, case.features) for _ in range(2))
    weight = normal(case.features) / case.features**0.5
    return Inputs(query, key, value, weight, normal(*query.shape) if case.backward else None)
