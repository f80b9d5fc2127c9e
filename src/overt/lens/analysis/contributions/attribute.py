"""Direct logit attribution: the term that every part of a model adds to a logit."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.contributions.arguments import (
    checked_calls,
    checked_model,
    compare,
    in_text,
    input_ids,
    pass_arguments,
)
from overt.lens.analysis.contributions.by_token import split
from overt.lens.analysis.contributions.parts import (
    attended_words,
    called,
    encoder_predicate,
    frozen_in,
    obstacle,
    ordered_parts,
    part_notes,
)
from overt.lens.analysis.contributions.result import Contributions, summed
from overt.lens.analysis.contributions.targets import named_position, named_target
from overt.lens.analysis.contributions.traced import Traced, traced
from overt.lens.capture.recordable import recordable
from overt.lens.recorded_calls import RecordedCalls


def contributions(
    recording: RecordedCalls,
    model: nn.Module,
    target: Any = None,
    *,
    position: int | None = None,
    inputs: Mapping[str, Any] | Tensor | None = None,
    tokenizer: Any = None,
) -> Contributions:
    """Split a logit of a language model, or the difference of two, into the terms of its parts, which sum to it within rounding.

        logit_a − logit_b = Σ_heads Σ_j w_ij v_j W_O · g + Σ_feed-forward m · g + embedding · g + biases        g = d(logit_a − logit_b)/dx

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2022, section 3. x is the residual stream
    before the last norm, whose scale is frozen at its value in this run, as are the scales of all other norms on the way (after a
    sublayer, or in an encoder that normalises after each) and a gate after attention. With these frozen, the logit is linear in the
    output of each part. Only the direct effect counts, not that a part changes the results of later parts.

    In an encoder–decoder the parts are the decoder's, and its cross-attention is split by the encoder's tokens. The same holds for a
    model of text with an encoder of images or sound, whose outputs are embeddings of tokens that the language model attends to.

    `target` is a token (its number or text) or a pair of tokens (the first rather than the second); None is the token of the largest
    logit. `position` is by default the last token that is not padding, or the mask token if tokens attend to later ones. `inputs` are
    all arguments of the recorded pass (`attention_mask`, `position_ids`, …), since a recording has only token ids. Text is read by
    the recording's tokenizer (`record(model, tokenizer=…)` or `recording.tokenizer(…)`), or by the `tokenizer` passed here: " model" is
    the token with a space before it, in a tokenizer that has one.

    The model runs once more, with the same inputs. A linear token mixer is split by heads and source tokens if it was recorded,
    otherwise it is one part. A bound on a logit (a softcap) is not linear: contributions are to the logit before it, and a note
    reports this. Raises InputError if the model's parts do not add up, with the function that stops them.

    >>> import torch, overt
    >>> model = overt.models.LanguageModel(50, width=16, heads=2, layers=2, feed_forward=32).eval()
    >>> words = torch.tensor([[3, 7, 9, 7]])
    >>> with overt.lens.record(model) as recording:
    ...     scores = model(words)
    >>> added = overt.lens.contributions(recording, model, (5, 8))
    >>> added.holds, len(added.by_head), added.by_token[1, 0].shape
    (True, 4, torch.Size([4]))
    """
    model = recordable(checked_model(model))
    calls, vocabulary = checked_calls(recording, model), recording.strings.texts.read_with(tokenizer)
    args, kwargs = pass_arguments(recording, inputs, model)
    run, encodes = _traced(model, args, kwargs), encoder_predicate(model)
    compare(calls, run.points, type(model).__name__, inputs_passed=inputs is not None)
    calls_of_text = [captured for captured in calls if not encodes(captured.layer)]
    logits, length = _by_position(run.logits, calls_of_text[-1].queries)
    ids = input_ids(args, kwargs)
    text = in_text(recording, calls_of_text, ids, vocabulary, length)
    chosen = named_position(position, calls_of_text, ids, model, vocabulary, text)
    named = named_target(target, logits.detach(), chosen, vocabulary)
    with torch.enable_grad():
        number = named.logit(logits)
    _descend(run, number, encodes)
    pairs = [pair for pair in zip(calls, run.points, strict=True) if pair[1].gradient is not None]
    splits = [split(captured, point) for captured, point in progress(pairs, "splitting heads by token")]
    return Contributions(
        named,
        tuple(summed(ordered_parts(run, splits, recording))),
        {(recording.number_of(split.captured), head): values for split in splits for head, values in split.by_head.items()},
        float(number.detach()),
        math.hypot(run.paths.rounding.bound(), *(split.bound for split in splits)),
        frozen_in(run),
        part_notes(run, any(encodes(captured.layer) for captured in calls)),
        attended_words(recording, calls, ids, vocabulary),
        model=type(model).__name__,
    )


def _by_position(logits: Tensor, queries: int) -> tuple[Tensor, int]:
    """The logits (1, n, words) of a model that may run without a batch, or (1, words) of a single position, and n."""
    logits = logits.unsqueeze(0) if logits.ndim == 2 and logits.shape[0] == queries > 1 else logits
    return logits, logits.shape[1] if logits.ndim == 3 else queries


def _traced(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    weight = getattr(called(model, "get_output_embeddings"), "weight", None)
    run = traced(model, args, kwargs, weight.shape[0] if isinstance(weight, Tensor) else 0)
    if not run.logits.requires_grad:
        raise InputError(
            "logits that are computed where torch's functions can be observed",
            got="a model whose logits are not",
            fix="pass it uncompiled",
        )
    return run


def _descend(run: Traced, number: Tensor, encodes: Callable[[str], bool]) -> None:
    """Follow the linear paths down to all recorded calls except an encoder's. Raises InputError with the function that stops them."""
    run.follow(number, run.points)
    stopped = [point for point in run.points if point.gradient is None and not encodes(point.layer)]
    if stopped:
        raise InputError(
            "layers whose outputs are added to one stream that reaches the logits",
            got=f"{stopped[-1].layer}, which reaches them only through {obstacle(run, stopped[-1])}",
            fix="such a model has no contributions that add up; overt.lens.ablate measures what its heads do",
        )
