"""Heads removed from a model while it runs, and how much its output changes."""

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
from overt.lens.capture.adapters import catching
from overt.lens.capture.mixers.history import Link
from overt.lens.capture.options import record_options
from overt.lens.capture.recordable import recordable, unreadable
from overt.lens.capture.recorder import Recorder, is_in
from overt.lens.captured import MASKED_GAP, checked_heads, fresh, head_count
from overt.lens.linear.recurrence import Recurrence
from overt.lens.storage.joined import RecordedPasses
from overt.lens.tokens import Tokens

LayerHead = tuple[int | str, int]


@dataclass(frozen=True)
class Ablation:
    """What removing heads did: the `effect` as measured, and the outputs `before` and `after`."""

    effect: Any
    before: Any
    after: Any
    heads: tuple[LayerHead, ...] = ()
    instead: str = "zero"

    def __repr__(self) -> str:
        effect = f"{float(self.effect):.3g}" if _is_number(self.effect) else type(self.effect).__name__
        number = f"{len(self.heads)} {'head' if len(self.heads) == 1 else 'heads'}"
        return f'Ablation(effect={effect}, {number}, "{self.instead}")'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def ablate(
    model: nn.Module,
    run: Callable[[], Any],
    heads: Sequence[LayerHead],
    *,
    instead: str = "zero",
    measure: Callable[[Any, Any], Any] | None = None,
) -> Ablation:
    """Run the model as it is and once more without some heads, and measure how much its output changes.

        effect = measure(output, output without the heads)        by default ‖after − before‖ / ‖before‖

    Michel et al. 2019, section 2.3 (heads masked at test time). `run` runs the model and returns its output; `heads` are the heads
    to remove together, each `(layer, head)`, the layer by its number within a pass or by a module's name. `instead="zero"` makes
    the output of a head zero; "uniform" gives the same weight to every key that a query may attend to. A head of a linear token mixer
    is made zero before gate and norm, and has no uniform weights. The default measure takes all
    floating-point tensors of the output together. Both runs draw the same dropout if the model is in training, both run without
    gradients, and both avoid torch's fast path, whose single kernel hides the heads.

    What it leaves out: the model was not trained without the head, and part of the effect comes from that (less with "uniform").
    A head has little effect alone if another head can do the same.

    Raises InputError if a head does not exist or its attention cannot be changed, KindError for heads that are not pairs.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> ablation = overt.lens.ablate(attention, lambda: attention(x, x, x)[0], [(0, 1)])
    >>> 0 < ablation.effect < 2, ablation.after.shape
    (True, torch.Size([1, 5, 8]))
    """
    with torch.no_grad():
        with torch.random.fork_rng(), fast_path_off():
            before = run()
        with without_heads(model, heads, instead=instead):
            after = run()
    return Ablation(
        (measure or relative_change)(before, after), before, after, tuple((layer, head) for layer, head in heads), instead
    )


_lock = threading.Lock()
_users = 0
_was_enabled = True


@contextmanager
def fast_path_off() -> Iterator[None]:
    """Turn off torch's fast path for its Transformer layers, one switch for all threads: no head can be removed from its kernel."""
    global _users, _was_enabled
    with _lock:
        if not _users:
            _was_enabled = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                torch.backends.mha.set_fastpath_enabled(_was_enabled)


@contextmanager
def without_heads(model: nn.Module, heads: Sequence[LayerHead], *, instead: str = "zero") -> Iterator[None]:
    """Remove heads from a model while the block runs; afterwards everything is as before.

    Arguments and errors are those of `ablate`. The model has to run without gradients. The output of a head is changed where
    `record` catches it: parameters stay as they are, and weights that the model returns are those that it computed. A recording
    opened inside the block has the changed outputs, and its `verify()` reports them; one around the block has the original ones.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with torch.no_grad(), overt.lens.without_heads(attention, [(0, 0), (0, 1)]):
    ...     output = attention(x, x, x)[0]
    >>> bool((output == attention.out_proj.bias).all())
    True
    """
    model = recordable(model)
    remover = _Remover(model, _checked_pairs(heads), instead)
    with fast_path_off(), catching(remover):
        yield
    remover.refuse_unmatched()


def relative_change(before: Any, after: Any) -> float:
    """‖after − before‖ / ‖before‖ over all floating-point tensors of an output.

    >>> relative_change((torch.tensor([3.0, 4.0]), "name"), (torch.tensor([3.0, 3.0]), "name"))
    0.2
    """
    pairs = list(zip(_numbers(before), _numbers(after), strict=True))
    if not pairs:
        raise InputError(
            "a run that returns the model's output, to measure the effect", got="no tensor", fix="return the output"
        )
    far = math.sqrt(sum(float((second.double() - first.double()).square().sum()) for first, second in pairs))
    size = math.sqrt(sum(float(first.double().square().sum()) for first, _ in pairs))
    return far / size if size else (0.0 if far == 0 else math.inf)


def _numbers(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _checked_pairs(heads: Any) -> list[LayerHead]:
    def is_pair(each: Any) -> bool:
        return isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], int | str) and isinstance(each[1], int)

    if not isinstance(heads, Sequence) or isinstance(heads, str) or not heads or not all(map(is_pair, heads)):
        raise KindError("heads as pairs (layer, head), at least one", got=f"heads={heads!r}", fix="write heads=[(5, 11)]")
    return list(heads)


class _Remover(Recorder):
    """Tracks a model as a recording does, and overwrites the outputs of some heads instead of recording them."""

    writes = True

    def __init__(self, model: nn.Module, heads: list[LayerHead], instead: str):
        super().__init__(model, RecordedPasses(), [], record_options(None, None, "qkv", None, Tokens(), 1))
        if instead not in _INSTEAD:
            raise InputError('instead="zero" or instead="uniform"', got=f"instead={instead!r}", fix="choose one of them")
        self.named, self.instead, self.matched = heads, _INSTEAD[instead], set[LayerHead]()

    def keep(
        self,
        call: Call,
        output: Tensor,
        source: str,
        score_dtype: torch.dtype,
        notes: tuple[str, ...],
        weight: Tensor | nn.Module | None = None,
    ) -> None:
        """Overwrite the outputs of the chosen heads that are in this call."""
        if not self.inside:
            return
        layer, named = self._named()
        self.call_index += 1
        if not named:
            return
        self._writable(call.query, output, layer)
        heads = checked_heads([head for _, head in named], head_count(call), layer)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            other = self.instead(call)
            for head in heads:
                if call.query.ndim >= 4:
                    output.select(-3, head).copy_(other if other.ndim < 3 else other.select(-3, head))
                else:
                    output.copy_(other)
        self.matched.update(named)

    def keep_mixer(
        self,
        recurrence: Recurrence,
        output: Tensor,
        source: str,
        around: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        link: Link | None = None,
        written: Tensor | None = None,
    ) -> None:
        """Overwrite the outputs of the chosen heads of a linear token mixer, and what the model continues with."""
        if self.inside and written is not None:
            self._zero_mixer(recurrence.kind, written, output)
        self.call_index += self.inside

    def overwrite_mixer(self, kind: str, output: Tensor) -> None:
        """The same for a mixer whose layer reads its output before it is recorded."""
        self._zero_mixer(kind, output)

    def _zero_mixer(self, kind: str, *outputs: Tensor) -> None:
        """Make the outputs (B, H, Q, E) of the chosen heads zero: the weights of a mixer sum to nothing that equal ones could share."""
        layer, named = self._named()
        if not named or not self.inside:
            return
        if self.instead is not _zero:
            raise InputError(
                'instead="zero", for heads of a linear token mixer',
                got=f'instead="uniform" for {layer} ({kind}), whose weights are signed and do not sum to one',
                fix="leave instead out",
            )
        self._writable(outputs[0], outputs[0], layer)
        heads = checked_heads([head for _, head in named], outputs[0].shape[1], layer)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for output in outputs:
                output[:, list(heads)] = 0
        self.matched.update(named)

    def _named(self) -> tuple[str, list[LayerHead]]:
        """The module that runs, and the chosen heads that are in this call."""
        layer = self.running[-1][0] if self.running else ""
        return layer, [each for each in self.named if each[0] == self.call_index or is_in(layer, each[0])]

    def failed(self, error: Exception, weight: Tensor | nn.Module | None = None) -> None:
        """Stop the run: if a head stayed in, the result would be wrong."""
        raise error

    def refuse_unmatched(self) -> None:
        """Raise InputError for chosen heads that were in no call."""
        missed = {name for name, _ in self.missing}
        unmatched = [each for each in self.named if each not in self.matched or any(is_in(name, each[0]) for name in missed)]
        if not unmatched:
            return
        reasons = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing))
        ran = (
            f"{self.pass_count} {'pass' if self.pass_count == 1 else 'passes'} without it"
            if self.pass_count
            else "a model that did not run"
        )
        raise InputError(
            "heads of calls that the model makes inside the block",
            got=f"{', '.join(map(str, unmatched))} and {ran}" + (f" ({reasons})" if reasons else ""),
            fix="see the layers of a recording: overt.lens.record(model)",
        )

    def _writable(self, read: Tensor, output: Tensor, layer: str) -> None:
        if (reason := unreadable(read)) is not None:
            raise InputError(f"a head of {layer} whose numbers can be changed", got=f"one that cannot: {reason}")
        if output.requires_grad:
            raise InputError(
                "a run without gradients, to remove heads", got=f"{layer} under autograd", fix="run it in torch.no_grad()"
            )


def _zero(call: Call) -> Tensor:
    return torch.zeros((), dtype=call.value.dtype, device=call.value.device)


def _uniform(call: Call) -> Tensor:
    """The mean of the values that each query may attend to: (..., Q, E)."""
    output = mechanism.in_blocks(fresh(replace(call, normalizer=_equal, dropout=0.0)))
    return output.expand(*call.batch, *output.shape[-2:])


def _equal(scores: Tensor, allowed: Tensor) -> Tensor:
    """The same weight for every key that is not masked."""
    allowed_by_score = allowed & (scores > scores.amax(-1, keepdim=True) - MASKED_GAP)
    return allowed_by_score / allowed_by_score.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)


_INSTEAD = {"zero": _zero, "uniform": _uniform}
