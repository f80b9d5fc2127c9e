"""Attention with scores of a caller's own: overt's traced programs and blocks, and PyTorch, eager and compiled."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import overt
from overt.bench.bounds import POWER, Count, pairs
from overt.bench.cases import Case, Inputs
from overt.bench.contenders.contender import Contender, Results, Run, Unable, differentiated, memory_shortage
from overt.bench.reference import Reference, reference_on_rows
from overt.bench.works import Work
from overt.errors import OvertError

_TENSORS, _TENSORS_BACKWARD = 3, 6  # tensors of B · Q · K · D numbers that the eager code has in memory
_MAX_TERMS = 1 << 26
_MAX_TERMS_IN_BLOCKS = 1 << 30  # above these, a run of overt's blocks or of eager PyTorch takes minutes


def manhattan(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """−Σ_d |q_d − k_d|."""
    return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)


def rectified(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Σ_d w_d relu(q_d + k_d)."""
    return (torch.relu(query[..., :, None, :] + key[..., None, :, :]) * weight).sum(-1)


def polynomial(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """(1 + q · k / 8)²."""
    return (1 + query @ key.mT / 8) ** 2


@dataclass(frozen=True)
class ScoreKind:
    """The score of a case, and whether it has a number for each feature of a pair."""

    score: Callable[[Tensor, Tensor, Tensor], Tensor]
    text: str
    forward: Count  # of each feature of a pair
    backward: Count  # in the backward pass: the score again, its slope and two sums
    features: bool = True


KINDS = {
    "manhattan": ScoreKind(manhattan, "−Σ|q − k|", Count(0, 3), Count(0, 7)),
    "rectified": ScoreKind(rectified, "Σ w relu(q + k)", Count(1, 2), Count(3, 7)),
    "polynomial": ScoreKind(polynomial, "(1 + q · k / 8)²", Count(1), Count(3), features=False),
}


def score_kind(work: str) -> ScoreKind:
    """The kind of a case's work, "scores" and a name, with "gradients" after it."""
    return KINDS[work.removeprefix("scores").removesuffix("gradients")]


def contenders(work: str) -> list[Contender]:
    """All that run a case of this work."""
    kind = score_kind(work)
    return [
        Contender("overt native", lambda inputs: _overt(inputs, kind, "native"), ours=True),
        Contender("overt blocked", lambda inputs: _overt(inputs, kind, "blocked"), ours=True),
        Contender("PyTorch eager", lambda inputs: _eager(inputs, kind)),
        Contender("torch.compile", lambda inputs: _compiled(inputs, kind)),
    ]


def _formula(kind: ScoreKind) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        return kind.score(query, key, weight).softmax(-1) @ value

    return attention


def _run(attention: Callable[..., Tensor], inputs: Inputs, kind: ScoreKind) -> Run:
    """Of the tensors that the score depends on."""
    if kind.score is rectified:
        return differentiated(attention, inputs.tensors)
    return differentiated(lambda *three: attention(*three, inputs.weight), inputs.tensors[:3])


def _overt(inputs: Inputs, kind: ScoreKind, path: str) -> tuple[Run, str]:
    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        with overt.use_path(path):
            return overt.attend(query, key, value, score=lambda query, key: kind.score(query, key, weight))

    if path == "blocked":
        _refuse_minutes(inputs, kind)
    try:
        with overt.use_path(path):
            plan = overt.plan(*inputs.tensors[:3], score=lambda query, key: kind.score(query, key, inputs.weight))
    except OvertError as error:
        raise Unable(str(error)) from error
    return _run(attention, inputs, kind), plan.reason.partition(" under")[0] if path == "native" else ""


def _eager(inputs: Inputs, kind: ScoreKind) -> tuple[Run, str]:
    shortage = memory_shortage(inputs, _TENSORS if inputs.upstream is None else _TENSORS_BACKWARD) if kind.features else None
    if shortage:
        raise Unable(shortage)
    _refuse_minutes(inputs, kind)
    return _run(_formula(kind), inputs, kind), ""


def _refuse_minutes(inputs: Inputs, kind: ScoreKind) -> None:
    if kind.features and inputs.query.shape[:-1].numel() * inputs.key.shape[-2] * inputs.query.shape[-1] > _MAX_TERMS_IN_BLOCKS:
        raise Unable("minutes a run; see the same case with fewer tokens")


def _compiled(inputs: Inputs, kind: ScoreKind) -> tuple[Run, str]:
    torch.compiler.reset()
    run = _run(torch.compile(_formula(kind), dynamic=False, fullgraph=True), inputs, kind)
    before = time.perf_counter()
    run(inputs.upstream)
    return run, f"first call: {time.perf_counter() - before:.1f} s"


def reference(case: Case, inputs: Inputs) -> Reference:
    """In float64, of evenly spread query rows: all of them where there are few enough."""
    kind = score_kind(case.work)

    def compute(rows: Tensor, upstream: Tensor | None) -> Results:
        query, key, value, weight = (tensor.double() for tensor in inputs.tensors)
        exact = Inputs(query[..., rows, :], key, value, weight, upstream)
        return _run(_formula(kind), exact, kind)(upstream)

    return reference_on_rows(case, inputs, _MAX_TERMS * case.queries // max(case.terms, 1), compute)


def operations(case: Case) -> Count:
    """The operations of the score, of its weights and of the values."""
    kind, width = score_kind(case.work), case.features
    count = kind.forward * case.terms + (Count(width) + POWER) * pairs(case)
    return count + kind.backward * case.terms + (Count(2 * width + 2, 1) + POWER) * pairs(case) if case.backward else count


_DESCRIPTIONS = {f"scores{name}": f"a score of one's own, {kind.text}, forward" for name, kind in KINDS.items()}
_DESCRIPTIONS |= {f"{work}gradients": f"{text} and backward" for work, text in _DESCRIPTIONS.items()}
WORKS = {work: Work(text, contenders(work), reference, operations) for work, text in _DESCRIPTIONS.items()}
BACKWARD = {work for work in WORKS if work.endswith("gradients")}
CASES = [Case(work, (1, 4), length, length, 64) for work in WORKS for length in (256, 1024, 4096)]
GPU_CASES: list[Case] = []
