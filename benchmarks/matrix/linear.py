"""A judge of linear token mixers that is not overt: the model's own mixer, fed with one value at a time.

What such a mixer gives is linear in its values while query, key, decay and the like stay as they are. So its own function, called once
more with ones at one position and zeros at all others, gives a column of its weights. Nothing of the recurrence is written here: only
which argument holds the values, and what the dimensions are. A mixer without a function of its own is run as a whole, and the part of
it that holds the values is overwritten between two modules inside it.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.judge import near
from benchmarks.matrix.running import running

TOLERANCE = 1e-5
# What a function adds that no value of its call gives, or multiplies afterwards: left out when it is called again.
LEFT_OUT = ("initial_state", "initial_states", "state", "z", "c_initial", "n_initial", "m_initial", "recurrent_states")


@dataclass(frozen=True)
class Mixer:
    """The argument with the values, and its dimensions, which are the output's too: b batch, h heads, t positions, e features."""

    value: str
    dims: str


DELTA = Mixer("value", "bthe")
# Functions by name, those of one step too: their weights are those of a position on itself.
FUNCTIONS = {
    **dict.fromkeys(("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"), DELTA),
    **dict.fromkeys(("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"), DELTA),
    "mamba2_chunk_scan": Mixer("hidden_states", "bthe"),
    "mamba_selective_scan": Mixer("hidden_states", "bht"),
    "rwkv_linear_attention": Mixer("value", "bth"),
    # flash-linear-attention's
    **{
        f"{way}_{name}": Mixer("v", "bthe")
        for way in ("chunk", "fused_recurrent", "fused_mul_recurrent", "parallel")
        for name in ("gla", "retention", "rwkv6", "rwkv7", "linear_attn", "delta_rule", "gated_delta_rule", "kda")
    },
    **dict.fromkeys(("chunk_hgrn", "fused_recurrent_hgrn"), Mixer("x", "bth")),
}
# Modules whose forward is such a function, and methods.
METHODS = {
    ("xLSTMBackend", "forward"): Mixer("value", "bhte"),
    ("RecurrentGemmaRglru", "_rnn_scan"): Mixer("hidden_states", "bth"),
}


@dataclass(frozen=True)
class Inline:
    """Mixers written into a layer's forward: the child whose output holds the values of each head last, and the child they go into."""

    values: str
    mixed: str


INLINE = {"MiniMaxLightningAttention": Inline("act_fn", "norm")}


@dataclass(frozen=True, eq=False)
class LinearEvent:
    """One linear mixer as it ran: where, and its weights (B, H, Q, K)."""

    module: str
    weights: Tensor


@dataclass
class LinearJudge:
    """Sees every linear mixer inside a model that runs in the block: `with LinearJudge(model).watching() as judge: model(x)`."""

    model: nn.Module
    events: list[LinearEvent] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator["LinearJudge"]:
        """Watch while the block runs."""
        with ExitStack() as stack:
            self.inside = stack.enter_context(running(self.model))
            for owner, name, mixer in self._functions():
                stack.enter_context(_replaced(owner, name, self._watched(getattr(owner, name), mixer)))
            for module in self.model.modules():
                if type(module).__name__ in INLINE:
                    inline = INLINE[type(module).__name__]
                    stack.enter_context(_replaced(module, "forward", self._rerun(module, inline)))
            yield self

    def _functions(self) -> list[tuple[Any, str, Mixer]]:
        kinds = {kind for module in self.model.modules() for kind in type(module).__mro__}
        codes = {id(each): each for kind in kinds if (each := sys.modules.get(kind.__module__)) is not None}
        positions: list[tuple[Any, str, Mixer]] = [
            (code, name, mixer) for code in codes.values() for name, mixer in FUNCTIONS.items() if hasattr(code, name)
        ]
        return positions + [
            (kind, name, mixer) for kind in kinds for (owner, name), mixer in METHODS.items() if kind.__name__ == owner
        ]

    def _watched(self, function: Callable, mixer: Mixer) -> Callable:
        signature = inspect.signature(function)

        def watched(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            weights = _weights(function, bound, mixer)
            self.events.append(LinearEvent(self.inside[-1], weights))
            return function(*args, **kwargs)

        return watched

    def _rerun(self, module: nn.Module, inline: Inline) -> Callable:
        forward = module.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            alone = {name: None if "past" in name or "cache" in name else value for name, value in kwargs.items()}
            self.events.append(LinearEvent(self.inside[-1], _weights_inside(module, inline, forward, args, alone)))
            return output

        return watched


def _weights(function: Callable, bound: inspect.BoundArguments, mixer: Mixer) -> Tensor:
    """The weights (B, H, Q, K), column by column."""
    arguments = dict(bound.arguments)
    free = next((name for name, each in bound.signature.parameters.items() if each.kind is each.VAR_KEYWORD), "")
    arguments |= arguments.pop(free, {})
    arguments |= {name: None for name in LEFT_OUT if name in arguments}
    value = arguments[mixer.value]
    columns = []
    for position in range(value.shape[mixer.dims.index("t")]):
        unit = torch.zeros_like(value)
        unit.select(mixer.dims.index("t"), position).fill_(1)
        output = function(**arguments | {mixer.value: unit})
        columns.append(_by_head(output[0] if isinstance(output, tuple | list) else output, mixer.dims))
    return torch.stack(columns, dim=-1)


def _by_head(output: Tensor, dims: str) -> Tensor:
    """An output as (B, H, T), the mean of its features, which are all the same."""
    output = output.double().permute(*(dims.index(each) for each in "bhte" if each in dims))
    return output.mean(-1) if "e" in dims else output


def _weights_inside(module: nn.Module, inline: Inline, forward: Callable, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    """The weights of a mixer that is written into a layer: its values overwritten, what goes into the next module read."""
    heads, width, columns = module.num_attention_heads, module.head_dim, []
    hidden = args[0] if args else kwargs["hidden_states"]
    for position in range(hidden.shape[1]):
        mixed: list[Tensor] = []

        def overwrite(_: nn.Module, __: tuple, output: Tensor, position: int = position) -> Tensor:
            parts = output.clone().unflatten(-1, (heads, -1))
            parts[..., -width:] = 0
            parts[:, position, :, -width:] = 1
            return parts.flatten(-2)

        def read(_: nn.Module, inputs: tuple, mixed: list[Tensor] = mixed) -> None:
            mixed.append(inputs[0])

        handles = [
            module.get_submodule(inline.values).register_forward_hook(overwrite),
            module.get_submodule(inline.mixed).register_forward_pre_hook(read),
        ]
        try:
            forward(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        columns.append(_by_head(mixed[0].unflatten(-1, (heads, width)), "bthe"))
    return torch.stack(columns, dim=-1)


@contextmanager
def _replaced(owner: Any, name: str, function: Callable) -> Iterator[None]:
    original = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def judged(events: list[LinearEvent], recorded: list[tuple[str, Tensor]]) -> tuple[list[LinearEvent], str]:
    """The mixers that ran and were not recorded, and what is wrong with the weights (B, H, Q, K) of one that was, by its layer."""
    left = list(events)
    for layer, weights in recorded:
        here = [each for each in left if near(layer, each.module)]
        event = next((each for each in here if apart(weights, each.weights) <= TOLERANCE), None)
        if event is None:
            nearest = min((apart(weights, each.weights) for each in here), default=None)
            what = "of a mixer that never ran" if nearest is None else f"off by {nearest:.1e} of the largest"
            return left, f"the weights recorded for {layer} are {what}"
        left.remove(event)
    return left, ""


def apart(recorded: Tensor, weights: Tensor) -> float:
    """The largest difference of a weight, relative to the largest weight; inf for another shape."""
    if recorded.shape != weights.shape:
        return float("inf")
    return float((recorded.double() - weights).abs().max() / weights.abs().max().clamp(min=1e-30))
