"""The parts of a model that linear paths reach, by name, and the notes and frozen norms."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from overt.lens.analysis.contributions.arguments import Recorded
from overt.lens.analysis.contributions.by_token import Split
from overt.lens.analysis.contributions.linear_paths import Writer
from overt.lens.analysis.contributions.result import Part
from overt.lens.analysis.contributions.traced import Point, Traced
from overt.lens.capture.recorder import is_in
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.text.tokens_of_text import decoded
from overt.lens.text.vocabulary import Vocabulary


def obstacle(run: Traced, point: Point) -> str:
    """The function that stops the linear paths between a call and the target."""
    after = [run.paths.writers[index] for index in sorted(run.gradients) if index >= point.order]
    writer = next((later for later in after if later.kind == "function"), None)
    return "a function that is not linear" if writer is None else f"{writer.function} in {writer.module}, which is not linear"


def ordered_parts(run: Traced, splits: list[Split], recording: RecordedCalls) -> list[Part]:
    """All parts, in the order of the model."""
    mixing = TokenMixers(split.captured.layer for split in splits)
    ordered = [(split.point.order, _heads(split, recording)) for split in splits]
    position = {id(writer): index for index, writer in enumerate(run.paths.writers)}
    ordered += [(position[id(writer)], [part_of_writer(writer, value, mixing)]) for writer, value in run.reached()]
    return [part for _, parts in sorted(ordered, key=lambda item: item[0]) for part in parts]


def _heads(item: Split, recording: RecordedCalls) -> list[Part]:
    number = recording.number_of(item.captured)
    return [Part("head", item.captured.layer, float(values.sum()), number, head) for head, values in item.by_head.items()]


class TokenMixers:
    """The layers that mix tokens, and the modules around them."""

    def __init__(self, layers: Iterable[str]):
        self.layers: frozenset[str] = frozenset(layers)
        self.around: frozenset[str] = frozenset(name for layer in self.layers for name in _modules_around(layer))


def part_of_writer(writer: Writer, value: float, mixing: TokenMixers) -> Part:
    """The part of a writer: the largest module around it without a token mixer."""
    around = _modules_around(writer.module)
    component = next((name for name in around if name not in mixing.around), writer.module)
    inside = not mixing.layers.isdisjoint(around)
    kind = ("mixer" if inside else "feed-forward") if writer.kind == "function" else writer.kind
    return Part(kind, component if writer.kind != "embedding" else writer.module, value)


def _modules_around(module: str) -> list[str]:
    """The names of a module and of the modules around it, largest first.

    >>> _modules_around("encoder.layer.0")
    ['encoder', 'encoder.layer', 'encoder.layer.0']
    """
    names = module.split(".")
    return [".".join(names[:count]) for count in range(1, len(names) + 1)]


def frozen_in(run: Traced) -> tuple[str, ...]:
    """The factors that are held constant on the paths to the target, with their modules."""
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


def encoder_predicate(model: nn.Module) -> Callable[[str], bool]:
    """A predicate for layers of an encoder whose tokens a decoder attends to or embeds: of a source, or of images or sound next to text."""
    config, names = getattr(model, "config", None), {module: name for name, module in model.named_modules()}
    text = getattr(config, "get_text_config", None)
    if getattr(config, "is_encoder_decoder", False):
        encoder = called(model, "get_encoder")
    elif hasattr(model, "decoder"):
        encoder = getattr(model, "encoder", None)
    elif text is not None and text() is not config:
        decoder = names.get(called(model, "get_decoder"), "")
        return lambda layer: bool(decoder) and not is_in(layer, decoder)
    else:
        return lambda layer: False
    name = names.get(encoder, "")
    return lambda layer: bool(name) and is_in(layer, name)


def called(model: nn.Module, method: str) -> Any:
    """The result of a method of Hugging Face's models; None if the model does not have it."""
    called: Any = getattr(model, method, None)
    return None if called is None else called()


def part_notes(run: Traced, encoded: bool) -> tuple[str, ...]:
    """The notes that a reader of the parts needs."""
    notes = [] if run.paths.cap is None else [f"{run.paths.cap} bounds its logits by a tanh: these are the logits before it"]
    if encoded:
        notes.append("the encoder's layers act only through the encoder's output, whose tokens are sources of attention here")
    return (*notes, *dict.fromkeys(f"{name}: {reason}" for name, reason in run.missing))


def attended_words(
    recording: RecordedCalls, calls: list[Recorded], ids: Tensor | None, vocabulary: Vocabulary | None
) -> list[str] | None:
    """The words of the tokens that the last call attended to; None if they are unknown."""
    words = recording.strings.key_words(calls[-1]) if recording.strings.fit(calls[-1]) else None
    if words is not None:
        return words[0]
    if vocabulary is None or ids is None:
        return None
    return [*decoded(ids.flatten().tolist(), vocabulary).tokens]
