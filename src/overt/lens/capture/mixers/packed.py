"""Several texts packed into one row, like in flash-linear-attention: the state restarts at the beginning of each text."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.lens.linear.recurrence import Recurrence

NAMES = ("cu_seqlens", "seq_idx")
CONTINUED = "it goes on with states of packed sequences (cu_seqlens), one for each, which are not recorded"
OTHER_ENDS = "its cu_seqlens, which say where packed sequences begin, are not those of one row of {} positions"
PASSED_OVER = "its function passes over {}: the texts of one row are mixed, as the model computes it"


def text_starts(cu_seqlens: Any, batch: int, length: int, start: Any) -> tuple[int, ...] | str:
    """The positions at which a text begins after another one, or the reason why they cannot be recorded.

    >>> text_starts(torch.tensor([0, 4, 4, 9]), 1, 9, None)
    (4,)
    """
    if cu_seqlens is None:
        return ()
    if start is not None:
        return CONTINUED
    ends = cu_seqlens.flatten().tolist() if isinstance(cu_seqlens, Tensor) else [*cu_seqlens]
    if batch != 1 or not ends or ends[0] != 0 or ends[-1] != length or ends != sorted(ends):
        return OTHER_ENDS.format(length)
    return tuple(sorted({*ends} - {0, length}))


def restarted(recurrence: Recurrence, starts: tuple[int, ...]) -> Recurrence:
    """The recurrence with a state of zeros before each of these positions, by decays and erasures of 0.

    >>> ones = torch.ones(1, 1, 3, 1)
    >>> restarted(Recurrence(ones, ones, ones), (1,)).matrix()[0, 0]
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 1., 1.]])
    """
    if not starts:
        return recurrence
    begins = torch.zeros(recurrence.keys, dtype=torch.bool, device=recurrence.key.device)
    begins[list(starts)] = True
    begins = begins[:, None]  # (K, 1)
    decay = recurrence.log_decay
    decay = recurrence.key.new_zeros(recurrence.batch, 1, recurrence.keys, 1) if decay is None else decay
    parts = {"log_decay": torch.where(begins, -torch.inf, decay)}
    if recurrence.erase is not None and recurrence.probe is not None:
        parts |= {name: torch.where(begins, 0, getattr(recurrence, name)) for name in ("erase", "probe")}
    if recurrence.reads == "before":  # the state of another text
        parts |= {"query": torch.where(begins, 0, recurrence.query)}
    return replace(recurrence, **parts)


def part_from(recurrence: Recurrence, start: int, count: int) -> Recurrence:
    """`count` positions from `start` on, where the state restarts."""
    names = ("query", "key", "value", "log_decay", "erase", "probe", "diagonal", "normalizer")
    parts = {name: tensor[:, :, start : start + count] for name, tensor in recurrence.tensors.items() if name in names}
    return replace(recurrence, **parts, start=None)
