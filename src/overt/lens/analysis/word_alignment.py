"""The source words that each word of a translation goes with, from the weights of the step that reads the word."""

from collections.abc import Sequence

import torch
from torch import Tensor

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.by_block import WeightsByBlock
from overt.lens.capture.recorder import is_in
from overt.lens.captured import Captured
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.tokens import is_cross_attention


@torch.no_grad()
def alignment(
    recording: RecordedCalls, layer: int | str | None = None, heads: Sequence[int] | None = None, *, later: int = 1
) -> Tensor:
    """The weight of each source word for each written word: a decoder's attention to its encoder, `later` steps after the word.

        alignment_mj = mean over heads of w_(m−1+later, j)      for word m = 1, 2, … after the start token, written in step m − 1

    The query of a step depends on the words before the one that the step writes, and one step later on this word too. Chen et al. 2020,
    section 3 (the decoder's input against its output), found that the later row aligns better. `later=0` is the step that writes
    the word. In a recurrent decoder whose query is its previous state (`Seq2Seq(score_with="previous")`) the query depends on the
    word two steps later, `later=2`.

    `layer` is a module's name or a call's number; None is the last but one that attends between two texts, as in Garg et al. 2019.
    `heads` are the heads in the mean, by the model's numbers (None: all recorded). A recording of several passes (greedy decoding)
    is read as one; with beams, rows of a batch are not the same sentence from step to step.

    Limits: a weight does not say why the word was written. Other weights may give the same word (Jain and Wallace 2019), and much
    weight goes to the end mark if a word needs nothing of the source.

    Shapes: (B, T − later, S), rows in shares of 1, for T steps; the last `later` words have no row. Raises InputError if no call
    attends between two texts, or there are too few steps.

    >>> import torch, overt
    >>> model = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    >>> source, target = torch.randn(1, 6, 8), torch.randn(1, 4, 8)
    >>> with overt.lens.record(model) as recording:
    ...     _ = model(source, target)
    >>> overt.lens.alignment(recording, "decoder.layers.0.multihead_attn").shape
    torch.Size([1, 3, 6])
    """
    steps = _alignment_steps(recording, layer)
    if later < 0 or sum(captured.queries for captured in steps) <= later:
        count = sum(captured.queries for captured in steps)
        raise InputError(
            "a later= from 0 to the number of steps − 1",
            got=f"later={later} with {count} steps of {steps[0].layer}",
            fix="pass 0 or 1, and record more steps than that",
        )
    rows = torch.cat([_mean(captured, heads) for captured in progress(steps, "aligning steps")], dim=1)  # (B, T, S)
    return rows[:, later:]


def _mean(captured: Captured, heads: Sequence[int] | None) -> Tensor:
    """The mean of a call's weights over heads: (B, rows, S)."""
    wrong = [head for head in heads or () if head not in captured.heads]
    if wrong:
        got, there = f"heads={list(heads or ())}", ", ".join(map(str, captured.heads))
        raise InputError(f"recorded heads of {captured.layer}, some of {there}", got=got, fix="leave out the others")
    indices = [captured.heads.index(head) for head in (captured.heads if heads is None else heads)]
    return torch.cat([weights[:, indices].mean(1) for _, _, weights in WeightsByBlock(captured).blocks()], dim=1)


def _alignment_steps(recording: RecordedCalls, layer: int | str | None) -> list[Captured]:
    """The calls of one layer that attends between two texts, in the order of their steps."""
    calls = recording.nonempty_calls()
    if layer is not None:
        matches = {captured.layer for captured in calls if is_in(captured.layer, layer)}
        name = matches.pop() if len(matches) == 1 else recording.call_of(layer).layer
    else:
        names = list(dict.fromkeys(captured.layer for captured in calls if is_cross_attention(captured)))
        if not names:
            raise InputError(
                "a layer of attention between two texts, for an alignment",
                got=f"the layers {', '.join(dict.fromkeys(recording.layers))}, which are not known to be such layers",
                fix="record a decoder that attends to an encoder, and name its layer: alignment(recording, layer=…)",
            )
        name = names[max(len(names) - 2, 0)]
    steps = [captured for captured in calls if captured.layer == name]
    if len({(captured.keys, captured.batch) for captured in steps}) > 1:
        raise InputError(
            "the same source in all steps of an alignment",
            got=f"{name} with {', '.join(str(captured.keys) for captured in steps)} keys",
            fix="record the writing of one text",
        )
    return steps
