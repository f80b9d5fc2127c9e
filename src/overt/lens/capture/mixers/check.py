"""Checks, while the model runs, that a recurrence reproduces the result of a mixer's function on a call's first positions."""

from dataclasses import replace

import torch
from torch import Tensor

from overt.lens.capture.mixers.packed import part_from
from overt.lens.linear.captured import coarsest
from overt.lens.linear.chunks import Chunks
from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.rounding import rounding_bound, stored

POSITIONS, _HEADS = 16, 4


def disagreement(alone: Recurrence, output: Tensor, starts: tuple[int, ...] = ()) -> str | None:
    """The reason if the recurrence of a call's own positions differs from its function by more than rounding, else None.

    `output` is the model's own (B, H, Q, E). Only first positions are compared: of texts packed into one row, the first positions of
    the first, the second and the last text. `verify` compares all positions.
    """
    texts = [(alone, 0), *((part_from(alone, start, POSITIONS), start) for start in dict.fromkeys((*starts[:1], *starts[-1:])))]
    reasons = (_first_differ(text, output[:, :, start:]) for text, start in texts)
    return next((reason for reason in reasons if reason is not None), None)


def _first_differ(alone: Recurrence, output: Tensor) -> str | None:
    count = min(POSITIONS, alone.queries)
    first = replace(part_from(alone, 0, count), start=alone.start)
    recomputed, returned = Chunks(first, torch.float64).output(), output[:, :, :count].double()
    difference = torch.where(returned.isnan() & recomputed.isnan(), 0, (recomputed - returned).abs()).nan_to_num(torch.inf)
    if not difference.numel() or not bool(difference.any()):
        return None
    size = recomputed.square().mean((0, 2, 3)).sqrt()
    relative = (difference.amax((0, 2, 3)) / torch.where(size > 0, size, 1)).nan_to_num(torch.inf)
    heads = relative.topk(min(_HEADS, len(relative))).indices
    far, expected = difference[:, heads], recomputed[:, heads]
    bound = rounding_bound(first.of_heads(heads.tolist()), torch.arange(count), expected, coarsest(first))
    bound = bound + stored(expected, output.dtype)
    if bool((far <= bound).all()):
        return None
    worst = (far / bound).nan_to_num(torch.inf).flatten().argmax()
    by, allowed = (float(part.flatten()[worst]) for part in (far, bound))
    return f"its function is not the {alone.kind} of its arguments: recomputed, it differs by {by:.1e}, and rounding explains {allowed:.1e}"
