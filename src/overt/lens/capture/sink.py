"""The catcher's messages to its sinks: calls of attention and of linear token mixers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from overt.attention.kernels.call import Call
from overt.lens.capture.mixers.history import HistoryLink
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
    """A call of attention with the model's own output (..., Q, E), its source and its notes.

    `weight` is a parameter of the module that made the call, if this is not the innermost running module.
    """

    call: Call
    output: Tensor
    source: str
    score_dtype: torch.dtype
    notes: tuple[str, ...] = ()
    weight: Tensor | nn.Module | None = None


class CaughtMixer(NamedTuple):
    """A call of a linear token mixer with the model's own output (B, H, Q, E) of only the mixing.

    `around` describes the operations before and after it in the layer; `link` is the call whose state it continues. `written`
    (B, H, Q, E) is the tensor with which the model continues, including the gate, for sinks that write.
    """

    recurrence: Recurrence
    output: Tensor
    source: str
    around: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    link: HistoryLink | None = None
    written: Tensor | None = None
