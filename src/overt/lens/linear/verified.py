"""The comparison of a linear token mixer's recomputed output with the model's own, and its rounding bound."""

import torch
from torch import Tensor

from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.chunks import Chunks, head_groups
from overt.lens.linear.rounding import rounding_bound, stored
from overt.lens.statistics.verified import Comparison, largest, queries_that_differ

BOUNDED_HEADS = 4  # heads of a call that get a bound: the largest differences relative to the output


@torch.no_grad()
def recompute_mixer(captured: CapturedMixer) -> Comparison:
    """Recompute a call in float64 in chunks, and compare it with the model's own output.

    Only `BOUNDED_HEADS` heads get bounds, for the queries that differ most among others. If a number differs by more than its own
    bound, these two are returned, else the largest difference and the largest bound.
    """
    recomputed = torch.cat([Chunks(part, torch.float64).output() for part in head_groups(captured.recurrence)], dim=1)
    return compared_mixer(captured, recomputed)


def compared_mixer(captured: CapturedMixer, recomputed: Tensor) -> Comparison:
    """The model's own output compared with the recomputed one, (B, H, Q, E) in float64."""
    difference = (recomputed - captured.output.double()).abs()
    notes = "".join(f"; {note}" for note in captured.notes)
    if not difference.numel():
        return Comparison(captured.layer, captured.number, 0.0, 0.0, notes)
    size = recomputed.square().mean((0, 2, 3)).sqrt()  # (H,)
    by_head = (difference.amax((0, 2, 3)) / torch.where(size > 0, size, 1)).nan_to_num(torch.inf)
    largest_of_all = difference.amax((0, 2, 3)).nan_to_num(torch.inf).argmax()[None]  # this head always gets a bound
    heads = torch.cat([by_head.topk(min(BOUNDED_HEADS, len(by_head))).indices, largest_of_all]).unique()
    rows = queries_that_differ(difference[:, heads])
    far, output = (part[:, heads][:, :, rows] for part in (difference, recomputed))
    bound = rounding_bound(captured.recurrence.of_heads(heads.tolist()), rows, output, captured.score_dtype)
    bound = bound + stored(output, captured.output.dtype)
    beyond = (far / bound).nan_to_num(0.0)
    if bool((beyond > 1).any()):
        worst = beyond.flatten().argmax()
        return Comparison(captured.layer, captured.number, float(far.flatten()[worst]), float(bound.flatten()[worst]), notes)
    return Comparison(captured.layer, captured.number, largest(difference), largest(bound[bound.isfinite()]), notes)
