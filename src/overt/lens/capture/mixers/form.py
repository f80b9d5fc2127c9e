"""One form of a linear token mixer in models' code, and one call of it."""

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

    `alone` is the result of `read`, `before` the result of `prepare`. `inner` has, for a method, the positional arguments and results
    of the module's children by name. `starts` are the positions at which a text begins after another one in a row, and `notes` are
    for a reader of the weights.
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
        """The place where the call was caught: the function, or the method with its class."""
        method = self.arguments.get("self")
        return self.name if method is None else f"{type(method).__name__}.{self.name}"


class Form:
    """One way to write a mixer: the names of its functions, or the signs of its method, and how to read them.

    A method is a mixer if it has all of these `parameters`, all of these `names` in its code, and the name `method`, if set. If the
    module `read_by`, which the method calls, reads the output before the method ends, the form has the `kind` of its recurrence. `after`
    describes the operations after the mixing, in sentences, if they are the same in every layer.
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
        """The mixing of a function that only mixes neighbours before a mixer; None for a mixer."""

    def prepare(self, call: MixerCall) -> Any:
        """For a form that `reads_after` its function: values read before it, copied if the function may write to them."""

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of only this call's positions, with the state argument as `start`; or the reason why it cannot be recorded."""
        raise NotImplementedError

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """The output (B, H, Q, E) of only the mixing, a view of the model's, and the function's final state (B, H, D, E)."""
        raise NotImplementedError

    def written(self, call: MixerCall, returned: Any) -> Tensor:
        """The tensor with which the model continues (B, H, Q, E), a view: the output times the function's gate, if any."""
        return self.result(call, returned)[0]

    def by_head(self, module: nn.Module, output: Tensor) -> Tensor:
        """The output (B, H, Q, E) from the argument of the module `read_by`, for a form that `reads_after`."""
        raise NotImplementedError

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """The operations after the mixing in its layer, in sentences."""
        return self.after or gated_norms(module)


def channelwise(output: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Output (B, N, C) and state (B, C) of channels, each a head of one value."""
    return output.transpose(1, 2)[..., None], None if state is None else state[..., None, None]


def gated_norms(module: nn.Module) -> tuple[str, ...]:
    """A sentence for a norm inside the layer whose class name shows a gate."""
    names = [type(child).__name__ for child in module.children()]
    gated = [name for name in names if "norm" in name.lower() and "gate" in name.lower()]
    return tuple(f"{name}, a norm of each head multiplied with a gate, after it" for name in dict.fromkeys(gated))
