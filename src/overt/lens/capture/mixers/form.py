"""How one linear token mixer is written in models, and one call of it."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from overt.lens.linear.recurrence import Recurrence


@dataclass(eq=False)
class MixerCall:
    """One call of a mixer's function: its arguments by name, and the innermost module that runs.

    `alone` is what `read` said of it. `inner` has, for a method, the children of its module that ran inside it: by name their arguments
    by position and their outputs.
    """

    name: str
    arguments: dict[str, Any]
    module: nn.Module
    alone: Recurrence | str = ""
    inner: dict[str, list[tuple[tuple, Any]]] = field(default_factory=dict)


class Form:
    """One way to write a mixer: the names of its functions, and how they are read."""

    functions: frozenset[str] = frozenset()

    def read(self, call: MixerCall) -> Recurrence | str:
        """The recurrence of this call's positions alone, `start` the state that it was passed; or why it cannot be recorded."""
        raise NotImplementedError

    def result(self, call: MixerCall, returned: Any) -> tuple[Tensor, Tensor | None]:
        """The output (B, H, Q, E) of the mixing alone, a view of the model's, and the state (B, H, D, E) that the function leaves."""
        raise NotImplementedError

    def around(self, module: nn.Module) -> tuple[str, ...]:
        """What stands after the mixing in its layer, in sentences."""
        return gated_norms(module)


def gated_norms(module: nn.Module) -> tuple[str, ...]:
    """A sentence for a norm inside the layer that multiplies with a gate, as its class is named."""
    gated = [
        type(child).__name__
        for child in module.children()
        if "norm" in (name := type(child).__name__.lower()) and "gate" in name
    ]
    return tuple(f"{name}, a norm of each head multiplied with a gate, after it" for name in dict.fromkeys(gated))
