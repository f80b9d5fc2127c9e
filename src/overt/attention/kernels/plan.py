"""Choose the path of a call, with the reason: a fixed table in order of preference; the first path that supports the call computes it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch.autograd import forward_ad

from overt import native
from overt.attention.expressions.tracing import TracedScore
from overt.attention.kernels import half_precision, torch_sdpa
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat.normalizer import normalizer_name
from overt.attention.scores import AdditiveForm
from overt.attention.typing import Array, BiasLike, MaskLike, NormalizerLike, Refused, ScoreLike
from overt.errors import InputError

Table = dict[str, Callable[[Call], str | None]]

# TABLE: each path's reason to refuse a call, None if it supports the call; in order of preference.
TABLE: Table = {
    "native": lambda call: flat_call.refusal(call) or _slower_than_torch(call),
    "torch": torch_sdpa.refusal,
    "triton": flat_call.gpu_refusal,
    "blocked": lambda call: None,
}
FLAT = ("native", "triton")  # the paths whose kernels take a call as tensors and numbers, `flat.call.served`

# _permitted: a context variable separates threads; torch.compile cannot trace one, but guards a module's variable and recompiles when
# it changes, so `use_path` sets both.
_permitted: ContextVar[tuple[str, ...]] = ContextVar("permitted", default=tuple(TABLE))
_permitted_compiled: tuple[str, ...] = tuple(TABLE)


def _slower_than_torch(call: Call) -> str | None:
    """Why torch's kernel is preferred: it is permitted, supports the call and is faster in the benchmarks; None otherwise."""
    reason = half_precision.torch_is_faster(call) if call.query.dtype in half_precision.DTYPES else None
    if not torch.compiler.is_compiling() and native.level() == "baseline":  # torch.compile cannot trace into the core
        reason = "torch's kernel has wider vectors than the core's baseline"
    if reason is None:
        return None
    additive = isinstance(call.form, AdditiveForm)
    return None if additive or not permits("torch") or torch_sdpa.refusal(call) is not None else reason


@dataclass(frozen=True)
class Plan:
    """The path of a call (`path`), the reason (`reason`), and why each path before it was refused (`refused`).

    >>> import torch, overt
    >>> x = torch.randn(1, 4, 16, 8)
    >>> overt.plan(x, x, x, normalizer=overt.Entmax(2.5)).refused["native"]
    'the alpha is above 2'
    """

    path: str
    reason: str
    refused: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.reason}", *(f"not {path}: {reason}" for path, reason in self.refused.items())]
        return "\n".join(lines)


def plan(
    query: Float[Array, "... Q D"],
    key: Float[Array, "... K D"],
    value: Float[Array, "... K E"],
    *,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    bias: BiasLike | None = None,
    normalizer: NormalizerLike | None = None,
    dropout: float = 0.0,
    **unknown: Refused,
) -> Plan:
    """Return the path that `attend` would take with these arguments, and the reason, without computing anything.

    Shapes, arguments and errors are `attend`'s.

    >>> import torch, overt
    >>> x = torch.randn(1, 4, 16, 8)
    >>> overt.plan(x, x, x).path
    'native'
    >>> print(overt.plan(x, x, x, normalizer=overt.Sparsemax()))
    native: a dot product under sparsemax, fused with it in the native core, in linear memory
    >>> print(overt.plan(x, x, x, bias=torch.zeros(16, 16), normalizer=overt.Entmax(2.5)))
    blocked: any score, mask, bias and normalizer, in blocks of query rows, recomputed in the backward pass
    not native: the alpha is above 2
    not torch: the normalizer is not a softmax of fixed temperature without a sink
    not triton: the tensors are on no GPU
    """
    return choose(Call.checked(query, key, value, score, mask, bias, normalizer, dropout, unknown))


def choose_path(call: Call) -> str:
    """The path of a checked call."""
    return first_able(TABLE, call)[0]


def choose(call: Call) -> Plan:
    """The plan of a checked call."""
    if call.sharded:
        return Plan("sharded", "each process computes its share; keys that are divided go from process to process", {})
    name, refused = first_able(TABLE, call)
    return Plan(name, _reason(name, call), refused)


def first_able(table: Table, call: Call) -> tuple[str, dict[str, str]]:
    """The first permitted path of a table that supports the call, and the reasons of those refused before it."""
    refused: dict[str, str] = {}
    for name, refusal in table.items():
        reason = refusal(call) if permits(name) else "forbidden here by overt.use_path"
        if reason is None:
            return name, refused
        refused[name] = reason
    raise InputError(
        "a path permitted by overt.use_path that can compute the call",
        got="; ".join(f"{name}: {reason}" for name, reason in refused.items()),
        fix='add "blocked", which computes every call, to overt.use_path(…), or call outside of it',
    )


def permits(name: str) -> bool:
    """Whether `overt.use_path` permits this path here."""
    return name in (_permitted_compiled if torch.compiler.is_compiling() else _permitted.get())


@contextmanager
def use_path(*names: str) -> Iterator[None]:
    """Within the block `attend` and `summarize` may take only these paths: one name forces a path, several forbid the others.

    A call that none of them supports is an error that names the reasons. (`steps` always computes the plain formula; its scores
    come from the native core only if that path is permitted.)

    >>> import torch, overt
    >>> x = torch.randn(1, 4, 16, 8)
    >>> with overt.use_path("blocked"):
    ...     overt.plan(x, x, x).path
    'blocked'
    """
    unknown = [name for name in names if name not in TABLE]
    if unknown or not names:
        raise InputError(
            "one or more of the paths " + ", ".join(TABLE) + " in overt.use_path",
            got=", ".join(map(repr, unknown)) or "none",
            fix="run overt doctor to see which there are",
        )
    global _permitted_compiled
    token = _permitted.set(names)
    _permitted_compiled = names
    try:
        yield
    finally:
        _permitted.reset(token)
        _permitted_compiled = _permitted.get()


def _score_name(call: Call) -> str:
    traced = flat_call.traced_score(call) if flat_call.is_program(call) else None
    if isinstance(call.form, AdditiveForm) and traced is None:
        return "additive attention"
    return traced.description if isinstance(traced, TracedScore) else "a dot product"


def _reason(name: str, call: Call) -> str:
    if name == "torch":
        return "a dot product under a softmax, which torch's fused kernels compute in linear memory" + torch_sdpa.caveat(call)
    if name in FLAT:
        core = "the native core" if name == "native" else "Triton's kernels"
        text = f"{_score_name(call)} under {normalizer_name(call.normalizer)}, fused with it in {core}, in linear memory"
        transformed = call.transformed or forward_ad._current_level >= 0
        in_blocks = transformed and not (name == "native" and flat_call.moves(call))
        return text + "; forward mode and second derivatives in blocks of query rows" * in_blocks
    text = "any score, mask, bias and normalizer, in blocks of query rows, recomputed in the backward pass"
    if permits("native") and flat_call.scores_refusal(call) is None:
        text += "; the scores come from the native core"
    if call.transformed:
        text += "; under torch.func nothing is recomputed, so the backward pass holds all Q × K weights"
    if call.mask is not None and not call.inspectable:
        text += "; values are not inspected here, so NaN in a key that only some rows of a block may see reaches the others"
    return text
