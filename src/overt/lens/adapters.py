"""Where attention is caught: torch's fused function, its `nn.MultiheadAttention`, and attention that a model writes out.

A `TorchFunctionMode` sees every torch function that the model calls and passes each one on unchanged; so outputs are the
model's own to the bit. What it catches it hands to a sink, `keep(call, output, source, score_dtype, notes)`.
"""

import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from overt.errors import OvertError
from overt.kernels.call import Call
from overt.lens.hugging_face import Entry, watching_registry
from overt.lens.ranges import MasksSeen
from overt.lens.recordable import unreadable
from overt.lens.written_out import KEPT, Mixed, WrittenOut, arguments, plain
from overt.masks import Causal
from overt.scores import Dot

SDPA, MULTI_HEAD, OVERT = "scaled_dot_product_attention", "nn.MultiheadAttention", "overt.attend"
WRITTEN = "softmax and product"
LOOKED_FOR = (
    "torch.nn.functional.scaled_dot_product_attention, torch.nn.MultiheadAttention, overt.attend, transformers' registry of "
    "attention functions, and softmax followed by a matrix product"
)
_HEADS = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "heads")


class Sink(NamedTuple):
    """What the catcher calls: `keep` for a call that it caught, `miss` for attention that it could not, `module` for where it is.

    `writes` says that `keep` may write into the output, with which the model then goes on.
    """

    keep: Callable[[Call, Tensor, str, torch.dtype, tuple[str, ...]], None]
    miss: Callable[[str], None]
    module: Callable[[], nn.Module | None] = lambda: None
    writes: bool = False


class Catcher(TorchFunctionMode):
    """Sees the torch functions that a model calls, and keeps those that are attention."""

    def __init__(self):
        super().__init__()
        self.sinks: list[Sink] = []
        self.inside: _ByHand | None = None
        self.entries: list[Entry] = []
        self.caught = 0
        self.masks, self.written = MasksSeen(), WrittenOut()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Run the function as it is, and keep it where it is attention."""
        kwargs = kwargs or {}
        if func is functional.multi_head_attention_forward:
            return self._multi_head(args, kwargs)
        name = getattr(func, "__name__", "")
        if _overt_itself():
            return func(*args, **kwargs)
        if self.inside is None and func is not functional.scaled_dot_product_attention:
            return self._follow(func, name, args, kwargs)
        output = func(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            self._fused(_fused_arguments(*args, **kwargs), output)
        elif self.inside is not None and self.inside.see(name, args, output):
            self._by_hand(self.inside)
        return output

    @contextmanager
    def entered(self, entry: Entry) -> Iterator[None]:
        """A function of transformers' registry runs."""
        self.entries.append(entry)
        before = self.caught
        try:
            yield
        finally:
            self.entries.pop()
        if self.caught == before:
            self._miss(
                f"the function \"{entry.name}\" of transformers' registry attends where torch's functions cannot be seen; "
                'load the model with attn_implementation="sdpa" or "eager"'
            )

    @property
    def _written_over(self) -> bool:
        return any(sink.writes for sink in self.sinks)

    def _keep(self, call: Call, output: Tensor, source: str, score_dtype: torch.dtype, notes: tuple[str, ...] = ()) -> None:
        self.caught += 1
        for sink in self.sinks:
            sink.keep(call, output, source, score_dtype, notes)

    def _miss(self, reason: str) -> None:
        self.caught += 1
        for sink in self.sinks:
            sink.miss(reason)

    def _follow(self, func: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a function, and keep the attention that it completes, if it does."""
        if not self.written.relevant(name):
            return func(*args, **kwargs)
        given = arguments(name, args, kwargs)
        reasons = [reason for each in given if isinstance(each, Tensor) and (reason := unreadable(each)) is not None]
        if reasons:
            if plain(name) == "softmax":
                self._miss(reasons[0])
            return func(*args, **kwargs)
        before = self.written.before(name, given)
        output = func(*args, **kwargs)
        found = self.written.see(name, func, given, before, output, self._head_count)
        if isinstance(found, str):
            self._miss(found)
        elif found is not None and self._written_over and _memory(found.output) != _memory(output):
            self._miss("its output is laid out anew behind the product, so that it cannot be written over")
        elif found is not None:
            self._written(found)
        return output

    def _written(self, mixed: Mixed) -> None:
        entry = self.entries[-1] if self.entries else None
        call = None if entry is None else entry.written(mixed, self.masks)
        notes: tuple[str, ...] = ()
        if call is None:
            found = mixed.call(self.masks)
            if found is None:
                return self._miss("what follows the softmax turns weights negative")
            call, whole = found
            notes = () if whole else (KEPT,)
        elif entry is not None:
            notes = entry.notes(call, self.masks)
        source = WRITTEN if entry is None else entry.source
        return self._keep(replace(call, dropout=mixed.dropout), mixed.output, source, mixed.value.dtype, notes)

    def _head_count(self) -> int | None:
        """How many heads the module that runs says it has."""
        modules = [module for sink in self.sinks if (module := sink.module()) is not None]
        counts = [getattr(module, name, None) for module in modules[:1] for name in _HEADS]
        return next((count for count in counts if isinstance(count, int) and count > 1), None)

    def _fused(self, given: dict[str, Any], output: Tensor) -> None:
        if (reason := unreadable(given["query"])) is not None:
            self._miss(reason)
            return
        entry, own = self.entries[-1] if self.entries else None, output
        apart = None
        if entry is not None:
            given, output = entry.fused(given, output)
            apart = entry.apart(given["attn_mask"], self.masks)
        mask, bias = apart or ((None, None) if given["attn_mask"] is None else self.masks.read(given["attn_mask"]))
        call = self._checked(
            *(given[name] for name in ("query", "key", "value")),
            score=Dot(given["scale"]),
            mask=Causal(offset=0) if given["is_causal"] else mask,  # torch aligns is_causal at the start
            bias=bias,
            dropout=given["dropout_p"],
        )
        if call is None:
            return
        source = MULTI_HEAD if self.inside is not None else SDPA if entry is None else entry.source
        self._keep(call, output, source, call.dtype, () if entry is None else entry.notes(call, self.masks))
        if self._written_over and output is not own:
            own.copy_(output.reshape(own.shape))  # laid out by head for the sinks, it may be a copy

    def _multi_head(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run torch's multi-head attention so that the functions inside it are seen too."""
        heads = kwargs["num_heads"] if "num_heads" in kwargs else args[4]
        outer, self.inside = self.inside, _ByHand(heads, _dropout(args, kwargs))
        try:
            with self:
                return _SEEN_INSIDE(*args, **kwargs)
        finally:
            self.inside = outer

    def _by_hand(self, inside: "_ByHand") -> None:
        """Keep what torch's multi-head attention computed itself, before it goes on with it."""
        found = inside.found()
        if found is None:
            return
        query, key, value, scale, bias, output = found
        if (reason := unreadable(query)) is not None:
            self._miss(reason)
            return
        mask, bias = (None, None) if bias is None else self.masks.read(bias)
        call = self._checked(query, key, value, score=Dot(scale), mask=mask, bias=bias, dropout=inside.dropout)
        if call is not None:
            self._keep(call, output, MULTI_HEAD, query.dtype)

    def _checked(self, *args, **kwargs) -> Call | None:
        try:
            return Call.of(*args, **kwargs)
        except OvertError as error:
            self._miss(f"torch took arguments that overt.attend does not: {error}")
            return None


_lock = threading.Lock()
_slowed = 0
_fast = True


@contextmanager
def fast_path_off() -> Iterator[None]:
    """torch's fast path for `nn.TransformerEncoderLayer` off until the last recording ends: it is one switch for all threads."""
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


_at_work: ContextVar[Catcher | None] = ContextVar("at_work", default=None)


@contextmanager
def catching(sink: Sink) -> Iterator[None]:
    """Catch attention for as long as the block runs; recordings inside each other share one mode, so that each sees all of it."""
    catcher = _at_work.get()
    if catcher is not None:
        catcher.sinks.append(sink)
        try:
            yield
        finally:
            catcher.sinks = [each for each in catcher.sinks if each is not sink]
        return
    catcher = Catcher()
    catcher.sinks.append(sink)
    token = _at_work.set(catcher)
    try:
        with watching_registry(_at_work.get), catcher:
            yield
    finally:
        _at_work.reset(token)


class _ByHand:
    """What `nn.MultiheadAttention` does itself where weights are asked for: scale, product, softmax, product."""

    def __init__(self, heads: int, dropout: float):
        self.heads, self.dropout = heads, dropout
        self.scaled: tuple[Tensor, Tensor, float] | None = None
        self.scores: tuple[Tensor, Tensor | None] | None = None
        self.output: tuple[Tensor, Tensor] | None = None

    def see(self, name: str, args: tuple, output: Any) -> bool:
        """Notice one function; whether it was the last one, which gives the output."""
        if name == "mul" and self.scores is None and isinstance(args[1], float):
            self.scaled = (output, args[0], args[1])
        elif name in ("bmm", "baddbmm") and self.scores is None:
            bias, product = (args[0], args[1:]) if name == "baddbmm" else (None, args)
            if self.scaled is not None and product[0] is self.scaled[0]:
                self.scores = (product[1].mT, bias)
        elif name == "bmm" and self.scores is not None:
            self.output = (args[1], output)
            return True
        return False

    def found(self) -> tuple[Tensor, Tensor, Tensor, float, Tensor | None, Tensor] | None:
        """Query, key, value, scale, bias and output with the heads in their own dimension; None where torch's kernel ran."""
        if self.scaled is None or self.scores is None or self.output is None:
            return None
        query, key, value, output = (self._by_head(t) for t in (self.scaled[1], self.scores[0], *self.output))
        bias = self.scores[1]
        if bias is not None:
            bias = bias[None] if bias.shape[0] == 1 else self._by_head(bias)
        return query, key, value, self.scaled[2], bias, output

    def _by_head(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (-1, self.heads))  # (B·H, …) -> (B, H, …)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _fused_arguments(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return locals()


def _dropout(args: tuple, kwargs: dict[str, Any]) -> float:
    given = dict(zip(_MULTI_HEAD_NAMES, args, strict=False)) | kwargs
    return given["dropout_p"] if given.get("training", True) else 0.0


def _overt_itself() -> bool:
    """Whether the function was called by overt's own kernels, whose call the observer reports as a whole."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith(("overt.kernels", "overt.mechanism", "overt.normalizers"))


def _seen_inside(function: types.FunctionType) -> types.FunctionType:
    """The same code, told that no argument overrides torch functions, so that the functions it calls reach the mode.

    With a mode at work, torch's own Python functions hand themselves to it whole, and run where it sees nothing.
    """
    names = {**function.__globals__, "has_torch_function": lambda tensors: False}
    seen = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    seen.__kwdefaults__ = function.__kwdefaults__
    return seen


_SEEN_INSIDE = _seen_inside(functional.multi_head_attention_forward)
_MULTI_HEAD_NAMES = functional.multi_head_attention_forward.__code__.co_varnames
