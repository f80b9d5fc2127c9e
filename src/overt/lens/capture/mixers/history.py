"""The positions of earlier calls of a layer, if a call continues the state of one of them.

A layer passes its state from call to call in a cache, which may be reordered by beams, reset, or replaced between calls. So the
state itself identifies the past: each sequence of a batch continues the call and the sequence that left this state.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from overt.lens.linear.recurrence import Recurrence

UNKNOWN = (
    "it begins with a state of tokens from before this recording: the output has a part from them, which no weights stand for"
)
_KEPT = 4  # the most caches per layer whose last states are remembered
_BY_KEY = ("key", "value", "log_decay", "erase", "probe")


@dataclass(eq=False)
class Past:
    """All positions so far as a recurrence with the last call's queries, and a copy of the state after them."""

    recurrence: Recurrence
    state: Tensor


class HistoryLink(NamedTuple):
    """The past of a call: the state that `before` left (None: unknown), with its sequences in this `order`.

    `now` is the past that the call itself leaves; None if its final state is not visible.
    """

    before: Past | None = None
    order: tuple[int, ...] = ()
    now: Past | None = None


class Histories:
    """The past of each layer, for each cache that it continues."""

    def __init__(self):
        self.by_module: MutableMapping[nn.Module, list[Past]] = WeakIdKeyDictionary()

    def complete(self, module: nn.Module, recurrence: Recurrence) -> tuple[Recurrence, tuple[str, ...], HistoryLink]:
        """The recurrence of a call with all known positions before it, a note if they are unknown, and its link."""
        if recurrence.start is None or not bool(recurrence.start.any()) or _restarts(recurrence):
            return replace(recurrence, start=None), (), HistoryLink()
        for past in self.by_module.get(module, []):
            order = _order(recurrence.start, past.state)
            if order is not None:
                whole = joined(past.recurrence, recurrence, order)
                return whole, () if whole.start is None else (UNKNOWN,), HistoryLink(past, tuple(order.tolist()))
        return recurrence, (UNKNOWN,), HistoryLink()

    def keep(self, module: nn.Module, before: Tensor | None, recurrence: Recurrence, state: Tensor) -> Past:
        """Remember the state of a call that began with the state `before`, and return it as a past."""
        pasts = self.by_module.setdefault(module, [])
        pasts[:] = [
            past for past in pasts if before is None or past.state.shape != before.shape or not _same(before, past.state)
        ]
        pasts.insert(0, Past(recurrence, state.detach().clone()))
        del pasts[_KEPT:]
        return pasts[0]


def joined(past: Recurrence, now: Recurrence, order: Tensor | None) -> Recurrence:
    """The positions of `past`, its sequences in this order, followed by the positions of `now`, with only `now`'s queries."""
    parts = {}
    for name in _BY_KEY:
        earlier, later = getattr(past, name), getattr(now, name)
        if later is not None:
            earlier = earlier if order is None else earlier.index_select(0, order)
            parts[name] = torch.cat([earlier, later.to(earlier.dtype)], dim=2)
    start = past.start if past.start is None or order is None else past.start.index_select(0, order)
    return replace(now, **parts, start=start)


def _restarts(recurrence: Recurrence) -> bool:
    """Whether the first position erases the state before it."""
    decay, probe = recurrence.log_decay, recurrence.probe
    return (
        decay is not None and bool((decay[:, :, :1] == -torch.inf).all()) and (probe is None or not bool(probe[:, :, :1].any()))
    )


def _order(state: Tensor, left: Tensor) -> Tensor | None:
    """The index of the earlier sequence that left each sequence's state; None if any is unknown."""
    if state.shape[1:] != left.shape[1:]:
        return None
    same = torch.stack([(part.to(left.dtype) == left).flatten(1).all(1) for part in state])  # (B, B before)
    return same.int().argmax(1) if bool(same.any(1).all()) else None


def _same(state: Tensor, left: Tensor) -> bool:
    return torch.equal(state.to(left.dtype), left)
