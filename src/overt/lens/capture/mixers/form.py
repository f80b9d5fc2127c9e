"""How one linear token mixer is written in models, and one call of it."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from overt.lens.capture.token_axes.labels import Mixing
from overt.lens.linear.recurrence import Recurrence

ONE_VALUE = "each channel is a head of one value, because {} has a decay for each channel"


@dataclass(eq=False)
class MixerCall:
    """One call of a mixer's function: its arguments by name, and the innermost module that runs.

    `alone` is what `read` returned for it. `inner` has, for a method, what the children of its module were called with by position and
    what they returned, by their names. `before` is what `prepare` returned. `starts` are the positions at which a text begins behind
    another one in a row, and `notes` says what a reader of the weights has to know.
    """

    name: str
    arguments: dict[str, Any]
    module: nn.Module
    alone: Recurrence | str = ""
    inner: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict)
    before: Any = None
    starts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where the call was caught: the function, or the method of its class."""
        method = self.arguments.get("self")
        return self.name if method is None else f"{type(method).__name__}.{self.name}"


class Form:
    """One way to write a mixer: the names of its functions, or which methods of modules are one, and how they are read.

    A method is a mixer if it has all of these `parameters`, all of these `names` in its code, and the name `method`, if there is one. One
    whose output is read before it ends, by the module that it calls by the name `read_by`, has the `kind` of its recurrence. `after` says
    what is after the mixing in its layer, in sentences, where that is the same in every layer.
    """

    functions: frozenset[str] = frozenset()
    method = ""
    parameters: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    reads_after = False
    read_by = ""
    kind = ""
    after: tuple[str, ...] = ()

    def is_method(self, name: str, parameters: Collection[str], names: Collection[str]) -> bool:
        """Whether a method of a module is this mixer, by its name, its parameters and the names in its code."""
        wanted = (self.parameters | self.names) and self.method in ("", name)
        return bool(wanted) and self.parameters <= set(parameters) and self.names <= set(names)

    def neighbours(self, call: MixerCall) -> Mixing | None:
        """How a function mixes neighbours before a mixer, if it is one that does, and no mixer itself."""

    def prepare(self, call: MixerCall) -> Any:
        """For a form that `reads_after` its function: what has to be read before it, with copies of what it may write to."""

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of this call's positions alone, `start` the state that it was passed; or why it cannot be recorded."""
        raise NotImplementedError

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """The output (B, H, Q, E) of the mixing alone, a view of the model's, and the state (B, H, D, E) that the function leaves."""
        raise NotImplementedError

    def written(self, call: MixerCall, returned: Any) -> Tensor:
        """What the model continues with (B, H, Q, E), a view of its own: the output, multiplied with a gate that the function has."""
        return self.result(call, returned)[0]

    def by_head(self, module: nn.Module, output: Tensor) -> Tensor:
        """The output (B, H, Q, E) as the module `read_by` is called with it, for a form that `reads_after`."""
        raise NotImplementedError

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """What is after the mixing in its layer, in sentences."""
        return self.after or gated_norms(module)


def channelwise(output: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Output (B, N, C) and state (B, C) of channels, each a head of one value."""
    return output.transpose(1, 2)[..., None], None if state is None else state[..., None, None]


def gated_norms(module: nn.Module) -> tuple[str, ...]:
    """A sentence for a norm inside the layer that multiplies with a gate, as its class is named."""
    names = [type(child).__name__ for child in module.children()]
    gated = [name for name in names if "norm" in name.lower() and "gate" in name.lower()]
    return tuple(f"{name}, a norm of each head multiplied with a gate, after it" for name in dict.fromkeys(gated))
