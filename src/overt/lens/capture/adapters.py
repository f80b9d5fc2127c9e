"""Catches attention in torch's fused function, in its multi-head layers, and in attention that a model writes out.

A `TorchFunctionMode` gets every torch function that the model calls and runs each one unchanged, so outputs are the model's own to the
bit; only a sink may ask to compute fused attention itself. The catcher decides before a function how to observe it, and reads its
output afterwards; errors of both never reach the function itself. The sinks get the caught calls.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from overt.attention import mechanism
from overt.attention.kernels.call import Call
from overt.attention.scores import Dot
from overt.errors import OvertError
from overt.lens.capture.barrier import guarded, out_of_sight
from overt.lens.capture.hugging_face import RegistryEntry, registry_patches
from overt.lens.capture.mixers.observe import Mixers
from overt.lens.capture.ranges import MaskReader
from overt.lens.capture.recordable import COMPILED, FLEX, are_sparse, out_of_reach, unreadable
from overt.lens.capture.recorder import Recorder
from overt.lens.capture.sink import EDGES, MULTI_HEAD, OVERT, SDPA, WRITTEN, CaughtCall, CaughtMixer
from overt.lens.capture.token_axes.labels import FunctionCall, Mixing
from overt.lens.capture.token_axes.propagate import TokenAxes
from overt.lens.capture.torch_layers.fast_path import FastPath
from overt.lens.capture.torch_layers.fused import call_arguments, fused_arguments, needs_gradients
from overt.lens.capture.torch_layers.multi_head import VISIBLE_INSIDE, MultiHeadSteps, overridden
from overt.lens.capture.watching import Watch, Watching, at_work, caller
from overt.lens.capture.written_out.by_edge import EdgeSum
from overt.lens.capture.written_out.products import CallArguments, arguments, plain
from overt.lens.capture.written_out.tracker import Unrecorded, WrittenOut
from overt.lens.capture.written_out.weighted import WEIGHTS_RECORDED, WeightedSum
from overt.lens.linear.recurrence import Recurrence
from overt.lens.text.positions import CONVOLUTIONS

_HEADS = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "heads")
_KERNELS = ("overt.attention.kernels", "overt.attention.mechanism")


class Catcher(Watching):
    """Gets the torch functions that a model calls, and records the attention among them."""

    def __init__(self):
        super().__init__(registry_patches())
        self.sinks: list[Recorder] = []
        self.inside: MultiHeadSteps | None = None
        self.entries: list[tuple[RegistryEntry, int]] = []
        self.caught: int = 0
        self.masks: MaskReader = MaskReader()
        self.tokens: TokenAxes = TokenAxes()
        self.fast: FastPath = FastPath()
        self.written: WrittenOut = WrittenOut(self.tokens, lambda: bool(self.entries))
        self.mixers: Mixers = Mixers(self)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the function unchanged, and record it if it is attention."""
        kwargs = kwargs or {}
        watch = self._guarded(self._watch, func, args, kwargs, sys._getframe(1))
        output = (func if watch is None else watch.run)(*args, **kwargs)
        if watch is not None:
            self._guarded(watch.observe, output)
        return output

    def observe(self, call: Call, output: Tensor) -> None:
        """Record a call of `overt.attend`."""
        self._guarded(lambda: self._keep(CaughtCall(call, output, OVERT, call.dtype)))

    def entered(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Call the sinks when a module begins, in any thread."""
        if not any(sink.inside for sink in self.sinks):
            self.tokens.begin(args)
        for sink in self.sinks:
            guarded(sink.failed, sink.entered, module)
        self.mixers.entered(module, args)

    def left(self, module: nn.Module, args: tuple[Any, ...] = (), returned: Any = None) -> None:
        """Call the sinks after a module ended."""
        self.mixers.left(module, args, returned)
        for sink in self.sinks:
            guarded(sink.failed, sink.left, module)
        if not any(sink.inside for sink in self.sinks):
            self._mixes(self.tokens.in_another_order())

    def _mixes(self, mixings: Sequence[tuple[Mixing, nn.Module | None]]) -> None:
        """Note that functions of these modules (None: the running one) mixed tokens by something other than attention."""
        for sink in self.sinks:
            for mixing, module in mixings:
                sink.mixes(mixing, module)

    def stepped_aside(self, owner: Any) -> None:
        """Note that compiled code begins, which cannot be observed; `leave` notes it in a function of transformers' registry."""
        for sink in self.sinks if isinstance(owner, nn.Module) else []:
            guarded(sink.failed, sink.entered, owner)
        if not self.entries:
            self.miss(COMPILED)
        self.left(owner)

    def failed(self, error: Exception) -> None:
        """Call the sinks after overt's own work failed. Raises the error if a sink writes, because a head may not be removed."""
        if self._overwrites:
            raise error
        for sink in self.sinks:
            with suppress(Exception):
                sink.failed(error)

    def enter(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RegistryEntry | None:
        """The entry of a function of transformers' registry that begins; None without query, key and value in its arguments."""
        entry = RegistryEntry.from_arguments(name, args, kwargs)
        if entry is not None:
            self.entries.append((entry, self.caught))
        return entry

    def leave(self, entry: RegistryEntry, done: bool) -> None:
        """Note that the function ended, `done` or with an error."""
        *_, (index, before) = ((index, caught) for index, (part, caught) in enumerate(self.entries) if part is entry)
        del self.entries[index:]
        if done and self.caught == before:
            self.miss(
                f"the function \"{entry.name}\" of transformers' registry computes attention where torch's functions cannot be observed; "
                'load the model with attn_implementation="sdpa" or "eager"'
            )

    def _guarded(self, work: Callable[..., Any], *args: Any) -> Any:
        return guarded(self.failed, out_of_sight, work, *args)

    @property
    def _overwrites(self) -> bool:
        return any(sink.writes for sink in self.sinks)

    def _keep(self, caught: CaughtCall) -> None:
        self.caught += 1
        for sink in self.sinks:
            guarded(partial(sink.failed, weight=caught.weight), sink.keep, caught)

    def keep_mixer(self, caught: CaughtMixer, original: Tensor | None = None) -> None:
        """Call the sinks with a linear token mixer. Sinks before the first one that writes get the `original` output."""
        self.caught += 1
        for sink in self.sinks:
            guarded(sink.failed, sink.keep_mixer, caught if original is None else caught._replace(output=original))
            original = None if sink.writes else original

    def overwrite_mixer(self, kind: str, output: Tensor, recurrence: Callable[[], Recurrence | None]) -> Tensor | None:
        """Call the sinks before the layer reads a mixer's output. Returns a copy of the output if any sink writes."""
        original = output.clone() if self._overwrites else None
        for sink in self.sinks:
            observe, *more = (sink.overwrite_mixer, recurrence()) if sink.writes else (sink.reads_mixer,)
            guarded(sink.failed, observe, kind, output, *more)
        return original

    def miss(self, reason: str, recordable: bool = False) -> None:
        """Call the sinks with attention that could not be caught; it is counted if a recording without edits counts it."""
        self.caught += 1
        for sink in self.sinks:
            guarded(sink.failed, sink.miss, reason, recordable)

    def _watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Watch | None:
        """The way to observe a function that may be a part of attention, else None."""
        if self.mixers.running is not None:
            return None
        if not any(sink.inside for sink in self.sinks):
            return Watch(func, partial(self.tokens.moved.earlier.between_passes, args))
        if func is functional.multi_head_attention_forward:
            return self._multi_head(args, kwargs)
        if caller(frame).startswith(_KERNELS):  # a call of overt's own kernels is observed as a whole
            return None
        if func is functional.scaled_dot_product_attention:
            return Watch(partial(self._in_one_pass, func), partial(self._fused_and_labelled, func, args, kwargs))
        if func in self.fast.functions:
            return Watch(func, partial(self._fast, func, args, kwargs))
        if (name := getattr(func, "__name__", "")) == "flex_attention":
            return Watch(func, lambda output: self.miss(FLEX))
        if func is functional.embedding:
            self._looks_up(*arguments(name, args, kwargs)[:2])
        if self.inside is not None:
            return Watch(func, partial(self._multi_head_step, self.inside, name, args))
        return self._trace(func, name, args, kwargs)

    def _looks_up(self, ids: Tensor, table: Tensor) -> None:
        for sink in self.sinks if unreadable(ids) is None else []:
            guarded(sink.failed, sink.looks_up, ids, table)

    def _trace(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch | None:
        """Track a function, to record the attention that it may complete and any other mixing of tokens."""
        values = arguments(name, args, kwargs)
        reasons = [reason for value in values if isinstance(value, Tensor) and (reason := unreadable(value)) is not None]
        if reasons:
            if plain(name) == "softmax":
                self.miss(reasons[0])
            return Watch(func, partial(self._traced_sparse, func, name, (args, kwargs))) if are_sparse(values) else None
        return Watch(func, partial(self._traced, func, name, (args, kwargs), self.written.before(name, values)))

    def _traced(self, func: Any, name: str, call: CallArguments, before: Tensor | None, output: Any) -> None:
        mixing = self._labelled(func, name, call, output)
        result = self.written.observe(name, func, call, before, output, self._head_count)
        by_index, self.tokens.moved.mixings = self.tokens.moved.mixings, []
        self._mixes([] if isinstance(result, EdgeSum) else by_index)
        if mixing is not None and (result is None or not mixing.like_attention):
            self.mixers.mixes(mixing)
            self._mixes([(mixing, None)])
        if isinstance(result, Unrecorded):
            self._mixes(result.mixings)
        elif isinstance(result, str):
            self.miss(result)
        elif (
            result is not None
            and self._overwrites
            and result.output.untyped_storage().data_ptr() != output.untyped_storage().data_ptr()
        ):
            self.miss("its output is copied to another layout after the product, so that it cannot be overwritten", True)
        elif result is not None:
            self._written(result)

    def _traced_sparse(self, func: Any, name: str, call: CallArguments, output: Any) -> None:
        """Track a function of sparse tensors, as `_traced` does."""
        mixing = self._labelled(func, name, call, output)
        result = self.written.sparse(plain(name), arguments(name, *call), output)
        by_index, self.tokens.moved.mixings = self.tokens.moved.mixings, []
        if isinstance(result, EdgeSum):
            self._written(result)
        else:
            self._mixes([*([] if mixing is None else [(mixing, None)]), *by_index, *([] if result is None else result.mixings)])

    def _labelled(self, func: Any, name: str, call: CallArguments, output: Any) -> Mixing | None:
        """Track the tokens through a function. Returns how it mixes them, attention included."""
        module = self.module
        if name in CONVOLUTIONS:
            for sink in self.sinks:
                guarded(sink.failed, sink.cuts, FunctionCall(name, func, *call, output))
        return None if module is None else self.tokens.observe(name, func, *call, output, module)

    def _written(self, mixed: WeightedSum | EdgeSum) -> None:
        entry, notes = self._entry, mixed.notes
        call = None if entry is None or isinstance(mixed, EdgeSum) else entry.written(mixed, self.masks)
        if call is None:
            if (call_and_whole := mixed.call(self.masks)) is None:
                return self.miss("a function after the softmax makes weights negative")
            call, whole = call_and_whole
            notes = notes if whole else (WEIGHTS_RECORDED, *notes)
        elif entry is not None:
            notes = entry.notes(call, self.masks)
        source = EDGES if isinstance(mixed, EdgeSum) else WRITTEN if entry is None else entry.source
        notes, dtype = (*notes, *mixed.parts), mixed.value.dtype
        call = replace(call, dropout=mixed.dropout)
        return self._keep(CaughtCall(call, mixed.output, source, dtype, notes, mixed.owner))

    @property
    def _entry(self) -> RegistryEntry | None:
        return self.entries[-1][0] if self.entries else None

    @property
    def module(self) -> nn.Module | None:
        """The innermost module that runs."""
        return next((module for sink in self.sinks if (module := sink.module) is not None), None)

    def _head_count(self) -> int | None:
        """The number of heads of the running module, by its attributes."""
        counts = (getattr(self.module, name, None) for name in _HEADS)
        return next((count for count in counts if isinstance(count, int) and count > 1), None)

    def _fused_and_labelled(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        self._labelled(func, "scaled_dot_product_attention", (args, kwargs), output)
        self._fused(fused_arguments(*args, **kwargs), output)

    def _fused(self, arguments_of_call: dict[str, Any], output: Tensor) -> None:
        if (reason := unreadable(arguments_of_call["query"])) is not None:
            self.miss(reason)
            return
        model_output = output
        call, output, notes = self._fused_call(arguments_of_call, output)
        if call is not None:
            source = MULTI_HEAD if self.inside is not None else SDPA if self._entry is None else self._entry.source
            self._keep(CaughtCall(call, output, source, call.dtype, notes))
            if self._overwrites and output is not model_output:
                model_output.copy_(output.reshape(model_output.shape))  # the sinks' layout by head may be a copy

    def _fused_call(self, inputs: dict[str, Any], output: Tensor) -> tuple[Call | None, Tensor, tuple[str, ...]]:
        entry, parts, separated = self._entry, self.tokens.parts_of_input(inputs["query"]), None
        if entry is not None:
            inputs, output = entry.fused(inputs, output)
            separated = entry.separated(inputs["attn_mask"], self.masks)
        call = self._checked(*call_arguments(inputs, separated, self.masks))
        notes = () if entry is None or call is None else entry.notes(call, self.masks)
        return call, output, notes + (() if parts is None else (parts,))

    def _in_one_pass(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """torch's function, or a sink that computes and measures the call in one pass if nothing else needs torch's result."""
        alone = len(self.sinks) == 1 and self.sinks[0].computes and not needs_gradients(*args, **kwargs)
        output = self._guarded(self._computed, self.sinks[0], fused_arguments(*args, **kwargs)) if alone else None
        return func(*args, **kwargs) if output is None else output

    def _computed(self, sink: Recorder, inputs: dict[str, Any]) -> Tensor | None:
        if inputs["dropout_p"] or unreadable(inputs["query"]) is not None:
            return None
        call, layout, _ = self._fused_call(inputs, inputs["query"])
        return None if call is None or layout is not inputs["query"] else sink.compute(call)

    def _fast(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Record the attention that a kernel of torch's fast path computed as a whole."""
        if isinstance(args[0], Tensor) and (reason := out_of_reach(args[0])) is not None:
            self.miss(reason)
            return
        fast_call = self.fast.observe(func, args, kwargs, output)
        self._labelled(func, func.__name__, (args, kwargs), output)
        if fast_call is None:
            return
        if self._overwrites:
            self.miss("torch's fast path ran the whole layer as one kernel, so that its attention cannot be overwritten")
        elif not fast_call.agrees:
            by = f"by {fast_call.difference:.0e} of its largest number"
            self.miss(f"torch's fast path ran the whole layer as one kernel, and the recomputed output differs: {by}")
        else:
            call = self._checked(fast_call.query, fast_call.key, fast_call.value, mask=fast_call.mask, bias=fast_call.bias)
            if call is not None:
                dtype, notes = fast_call.query.dtype, (fast_call.note,)
                self._keep(CaughtCall(call, fast_call.output, MULTI_HEAD, dtype, notes, fast_call.weight))

    def _multi_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch | None:
        """Run torch's multi-head attention so that the functions inside it are also observed."""
        if self.inside is not None:
            return None
        if (other := overridden(args, kwargs)) is not None:
            self.miss(f"torch passes its multi-head attention to {other} as a whole, where it cannot be observed")
            return None
        inside = MultiHeadSteps(args, kwargs)

        def run(*args, **kwargs):
            self.inside = inside
            try:
                with self:
                    return VISIBLE_INSIDE(*args, **kwargs)
            finally:
                self.inside = None

        name = "multi_head_attention_forward"
        return Watch(run, lambda output: self._labelled(functional.multi_head_attention_forward, name, (args, kwargs), output))

    def _multi_head_step(self, inside: MultiHeadSteps, name: str, args: tuple[Any, ...], output: Any) -> None:
        """Record the attention that torch's multi-head attention computes itself, before it continues."""
        inputs = inside.inputs_and_output() if inside.observe(name, args, output) else None
        if inputs is None:
            return
        query, key, value, scale, bias, output = inputs
        if (reason := unreadable(query)) is not None:
            self.miss(reason)
            return
        mask, bias = (None, None) if bias is None else self.masks.read(bias)
        call = self._checked(query, key, value, score=Dot(scale), mask=mask, bias=bias, dropout=inside.dropout)
        if call is not None:
            self._keep(CaughtCall(call, output, MULTI_HEAD, query.dtype))

    def _checked(self, *args: Any, **kwargs: Any) -> Call | None:
        try:
            return Call.checked(*args, **kwargs)
        except OvertError as error:
            self.miss(f"torch accepts arguments that overt.attend does not: {error}")
            return None


@contextmanager
def catching(sink: Recorder) -> Iterator[None]:
    """Catch attention while the block runs. Nested recordings share one mode, so each one gets every call."""
    catcher = at_work()
    if not isinstance(catcher, Catcher):
        catcher = Catcher()
        catcher.begin()
        mechanism.observers.set((*mechanism.observers.get(), catcher.observe))
    catcher.sinks.append(sink)
    catcher.add(catcher.mixers.patches(sink.model))
    try:
        yield
    finally:
        catcher.sinks = [entry for entry in catcher.sinks if entry is not sink]
        if not catcher.sinks:
            mechanism.observers.set(tuple(item for item in mechanism.observers.get() if item != catcher.observe))
            catcher.end()
