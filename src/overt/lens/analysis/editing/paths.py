"""Path patching: what one head writes into the query, key or value of a later head, without its effect on the heads between.

Wang et al. 2022, appendix B: the sender's output is replaced, all heads between keep theirs, and the residual stream and the
feed-forward layers carry the difference to the receiver, whose query, key or value is then put into an otherwise plain run.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.analysis.editing.changes import HeadChange, HeadScaled, PartPatched
from overt.lens.analysis.editing.patching import OtherRun
from overt.lens.analysis.editing.placing import Spot
from overt.lens.capture.recorder import Recorder
from overt.lens.capture.watching import at_work
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.recording import record
from overt.lens.storage.continued import Continued, Node

NORMS = ("recomputed", "frozen")
_NORM = re.compile(r"(LayerNorm|RMSNorm)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class PathSource:
    """The vectors that the receivers read under another output of the sender: `values` by call and head, from `prepare`.

    `other` is the run that the sender's output comes from, or None for an output of zero. A cache holds the plain keys and values of
    earlier passes, so `added` has the keys and values that each call of a receiver added to them.
    """

    sender: tuple[int | str, int]
    receivers: tuple[Any, ...]
    into: str
    other: OtherRun | None
    norms: str
    values: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    added: WeakKeyDictionary[Node, dict[int, Tensor]] = field(default_factory=WeakKeyDictionary)

    by_call: ClassVar[bool] = True
    """Whether positions count the changed call, and not the text."""

    def part(self, name: str, spot: Spot, head: int, rows: Sequence[int] | None) -> Tensor:
        """The receiver's part (B, N, features)."""
        values = self.values[spot.captured.call_index, head]
        return values if name == "query" or spot.node is None else self._with_earlier(spot.node, head, values)

    def _with_earlier(self, node: Node, head: int, values: Tensor) -> Tensor:
        """Keys or values (B, K, features), with those of earlier passes as they were in these passes."""
        chain = [node]
        while (before := chain[-1].before) is not None and head in self.added.get(before, {}):
            chain.append(before)
        first_added = node.retained if len(chain) > 1 else 0
        self.added.setdefault(node, {})[head] = values[:, first_added : node.written]
        whole = self.added[chain.pop()][head]
        for call in reversed(chain):
            continued_values = whole if call.rows is None else whole[list(call.rows)]
            whole = torch.cat([continued_values[:, call.first : call.first + call.retained], self.added[call][head]], dim=1)
        return torch.cat([whole, values[:, node.written :]], dim=1)


@dataclass(frozen=True, eq=False)
class PathPatched(PartPatched):
    """A part of a receiver's call under another output of the sender."""

    what: ClassVar[str] = "path from L{0.source.sender[0]}H{0.source.sender[1]} into the {0.part}"


def prepare(
    model: nn.Module, change: PathPatched, opened: Any, continued: Continued, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Run the model twice on its own input: unchanged, and with the sender's other output while the heads between keep theirs.

    `opened` is the context manager that makes changes, `edit`; `continued` has the calls that this pass may continue.
    """
    source: PathSource = change.source
    with _alone(args), torch.random.fork_rng(), _norms_frozen(model, source.norms == "frozen") as scales:
        with record(model) as plain:
            _run(model, args, kwargs)
        scales.next_run()
        first = plain.number_of(plain.call_of(source.sender[0]))
        pairs = [(plain.number_of(plain.call_of(layer)), head) for layer, head in source.receivers]
        if any(number <= first for number, _ in pairs):
            raise InputError(
                "a receiver in a later call than the sender",
                got=f"{change}",
                fix="name the sender first: path((3, 2), (5, 11))",
            )
        with opened(model) as edits, record(model) as changed:
            edits.editor.continued = continued.branch()
            cached = kwargs.get("past_key_values") is not None or bool(kwargs.get("use_cache"))
            edits.add(_sender_changed(source, cached))
            for number in range(first + 1, max(number for number, _ in pairs)):
                edits.add(PartPatched(((number, None),), part="output", source=OtherRun(plain, by_call=True)))
            _run(model, args, kwargs)
    source.values.clear()
    source.values.update({pair: getattr(changed[pair], source.into) for pair in pairs})


@contextmanager
def _alone(args: tuple[Any, ...]) -> Iterator[None]:
    """Hide recordings and edits around the block from runs inside it, which reach only what is opened inside."""
    catcher: Any = at_work()
    if catcher is None:
        yield
        return
    sinks = catcher.sinks
    nobody = Recorder(nn.Identity())
    catcher.sinks = [nobody]
    try:
        yield
    finally:
        catcher.sinks = sinks
        catcher.tokens.begin(args)


def _sender_changed(source: PathSource, cached: bool) -> HeadChange:
    """The change of the sender's output. A pass with a cache may be a part of the text, of which the other run has all positions."""
    if source.other is None:
        return HeadScaled((source.sender,), factor=0.0)
    return PartPatched((source.sender,), slice(None) if cached else None, part="output", source=source.other)


def _run(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the model on copies of its arguments, so that a cache does not change."""
    copied_args, copied_kwargs = copy.deepcopy((args, kwargs))
    model(*copied_args, **copied_kwargs)


class _Scales:
    """The scales of norms in a first run, call by call, by which a second run divides instead of its own scales."""

    def __init__(self) -> None:
        self.stored: dict[int, list[Tensor]] = {}
        self.counts: dict[int, int] | None = None

    def next_run(self) -> None:
        """Use the stored scales from the next run on."""
        self.counts = {}

    def hook(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor | None:
        """Store a norm's scale, or replace the scale of its output by the stored one."""
        scale = _scale(module, args[0] if args else next(iter(kwargs.values())))
        if self.counts is None:
            self.stored.setdefault(id(module), []).append(scale)
            return None
        number = self.counts.get(id(module), 0)
        self.counts[id(module)] = number + 1
        bias = getattr(module, "bias", None)
        bias = torch.zeros((), device=output.device) if bias is None else bias
        frozen = (output.double() - bias) * (scale / self.stored[id(module)][number]) + bias
        return frozen.to(output.dtype)


def _scale(module: nn.Module, x: Tensor) -> Tensor:
    """The divisor of a norm: √(variance + ε) if a shift of its input does not change its output, else √(mean square + ε)."""
    shifted = module.forward(x + x.abs().amax()) - module.forward(x)
    subtracts_mean = float(shifted.abs().amax()) < 0.1 * float(module.forward(x).abs().amax())
    eps = next(
        (item for name in ("eps", "variance_epsilon", "epsilon") if isinstance(item := getattr(module, name, None), float)), 0.0
    )
    x = x.double()
    centred = x - x.mean(-1, keepdim=True) if subtracts_mean else x
    return (centred.square().mean(-1, keepdim=True) + eps).sqrt()


@contextmanager
def _norms_frozen(model: nn.Module, frozen: bool) -> Iterator[_Scales]:
    """Hook the norms of a model, found by the names of their classes, while the block runs."""
    scales = _Scales()
    norms = [module for module in model.modules() if _NORM.search(type(module).__name__)] if frozen else []
    if frozen and not norms:
        raise InputError(
            "norms whose class is named LayerNorm or RMSNorm, to freeze their scales",
            got=f"a {type(model).__name__} without one",
            fix='write norms="recomputed"',
        )
    handles = [module.register_forward_hook(scales.hook, with_kwargs=True) for module in norms]
    try:
        yield scales
    finally:
        for handle in handles:
            handle.remove()


def path_change(
    sender: Any, receivers: Any, into: str, from_: RecordedCalls | None, norms: str, head: Any = None
) -> PathPatched:
    """The change of a path, with its arguments checked."""
    if into not in ("query", "key", "value"):
        raise InputError('into="query", "key" or "value"', got=f"into={into!r}", fix="choose one of them")
    if norms not in NORMS:
        raise InputError('norms="recomputed" or norms="frozen"', got=f"norms={norms!r}", fix="choose one of them")
    for pair in (sender, *receivers):
        if None in pair:
            raise InputError("one head for each end of a path", got=f"{pair}", fix="write path((3, 2), (5, 11))")
    other = None if from_ is None else OtherRun.checked(from_, head, "output")
    return PathPatched(tuple(receivers), part=into, source=PathSource(sender, tuple(receivers), into, other, norms))
