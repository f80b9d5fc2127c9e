"""Tensors of earlier passes of a model, such as caches: a pass that drops their oldest token does not reorder its own tokens."""

import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from overt.lens.capture.token_axes.labels import TensorLabels, tensors_in


class EarlierTensors:
    """The tensors that were labelled before a pass and are not its inputs, and the tensors computed from them between passes."""

    def __init__(self, labels: TensorLabels):
        self.labels = labels
        self.known: dict[int, weakref.ref[Tensor]] = {}

    def begin(self, inputs: frozenset[int]) -> None:
        """Begin a pass with these input tensors."""
        labelled = {key: reference for key, (reference, _) in self.labels.known.items() if key not in inputs}
        self.known = {key: reference for key, reference in self.known.items() if reference() is not None} | labelled

    def between_passes(self, args: Sequence[Any], output: Any) -> None:
        """Note a function between two passes, such as beam search's reordering of a cache."""
        if any(self.labels.label(tensor) is not None or tensor in self for tensor in tensors_in(args)):
            self.known |= {id(tensor): weakref.ref(tensor) for tensor in tensors_in([output])}

    def __contains__(self, tensor: Tensor) -> bool:
        reference = self.known.get(id(tensor))
        return reference is not None and reference() is tensor
