"""The positions of earlier calls of a layer, when it goes on with the state that one of them left.

A layer passes its state from call to call in a cache, which may be reordered by beams, reset, or another one from call to call. So the
state itself says what went before: each sequence of a batch goes on with the call, and the sequence of it, that left this state.
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
_KEPT = 4  # caches that a layer is used with in turn
_BY_KEY = ("key", "value", "log_decay", "erase", "probe")


@dataclass(eq=False)
class Past:
    """All positions so far, as a recurrence whose queries are the last call's, and a copy of the state after them."""

    recurrence: Recurrence
    state: Tensor


class HistoryLink(NamedTuple):
    """What a call goes on with: the state that `before` left (None: none that is known), its sequences in this `order`.

    `now` is what the call itself leaves, None where that is not seen.
    """

    before: Past | None = None
    order: tuple[int, ...] = ()
    now: Past | None = None


class Histories:
    """What each layer has mixed so far, for each cache that it goes on with."""

    def __init__(self):
        self.by_module: MutableMapping[nn.Module, list[Past]] = WeakIdKeyDictionary()

    def complete(self, module: nn.Module, recurrence: Recurrence) -> tuple[Recurrence, tuple[str, ...], HistoryLink]:
        """The recurrence of a call with all positions before it, where these are known, a note where they are not, and its link."""
        if recurrence.start is None or not bool(recurrence.start.any()) or _restarts(recurrence):
            return replace(recurrence, start=None), (), HistoryLink()
        for past in self.by_module.get(module, []):
            order = _order(recurrence.start, past.state)
            if order is not None:
                whole = joined(past.recurrence, recurrence, order)
                return whole, () if whole.start is None else (UNKNOWN,), HistoryLink(past, tuple(order.tolist()))
        return recurrence, (UNKNOWN,), HistoryLink()

    def keep(self, module: nn.Module, before: Tensor | None, recurrence: Recurrence, state: Tensor) -> Past:
        """A call has left a state, which began with the state `before`. Returns what it left."""
        pasts = self.by_module.setdefault(module, [])
        pasts[:] = [
            past for past in pasts if before is None or past.state.shape != before.shape or not _same(before, past.state)
        ]
        pasts.insert(0, Past(recurrence, state.detach().clone()))
        del pasts[_KEPT:]
        return pasts[0]


def joined(past: Recurrence, now: Recurrence, order: Tensor | None) -> Recurrence:
    """The positions of `past`, its sequences in this order, and those of `now` after them; the queries are those of `now`."""
    parts = {}
    for name in _BY_KEY:
        earlier, later = getattr(past, name), getattr(now, name)
        if later is not None:
            earlier = earlier if order is None else earlier.index_select(0, order)
            parts[name] = torch.cat([earlier, later.to(earlier.dtype)], dim=2)
    start = past.start if past.start is None or order is None else past.start.index_select(0, order)
    return replace(now, **parts, start=start)


def _restarts(recurrence: Recurrence) -> bool:
    """Whether the first position leaves nothing of the state before it."""
    decay, probe = recurrence.log_decay, recurrence.probe
    return (
        decay is not None and bool((decay[:, :, :1] == -torch.inf).all()) and (probe is None or not bool(probe[:, :, :1].any()))
    )


def _order(state: Tensor, left: Tensor) -> Tensor | None:
    """Which sequence left the state of each sequence; None where any of them is unknown."""
    if state.shape[1:] != left.shape[1:]:
        return None
    same = torch.stack([(part.to(left.dtype) == left).flatten(1).all(1) for part in state])  # (B, B before)
    return same.int().argmax(1) if bool(same.any(1).all()) else None


def _same(state: Tensor, left: Tensor) -> bool:
    return torch.equal(state.to(left.dtype), left)
