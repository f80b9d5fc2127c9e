"""The recorder: selects calls of attention, names them, and limits their size."""

import math
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from overt.attention.kernels.call import Call
from overt.errors import InputError
from overt.lens.capture.barrier import sentence
from overt.lens.capture.mixers.history import HistoryLink, Past
from overt.lens.capture.options import RecordOptions
from overt.lens.capture.recordable import COMPILED, COMPILED_CODE, is_flex, unreadable
from overt.lens.capture.sink import CaughtCall, CaughtMixer
from overt.lens.capture.token_axes.labels import FunctionCall, Mixing
from overt.lens.capture.token_axes.mixing_layers import MixingLayers
from overt.lens.captured import (
    CapturedCall,
    checked_heads,
    copied,
    head_count,
    sliceable,
    versions,
    without_copies,
)
from overt.lens.linear.captured import CapturedMixer, coarsest, copied_mixer
from overt.lens.linear.recurrence import Recurrence
from overt.lens.storage.continued import Continuation, Continued, added_call
from overt.lens.storage.joined import RecordedPasses
from overt.lens.storage.joined_mixers import added_recurrence, alike
from overt.lens.storage.tensor_cache import TensorCache
from overt.lens.text.texts import LookupRecorder, Texts

SUMMARY_OF_REJECTED = (
    "keys of the call before it were removed, as those of rejected tokens are, and a summary cannot leave out what these tokens "
    "received: it is not joined with that call"
)

_NAMED = 4  # the most calls that an error lists


class Recorder:
    """Tracks the running modules of a model and records the attention inside them: a sink of the catcher.

    A subclass that `writes` may change the outputs that it gets, and the model continues with them. A recorder that `computes` may
    replace torch's fused function; `keep` then gets its output as the model's.
    """

    writes = False

    def __init__(
        self,
        model: nn.Module,
        options: RecordOptions | None = None,
        texts: Texts | None = None,
        calls: RecordedPasses | None = None,
        missing: list[tuple[str, str]] | None = None,
    ):
        self.model = model
        self.options: RecordOptions = RecordOptions() if options is None else options
        self.calls: RecordedPasses = RecordedPasses() if calls is None else calls
        self.missing: list[tuple[str, str]] = [] if missing is None else missing
        self.names: dict[int, tuple[str, nn.Module]] = {
            id(module): (name or type(model).__name__, module) for name, module in model.named_modules()
        }
        self.running: list[tuple[str, nn.Module]] = []
        self.pass_count: int = 0
        self.number: int = 0
        self.call_index: int = 0
        self.recorded_bytes: int = 0
        self.matched_layers: set[int | str] = set()
        self.too_large: set[str] = set()
        self.layers: dict[int, str] = {}  # the module of each call, by the call's number in the pass
        self.refusal: InputError | None = None  # the first refusal of a call
        self.missed_outside: str | None = None
        self.cache: TensorCache = TensorCache()
        self.text: LookupRecorder = LookupRecorder(model, Texts() if texts is None else texts)
        self.mixing_layers: MixingLayers = MixingLayers(model)
        self.continued: Continued = Continued()
        self.mixer_calls: MutableMapping[Past, int] = WeakKeyDictionary()  # the recorded call that left each state
        self.thread: int = threading.get_ident()

    @property
    def inside(self) -> bool:
        """Whether a module of the model runs."""
        # Gradient checkpointing runs recorded modules again in the backward pass.
        return bool(self.running) and torch._C._current_graph_task_id() == -1

    @property
    def computes(self) -> bool:
        """Whether the options compute and measure a call in one pass."""
        return self.options.compute is not None and self.inside

    def compute(self, call: Call) -> Tensor | None:
        """The output of a call that the model is about to make, measured in the same pass; None if it is not recorded."""
        layer, total = self._owner(None), head_count(call)
        if self.options.compute is None or not self._wanted(layer, self.call_index):
            return None
        with torch._C.DisableTorchFunction():
            counted = self.number, self.call_index, self.pass_count - 1, layer
            return self.options.compute(self._captured(call, call.query, counted, tuple(range(total))))

    def _captured(self, call: Call, output: Tensor, counted: tuple[int, int, int, str], heads: tuple[int, ...]) -> CapturedCall:
        """A call with all of its heads, without copies."""
        lengths = call.queries, call.keys
        call, output = without_copies(call, output, heads, len(heads), self.cache)
        batch = math.prod(call.batch) // len(heads) if 0 not in call.batch else 0
        which = (*counted, "", heads, len(heads), batch, *lengths)
        return CapturedCall(*which, call.dtype, (), call, output, heads)

    @property
    def module(self) -> nn.Module | None:
        """The innermost module that runs."""
        return self.running[-1][1] if self.running else None

    def entered(self, module: nn.Module) -> None:
        """Note that a module begins; modules of other models are ignored."""
        name, known = self.names.get(id(module), ("", None))
        if known is not module:
            return
        if threading.get_ident() != self.thread:
            reason = "it ran in another thread too, and a recording covers the thread in which it was opened"
            self._note(type(self.model).__name__, reason)
            return
        if not self.running and torch._C._current_graph_task_id() == -1:
            self.pass_count, self.call_index = self.pass_count + 1, 0
            self.mixing_layers.begin_pass()
        self.running.append((name, module))

    def left(self, module: nn.Module) -> None:
        """Note that a module ended, and also the modules inside it whose hooks did not run because of an error."""
        if threading.get_ident() == self.thread and any(item is module for _, item in self.running):
            while self.running.pop()[1] is not module:
                pass

    def keep(self, caught: CaughtCall) -> None:
        """Record a call, if the model made it and the options include it."""
        call, output, source, score_dtype, notes, weight = caught
        if not self._reads(call.query):
            return
        _, call_index, _, layer = counted = self._counted(weight)
        with torch._C.DisableTorchFunction():
            node = self.continued.add(layer, call, self.pass_count - 1)
        if not self._wanted(layer, call_index):
            self._put_in_order()
            return
        total = head_count(call)
        heads = checked_heads(self.options.heads, total, layer)
        copies = heads if sliceable(call) else tuple(range(total))
        lengths = call.queries, call.keys
        continuation = node.continuation
        if continuation is not None and self.options.copies:
            call = added_call(call, continuation)
        elif continuation is not None and continuation.dropped:
            continuation, notes = None, (*notes, SUMMARY_OF_REJECTED)
        needed = self.options.needed(call, output, len(copies), total)
        if not self._affordable(needed, layer):
            return
        # Copies and computations here are not the model's, so no recording may catch them.
        with torch._C.DisableTorchFunction():
            before = versions(call)
            copy = copied if self.options.copies else without_copies
            call, output = copy(call, output, copies, total, self.cache)
            batch = math.prod(call.batch) // head_count(call) if 0 not in call.batch else 0
            which = (*counted, source, heads, total, batch, *lengths)
            captured = CapturedCall(*which, score_dtype, notes, call, output, copies, before)
            node.index = self.calls.append(self.options.store(captured), continuation)
        self._put_in_order()
        self.recorded_bytes += needed

    def keep_mixer(self, caught: CaughtMixer) -> None:
        """Record a call of a linear token mixer, if the model made it and the options include it.

        A call that continues another's state is recorded with only the positions that it adds.
        """
        recurrence, output, source, around, notes, link, _ = caught
        if not self._reads(recurrence.query):
            return
        _, call_index, _, layer = counted = self._counted(None)
        if not self._wanted(layer, call_index):
            return
        total = recurrence.heads
        heads = checked_heads(self.options.heads, total, layer)
        lengths = recurrence.batch, recurrence.queries, recurrence.keys
        continuation = self._continued_mixer(recurrence, link)
        if continuation is not None:
            recurrence = added_recurrence(recurrence, continuation.retained)
        needed = self.options.mixer_needed(recurrence, output, len(heads), total)
        if not self._affordable(needed, layer):
            return
        with torch._C.DisableTorchFunction():
            recurrence, output = copied_mixer(recurrence, output, heads, total)
            which = (*counted, source, heads, total, *lengths, coarsest(recurrence), notes)
            captured = CapturedMixer(*which, recurrence, output, heads, around)
            index = self.calls.append(self.options.store(captured), continuation)
        if link is not None and link.now is not None:
            self.mixer_calls[link.now] = index
        self.recorded_bytes += needed

    def _reads(self, query: Tensor) -> bool:
        """Whether the model made a call with readable numbers; a call without is noted as missing."""
        reason = unreadable(query) if self.inside else None
        if reason is not None:
            self.miss(reason)
        return self.inside and reason is None

    def reads_mixer(self, kind: str, output: Tensor) -> None:
        """Do nothing before the layer reads a mixer's output (B, H, Q, E), a view: `keep_mixer` records it afterwards."""

    def overwrite_mixer(self, kind: str, output: Tensor, recurrence: Recurrence | None) -> None:
        """A subclass that `writes` may write to the output of a mixer whose layer reads it before `keep_mixer` is called.

        `recurrence` has all positions up to these; None if it cannot be recorded.
        """

    def miss(self, reason: str, recordable: bool = False) -> None:
        """Note attention that cannot be recorded here; attention that is `recordable` without edits keeps its number."""
        if self.inside:
            if recordable:
                self._counted(None)
            self.mixing_layers.attends(self.running[-1][0])
            self._note(self.running[-1][0], reason)
        else:
            self.missed_outside = reason

    def looks_up(self, ids: Tensor, table: Tensor) -> None:
        """Record the token ids that the model reads, if these are token ids."""
        if self.inside:
            self.text.lookup(ids, table.shape[0], self.running, self.pass_count - 1)

    def cuts(self, step: FunctionCall) -> None:
        """Note the number of positions into which a convolution cuts its input."""
        sizes, kernel = step.argument(0, "input").shape, step.argument(1, "weight").shape
        if self.inside and len(sizes) == len(kernel):
            grid = step.output.shape[2:]
            self.text.texts.cuts.add(
                self.running[-1][0], self.pass_count - 1, sizes, grid, kernel, step.argument(3, "stride", 1)
            )

    def mixes(self, mixing: Mixing, module: nn.Module | None = None) -> None:
        """Note a function other than attention that mixes tokens, in this module or the innermost running one."""
        name = self.names.get(id(module), ("", None))[0] or (self.running[-1][0] if self.inside else "")
        if name:
            self.mixing_layers.mixes(name, mixing)

    def explained(self, module: nn.Module, mixing: Mixing) -> None:
        """Remove the note of a function in this module that a linear token mixer's call already names."""
        if self.inside and id(module) in self.names:
            self.mixing_layers.explained(self.names[id(module)][0], mixing)

    def note_mixing(self) -> list[str]:
        """Note the layers that mix tokens without attention. Returns the names of all layers that mix tokens."""
        others = self.mixing_layers.others()
        for layer, reason in others:
            self._note(layer, reason)
        return [*self.mixing_layers.attending, *(layer for layer, _ in others)]

    def failed(self, error: Exception, weight: Tensor | nn.Module | None = None) -> None:
        """Note that overt's own work failed here."""
        name = type(self.model).__name__
        with suppress(Exception):
            name = self._owner(weight)
            self.mixing_layers.attends(name)
        self._note(name, sentence(error))
        if isinstance(error, InputError):
            self.refusal = self.refusal or error

    def note_unmatched(self) -> None:
        """Note the entries of `layers=` that matched no call, and for a model that did not run the other missed attention."""
        if not self.pass_count and self.missed_outside is not None:
            self._note(type(self.model).__name__, self.missed_outside)
        for layer in self.options.layers or []:
            if self.pass_count and layer not in self.matched_layers:
                self._note(str(layer), "layers= names it, but no call of attention has this number or name")
        if self.layers and not self.matched_layers and self.options.layers:
            self.refusal = self._unnamed(self.options.layers)
        if any(is_flex(reason) for _, reason in self.missing):
            self.missing[:] = [(name, COMPILED_CODE if reason == COMPILED else reason) for name, reason in self.missing]

    def _unnamed(self, layers: Sequence[int | str]) -> InputError:
        """The error for `layers=` that match no call."""
        names, last = list(self.layers.values()), max(self.layers)
        those = f"the call is 0: {names[0]}" if not last else f"the calls are 0 to {last}: {', '.join(names[:_NAMED])}"
        more = ", …" if len(names) > _NAMED else ""
        fix = "name calls by these numbers or names, or leave layers= out"
        return InputError("calls that layers= names", got=f"{', '.join(map(str, layers))}; {those}{more}", fix=fix)

    def _note(self, name: str, reason: str) -> None:
        if (name, reason) not in self.missing:
            self.missing.append((name, reason))

    def _owner(self, weight: Tensor | nn.Module | None) -> str:
        """The name of this module, of the module with this projection, or of the innermost running module."""
        name, running = self.running[-1]
        if isinstance(weight, nn.Module):
            return self.names.get(id(weight), (name, None))[0]
        modules = () if weight is None else running.modules()
        owners = [module for module in modules if getattr(module, "in_proj_weight", None) is weight]
        return self.names.get(id(owners[0]), (name, None))[0] if owners else name

    def _counted(self, weight: Tensor | nn.Module | None) -> tuple[int, int, int, str]:
        """Count a call. Returns its number in the recording, its number in the pass, the pass's number, and its layer."""
        layer, number, call_index = self._owner(weight), self.number, self.call_index
        self.mixing_layers.attends(layer)
        self.text.texts.cuts.layers[layer] = None
        self.layers.setdefault(call_index, layer)
        self.number, self.call_index = number + 1, call_index + 1
        return number, call_index, self.pass_count - 1, layer

    def _continued_mixer(self, recurrence: Recurrence, link: HistoryLink | None) -> Continuation | None:
        """How a call of a mixer continues a recorded one; summaries of mixers are not joined."""
        if link is None or link.before is None or not self.options.copies:
            return None
        past, before = link.before.recurrence, self.mixer_calls.get(link.before)
        whole = recurrence.keys == past.keys + recurrence.queries and alike(past, recurrence)
        if before is None or not whole or recurrence.heads != past.heads:
            return None
        rows = None if link.order == tuple(range(past.batch)) else link.order
        return self._with_text(Continuation(before, rows, 0, past.keys, recurrence.keys, 0))

    def _put_in_order(self) -> None:
        """Let the recorded calls of this pass, and its text, follow the order of sequences that all layers show."""
        for node in self.continued.in_order:
            if node.index is not None:
                self.calls.put_in_order(node.index, node.rows)
                self._with_text(self.calls.continuations[node.index])

    def _with_text(self, continuation: Continuation | None) -> Continuation | None:
        number = self.pass_count - 1
        if continuation is None or continuation.rows is None:
            return continuation
        if self.calls.stored[continuation.before].pass_index == number - 1:
            self.text.texts.reordered[number] = continuation.rows
        return continuation

    def _wanted(self, layer: str, call_index: int) -> bool:
        layers = self.options.layers
        if layers is None:
            return True
        matches = {entry for entry in layers if entry == call_index or is_in(layer, entry)}
        self.matched_layers |= matches
        return bool(matches)

    def _affordable(self, needed: int, layer: str) -> bool:
        """Whether a call fits into the limit. A call that does not is noted as missing, once per layer."""
        refusal = self.options.refusal(needed, self.recorded_bytes)
        if refusal is not None and layer not in self.too_large:
            self.too_large.add(layer)
            self._note(layer, str(refusal))
            self.refusal = self.refusal or refusal
        return refusal is None


def is_in(layer: str, module: int | str) -> bool:
    """Whether a layer is this module or inside it, by their names; a number names no module.

    >>> is_in("encoder.layers.1.attention", "encoder.layers.1"), is_in("encoder.layers.10", "encoder.layers.1")
    (True, False)
    """
    return isinstance(module, str) and (layer == module or layer.startswith(f"{module}."))
