"""Every model type of the installed transformers: which class stands for it, and how one is built small with random weights."""

import copy
import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.matrix import inputs as feeding
from benchmarks.matrix.mixing import mixers
from benchmarks.matrix.models.small import small
from benchmarks.matrix.verdicts import Run, Verdict, error_line, generated, gradients, of_backend, of_recording, worst

PARAMETERS = 80_000_000
# The first of these that knows a configuration says which class stands for it: one that writes text before its bare base.
WRITERS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


class NotBuilt(Exception):
    """Why a model cannot be made small and run."""


@dataclass(frozen=True)
class Built:
    """How to build a model again: its class and configuration, and what it is fed."""

    kind: type
    config: Any
    what: str
    inputs: dict[str, Any]

    def model(self, path: str) -> nn.Module:
        """The model on one path of attention, always with the same weights."""
        torch.manual_seed(0)
        model = self.kind._from_config(copy.deepcopy(self.config), attn_implementation=path)
        return randomized(model).eval()


def names() -> list[str]:
    """Every `model_type`."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return list(CONFIG_MAPPING_NAMES)


def built(name: str) -> Built:
    """The model type, small and fed with something that it runs on. Raises NotBuilt with the reason."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    reasons = []
    for narrow in (True, False):
        try:
            config = small(CONFIG_MAPPING[name](), narrow)
            kind = model_class(config)
            return fed(kind, config)
        except NotBuilt as error:
            reasons.append(str(error))
        except Exception as error:  # whatever a class of someone else's raises
            reasons.append(error_line(error))
    raise NotBuilt(reasons[0] if len(set(reasons)) == 1 else f"{reasons[0]}; with the widths of its default: {reasons[1]}")


def fed(kind: type, config: Any) -> Built:
    """With the first inputs that run and give finite numbers, on "eager", or on "sdpa" if there are none."""
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in kind._from_config(copy.deepcopy(config)).parameters())
    if size > PARAMETERS:
        raise NotBuilt(f"its smallest form has {size:,} parameters")
    plain = Built(kind, config, "", {})
    model, reasons, not_finite = plain.model("eager"), [], []
    for what, inputs in feeding.candidates(model):
        try:
            output = outputs(model, inputs)
        except Exception as error:  # whatever a model of someone else's raises
            reasons.append(f"{what}: {error_line(error)}")
            continue
        if is_finite(output):
            return Built(kind, config, what, inputs)
        reasons.append(f"{what}: its output is not finite")
        not_finite.append((what, inputs))
    for what, inputs in not_finite:
        if succeeds(lambda inputs=inputs: assert_finite(outputs(plain.model("sdpa"), inputs))):
            return Built(kind, config, what, inputs)
    raise NotBuilt("; ".join(dict.fromkeys(reasons)) or f"no inputs for {list(inspect.signature(model.forward).parameters)}")


def is_finite(output: dict[str, torch.Tensor]) -> bool:
    """Whether all numbers are."""
    return all(bool(leaf.isfinite().all()) for leaf in output.values())


def assert_finite(output: dict[str, torch.Tensor]) -> None:
    """Raise ArithmeticError where numbers are not."""
    if not is_finite(output):
        raise ArithmeticError("not finite")


def outputs(model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What the model gives, by name, in numbers with a fraction, without caches."""
    torch.manual_seed(1)
    return leaves(model(**copied(inputs)))


def copied(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs that the model may write over."""
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}


def leaves(output: Any) -> dict[str, torch.Tensor]:
    """The tensors of an output by name."""
    if isinstance(output, torch.Tensor):
        output = {"output": output}
    if isinstance(output, list | tuple):
        output = {str(index): each for index, each in enumerate(output)}
    tensors = {}
    for name, value in dict(output).items():
        if name in ("past_key_values", "attentions", "loss"):
            continue
        for index, leaf in enumerate(torch.utils._pytree.tree_leaves(dict(value) if hasattr(value, "to_tuple") else value)):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
                tensors[f"{name}.{index}" if index else name] = leaf
    if not tensors:
        raise NotBuilt("it gives no numbers")
    return tensors


def model_class(config: Any) -> type:
    """The class that stands for a configuration: with a head that writes text where there is one, else its base."""
    import transformers
    from transformers.models.auto import modeling_auto

    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    for mapping in WRITERS:
        name = getattr(modeling_auto, mapping).get(config.model_type)
        name = name[0] if isinstance(name, list | tuple) else name
        if name is not None and inspect.isclass(kind := getattr(module, name, None)) and kind.config_class is type(config):
            return kind
    base = transformers.PreTrainedModel
    kinds = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, base) and each.__module__ == module.__name__
    ]
    fitting = [each for each in kinds if each.config_class is type(config) and "forward" in vars(each)]
    if not fitting:
        raise NotBuilt(f"{module.__name__.split('.')[-1]} has no model for {type(config).__name__}")
    return min(fitting, key=lambda each: (not each.__name__.endswith("Model"), len(each.__name__)))


@torch.no_grad()
def randomized(model: nn.Module) -> nn.Module:
    """Weights so large that attention is far from uniform, the same at every call."""
    draw = torch.Generator().manual_seed(7)
    for _, parameter in sorted(model.named_parameters(), key=lambda each: each[0]):
        if not parameter.is_floating_point():
            continue
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float32).to(parameter.dtype)
        if parameter.ndim > 1:
            parameter.copy_(noise * min(0.15, 1.2 / max(parameter[0].numel(), 1) ** 0.5))
        else:
            parameter.add_(0.05 * noise)
    return model


def run_all(name: str) -> dict[str, Any]:
    """What is said of a model type: of recording it on "eager" and on "sdpa", and of overt's backend. Raises NotBuilt."""
    trial = Trial(built(name))
    facts = {"class": trial.start.kind.__name__, "kind": trial.start.what}
    facts["parameters"] = sum(each.numel() for each in trial.model("eager").parameters())
    eager, sdpa = (trial.recorded(path) for path in ("eager", "sdpa"))
    backend = trial.on_backend(attends=eager.numbers.get("attended", 1) > 0)
    return facts | {"recording eager": eager.plain(), "recording sdpa": sdpa.plain(), "backend": backend.plain()}


class Trial:
    """One model type on every path, each model built once."""

    def __init__(self, start: Built):
        self.start = start
        self.models: dict[str, nn.Module] = {}
        sides = ("left", "right") if feeding.can_be_padded(self.model("eager"), start.inputs) else ()
        self.inputs = {"a pass": start.inputs}
        for side in sides:
            with_padding = feeding.padded(start.inputs, side)
            if runs_alone(self.model("eager"), with_padding):
                self.inputs[f"{side} padding"] = with_padding

    def model(self, path: str) -> nn.Module:
        """The model on this path."""
        if path not in self.models:
            self.models[path] = self.start.model(path)
        return self.models[path]

    def recorded(self, path: str) -> Verdict:
        """Of recording on one of the model's own paths, with each kind of padding."""
        try:
            model = self.model(path)
        except (ValueError, ImportError) as error:
            return Verdict("refused", f"transformers: {error_line(error, 120)}")
        if not runs_alone(model, self.start.inputs):
            return Verdict("refused", f'transformers: the model does not run on "{path}" by itself')
        verdicts = []
        for what, inputs in self.inputs.items():
            mixing = (lambda: self.mixing) if what == "a pass" else list
            verdicts.append(of_recording(model, lambda each, inputs=inputs: outputs(each, inputs), f" in {what}", mixing))
        return worst(verdicts)

    @functools.cached_property
    def mixing(self) -> list[str]:
        """The modules of a text model that mix tokens."""
        if self.start.what != "words" or self.start.inputs["input_ids"].shape[1] != feeding.LENGTH:
            return []
        return mixers(self.model("eager"), lambda each: each(**copied(self.start.inputs), use_cache=False), feeding.LENGTH)

    def on_backend(self, attends: bool) -> Verdict:
        """Of overt's backend beside "eager": passes with each kind of padding, generation with both kinds of cache, gradients."""
        runs: list[Run] = []
        for what, inputs in self.inputs.items():
            real = inputs["attention_mask"].bool() if "padding" in what else None
            runs.append((what, lambda path, inputs=inputs, real=real: (outputs(self.model(path), inputs), real)))
        return of_backend([*runs, *self.writing(), *self.training()], attends)

    def writing(self) -> list[Run]:
        """Generation after the prompts, with padding on the left where the model takes it, with each kind of cache that it can use."""
        if "input_ids" not in self.start.inputs or not getattr(self.model("eager"), "can_generate", lambda: False)():
            return []
        prompts = self.inputs.get("left padding", self.start.inputs)
        prompts = {name: value for name, value in prompts.items() if not name.startswith("decoder_")}

        def write(path: str, cache: str | None) -> dict[str, torch.Tensor]:
            return generated(self.model(path), copied(prompts), cache)

        runs: list[Run] = []
        for cache in (None, "static"):
            if succeeds(lambda cache=cache: write("eager", cache)):
                what = f"generate with a {cache or 'dynamic'} cache"
                runs.append((what, lambda path, cache=cache: (write(path, cache), None)))
        return runs

    def training(self) -> list[Run]:
        """The gradients of one step, of text models."""

        def train(path: str) -> dict[str, torch.Tensor]:
            return gradients(self.model(path), lambda each: outputs(each, self.start.inputs))

        trains = self.start.what == "words" and succeeds(lambda: train("eager"))
        return [("a step of training", lambda path: (train(path), None))] if trains else []


def runs_alone(model: nn.Module, inputs: dict[str, Any]) -> bool:
    """Whether the model runs on these inputs, with no overt near it."""
    return succeeds(lambda: outputs(model, inputs))


def succeeds(work: Callable[[], Any]) -> bool:
    """Whether a model of someone else's does something without raising."""
    try:
        work()
    except Exception:
        return False
    return True
