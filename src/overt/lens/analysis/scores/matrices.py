"""The matrices of every head, read from a model's parameters: of its query, key and value, and of its output."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from overt.lens.statistics.output_norms import output_matrix, weight_matrix

KINDS = ("query", "key", "value")
_TRIPLES = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_lin", "k_lin", "v_lin"),
    ("q", "k", "v"),
    ("wq", "wk", "wv"),
    ("to_q", "to_k", "to_v"),
)
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")


class LayerMatrices(NamedTuple):
    """A layer's matrices by head, in float64: query, key and value (H, D, width), output (H, width, D).

    `reads` has three sets of numbers of earlier layers, which its query, key and value can read; () if they are not known.
    """

    layer: str
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    reads: tuple[frozenset[int], ...] = ()


def named_matrices(model: nn.Module) -> list[LayerMatrices]:
    """The matrices of the attention layers whose parameters have names that libraries use, in the model's order."""
    return [layer for name, module in model.named_modules() if (layer := _module_matrices(model, name, module)) is not None]


@torch.no_grad()
def _module_matrices(model: nn.Module, name: str, module: nn.Module) -> LayerMatrices | None:
    three = next(iter(_read(module)), None)
    heads = _heads(model, module)
    if three is None or heads is None or three[0].shape[0] % heads or three[0].is_meta:
        return None
    query, key, value = (weight.detach().double() for weight in three)
    width = query.shape[0] // heads
    output = output_matrix(model, name or type(model).__name__, heads, value.shape[0] * width // max(key.shape[0], 1))
    if isinstance(output, str) or key.shape[0] % width or value.shape[0] != key.shape[0]:
        return None
    groups = key.shape[0] // width
    key, value = (weight.unflatten(0, (groups, width)).repeat_interleave(heads // groups, 0) for weight in (key, value))
    return LayerMatrices(name, query.unflatten(0, (heads, width)), key, value, output.double().transpose(0, 1))


def _read(module: nn.Module) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for names in _TRIPLES:
        query, key, value = (weight_matrix(getattr(module, name, None)) for name in names)
        if query is not None and key is not None and value is not None and query.shape[1] == key.shape[1] == value.shape[1]:
            yield query, key, value
    joined = getattr(module, "in_proj_weight", None)  # torch's: all queries, then all keys, then all values
    if isinstance(joined, Tensor) and joined.shape[0] == 3 * joined.shape[1]:
        query, key, value = joined.chunk(3)
        yield query, key, value


def _heads(model: nn.Module, module: nn.Module) -> int | None:
    holders = (module, getattr(module, "config", None), getattr(model, "config", None))
    counts = (getattr(holder, "__dict__", {}).get(name) for holder in holders for name in _HEADS)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)
