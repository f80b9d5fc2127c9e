"""The page's input for a linear mixer's weights: the vectors of its recurrence, and numbers for each query."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.head import MixerHead

AROUND = "the norm of a linear mixer's values after its output matrix is not computed: gates and norms are between them"


def mixer_terms(head: MixerHead, batch: int, vectors: Callable[[Tensor], Any], put: Callable[[Tensor], Any]) -> dict[str, Any]:
    """The terms of one sequence under the names that exact.js reads; `vectors` stores vectors (N, D) and `put` a list of numbers."""
    ready = head.recurrence.ready()
    decay = None if ready.log_decay is None else ready.log_decay.exp()
    optional = {"decay": decay, "erase": ready.erase, "probe": ready.probe}
    by_query = {"diagonal": ready.diagonal, "divisors": ready.normalizer}
    mixer = {name: None if tensor is None else vectors(tensor[batch, 0]) for name, tensor in optional.items()}
    mixer |= {name: None if tensor is None else put(tensor[batch, 0].float()) for name, tensor in by_query.items()}
    reads_itself = int(ready.reads == "after" or ready.diagonal is not None)
    return {
        "query": vectors(ready.query[batch, 0]),
        "key": vectors(ready.key[batch, 0]),
        "value": vectors(ready.value[batch, 0]),
        "valueWidth": ready.value.shape[-1],
        "mask": {"kind": "causal", "offset": head.keys - head.queries + reads_itself - 1},
        "mixer": mixer | {"before": ready.reads == "before"},
        "normalizer": "none",
        "outWhy": AROUND,
    }


def mixer_bytes(captured: CapturedMixer, heads: int) -> int:
    """The bytes of the vectors of `heads` heads on the page, as float32."""
    recurrence = captured.recurrence
    tensors = {name: tensor for name, tensor in recurrence.tensors.items() if name != "start"}
    return sum(4 * tensor.numel() * min(heads, tensor.shape[1]) // tensor.shape[1] for tensor in tensors.values())
