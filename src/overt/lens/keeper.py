"""What decides which calls of attention are kept, under which name, and within which size."""

import math
import threading

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from overt.errors import InputError
from overt.kernels.call import Call
from overt.lens.adapters import OVERT
from overt.lens.captured import Captured, Kept, Once, copied, head_count, kept_heads, lent, sliceable, versions
from overt.lens.keeping import Wanted, in_bytes
from overt.lens.recordable import unreadable


class Keeper:
    """Follows the modules of a model as they run, and keeps the attention that happens inside."""

    def __init__(self, model: nn.Module, calls: list[Captured], missing: list[tuple[str, str]], wanted: Wanted):
        self.model, self.calls, self.missing, self.wanted = model, calls, missing, wanted
        self.running: list[tuple[str, nn.Module]] = []
        self.handles: list[RemovableHandle] = []
        self.turns = self.number = self.place = self.held = 0
        self.seen: set[int | str] = set()
        self.once = Once()
        self.alike: dict[type, int] = {}
        self.thread = threading.get_ident()

    def watch(self) -> None:
        """Follow every module of the model."""
        for name, module in self.model.named_modules():
            named = name or type(self.model).__name__
            self.alike[type(module)] = self.alike.get(type(module), 0) + 1
            self.handles.append(module.register_forward_pre_hook(self._entering(named)))
            self.handles.append(module.register_forward_hook(self._leaving, always_call=True))

    def leave(self) -> None:
        """Take every hook off again."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.running.clear()

    def observe(self, call: Call, output: Tensor) -> None:
        """Keep a call of `overt.attend`."""
        self.keep(call, output, OVERT, call.dtype, ())

    def keep(self, call: Call, output: Tensor, source: str, score_dtype: torch.dtype, notes: tuple[str, ...]) -> None:
        """Keep a call, if it is the model's and wanted."""
        if not self._inside():
            return
        if (reason := unreadable(call.query)) is not None:
            self.miss(reason)
            return
        layer, number, place = self.running[-1][0], self.number, self.place
        self.number, self.place = number + 1, place + 1
        if not self._wanted(layer, place):
            return
        total = head_count(call)
        heads = kept_heads(self.wanted.heads, total, layer)
        copies = heads if sliceable(call) else tuple(range(total))
        self._affordable(self.wanted.needed(call, output, len(copies), total))
        # What is copied and computed here is no function of the model's: no recording is to see it.
        with torch._C.DisableTorchFunction():
            written = versions(call)
            kept, output = (lent if self.wanted.lends else copied)(call, output, copies, total, self.once)
            batch = math.prod(kept.batch) // head_count(kept) if 0 not in kept.batch else 0
            which = (number, place, self.turns - 1, layer, source, heads, total, batch, call.queries, call.keys)
            self.calls.append(self.wanted.take(Kept(*which, score_dtype, notes, kept, output, copies, written)))

    def miss(self, reason: str) -> None:
        """Say that attention happened here which cannot be recorded."""
        if self._inside():
            self._note(self.running[-1][0], reason)

    def module(self) -> nn.Module | None:
        """The innermost module that runs."""
        return self.running[-1][1] if self.running else None

    def note_unseen(self) -> None:
        """Say which of the layers asked for never came."""
        for layer in self.wanted.layers or []:
            if self.turns and layer not in self.seen:
                self._note(str(layer), "layers= asks for it, but no call of attention has this number or name")

    def _note(self, name: str, reason: str) -> None:
        if (name, reason) not in self.missing:
            self.missing.append((name, reason))

    def _inside(self) -> bool:
        # Gradient checkpointing runs modules again in the backward pass: what they do there is recorded already.
        return bool(self.running) and torch._C._current_graph_task_id() == -1

    def _entering(self, name: str):
        def enter(module: nn.Module, args: object) -> None:
            if threading.get_ident() != self.thread:
                self._note(
                    type(self.model).__name__, "it ran in another thread too, and a recording sees the one that it is made in"
                )
                return
            if not self.running and torch._C._current_graph_task_id() == -1:
                self.turns, self.place = self.turns + 1, 0
            self.running.append((name, module))

        return enter

    def _leaving(self, module: nn.Module, args: object, output: object) -> None:
        # A module that failed before its own hook ran leaves its callees behind it: all of them end here.
        while threading.get_ident() == self.thread and self.running and self.running.pop()[1] is not module:
            pass

    def _wanted(self, layer: str, place: int) -> bool:
        layers = self.wanted.layers
        if layers is None:
            return True
        hits = {
            wanted
            for wanted in layers
            if wanted == place or (isinstance(wanted, str) and (layer == wanted or layer.startswith(f"{wanted}.")))
        }
        self.seen |= hits
        return bool(hits)

    def _affordable(self, needed: int) -> None:
        """Refuse before anything large is kept: what one layer takes, times the layers of its kind, or what has come so far."""
        alike, layers = self.alike.get(type(self.running[-1][1]), 1), self.wanted.layers
        expected = max(needed * (alike if layers is None else min(alike, len(layers))), self.held + needed)
        room = self.wanted.room(self.held)
        if expected > room:
            raise InputError(
                f"a recording keeps at most {in_bytes(room)}",
                got=f"about {in_bytes(expected)}, {in_bytes(needed)} for {self.running[-1][0]} alone",
                cure='keep less with layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit=',
            )
        self.held += needed
