"""Direct logit attribution: what every part of a model adds to a logit."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.contributions.arguments import (
    Recorded,
    arguments_of,
    checked_calls,
    checked_model,
    compare,
    ids_of,
    in_text,
)
from overt.lens.analysis.contributions.by_token import Split, split
from overt.lens.analysis.contributions.linear_paths import Writer
from overt.lens.analysis.contributions.result import Contributions, Part, summed
from overt.lens.analysis.contributions.targets import position_of, target_of
from overt.lens.analysis.contributions.traced import Point, Traced, traced
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import is_in
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.text.tokens_of_text import decoded
from overt.lens.text.vocabulary import Vocabulary

_OPENED = 8  # writers of a prediction head that are followed through


def contributions(
    recording: RecordedCalls,
    model: nn.Module,
    target: Any = None,
    *,
    position: int | None = None,
    inputs: Mapping[str, Any] | Tensor | None = None,
    tokenizer: Any = None,
) -> Contributions:
    """What each part of a language model adds to a logit, or to the difference of two: the parts sum to it, within rounding.

        logit_a − logit_b = Σ_heads Σ_j w_ij v_j W_O · g + Σ_feed-forward m · g + embedding · g + biases        g = d(logit_a − logit_b)/dx

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2022, section 3. x is the residual stream
    before the last norm, whose scale is frozen at what it was, as is the scale of every other norm on the way (after a sublayer, or in
    an encoder that normalises after each), and a gate after attention. With these the logit is linear in what each part writes. Only
    the direct effect is counted: not what a part does by changing what later parts compute.

    In an encoder–decoder the parts are the decoder's, and its cross-attention is split by the encoder's tokens. So it is in a model of
    text with an encoder of images or sound: what that wrote is embeddings of tokens, which the language model attends to.

    `target` is a token, its number or text, or a pair of them, this one rather than that one; None is the token of the largest logit.
    `position` is where: by default the last token that is not padding, or the mask token where tokens attend to later ones. `inputs` are
    all arguments of the pass that was recorded (`attention_mask`, `position_ids`, …): only token ids are in a recording. Text is read by
    the recording's tokenizer (`record(model, tokenizer=…)` or `recording.tokenizer(…)`), or by the `tokenizer` passed here: " model" is
    the token with a space before it, in a tokenizer that has one.

    The model runs once more, with the same inputs. A linear token mixer is split by heads and source tokens where it was recorded;
    without, it is one part. A bound on a logit (a softcap) is no linear function: contributions are to the logit before it, and a note
    says so. Raises InputError where the model's parts do not add up, with the function that stops them.

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
    args, kwargs = arguments_of(recording, inputs, model)
    run, encodes = _traced(model, args, kwargs), _encodes(model)
    compare(calls, run.points, type(model).__name__, inputs_passed=inputs is not None)
    calls_of_text = [captured for captured in calls if not encodes(captured.layer)]
    logits, length = _by_position(run.logits, calls_of_text[-1].queries)
    ids = ids_of(args, kwargs)
    text = in_text(recording, calls_of_text, ids, vocabulary, length)
    chosen = position_of(position, calls_of_text, ids, model, vocabulary, text)
    named = target_of(target, logits.detach(), chosen, vocabulary)
    with torch.enable_grad():
        number = named.of(logits)
    _descend(run, number, encodes)
    pairs = [pair for pair in zip(calls, run.points, strict=True) if pair[1].gradient is not None]
    splits = [split(captured, point) for captured, point in progress(pairs, "splitting heads by token")]
    return Contributions(
        named,
        tuple(summed(_parts(run, splits, recording))),
        {(recording.number_of(each.captured), head): values for each in splits for head, values in each.by_head.items()},
        float(number.detach()),
        math.hypot(run.paths.rounding.bound(), *(each.bound for each in splits)),
        _frozen(run),
        _notes(run, any(encodes(captured.layer) for captured in calls)),
        _words(recording, calls, ids, vocabulary),
        model=type(model).__name__,
    )


def _by_position(logits: Tensor, queries: int) -> tuple[Tensor, int]:
    """The logits (1, n, words) of a model that may run without a batch, or (1, words) of one position alone, and n."""
    logits = logits.unsqueeze(0) if logits.ndim == 2 and logits.shape[0] == queries > 1 else logits
    return logits, logits.shape[1] if logits.ndim == 3 else queries


def _traced(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    weight = getattr(_called(model, "get_output_embeddings"), "weight", None)
    run = traced(model, args, kwargs, weight.shape[0] if isinstance(weight, Tensor) else 0)
    if not run.logits.requires_grad:
        raise InputError(
            "logits that are computed where torch's functions can be observed",
            got="a model whose logits are not",
            fix="pass it uncompiled",
        )
    return run


def _descend(run: Traced, number: Tensor, encodes: Callable[[str], bool]) -> None:
    """Follow the linear paths down to all recorded calls but an encoder's. Raises InputError with what stops them."""
    run.descend(number)
    for _ in range(_OPENED):
        # A prediction head may have functions that are not linear after the stream: the gate of the last one is frozen.
        if any(point.gradient is not None for point in run.points) or not any(
            map(run.open, sorted(run.gradients, reverse=True))
        ):
            break
    stopped = [point for point in run.points if point.gradient is None and not encodes(point.layer)]
    if stopped:
        raise InputError(
            "layers whose outputs are added to one stream that reaches the logits",
            got=f"{stopped[-1].layer}, which reaches them only through {_obstacle(run, stopped[-1])}",
            fix="such a model has no contributions that add up; overt.lens.ablate measures what its heads do",
        )


def _obstacle(run: Traced, point: Point) -> str:
    after = [run.paths.writers[index] for index in sorted(run.gradients) if index >= point.order]
    writer = next((each for each in after if each.kind == "function"), None)
    return "a function that is not linear" if writer is None else f"{writer.function} in {writer.module}, which is not linear"


def _parts(run: Traced, splits: list[Split], recording: RecordedCalls) -> list[Part]:
    """Every part, in the order of the model."""
    mixing = {each.captured.layer for each in splits}
    ordered = [(each.point.order, _heads(each, recording)) for each in splits]
    position = {id(writer): index for index, writer in enumerate(run.paths.writers)}
    ordered += [(position[id(writer)], [_part(writer, value, mixing)]) for writer, value in run.reached()]
    return [part for _, parts in sorted(ordered, key=lambda each: each[0]) for part in parts]


def _heads(each: Split, recording: RecordedCalls) -> list[Part]:
    number = recording.number_of(each.captured)
    return [Part("head", each.captured.layer, float(values.sum()), number, head) for head, values in each.by_head.items()]


def _part(writer: Writer, value: float, mixing: set[str]) -> Part:
    """The part that a writer is of: the largest module around it without a token mixer."""
    names = writer.module.split(".")
    around = [".".join(names[:count]) for count in range(1, len(names) + 1)]
    holders = [name for name in around if not any(layer == name or layer.startswith(f"{name}.") for layer in mixing)]
    component = holders[0] if holders else writer.module
    inside = any(writer.module == layer or writer.module.startswith(f"{layer}.") for layer in mixing)
    kind = ("mixer" if inside else "feed-forward") if writer.kind == "function" else writer.kind
    return Part(kind, component if writer.kind != "embedding" else writer.module, value)


def _frozen(run: Traced) -> tuple[str, ...]:
    names: dict[str, list[str]] = {}
    for (what, module), reached in run.paths.frozen.items():
        if reached:
            names.setdefault(what, []).append(module)
    return tuple(
        f"{what}, {modules[0]}"
        if len(modules) == 1
        else f"{what} in {len(modules)} modules, from {modules[0]} to {modules[-1]}"
        for what, modules in names.items()
    )


def _encodes(model: nn.Module) -> Callable[[str], bool]:
    """Whether a layer is in an encoder, whose tokens a decoder attends to or embeds: of a source, or of images or sound beside text."""
    config, names = getattr(model, "config", None), {module: name for name, module in model.named_modules()}
    text = getattr(config, "get_text_config", None)
    if getattr(config, "is_encoder_decoder", False):
        encoder = _called(model, "get_encoder")
    elif hasattr(model, "decoder"):
        encoder = getattr(model, "encoder", None)
    elif text is not None and text() is not config:
        decoder = names.get(_called(model, "get_decoder"), "")
        return lambda layer: bool(decoder) and not is_in(layer, decoder)
    else:
        return lambda layer: False
    name = names.get(encoder, "")
    return lambda layer: bool(name) and is_in(layer, name)


def _called(model: nn.Module, method: str) -> Any:
    """What a method of Hugging Face's models returns; None where a model has none."""
    called: Any = getattr(model, method, None)
    return None if called is None else called()


def _notes(run: Traced, encoded: bool) -> tuple[str, ...]:
    notes = [] if run.paths.cap is None else [f"{run.paths.cap} bounds its logits by a tanh: these are the logits before it"]
    if encoded:
        notes.append("the encoder's layers act only through the encoder's output, whose tokens are sources of attention here")
    return (*notes, *dict.fromkeys(f"{name}: {reason}" for name, reason in run.missing))


def _words(
    recording: RecordedCalls, calls: list[Recorded], ids: Tensor | None, vocabulary: Vocabulary | None
) -> list[str] | None:
    words = recording.strings.of_keys(calls[-1]) if recording.strings.fit(calls[-1]) else None
    if words is not None:
        return words[0]
    if vocabulary is None or ids is None:
        return None
    return [*decoded(ids.flatten().tolist(), vocabulary).tokens]
