"""Whether a recurrence gives what a mixer's function returned, checked while the model runs, on the first positions of a call."""

from dataclasses import replace

import torch
from torch import Tensor

from overt.lens.linear.captured import coarsest
from overt.lens.linear.chunks import Chunks
from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.rounding import rounding_bound, stored

POSITIONS, _HEADS = 16, 4
_BY_POSITION = ("query", "key", "value", "log_decay", "erase", "probe", "diagonal", "normalizer")


def disagreement(alone: Recurrence, output: Tensor) -> str | None:
    """Why the recurrence of a call's own positions is not what its function computed, if the first ones differ by more than rounding.

    `output` is the model's own (B, H, Q, E). `verify` compares all positions.
    """
    count = min(POSITIONS, alone.queries)
    first = replace(alone, **{name: tensor[:, :, :count] for name, tensor in alone.tensors.items() if name in _BY_POSITION})
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
    by, allowed = (float(each.flatten()[worst]) for each in (far, bound))
    return f"its function is not the {alone.kind} of its arguments: recomputed, it differs by {by:.1e}, and rounding explains {allowed:.1e}"
