"""Checks that the recording, the model and the inputs of contributions belong together."""

import inspect
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.analysis.by_block import one_pass
from overt.lens.analysis.contributions.traced import Point
from overt.lens.capture.recordable import required_model
from overt.lens.capture.watching import at_work
from overt.lens.captured import Captured, CapturedCall
from overt.lens.linear.captured import CapturedMixer
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.statistics.padding import text_queries
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.text.tokens_of_text import decoded
from overt.lens.text.vocabulary import Vocabulary
from overt.lens.tokens import Tokens

Recorded = CapturedCall | CapturedMixer


def checked_model(model: Any) -> nn.Module:
    """Return the model if it can be attributed. Raises KindError and InputError for others."""
    model = required_model(model)
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1:
        fix = "load the model on one device"
        raise InputError("a model on one device", got=f"parameters on {', '.join(sorted(map(str, devices)))}", fix=fix)
    if any(module.training for module in model.modules()):
        raise InputError(
            "a model in evaluation, without dropout", got="one in training", fix="call model.eval() before recording"
        )
    return model


def checked_calls(recording: RecordedCalls, model: nn.Module, what: str = "contributions") -> list[Recorded]:
    """The calls of a recording of one pass over one text. Raises InputError for other recordings."""
    if at_work() is not None:
        fix = "call it after the block of overt.lens.record"
        raise InputError("a recording that has ended, because the model runs once more", got="one that is still open", fix=fix)
    calls = one_pass(recording, what)
    if any(isinstance(captured, CapturedSummary) for captured in calls):
        raise InputError(f"a recording of query, key and value, for {what}", got="summaries", fix='record with keep="qkv"')
    several = next((captured for captured in calls if captured.batch != 1), None)
    if several is not None:
        got = f"a batch of {several.batch} in {several.layer}"
        fix = "record the model on one text; if it was one text, this layer splits it into parts or streams, which have no sum of this form"
        raise InputError(f"one text in each call, for {what}", got=got, fix=fix)
    names = {name for name, _ in model.named_modules()} | {type(model).__name__}
    other = next((captured.layer for captured in calls if captured.layer not in names), None)
    if other is not None or recording.model != type(model).__name__:
        got = f"a {type(model).__name__}" + ("" if other is None else f" without the module {other}")
        raise InputError(
            f"the model that was recorded, a {recording.model}", got=got, fix="pass the same model as to overt.lens.record"
        )
    if any(len(captured.heads) < captured.total for captured in calls):
        raise InputError(f"a recording of all heads, for {what}", got="one of some heads", fix="record without heads=")
    return [_opened(captured) for captured in calls]


def pass_arguments(recording: RecordedCalls, inputs: Any, model: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the recorded pass, without a cache to write to. If `inputs` is None, they are the recorded token ids."""
    return whole_text(model, _recorded_ids(recording).to(_device(model)) if inputs is None else inputs)


def whole_text(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a pass over a whole text, without a cache to write to."""
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else ((inputs,), {})
    if kwargs.get("past_key_values") is not None:
        raise InputError("a pass over a whole text", got="one that continues a cache", fix="record the model on the whole text")
    device = _device(model)
    others = {str(part.device) for part in (*args, *kwargs.values()) if isinstance(part, Tensor)} - {str(device)}
    if others:
        raise InputError(
            f"inputs on the model's device, {device}", got=f"inputs on {', '.join(sorted(others))}", fix="move them there"
        )
    if hasattr(getattr(model, "config", None), "use_cache") and "use_cache" in inspect.signature(model.forward).parameters:
        kwargs["use_cache"] = False
    return args, kwargs


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _recorded_ids(recording: RecordedCalls) -> Tensor:
    """The token ids (1, n) of the one text that the model read."""
    number = recording.calls[0].pass_index
    lookups = [lookup for lookup in recording.strings.texts.lookups if lookup.pass_index == number]
    if len(lookups) != 1 or lookups[0].ids.shape[:-1].numel() != 1:
        raise InputError(
            "the inputs of the recorded pass, because the model runs once more",
            got=f"none, and a recording of {len(lookups)} texts",
            fix="pass inputs=, as the model got them",
        )
    if len(getattr(recording.calls[0], "read", ())) > 1:
        return recording.token_ids(0)  # in generation: of all passes
    return lookups[0].ids.reshape(1, -1)


def _opened(captured: Captured) -> Recorded:
    opened = captured.opened()
    assert isinstance(opened, CapturedCall | CapturedMixer)
    return opened


def input_ids(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The token ids among the arguments of a pass."""
    candidates = [*args, kwargs.get("input_ids")]
    return next(
        (candidate for candidate in candidates if isinstance(candidate, Tensor) and not candidate.is_floating_point()), None
    )


def in_text(
    recording: RecordedCalls, calls: list[Recorded], ids: Tensor | None, vocabulary: Vocabulary | None, length: int
) -> Tensor:
    """Whether each position with logits is a token of the text, and not padding: (length,)."""
    positions = torch.ones(length, dtype=torch.bool)
    for captured in calls:
        if captured.queries == length:
            tokens = recording.strings if recording.strings.fit(captured) else Tokens()
            positions &= text_queries(captured, tokens)[0].cpu()
    if vocabulary is not None and ids is not None and ids.numel() == length:
        positions &= torch.tensor([not token.padding for token in decoded(ids.flatten().tolist(), vocabulary).tokens])
    return positions


def compare(calls: list[Recorded], points: list[Point], model: str, inputs_passed: bool) -> None:
    """Compare this run with the recorded one. Raises InputError if they differ."""
    recorded, rerun = [captured.layer for captured in calls], [point.layer for point in points]
    pairs = zip(calls, points, strict=True) if recorded == rerun else []
    apart = next((captured.layer for captured, point in pairs if not _agrees(captured.output, point.output)), None)
    if recorded != rerun or apart is not None:
        first = next((pair for pair in zip_longest(recorded, rerun) if pair[0] != pair[1]), ("", ""))
        got = f"a {model} whose layer {apart} gave another output than in the recording, so its run cannot be repeated"
        other = f"a {model} that ran {first[1] or 'no layer'} where {first[0] or 'no layer'} was recorded"
        same, arguments = "pass the same model", "all arguments of the recorded pass (attention_mask, position_ids, …)"
        fix = (
            f"{same} and inputs, {arguments}; call torch.manual_seed before both runs of a model that draws random numbers"
            if inputs_passed
            else f"{same}, and inputs=, {arguments}: only token ids are in a recording"
        )
        raise InputError(
            "the model and the inputs that were recorded, all layers of it",
            got=got if recorded == rerun else other,
            fix=fix if recorded == rerun else f"{same} and inputs, and record without layers=",
        )


def _agrees(recorded: Tensor, output: Tensor) -> bool:
    if recorded.numel() != output.numel():
        return False
    far = (output.to(recorded.device).reshape(recorded.shape) - recorded).abs().nan_to_num()
    size = recorded.abs().nan_to_num().max() if recorded.numel() else 0.0
    return not recorded.numel() or float(far.max()) <= 64 * torch.finfo(recorded.dtype).eps * float(size)
