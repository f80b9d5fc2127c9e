"""What gets the attention and the linear token mixers that the catcher sees."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from overt.attention.kernels.call import Call
from overt.lens.capture.mixers.history import HistoryLink
from overt.lens.capture.token_axes.labels import FunctionCall, Mixing
from overt.lens.linear.recurrence import Recurrence

SDPA, MULTI_HEAD, OVERT, WRITTEN, EDGES = (
    "scaled_dot_product_attention",
    "nn.MultiheadAttention",
    "overt.attend",
    "softmax and product",
    "softmax over edges",
)
CAUGHT = (
    "torch.nn.functional.scaled_dot_product_attention, torch.nn.MultiheadAttention, overt.attend, transformers' registry of "
    "attention functions, and softmax followed by a matrix product"
)


class CaughtCall(NamedTuple):
    """A call of attention, with the model's own output (..., Q, E), its source and the notes that a recording has of it.

    `weight` is a parameter of the module that made it, where that is not the innermost one that runs.
    """

    call: Call
    output: Tensor
    source: str
    score_dtype: torch.dtype
    notes: tuple[str, ...] = ()
    weight: Tensor | nn.Module | None = None


class CaughtMixer(NamedTuple):
    """A call of a linear token mixer, with the model's own output (B, H, Q, E), of the mixing only.

    `around` says what is before and after it in the layer; `link` is the call whose state it goes on with. `written` (B, H, Q, E) is the
    tensor with which the model continues, gate included, for sinks that write.
    """

    recurrence: Recurrence
    output: Tensor
    source: str
    around: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    link: HistoryLink | None = None
    written: Tensor | None = None


class CaptureSink(Protocol):
    """What the catcher calls. One that `writes` may write to the output that it gets, with which the model then continues.

    One that `computes` may compute a call in the place of torch's fused function; `keep` then gets its output as the model's.
    """

    writes: bool
    model: nn.Module

    @property
    def computes(self) -> bool:
        """Whether it may."""
        ...

    def compute(self, call: Call) -> Tensor | None:
        """The output of a call that the model makes, (..., Q, E); None to let torch compute it."""

    @property
    def inside(self) -> bool:
        """Whether a module of its model runs."""
        ...

    @property
    def module(self) -> nn.Module | None:
        """The innermost one."""

    def entered(self, module: nn.Module) -> None:
        """A module of any model begins."""

    def left(self, module: nn.Module) -> None:
        """It ended."""

    def keep(self, caught: CaughtCall) -> None:
        """A call was caught."""

    def keep_mixer(self, caught: CaughtMixer) -> None:
        """A call of a linear token mixer was caught."""

    def reads_mixer(self, kind: str, output: Tensor) -> None:
        """The layer is about to read a mixer's output (B, H, Q, E), a view of its own, before its function has ended."""

    def overwrite_mixer(self, kind: str, output: Tensor, recurrence: Recurrence | None) -> None:
        """A sink that `writes` may write to the output of a mixer whose layer reads it before `keep_mixer` is called.

        `recurrence` has all positions up to these; None if it cannot be recorded.
        """

    def miss(self, reason: str, recordable: bool = False) -> None:
        """Attention happened that could not be caught; a recording without edits has it, and counts it, if it is `recordable`."""

    def looks_up(self, ids: Tensor, table: Tensor) -> None:
        """Ids were looked up in a table of embeddings."""

    def cuts(self, step: FunctionCall) -> None:
        """A convolution ran, which may cut a picture or sound into positions."""

    def mixes(self, mixing: Mixing, module: nn.Module | None = None) -> None:
        """A function mixed tokens otherwise than by attention: one of `module`, or of the innermost one that runs."""

    def explained(self, module: nn.Module, mixing: Mixing) -> None:
        """A function that mixed tokens is named by the call of a linear token mixer next to it."""

    def failed(self, error: Exception, weight: Tensor | nn.Module | None = None) -> None:
        """Overt's own work next to the model failed."""
