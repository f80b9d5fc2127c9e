"""The cases of `overt bench`: a kind of work, its shape, and its inputs."""

from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod

import torch
from torch import Tensor

from overt.attention.normalizers import Entmax, Sigmoid, Sparsemax, Sum
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
    documents: int = 0  # packed one after another; each attends within itself
    tensor: str = ""  # a mask that is a bool tensor: "padding", "causal" or "scattered"
    normalizer: str = ""  # of `NORMALIZERS`; "" for a softmax
    spread: float = 1.0  # what queries are multiplied by


NORMALIZERS = {
    "sigmoid": Sigmoid(),
    "sum": Sum(),
    "sparsemax": Sparsemax(),
    "entmax1.5": Entmax(1.5),
    "entmax1.3": Entmax(1.3),
}
_SPREADS = {"": 1.0, "peaked": 6.0, "equal": 1e-3}


def _normalizer_kinds() -> dict[str, DotKind]:
    """Each normalizer forward and with its backward pass; those that are sparse also under peaked and near-equal scores."""
    kinds = {}
    for name, (scores, spread), backward in product(NORMALIZERS, _SPREADS.items(), (False, True)):
        if scores and name in ("sigmoid", "sum"):
            continue
        work = "".join(("normalizers.", name, f".{scores}" if scores else "", ".gradients" if backward else ""))
        passes = "forward and backward" if backward else "forward"
        description = f"dot products under {name}, {scores + ' scores, ' if scores else ''}{passes}"
        kinds[work] = DotKind(description, backward=backward, normalizer=name, spread=spread)
    return kinds


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
    **_normalizer_kinds(),
}

DERIVATIVES = {
    "derivatives": "dot products, all gradients and their derivatives",
    "derivativesquery": "dot products, the query's gradient and its derivatives",
    "derivativestangent": "dot products, the output and its tangent in forward mode",
}
DERIVATIVES |= {f"additive{work}": text.replace("dot products", "additive scores") for work, text in DERIVATIVES.items()}

# Scores of a caller's own, as `contenders.scores` writes them.
SCORES = {
    "scoresmanhattan": "a score of one's own, −Σ|q − k|, forward",
    "scoresrectified": "a score of one's own, Σ w relu(q + k), forward",
    "scorespolynomial": "a score of one's own, (1 + q · k / 8)², forward",
}
SCORES |= {f"{work}gradients": f"{text} and backward" for work, text in SCORES.items()}

WORKS = {
    "additive": "additive attention, forward",
    "gradients": "additive attention, forward and backward",
    "memory": "memory of additive gradients, above the inputs",
    "summary": "top 8, entropy, received, 512 × 512 map; dot",
    **{work: kind.description for work, kind in DOTS.items()},
    **DERIVATIVES,
    **SCORES,
}


@dataclass(frozen=True)
class Case:
    """One kind of work at one shape: queries (*batch, Q, D), keys (*batch, K, D), values (*batch, K, D), but for `DOTS`.

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
    dtype: torch.dtype | None = None  # None: that of the options

    @classmethod
    def named(cls, name: str) -> "Case":
        """The case of this name."""
        work, _, shape = name.partition("-")
        *batch, queries, keys, features = map(int, shape.split("x"))
        return cls(work, tuple(batch), queries, keys, features)

    @property
    def shape(self) -> tuple[int, ...]:
        """(*batch, Q, K, D)."""
        return (*self.batch, self.queries, self.keys, self.features)

    @property
    def name(self) -> str:
        """The work, the shape, and the case's number type if it has one, as `--case` takes it."""
        name = f"{self.work}-{'x'.join(map(str, self.shape))}"
        return name if self.dtype is None else f"{name}-{str(self.dtype).removeprefix('torch.')}"

    @property
    def terms(self) -> int:
        """B · Q · K · D: the activations of additive scores, the products of dot-product scores."""
        return prod(self.shape)

    @property
    def backward(self) -> bool:
        """Whether gradients are computed too."""
        if self.work in DERIVATIVES:
            return not self.work.endswith("tangent")
        backward = self.work == "memory" or self.work.endswith("gradients")
        return DOTS[self.work].backward if self.work in DOTS else backward


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
        Case(work, (batch,), *lengths, quick=lengths[0] in (40, 256))
        for work in ("additive", "gradients")
        for batch, *lengths in _SHAPES
    ),
    Case("memory", (1,), 16384, 16384, 128),
    Case("summary", (1, 8), 8192, 8192, 64),
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
    *(Case(work, (1, 8), 1024, 1024, 64) for work in DOTS if DOTS[work].normalizer),
    *(Case(work, *((8,), 256, 256, 128) if work.startswith("additive") else ((1, 8), 1024, 1024, 64)) for work in DERIVATIVES),
    *(Case(work, (1, 4), length, length, 64) for work in SCORES for length in (256, 1024, 4096)),
]
GPU_CASES = [
    *(
        Case(work, (8,), 2048, 2048, 128, quick=work == "additive", dtype=dtype)
        for work in ("additive", "gradients")
        for dtype in (torch.float32, torch.bfloat16)
    ),
    # At twice the length, a kernel whose memory is linear takes twice the memory.
    Case("memory", (1,), 32768, 32768, 64, dtype=torch.float32),
    Case("memory", (1,), 65536, 65536, 64, dtype=torch.float32),
    Case("summary", (1, 16), 32768, 32768, 128, dtype=torch.bfloat16),
]


def document_lengths(count: int, tokens: int) -> list[int]:
    """The lengths of packed documents: the last is about three times as long as the first.

    >>> document_lengths(3, 90)
    [20, 30, 40]
    """
    ends = [tokens * number * (number + count) // (2 * count**2) for number in range(count + 1)]
    return [end - start for start, end in pairwise(ends)]


def padded_lengths(entries: int, keys: int) -> list[int]:
    """How many keys of each entry of the batch are not padding.

    >>> padded_lengths(4, 1024)
    [256, 512, 768, 1024]
    """
    return [keys * number // entries for number in range(1, entries + 1)]


def scattered_pairs(rows: int, keys: int) -> Tensor:
    """Seven of ten pairs, at random but always the same: (rows, keys)."""
    return torch.rand((rows, keys), generator=torch.Generator().manual_seed(0)) < 0.7


def available_cases(kind: str, dtype: torch.dtype | None = None) -> list[Case]:
    """The cases of a kind of device. On a GPU each has its own number type, unless `dtype` names one.

    >>> [case.name for case in available_cases("cuda", torch.float64) if case.work == "gradients"]
    ['gradients-8x2048x2048x128-float64']
    """
    if kind == "cpu":
        return CASES
    return GPU_CASES if dtype is None else list(dict.fromkeys(replace(case, dtype=dtype) for case in GPU_CASES))


def select_cases(names: list[str], quick: bool = False, kind: str = "cpu", dtype: torch.dtype | None = None) -> list[Case]:
    """The available cases whose names begin with one of `names`; without names all, or the quick ones.

    >>> [case.name for case in select_cases(["memory", "summary"])]
    ['memory-1x16384x16384x128', 'summary-1x8x8192x8192x64']
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
    """The tensors that every contender gets; without `upstream` there is no backward pass."""

    query: Tensor  # (*batch, Q, D)
    key: Tensor  # (*batch, K, D)
    value: Tensor  # (*batch, K, D)
    weight: Tensor  # (D,)
    upstream: Tensor | None  # (*batch, Q, D)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors with gradients of additive attention."""
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
