"""Heads taken out of a model while it runs, and what its output makes of that."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from overt.attention import mechanism
from overt.attention.kernels.call import Call
from overt.errors import InputError, KindError
from overt.lens.analysis.by_block import BARRED
from overt.lens.capture.adapters import catching
from overt.lens.capture.options import record_options
from overt.lens.capture.recordable import recordable, unreadable
from overt.lens.capture.recorder import Recorder
from overt.lens.captured import fresh, head_count, kept_heads
from overt.lens.tokens import Tokens

Place = tuple[int | str, int]


@dataclass(frozen=True)
class Ablation:
    """What taking heads out did: `effect` as measured, and the outputs `before` and `after`."""

    effect: Any
    before: Any
    after: Any


def ablate(
    model: nn.Module,
    run: Callable[[], Any],
    heads: Sequence[Place],
    *,
    instead: str = "zero",
    measure: Callable[[Any, Any], Any] | None = None,
) -> Ablation:
    """Run the model as it is and again without some heads, and measure how far its output moves.

        effect = measure(output, output without the heads)        by default ‖after − before‖ / ‖before‖

    Michel et al. 2019, section 2.3 (heads masked at test time). `run` runs the model and gives its output; `heads` names the heads
    to take out together, each `(layer, head)`, the layer by its number within a pass or by a module's name. `instead="zero"`
    makes a head's output zero; "uniform" gives every key that a query may attend to the same weight. The default measure takes all
    floating-point tensors of the output together. Both runs draw the same dropout, if the model is in training, neither keeps
    gradients, and neither takes torch's fast path, in whose one kernel no head can be reached.

    What it leaves out: a model never saw its head missing, so part of the effect is that surprise ("uniform" is the milder one),
    and a head whose work another one can do has little effect alone.

    Raises InputError if a head named is not there or its attention cannot be reached, KindError for heads that are no pairs.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> found = overt.lens.ablate(attention, lambda: attention(x, x, x)[0], [(0, 1)])
    >>> 0 < found.effect < 2, found.after.shape
    (True, torch.Size([1, 5, 8]))
    """
    with torch.no_grad():
        with torch.random.fork_rng(), _fast_path_off():
            before = run()
        with without_heads(model, heads, instead=instead):
            after = run()
    return Ablation((measure or moved)(before, after), before, after)


_lock = threading.Lock()
_slowed = 0
_fast = True


@contextmanager
def _fast_path_off() -> Iterator[None]:
    """torch's fast path for its Transformer layers off: no head can be taken out of one kernel. It is one switch for all threads."""
    global _slowed, _fast
    with _lock:
        if not _slowed:
            _fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _slowed += 1
    try:
        yield
    finally:
        with _lock:
            _slowed -= 1
            if not _slowed:
                torch.backends.mha.set_fastpath_enabled(_fast)


@contextmanager
def without_heads(model: nn.Module, heads: Sequence[Place], *, instead: str = "zero") -> Iterator[None]:
    """Take heads out of a model for as long as the block runs; afterwards everything is as it was.

    Arguments and errors are those of `ablate`. The model runs without gradients in here. What leaves a head is changed where
    `record` catches it: no parameter is touched, and weights that the model itself returns are those it computed. A recording
    opened inside holds the changed outputs, and its `verify()` says so; one around it has what the heads gave before.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with torch.no_grad(), overt.lens.without_heads(attention, [(0, 0), (0, 1)]):
    ...     found = attention(x, x, x)[0]
    >>> bool((found == attention.out_proj.bias).all())
    True
    """
    model = recordable(model)
    remover = _Remover(model, _checked(heads), instead)
    with _fast_path_off(), catching(remover):
        yield
    remover.refuse_unmet()


def moved(before: Any, after: Any) -> float:
    """‖after − before‖ / ‖before‖ over all floating-point tensors of an output.

    >>> moved((torch.tensor([3.0, 4.0]), "name"), (torch.tensor([3.0, 3.0]), "name"))
    0.2
    """
    pairs = list(zip(_numbers(before), _numbers(after), strict=True))
    if not pairs:
        raise InputError(
            "the effect is measured on the model's output", got="a run that returns no tensor", fix="return the output"
        )
    far = math.sqrt(sum(float((second.double() - first.double()).square().sum()) for first, second in pairs))
    size = math.sqrt(sum(float(first.double().square().sum()) for first, _ in pairs))
    return far / size if size else (0.0 if far == 0 else math.inf)


def _numbers(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _checked(heads: Any) -> list[Place]:
    def is_place(each: Any) -> bool:
        return isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], int | str) and isinstance(each[1], int)

    if not isinstance(heads, Sequence) or isinstance(heads, str) or not heads or not all(map(is_place, heads)):
        raise KindError(
            "heads are named by pairs (layer, head), at least one", got=f"heads={heads!r}", fix="write heads=[(5, 11)]"
        )
    return list(heads)


class _Remover(Recorder):
    """Follows a model as a recording does, and writes over the outputs of some heads instead of keeping them."""

    writes = True

    def __init__(self, model: nn.Module, heads: list[Place], instead: str):
        super().__init__(model, [], [], record_options(None, None, "qkv", None, Tokens(), 1))
        if instead not in _INSTEAD:
            raise InputError(
                'instead of a head comes "zero" or "uniform"', got=f"instead={instead!r}", fix="choose one of them"
            )
        self.named, self.instead, self.met = heads, _INSTEAD[instead], set[Place]()

    def keep(
        self,
        call: Call,
        output: Tensor,
        source: str,
        score_dtype: torch.dtype,
        notes: tuple[str, ...],
        weight: Tensor | None = None,
    ) -> None:
        """Write over the outputs of the heads that are named, if this call has any."""
        if not self.inside:
            return
        layer, call_index = self.running[-1][0], self.call_index
        self.call_index += 1
        found = [each for each in self.named if each[0] == call_index or _is_in(layer, each[0])]
        if not found:
            return
        self._writable(call, output, layer)
        heads = kept_heads([head for _, head in found], head_count(call), layer)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            other = self.instead(call)
            for head in heads:
                if call.query.ndim >= 4:
                    output.select(-3, head).copy_(other if other.ndim < 3 else other.select(-3, head))
                else:
                    output.copy_(other)
        self.met.update(found)

    def failed(self, error: Exception, weight: Tensor | None = None) -> None:
        """Stop the run: a head that was left in would make it another ablation."""
        raise error

    def refuse_unmet(self) -> None:
        """Refuse heads that were named and never came."""
        missed = {name for name, _ in self.missing}
        unmet = [each for each in self.named if each not in self.met or any(_is_in(name, each[0]) for name in missed)]
        if not unmet:
            return
        reasons = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing))
        ran = f"{self.pass_count} passes without it" if self.pass_count else "a model that did not run"
        raise InputError(
            "a head that is taken out belongs to a call of attention that is made meanwhile",
            got=f"{', '.join(map(str, unmet))} and {ran}" + (f" ({reasons})" if reasons else ""),
            fix="see overt.lens.record(model) for the layers that there are",
        )

    def _writable(self, call: Call, output: Tensor, layer: str) -> None:
        if (reason := unreadable(call.query)) is not None:
            raise InputError(f"a head of {layer} can be taken out where its numbers can be reached", got=reason)
        if output.requires_grad:
            raise InputError(
                "heads are taken out of runs without gradients", got=f"{layer} under autograd", fix="run it in torch.no_grad()"
            )


def _is_in(layer: str, name: int | str) -> bool:
    return isinstance(name, str) and (layer == name or layer.startswith(f"{name}."))


def _zero(call: Call) -> Tensor:
    return torch.zeros((), dtype=call.value.dtype, device=call.value.device)


def _uniform(call: Call) -> Tensor:
    """The mean of the values that each query may attend to: (..., Q, E)."""
    found = mechanism.in_blocks(fresh(replace(call, normalizer=_equal, dropout=0.0)))
    return found.expand(*call.batch, *found.shape[-2:])


def _equal(scores: Tensor, allowed: Tensor) -> Tensor:
    """The same weight for every key that is not barred."""
    there = allowed & (scores > scores.amax(-1, keepdim=True) - BARRED)
    return there / there.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)


_INSTEAD = {"zero": _zero, "uniform": _uniform}
