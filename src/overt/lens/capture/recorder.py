"""What decides which calls of attention are kept, under which name, and within which size."""

import math
import threading
from contextlib import suppress

import torch
from torch import Tensor, nn

from overt.attention.kernels.call import Call
from overt.errors import InputError
from overt.lens.capture.barrier import sentence
from overt.lens.capture.options import RecordOptions, in_bytes
from overt.lens.capture.recordable import unreadable
from overt.lens.capture.token_axes.labels import Mixing
from overt.lens.capture.token_axes.mixing_layers import MixingLayers
from overt.lens.captured import Captured, CapturedCall, TensorCache, copied, head_count, kept_heads, lent, sliceable, versions


class Recorder:
    """Follows the modules of a model as they run, and keeps the attention that happens inside: a sink of what is caught."""

    writes = False

    def __init__(self, model: nn.Module, calls: list[Captured], missing: list[tuple[str, str]], options: RecordOptions):
        self.model, self.calls, self.missing, self.options = model, calls, missing, options
        self.names = {id(module): (name or type(model).__name__, module) for name, module in model.named_modules()}
        self.running: list[tuple[str, nn.Module]] = []
        self.pass_count = self.number = self.call_index = self.held = 0
        self.seen: set[int | str] = set()
        self.too_large: set[str] = set()
        self.outside: str | None = None
        self.once = TensorCache()
        self.layers = MixingLayers(model)
        self.thread = threading.get_ident()

    @property
    def inside(self) -> bool:
        """Whether a module of the model runs."""
        # Gradient checkpointing runs modules again in the backward pass: what they do there is recorded already.
        return bool(self.running) and torch._C._current_graph_task_id() == -1

    @property
    def module(self) -> nn.Module | None:
        """The innermost module that runs."""
        return self.running[-1][1] if self.running else None

    def entered(self, module: nn.Module) -> None:
        """Follow a module of the model that begins."""
        name, known = self.names.get(id(module), ("", None))
        if known is not module:
            return
        if threading.get_ident() != self.thread:
            self._note(
                type(self.model).__name__, "it ran in another thread too, and a recording sees the one that it is made in"
            )
            return
        if not self.running and torch._C._current_graph_task_id() == -1:
            self.pass_count, self.call_index = self.pass_count + 1, 0
        self.running.append((name, module))

    def left(self, module: nn.Module) -> None:
        """A module ended, and with it those inside that failed before they could say so."""
        if threading.get_ident() == self.thread and any(each is module for _, each in self.running):
            while self.running.pop()[1] is not module:
                pass

    def keep(
        self,
        call: Call,
        output: Tensor,
        source: str,
        score_dtype: torch.dtype,
        notes: tuple[str, ...],
        weight: Tensor | None = None,
    ) -> None:
        """Keep a call, if it is the model's and wanted."""
        if not self.inside:
            return
        if (reason := unreadable(call.query)) is not None:
            self.miss(reason)
            return
        layer, number, call_index = self._owner(weight), self.number, self.call_index
        self.layers.attends(layer)
        self.number, self.call_index = number + 1, call_index + 1
        if not self._wanted(layer, call_index):
            return
        total = head_count(call)
        heads = kept_heads(self.options.heads, total, layer)
        copies = heads if sliceable(call) else tuple(range(total))
        needed = self.options.needed(call, output, len(copies), total)
        if not self._affordable(needed, layer):
            return
        # What is copied and computed here is no function of the model's: no recording is to see it.
        with torch._C.DisableTorchFunction():
            written = versions(call)
            kept, output = (lent if self.options.lends else copied)(call, output, copies, total, self.once)
            batch = math.prod(kept.batch) // head_count(kept) if 0 not in kept.batch else 0
            which = (number, call_index, self.pass_count - 1, layer, source, heads, total, batch, call.queries, call.keys)
            self.calls.append(self.options.take(CapturedCall(*which, score_dtype, notes, kept, output, copies, written)))
        self.held += needed

    def miss(self, reason: str) -> None:
        """Say that attention happened here which cannot be recorded."""
        if self.inside:
            self.layers.attends(self.running[-1][0])
            self._note(self.running[-1][0], reason)
        else:
            self.outside = reason

    def mixes(self, mixing: Mixing) -> None:
        """Notice a function that mixes tokens and is no attention."""
        if self.inside:
            self.layers.mixes(self.running[-1][0], mixing)

    def note_mixing(self) -> list[str]:
        """Say which layers mix tokens otherwise, and give the names of all that do, those that attend among them."""
        others = self.layers.others()
        for layer, reason in others:
            self._note(layer, reason)
        return [*self.layers.attending, *(layer for layer, _ in others)]

    def failed(self, error: Exception, weight: Tensor | None = None) -> None:
        """Say that something went wrong here, beside the model."""
        name = type(self.model).__name__
        with suppress(Exception):
            name = self._owner(weight)
            self.layers.attends(name)
        self._note(name, sentence(error))

    def note_unseen(self) -> None:
        """Say which of the layers asked for never came, and of a model that did not run what else was not seen."""
        if not self.pass_count and self.outside is not None:
            self._note(type(self.model).__name__, self.outside)
        for layer in self.options.layers or []:
            if self.pass_count and layer not in self.seen:
                self._note(str(layer), "layers= asks for it, but no call of attention has this number or name")

    def _note(self, name: str, reason: str) -> None:
        if (name, reason) not in self.missing:
            self.missing.append((name, reason))

    def _owner(self, weight: Tensor | None) -> str:
        """The name of the module whose projection this is, or of the innermost one that runs."""
        name, running = self.running[-1]
        inner = (
            [] if weight is None else [each for each in running.modules() if getattr(each, "in_proj_weight", None) is weight]
        )
        return self.names.get(id(inner[0]), (name, None))[0] if inner else name

    def _wanted(self, layer: str, call_index: int) -> bool:
        layers = self.options.layers
        if layers is None:
            return True
        hits = {
            name
            for name in layers
            if name == call_index or (isinstance(name, str) and (layer == name or layer.startswith(f"{name}.")))
        }
        self.seen |= hits
        return bool(hits)

    def _affordable(self, needed: int, layer: str) -> bool:
        """Whether a call fits beside what is held; what does not is missing, said once for a layer."""
        room = self.options.room(self.held)
        if self.held + needed <= room:
            return True
        if layer not in self.too_large:
            self.too_large.add(layer)
            refusal = InputError(
                f"a recording keeps at most {in_bytes(room)}",
                got=f"{in_bytes(needed)} for this call beside {in_bytes(self.held)} of others",
                fix='keep less with layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit=',
            )
            self._note(layer, str(refusal))
        return False
