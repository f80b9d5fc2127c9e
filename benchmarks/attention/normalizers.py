"""Dot products under normalizers other than a softmax, compared with the same call under a softmax and with the formula."""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

import overt
from overt.attention.normalizers import Entmax, Normalizer, Sigmoid, Sparsemax, Sum
from overt.bench.bounds import Count, pairs
from overt.bench.cases import Case, Inputs
from overt.bench.contenders import dots
from overt.bench.contenders.contender import Attention, Contender, Results, Run, Unable, differentiated
from overt.bench.reference import Reference, reference_on_rows
from overt.bench.works import Work
from overt.errors import OvertError

NORMALIZERS = {
    "sigmoid": Sigmoid(),
    "sum": Sum(),
    "sparsemax": Sparsemax(),
    "entmax1.5": Entmax(1.5),
    "entmax1.3": Entmax(1.3),
}
_SPREADS = {"": 1.0, "peaked": 6.0, "equal": 1e-3}  # what queries are multiplied by
_MAX_PAIRS = 1 << 27  # of queries and keys, computed for the comparison


@dataclass(frozen=True)
class NormalizerKind:
    """The options of a case."""

    name: str  # of `NORMALIZERS`
    scores: str  # of `_SPREADS`
    backward: bool

    @property
    def work(self) -> str:
        """The name of the work."""
        parts = ("normalizers", self.name, self.scores, "gradients" if self.backward else "")
        return ".".join(part for part in parts if part)

    @property
    def description(self) -> str:
        """The line of `--list`."""
        passes = "forward and backward" if self.backward else "forward"
        return f"dot products under {self.name}, {self.scores + ' scores, ' if self.scores else ''}{passes}"


# Those that are sparse also under peaked and near-equal scores.
KINDS = {
    kind.work: kind
    for kind in (NormalizerKind(*options) for options in product(NORMALIZERS, _SPREADS, (False, True)))
    if not kind.scores or kind.name not in ("sigmoid", "sum")
}


def random_inputs(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> Inputs:
    """Those of dot products, with queries of the kind's spread; of one sign under a sum, so that none is near 0."""
    kind = KINDS[case.work]
    inputs = dots.random_inputs(replace(case, work="dotgradients" if kind.backward else "dot"), dtype, device)
    query, key = inputs.query * _SPREADS[kind.scores], inputs.key
    if kind.name == "sum":
        query, key = query.abs(), key.abs()
    return replace(inputs, query=query, key=key)


def contenders(kind: NormalizerKind) -> list[Contender]:
    """overt, the time of a softmax, and the formula."""
    return [
        Contender("overt native", lambda inputs: (_overt(inputs, NORMALIZERS[kind.name]), ""), ours=True),
        Contender("overt native, a softmax", _softmax),
        Contender("PyTorch eager", lambda inputs: (differentiated(_formula(kind), inputs.tensors[:3]), "")),
    ]


def _overt(inputs: Inputs, normalizer: Normalizer | None) -> Run:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with overt.use_path("native"):
            return overt.attend(query, key, value, normalizer=normalizer)

    try:
        with overt.use_path("native"):
            overt.plan(inputs.query, inputs.key, inputs.value)
    except OvertError as error:
        raise Unable(str(error)) from error
    return differentiated(attention, inputs.tensors[:3])


def _softmax(inputs: Inputs) -> tuple[Run, str]:
    """The same call under a softmax, by overt: what a normalizer's time is compared with. Its results are other numbers."""
    run = _overt(inputs, None)

    def uncompared(upstream: Tensor | None) -> Results:
        run(upstream)
        return {}

    return uncompared, "not compared: the time of a softmax"


def _formula(kind: NormalizerKind) -> Attention:
    """The formula of a normalizer over all scores."""
    normalizer = NORMALIZERS[kind.name]

    def formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (..., Q, K)
        return normalizer(scores, torch.ones_like(scores, dtype=torch.bool)) @ value

    return formula


def reference(case: Case, inputs: Inputs) -> Reference:
    """Output and gradients in float64, of evenly spread query rows: all of them where there are few enough."""

    def compute(rows: Tensor, upstream: Tensor | None) -> Results:
        query, key, value = (tensor.double() for tensor in inputs.tensors[:3])
        return differentiated(_formula(KINDS[case.work]), (query[..., rows, :], key, value))(upstream)

    return reference_on_rows(case, inputs, _MAX_PAIRS * case.queries // max(pairs(case), 1), compute)


def operations(case: Case) -> Count:
    """Scores and no more: how many keys have a weight depends on the numbers."""
    return Count(case.features * (2 if case.backward else 1)) * pairs(case)


WORKS = {work: Work(kind.description, contenders(kind), reference, operations, random_inputs) for work, kind in KINDS.items()}
BACKWARD = {work for work, kind in KINDS.items() if kind.backward}
CASES = [Case(work, (1, 8), 1024, 1024, 64) for work in KINDS]
GPU_CASES: list[Case] = []
