"""Parts of a call of attention, replaced position by position by parts of another run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from overt.attention.kernels.call import Call
from overt.errors import InputError, KindError
from overt.lens.analysis.editing.changes import PartPatched
from overt.lens.analysis.editing.placing import Spot
from overt.lens.analysis.editing.rows import Placed
from overt.lens.captured import Captured, CapturedCall, select_entries
from overt.lens.linear.captured import CapturedMixer
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.text.texts import Texts

_NAMED = 8  # most positions that a report lists


@dataclass(frozen=True, eq=False)
class OtherRun:
    """A recording of another run, and the head that is read from it (None: the same head as the changed one).

    Positions count the text, or, with `by_call`, only the changed call.
    """

    recording: RecordedCalls
    head: tuple[int | str, int] | None = None
    by_call: bool = False

    @classmethod
    def checked(cls, recording: Any, head: Any, part: str) -> "OtherRun":
        """Check a caller's argument: it must be a recording that has the part."""
        if not isinstance(recording, RecordedCalls):
            fix = "record it: with overt.lens.record(model) as recording: model(other)"
            raise KindError("from_ as a recording of another run", got=type(recording).__name__, fix=fix)
        recording.nonempty_calls()
        if not any(isinstance(captured.opened(), CapturedCall | CapturedMixer) for captured in recording.calls):
            raise InputError(
                f"a recording with query, key and value, to patch the {part}",
                got='one with keep="summary"',
                fix='record it with keep="qkv"',
            )
        return cls(recording, head)

    def part(self, name: str, spot: Spot, head: int, rows: Sequence[int] | None) -> Tensor:
        """A part of a head of the recording: vectors (B, N, features) of all positions, or weights (B, rows, K)."""
        captured = spot.captured
        layer, number = self.head or (captured.layer, head)
        other = self.recording[self._call(layer, captured), number]
        if name == "weights":
            if rows is not None and max(rows, default=0) >= other.queries:
                raise _other_length("weights", captured, max(rows) + 1, other.queries)
            return other.weights(rows=list(rows) if rows is not None else None)
        return getattr(other, name)

    def _call(self, layer: int | str, captured: Captured) -> int | str:
        """The call of the same module; if the module is called several times, the call of the same number."""
        if self.head is not None:
            return layer
        same = [self.recording.number_of(call) for call in self.recording.calls if call.layer == captured.layer]
        return captured.call_index if captured.call_index in same or not same else same[0]


def other_run(change: PartPatched, texts: Texts, model: str) -> str:
    """A sentence if the other run read other tokens, or was of another model; empty if neither is known."""
    run = getattr(change.source, "other", change.source)  # a path has a run behind its own numbers, or none
    if not isinstance(run, OtherRun):
        return ""
    pairs = [(one.ids, two.ids) for one, two in zip(texts.lookups, run.recording.strings.texts.lookups, strict=False)]
    differing = [(one != two).flatten(0, -2).any(0) for one, two in pairs if one.shape == two.shape]
    positions = sorted({position for where in differing for position in where.nonzero().flatten().tolist()})
    notes = [f"is of a {run.recording.model}"] if run.recording.model != model else []
    if positions:
        named = ", ".join(map(str, positions[:_NAMED])) + (", …" if len(positions) > _NAMED else "")
        notes.append(f"has other tokens at {named} ({len(positions)} of {pairs[0][0].shape[-1]} positions)")
    return f"{change}: the other run {' and '.join(notes)}" if notes else ""


def new_values(placed: Placed, spot: Spot, head: int, entries: tuple[int, ...] | None, features: int | None = None) -> Tensor:
    """The new values at the positions of a change: (entries, positions, features), or rows of weights (entries, 1, rows, K)."""
    change, captured = placed.change, spot.captured
    assert isinstance(change, PartPatched)
    at_keys = change.part in ("key", "value")
    first, length = (spot.first_key, captured.keys) if at_keys else (spot.first_query, captured.queries)
    first = 0 if change.source.by_call else first
    chosen = [position + first for position in (placed.keys if at_keys else placed.rows)]
    other = change.source.part(change.part, spot, head, chosen if change.part == "weights" else None)
    if features is not None and other.shape[-1] != features:
        raise InputError(
            f"a {change.part} of {features} features, for {change}",
            got=f"{other.shape[-1]} features",
            fix="patch from a head of the same width",
        )
    entries_there = captured.batch if entries is None else len(entries)
    if len(other) not in (1, captured.batch):
        raise InputError(
            f"a recording of {captured.batch} sequences, or of one, for {change}",
            got=f"{len(other)}",
            fix="record the same texts",
        )
    other = select_entries(other, entries, other.ndim - 1) if len(other) > 1 else other.expand(entries_there, *other.shape[1:])
    if change.part == "weights":
        if other.shape[-1] != captured.keys + spot.first_key:
            raise _other_length("keys", captured, captured.keys + spot.first_key, other.shape[-1])
        return other[:, None, :, spot.first_key :]
    everywhere = (change.key if at_keys else change.query) is None
    if max(chosen) >= other.shape[1] or (everywhere and first == 0 and other.shape[1] != length):
        raise _other_length("keys" if at_keys else "queries", captured, length, other.shape[1])
    return other[:, chosen]


def with_patches(
    call: Call,
    placed: Sequence[Placed],
    spot: Spot,
    heads: tuple[int, ...],
    indices: list[int],
    entries: tuple[int, ...] | None,
) -> Call:
    """The call with patched queries, keys and values of one head, which has the number `indices[0]` in the call."""
    for placement in placed:
        change = placement.change
        if not isinstance(change, PartPatched) or change.part not in ("query", "key", "value"):
            continue
        old: Tensor = getattr(call, change.part)
        new = new_values(placement, spot, heads[0], entries, old.shape[-1])
        positions = list(placement.keys if change.part != "query" else placement.rows)
        patched = old.expand(*call.batch, *old.shape[-2:]).clone() if old.ndim < 4 else _whole(old, call)
        target = patched if call.query.ndim < 4 else patched.select(-3, _shared_index(patched, call, indices[0]))
        target[..., positions, :] = new.reshape(*target.shape[:-2], *new.shape[-2:]).to(target.dtype)
        call = replace(call, **{change.part: patched})
    return call


def _whole(tensor: Tensor, call: Call) -> Tensor:
    """A copy for all entries of the batch, with separate heads."""
    return tensor.expand(*call.batch[:-1], *tensor.shape[-3:]).clone()


def _shared_index(tensor: Tensor, call: Call, index: int) -> int:
    """The number of the head of a tensor that a query head reads, which groups of query heads may share."""
    return index // (call.batch[-1] // tensor.shape[-3])


def _other_length(what: str, captured: Captured, length: int, other: int) -> InputError:
    return InputError(
        f"a recording of as many {what} as {captured.layer} has, {length}",
        got=f"{other}",
        fix="patch from a text of the same length, or name the positions that both have, query=[…] or key=[…]",
    )
