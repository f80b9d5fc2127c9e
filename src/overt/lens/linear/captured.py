"""One recorded call of a linear token mixer: its recurrence and the model's own output."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from overt.lens.captured import Captured
from overt.lens.linear.recurrence import Recurrence


@dataclass(frozen=True, eq=False, repr=False)
class CapturedMixer(Captured):
    """A call with its recurrence and the model's own `output` (B, H, Q, E) of the mixing, before gate and norm.

    `copies` are the heads in the recurrence. `around` describes the operations before and after the mixing in the layer, in
    sentences, for example "a convolution over 4 positions mixes neighbours before it".
    """

    recurrence: Recurrence
    output: Tensor
    copies: tuple[int, ...]
    around: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the recurrence and the output."""
        return mixer_size(self.recurrence, self.output)

    def of_heads(self, heads: tuple[int, ...]) -> "CapturedMixer":
        """The call with copies of only these recorded heads."""
        indices = [self.copies.index(head) for head in heads]
        output = self.output[:, indices]
        return replace(self, heads=heads, copies=heads, recurrence=self.recurrence.of_heads(indices), output=output)


def mixer_size(recurrence: Recurrence, output: Tensor, heads: int = 1, total: int = 1) -> int:
    """The bytes of a copy of `heads` of `total` heads."""
    sizes = [
        tensor.numel() * tensor.element_size() * (heads if recurrence.heads == tensor.shape[1] else total) // total
        for tensor in (*recurrence.tensors.values(), output)
    ]
    return sum(sizes)


def copied_mixer(recurrence: Recurrence, output: Tensor, heads: tuple[int, ...], total: int) -> tuple[Recurrence, Tensor]:
    """Copies of recurrence and output for only these heads, because a model may write to its own tensors after the call."""
    if len(heads) < total:
        return recurrence.of_heads(heads), output.detach().index_select(1, torch.tensor(heads, device=output.device))
    copies = {name: _copy(tensor) for name, tensor in recurrence.tensors.items()}
    return replace(recurrence, **copies), _copy(output)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def coarsest(recurrence: Recurrence) -> torch.dtype:
    """The coarsest dtype of the recurrence's tensors, assumed to be the dtype of the model's sums."""
    return max((tensor.dtype for tensor in recurrence.tensors.values()), key=lambda dtype: torch.finfo(dtype).eps)
