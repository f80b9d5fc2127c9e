"""What decides which calls of attention are kept, under which name, and within which size."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from overt.errors import InputError
from overt.kernels.call import Call
from overt.lens.adapters import OVERT
from overt.lens.captured import Captured, copied, head_count, kept_heads, size, sliceable, versions


class Keeper:
    """Follows the modules of a model as they run, and keeps the attention that happens inside."""

    def __init__(
        self,
        model: nn.Module,
        calls: list[Captured],
        missing: list[tuple[str, str]],
        layers: Sequence[int | str] | None,
        heads: Sequence[int] | None,
        limit: int,
    ):
        self.model, self.calls, self.missing = model, calls, missing
        self.layers, self.heads, self.limit = layers, heads, limit
        self.running: list[tuple[str, nn.Module]] = []
        self.handles: list[RemovableHandle] = []
        self.turns = self.number = self.place = self.held = 0
        self.seen: set[int | str] = set()

    def watch(self) -> None:
        """Follow every module of the model."""
        for name, module in self.model.named_modules():
            named = name or type(self.model).__name__
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
        layer, number, place = self.running[-1][0], self.number, self.place
        self.number, self.place = number + 1, place + 1
        if not self._wanted(layer, place):
            return
        total = head_count(call)
        heads = kept_heads(self.heads, total, layer)
        copies = heads if sliceable(call) else tuple(range(total))
        self._affordable(size(call, output, len(copies), total))
        written = versions(call)
        kept, output = copied(call, output, copies, total)
        captured = Captured(
            number, place, self.turns - 1, layer, source, kept, output, heads, copies, total, score_dtype, written, notes
        )
        self.calls.append(captured)

    def miss(self, reason: str) -> None:
        """Say that attention happened here which cannot be recorded."""
        if self._inside() and (self.running[-1][0], reason) not in self.missing:
            self.missing.append((self.running[-1][0], reason))

    def module(self) -> nn.Module | None:
        """The innermost module that runs."""
        return self.running[-1][1] if self.running else None

    def note_unseen(self) -> None:
        """Say which of the layers asked for never came."""
        for layer in self.layers or []:
            if self.turns and layer not in self.seen:
                self.missing.append((str(layer), "layers= asks for it, but no call of attention has this number or name"))

    def _inside(self) -> bool:
        # Gradient checkpointing runs modules again in the backward pass: what they do there is recorded already.
        return bool(self.running) and torch._C._current_graph_task_id() == -1

    def _entering(self, name: str):
        def enter(module: nn.Module, args: object) -> None:
            if not self.running and torch._C._current_graph_task_id() == -1:
                self.turns, self.place = self.turns + 1, 0
            self.running.append((name, module))

        return enter

    def _leaving(self, module: nn.Module, args: object, output: object) -> None:
        # A module that failed before its own hook ran leaves its callees behind it: all of them end here.
        while self.running and self.running.pop()[1] is not module:
            pass

    def _wanted(self, layer: str, place: int) -> bool:
        if self.layers is None:
            return True
        hits = {
            wanted
            for wanted in self.layers
            if wanted == place or (isinstance(wanted, str) and (layer == wanted or layer.startswith(f"{wanted}.")))
        }
        self.seen |= hits
        return bool(hits)

    def _affordable(self, needed: int) -> None:
        """Refuse before anything large is kept: what one layer takes, times the layers of its kind, or what has come so far."""
        alike = sum(type(module) is type(self.running[-1][1]) for module in self.model.modules())
        expected = needed * (alike if self.layers is None else min(alike, len(self.layers)))
        if max(expected, self.held + needed) > self.limit:
            raise InputError(
                f"a recording keeps at most {_bytes(self.limit)}",
                got=f"about {_bytes(max(expected, self.held + needed))}, {_bytes(needed)} for {self.running[-1][0]} alone",
                cure="keep fewer with layers=[…] or heads=[…], or raise limit=",
            )
        self.held += needed


def _bytes(count: int) -> str:
    for unit, bytes_in in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_in:
            return f"{count / bytes_in:.1f} {unit}"
    return f"{count} bytes"
