"""The sink that changes the outputs of a model's attention in the same place where a recording reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.kernels.call import Call
from overt.errors import InputError
from overt.lens.analysis.editing import mixers
from overt.lens.analysis.editing.changes import BlockedArcs, HeadChange, HeadScaled, PartPatched
from overt.lens.analysis.editing.patching import new_values, with_patches
from overt.lens.analysis.editing.placing import Spot, WordPositions
from overt.lens.analysis.editing.rows import Placed, call_of_entries, recomputed, renormalizable
from overt.lens.capture.recordable import unreadable
from overt.lens.capture.recorder import Recorder, is_in
from overt.lens.capture.sink import CaughtCall, CaughtMixer
from overt.lens.capture.written_out.weighted import PART_OF_ROW, ExpOfLogWeights
from overt.lens.captured import checked_heads, head_count, sliceable, without_copies
from overt.lens.linear.recurrence import Recurrence
from overt.lens.storage.tensor_cache import TensorCache
from overt.lens.tokens import Tokens, is_cross_attention


@dataclass(eq=False)
class Fired:
    """How often a change was made: the number of calls, and of rows."""

    calls: int = 0
    rows: int = 0


class Editor(Recorder):
    """Tracks a model as a recording does, and writes the changed rows of some heads into the outputs that the model uses."""

    writes = True

    def __init__(self, model: nn.Module, changes: list[HeadChange], tokens: Tokens):
        super().__init__(model, texts=tokens.texts)
        self.changes: list[HeadChange] = changes
        self.tokens: Tokens = tokens
        self.fired: dict[int, Fired] = {}
        self.masked: set[int] = set()  # blocked arcs that the model's own mask already blocks in some call
        self.word_positions: WordPositions = {}
        self.heads_of_calls: dict[int, int] = {}  # the number of heads of each call of a pass, by the call's number
        # The largest numbers of queries and keys of the chosen calls, counted from the first of the text.
        self.positions: tuple[int, int] = (0, 0)

    def keep(self, caught: CaughtCall) -> None:
        """Change the outputs of the chosen heads of this call."""
        call, output, source, _, notes, weight = caught
        if not self.inside:
            return
        _, call_index, _, layer = counted = self._counted(weight)
        total = head_count(call)
        self.heads_of_calls[call_index] = total
        readable = unreadable(call.query) is None
        with torch._C.DisableTorchFunction():
            node = self.continued.add(layer, call, self.pass_count - 1) if readable else None
        matched = self._matched(layer, call_index, total)
        if not matched:
            return
        self._writable(call.query, output, layer)  # which refuses a call without a node
        assert node is not None
        with torch._C.DisableTorchFunction(), torch.no_grad():
            captured = replace(self._captured(call, output, counted, tuple(range(total))), source=source)
            spot = self._spot(captured, node)
            for heads, changes in _by_changes(matched):
                self._change(spot, call, output, heads, changes, notes)

    def _change(
        self,
        spot: Spot,
        call: Call,
        output: Tensor,
        heads: tuple[int, ...],
        changes: Sequence[HeadChange],
        notes: tuple[str, ...],
    ) -> None:
        """Make the changes of heads that share all of their changes."""
        layer, groups = spot.captured.layer, self._entry_groups(spot, changes, call)
        if not groups:
            return
        computed = [change for change in changes if change.recomputes and getattr(change, "part", "") != "output"]
        _refuse_unknown(call, computed, notes, layer)
        sub, indices = _heads_call(call, output, heads, self.cache) if computed else (call, [0])
        if any(change.renormalizes for change in computed):
            sub = renormalizable(sub)
        for entries, placed in groups:
            for placement in placed:
                self._count(placement)
            computing = [placement for placement in placed if placement.change in computed]
            if computing:
                entries_call = with_patches(call_of_entries(sub, entries), computing, spot, heads, indices, entries)
                computing = [self._with_weights(call, spot, heads, entries) for call in computing]
                for first, stop, rows in recomputed(entries_call, computing, layer, spot.self_key):
                    rows = rows if call.query.ndim < 4 else rows[..., indices, :, :]
                    _put(output, heads, entries, slice(first, stop), rows, call)
            self._scale_and_put(spot, call, output, heads, entries, placed)

    def _entry_groups(
        self, spot: Spot, changes: Sequence[HeadChange], call: Call
    ) -> list[tuple[tuple[int, ...] | None, list[Placed]]]:
        """The changes at their positions, by entries of the batch, without arcs that the model's mask blocks anyway."""
        groups = []
        for entries, placed in spot.entry_groups(changes):
            some = entries is not None and len(entries) < spot.captured.batch
            if some and len(call.batch) != (2 if call.query.ndim >= 4 else 1):
                raise InputError(
                    "a layer with one dimension for the sequences of a batch, to change some of them",
                    got=f"{spot.captured.layer}, whose query is {tuple(call.query.shape)}",
                    fix="change all of them, by positions and not by words",
                )
            made = []
            for placement in placed:
                if not isinstance(placement.change, BlockedArcs) or _attends(call, placement):
                    made.append(placement)
                else:
                    self.masked.add(id(placement.change))
            if made:
                groups.append((entries if call.batch else None, made))
        return groups

    def _with_weights(self, placed: Placed, spot: Spot, heads: tuple[int, ...], entries: tuple[int, ...] | None) -> Placed:
        if not isinstance(placed.change, PartPatched) or placed.change.part != "weights":
            return placed
        numbers = new_values(placed, spot, heads[0], entries)
        return replace(placed, numbers=numbers if spot.captured.queries else None)

    def _scale_and_put(
        self,
        spot: Spot,
        call: Call,
        output: Tensor,
        heads: tuple[int, ...],
        entries: tuple[int, ...] | None,
        placed: Sequence[Placed],
    ) -> None:
        """Multiply outputs by their factor, and write patched outputs."""
        for placement in placed:
            if isinstance(placement.change, HeadScaled):
                scaled(output, heads, entries, placement.rows, placement.change.factor, call.query.ndim)
            elif isinstance(placement.change, PartPatched) and placement.change.part == "output":
                numbers = new_values(placement, spot, heads[0], entries, output.shape[-1])
                if call.query.ndim >= 4:
                    numbers = numbers[:, None]
                _put(output, heads, entries, list(placement.rows), numbers.reshape(-1, *numbers.shape[1:]), call)

    def _spot(self, captured: Any, node: Any) -> Spot:
        """The positions of a call's queries and keys, counted from the first call that it continues."""
        shift, read, before = 0, 0, node
        while before.before is not None:
            shift, read = shift + before.first, read + before.before.queries - before.dropped
            before = before.before
        self_key = None if is_cross_attention(captured) else node.written - node.queries
        self.positions = max(self.positions[0], read + captured.queries), max(self.positions[1], shift + captured.keys)
        return Spot(captured, read, shift, self_key, self.tokens, self.word_positions, node)

    def _matched(self, layer: str, call_index: int, total: int) -> list[tuple[int, HeadChange]]:
        """The chosen heads of this call, each with its change."""
        matched = []
        for change in self.changes:
            named = [head for pair, head in change.heads if pair is None or pair == call_index or is_in(layer, pair)]
            if named:
                numbers = None if None in named else [head for head in named if head is not None]
                anywhere = all(pair is None for pair, _ in change.heads)
                if anywhere and numbers is not None:
                    numbers = [head for head in numbers if head < total]
                matched += [(head, change) for head in checked_heads(numbers, total, layer)]
        return matched

    def keep_mixer(self, caught: CaughtMixer) -> None:
        """Change the outputs of the chosen heads of a linear token mixer, which the model uses."""
        if not self.inside:
            return
        if caught.written is not None:
            self._change_mixer(caught.recurrence.kind, caught.recurrence, caught.output, caught.written)
        self.call_index, self.number = self.call_index + 1, self.number + 1

    def overwrite_mixer(self, kind: str, output: Tensor, recurrence: Recurrence | None) -> None:
        """Change the outputs of a mixer whose layer reads them before they are recorded."""
        if self.inside:
            self._change_mixer(kind, recurrence, output, output)

    def _change_mixer(self, kind: str, recurrence: Recurrence | None, output: Tensor, written: Tensor) -> None:
        layer, total = self.running[-1][0], output.shape[1]
        self.heads_of_calls[self.call_index] = total
        matched = self._matched(layer, self.call_index, total)
        if not matched:
            return
        self._writable(output, written, layer)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for heads, changes in _by_changes(matched):
                spot = mixers.spot(recurrence, output, layer, self.pass_count - 1, self.tokens, self.word_positions)
                for entries, placed in spot.entry_groups(changes):
                    for item in mixers.changed(recurrence, output, written, heads, entries, placed, spot, kind):
                        self._count(item)

    def miss(self, reason: str, recordable: bool = False) -> None:
        """Note a call that cannot be recorded. Raises InputError if one of the changes is for it."""
        number = self.call_index if recordable else -1
        super().miss(reason, recordable)
        layer = self.running[-1][0] if self.inside else ""
        named = [(change, pair) for change in self.changes for pair, _ in change.heads]
        chosen = [change for change, pair in named if pair is None or pair == number or is_in(layer, pair)]
        if self.inside and chosen:
            raise InputError(f"attention of {layer} that can be changed, for {chosen[0]}", got=reason)

    def failed(self, error: Exception, weight: Tensor | nn.Module | None = None) -> None:
        """Stop the run, because a result without one of the changes would be wrong."""
        raise error

    def refuse_unmatched(self) -> None:
        """Raise InputError for changes that were never made."""
        unmatched = [change for change in self.changes if id(change) not in self.fired]
        if not unmatched:
            return
        reasons = "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing))
        passes = f"{self.pass_count} {'pass' if self.pass_count == 1 else 'passes'}"
        ran = f"{passes} without it" if self.pass_count else "a model that did not run"
        queries, keys = self.positions
        there = f"; the chosen ones have queries 0 to {queries - 1} and keys 0 to {keys - 1}" if queries else ""
        named = "; ".join(map(str, unmatched[:4])) + (f" and {len(unmatched) - 4} more" if len(unmatched) > 4 else "")
        if all(id(change) in self.masked for change in unmatched):
            raise InputError(
                "arcs that the model allows, to block them",
                got=f"{named}, where the model's own mask bars these queries from these keys",
                fix="choose keys with a weight above 0: overt.lens.record(model), then recording[layer, head].top(query)",
            )
        calls = f"; its calls are 0 to {max(self.layers)}" if self.layers else ""
        raise InputError(
            "heads of calls that the model makes inside the block, at positions that may attend to what is changed",
            got=f"{named} and {ran}{calls}{there}" + (f" ({reasons})" if reasons else ""),
            fix="see the layers of a recording: overt.lens.record(model)"
            if self.pass_count
            else "run the model inside the block",
        )

    def _count(self, placed: Placed) -> None:
        fired = self.fired.setdefault(id(placed.change), Fired())
        fired.calls, fired.rows = fired.calls + 1, fired.rows + len(placed.rows)

    def _writable(self, read: Tensor, output: Tensor, layer: str) -> None:
        if (reason := unreadable(read)) is not None:
            raise InputError(f"a head of {layer} whose numbers can be changed", got=f"one that cannot: {reason}")
        if output.requires_grad:
            raise InputError(
                "a run without gradients, to change heads", got=f"{layer} under autograd", fix="leave torch.enable_grad() out"
            )


def _by_changes(matched: list[tuple[int, HeadChange]]) -> list[tuple[tuple[int, ...], tuple[HeadChange, ...]]]:
    """Groups of heads with the same changes; a head is a group of its own if its change differs by head."""
    by_head: dict[int, list[HeadChange]] = {}
    for head, change in matched:
        by_head.setdefault(head, []).append(change)
    groups: dict[Any, tuple[list[int], tuple[HeadChange, ...]]] = {}
    for head, changes in by_head.items():
        alone = head if any(change.differs_by_head for change in changes) else -1
        groups.setdefault((alone, *map(id, changes)), ([], tuple(changes)))[0].append(head)
    return [(tuple(sorted(heads)), changes) for heads, changes in groups.values()]


def _heads_call(call: Call, output: Tensor, heads: tuple[int, ...], cache: TensorCache) -> tuple[Call, list[int]]:
    """The call of the chosen heads only, if heads can be separated, and their numbers in it."""
    if call.query.ndim < 4:
        return call, [0]
    total = head_count(call)
    chosen = heads if sliceable(call) else tuple(range(total))
    return without_copies(call, output, chosen, total, cache)[0], [chosen.index(head) for head in heads]


def _refuse_unknown(call: Call, changes: Sequence[HeadChange], notes: tuple[str, ...], layer: str) -> None:
    """Raise InputError if a value that is needed to recompute the rows is unknown."""
    for change in changes:
        patched = isinstance(change, PartPatched) and change.part in ("query", "key", "value")
        if call.dropout and (change.renormalizes or patched):
            got, fix = f"dropout {call.dropout:g} in {layer}", "run model.eval()"
            raise InputError(f"a run without dropout, for {change}", got=got, fix=fix)
        if not isinstance(call.normalizer, ExpOfLogWeights):
            continue
        part = next((note for note in notes if note.startswith(PART_OF_ROW)), None)
        if (change.renormalizes and part) or (patched and change.part in ("query", "key")):  # type: ignore[attr-defined]
            reason = part or "query and key are unknown there, so the model's own weights are read"
            raise InputError(f"a layer whose weights can be computed once more, for {change}", got=f"{layer}: {reason}")


def _attends(call: Call, placed: Placed) -> bool:
    """Whether the model allows any of the arcs."""
    device = call.query.device
    rows, keys = (torch.tensor(part, device=device) for part in (placed.rows, placed.keys))
    size = max(1, 2**22 // len(keys))  # most pairs in memory at a time
    return call.mask is None or any(bool(call.mask.block(some, keys).any()) for some in rows.split(size))


def _put(
    output: Tensor, heads: tuple[int, ...], entries: tuple[int, ...] | None, rows: Any, numbers: Tensor, call: Call
) -> None:
    """Write the rows (..., heads, rows, E), or (..., rows, E) of a call without heads, into the output."""
    for index, head in enumerate(heads):
        target = output if call.query.ndim < 4 else output.select(-3, head)  # (..., Q, E)
        new = numbers if call.query.ndim < 4 else numbers.select(-3, index)
        if entries is None or len(entries) == len(target):
            target[..., rows, :] = new.to(target.dtype)
            continue
        whole = target[list(entries)]
        whole[..., rows, :] = new.to(target.dtype)
        target[list(entries)] = whole


def scaled(
    output: Tensor, heads: tuple[int, ...], entries: tuple[int, ...] | None, rows: Sequence[int], factor: float, dimensions: int
) -> None:
    """Multiply rows of an output by a number; 0 also removes NaN."""
    for head in heads:
        target = output if dimensions < 4 else output.select(-3, head)
        index = slice(None) if entries is None else list(entries)
        part = target[index] if target.ndim > 2 else target
        part[..., list(rows), :] = 0 if factor == 0 else part[..., list(rows), :] * factor
        if target.ndim > 2:
            target[index] = part
