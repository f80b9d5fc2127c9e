"""Edits judged by code that is not overt: the same arc removed where an operator multiplies the weights with the values.

A call of the recording is found among the attention that the judge saw by its rows of weights. One arc of it is blocked by
`overt.lens.edit`; in another run the judge replaces the rows of the operator's output by what weights without that arc give. The
model's outputs of both runs have to agree.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import overt
from benchmarks.matrix.judge import PRODUCTS, Event, Judge, tolerance

CALLS = 3  # of one model that are edited, the first, the last and one between them
TRIED = 24  # rows of a call that are looked at until one is found that no other row equals
SMALL, LEFT = 1e-3, 1e-2  # the weight that an arc has at least, and the other keys together


@dataclass(frozen=True, eq=False)
class Arc:
    """One arc of all sequences of a recorded call, and where it ran: the event's number, and its rows in it."""

    call_index: int
    head: int
    query: int
    key: int
    event: int
    rows: tuple[int, ...]


class ArcRemoved(Judge):
    """Sees attention as a judge does, and takes one arc out of what an operator gives."""

    def __init__(self, model: nn.Module, arc: Arc):
        super().__init__(model)
        self.arc = arc
        self.met: Any = None

    def _met(self, name: str, weights: Tensor, followed: Any) -> None:
        self.met = followed
        super()._met(name, weights, followed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = len(self.events)
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if not before <= self.arc.event < len(self.events):
            return output
        event = self.events[self.arc.event]
        name = func._schema.name.partition("::")[2]
        if name in PRODUCTS:
            return self._multiplied(func, name, args, kwargs or {}, event)
        value = args[2].double()
        value = value if value.ndim < 4 else value.repeat_interleave(output[0].shape[1] // value.shape[1], 1)
        for row in self.arc.rows:
            *lead, query = torch.unravel_index(torch.tensor(row), output[0].shape[:-1])
            weights = without(event.weights.reshape(-1, event.weights.shape[-1])[row], self.arc.key, True)
            output[0][(*lead, query)] = (weights @ value[tuple(lead)]).to(output[0].dtype)
        return output

    def _multiplied(self, func: Any, name: str, args: tuple, kwargs: dict[str, Any], event: Event) -> Tensor:
        """The product with other rows of weights in the place of the operand that holds them."""
        first = PRODUCTS[name]
        for index, dim in ((first, -1), (first + 1, -2 if args[first + 1].ndim > 1 else -1)):
            operand = args[index]
            moved = operand.movedim(dim, -1)
            if moved.numel() != event.weights.numel() or not torch.equal(
                moved.reshape(event.weights.shape).double(), event.weights
            ):
                continue
            rows = moved.clone().reshape(-1, moved.shape[-1])
            width = max((self.widths[each] for each in self.widths if each <= int(self.met.positions.max()) >> 20), default=0)
            whole = abs(float(rows[self.arc.rows[0]].sum()) - 1) < SMALL
            for row in self.arc.rows:
                rows[row] = without(rows[row].double(), self.arc.key, whole or (self.met.normalized and width > rows.shape[-1]))
            changed = list(args)
            changed[index] = rows.reshape(moved.shape).movedim(-1, dim)
            return func(*changed, **kwargs)
        raise RuntimeError("the judge lost the weights that it saw")


def without(row: Tensor, key: int, divides: bool) -> Tensor:
    """A row of weights without one key, the others divided by what is left if they sum to one."""
    left = row.clone()
    left[key] = 0
    return left / (1 - row[key]) if divides else left


def arcs_of(recording: Any, events: list[Event]) -> list[Arc]:
    """Arcs of some calls of a recording whose rows are found among the events, no other row like them."""
    calls = [position for position, call in enumerate(recording.calls) if not hasattr(call, "recurrence")]
    chosen = sorted({*calls[:1], *calls[len(calls) // 2 : len(calls) // 2 + 1], *calls[-1:]})[:CALLS]
    arcs = [_arc(recording, position, events) for position in chosen]
    return [arc for arc in arcs if arc is not None]


def _arc(recording: Any, position: int, events: list[Event]) -> Arc | None:
    captured = recording.calls[position]
    rows = [captured.queries // 2, captured.queries - 1, *range(captured.queries)]
    pairs = [(head, row) for row in dict.fromkeys(rows) for head in captured.heads][:TRIED]
    for head, query in pairs:
        weights = recording[position, head].weights(rows=query)[:, 0].double().nan_to_num(nan=0.0)  # (B, K)
        key = int(weights.min(0).values.argmax())
        if float(weights[:, key].min()) < SMALL or float((weights.sum(-1) - weights[:, key]).min()) < LEFT:
            continue
        alike = [event for event in enumerate(events) if event[1].weights.shape[-1] == weights.shape[-1] and event[1].required]
        rows_of_events = [
            (number, _rows_of(event.weights.reshape(-1, len(weights[0])), weights, tolerance(event))) for number, event in alike
        ]
        matched = [(number, where) for number, where in rows_of_events if where is not None]
        bound = tolerance(events[matched[0][0]]) if matched else 0.0
        earlier = (
            sum(_has(recording, other, head, query, weights, bound) for other in range(position)) if len(matched) > 1 else 0
        )
        if matched:
            return Arc(captured.call_index, head, query, key, *matched[min(earlier, len(matched) - 1)])
    return None


def _has(recording: Any, position: int, head: int, query: int, weights: Tensor, bound: float) -> bool:
    """Whether a call has the same row of weights, rounding apart.

    DiffLlama attends twice with them, to both halves of its values; LiLT with the same two scores, added in either order.
    """
    captured = recording.calls[position]
    if hasattr(captured, "recurrence") or head not in captured.heads or query >= captured.queries:
        return False
    other = recording[position, head].weights(rows=query)[:, 0].double().nan_to_num(nan=0.0)
    return other.shape == weights.shape and bool((other - weights).abs().max() <= bound)


def _rows_of(rows: Tensor, weights: Tensor, bound: float) -> tuple[int, ...] | None:
    """Which row the weights (B, K) of each sequence are, if each is near one row alone and no two are the same."""
    where: list[int] = []
    for sequence in weights:  # in windowed attention as many as windows
        near = ((rows - sequence).abs().amax(-1) <= bound).nonzero().flatten().tolist()
        if len(near) != 1 or near[0] in where:
            return None
        where += near
    return tuple(where)


def judged_edits(
    model: nn.Module,
    run: Callable[[nn.Module], dict[str, Tensor]],
    difference: Callable[[Tensor, Tensor | None], float],
    limit: float,
) -> tuple[int, int, str]:
    """How many edits were tried, how many agree with the judge's, and why the first one does not."""
    with fast_path_off():
        with overt.lens.record(model) as recording, Judge(model) as judge:
            run(model)
        if recording.pass_count != 1:
            return 0, 0, ""
        exact, why = 0, ""
        arcs = arcs_of(recording, judge.events)
        for arc in arcs:
            reason = _reason(model, run, arc, difference, limit)
            exact, why = exact + (not reason), why or reason
    return len(arcs), exact, why


def _reason(model: nn.Module, run: Callable, arc: Arc, difference: Callable, limit: float) -> str:
    """Why overt's edit is not the judge's; nothing where it is."""
    where = f"L{arc.call_index}H{arc.head}, query {arc.query}, key {arc.key}"
    with ArcRemoved(model, arc):
        expected = run(model)
    try:
        with overt.lens.edit(model) as edit:
            edit.block((arc.call_index, arc.head), query=arc.query, key=arc.key)
            output = run(model)
    except Exception as error:  # whatever it raises is the reason
        return f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    off = max((difference(tensor, output.get(name)) for name, tensor in expected.items()), default=math.inf)
    return "" if off <= limit else f"{where}: off by {off:.1e}"


@contextmanager
def fast_path_off() -> Iterator[None]:
    """torch's fast path hides the operators of attention from the judge."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
