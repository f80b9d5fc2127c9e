"""The statistics of a call and of its heads without vectors, the same for summaries and full recordings."""

from dataclasses import replace

import torch

from overt.lens.captured import Captured, CapturedCall, copied, sliceable
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.summarized import summarized_mixer
from overt.lens.statistics.joined_summary import JoinedSummary
from overt.lens.statistics.summarized import CapturedSummary, SummaryOptions, one_pass_alone, summarized
from overt.lens.storage.tensor_cache import TensorCache
from overt.lens.tokens import Tokens

_TOP = 8


def cut(captured: Captured, heads: tuple[int, ...]) -> Captured:
    """The call with only these heads, if heads can be separated."""
    if isinstance(captured, JoinedSummary):
        raise one_pass_alone(captured.layer, "a page")
    if heads == captured.heads:
        return captured
    if isinstance(captured, CapturedSummary):
        return _cut_summary(captured, heads)
    if isinstance(captured, CapturedMixer):
        return captured.of_heads(heads)
    assert isinstance(captured, CapturedCall)
    if captured.call.query.ndim < 4 or not sliceable(captured.call):
        return replace(captured, heads=heads)
    indices = tuple(captured.copies.index(head) for head in heads)
    call, output = copied(captured.checked_call(), captured.output, indices, len(captured.copies), TensorCache())
    return replace(captured, heads=heads, copies=heads, call=call, output=output, versions=())


def _cut_summary(captured: CapturedSummary, heads: tuple[int, ...]) -> CapturedSummary:
    indices = [captured.heads.index(head) for head in heads]
    names = ("lse", "entropy", "received", "sink", "top_weights", "top_keys", "map_mean", "map_max")
    tensors = {name: tensor[:, indices] for name in names if (tensor := getattr(captured.summary, name)) is not None}
    shares = tuple(captured.shares[index] for index in indices)
    repetition = tuple(captured.repetition[index] for index in indices) if captured.repetition else ()
    return replace(captured, heads=heads, summary=replace(captured.summary, **tensors), shares=shares, repetition=repetition)


@torch.no_grad()
def measured(captured: Captured, tokens: Tokens, side: int) -> CapturedSummary:
    """The call's statistics, with maps of `side` cells a side unless they were computed while the model ran."""
    if isinstance(captured, CapturedSummary):
        return captured
    if isinstance(captured, CapturedMixer):
        return summarized_mixer(captured, tokens, SummaryOptions(_TOP, (side, side)))
    assert isinstance(captured, CapturedCall)
    captured.checked_call()
    return summarized(captured, tokens, SummaryOptions(_TOP, (side, side)))
