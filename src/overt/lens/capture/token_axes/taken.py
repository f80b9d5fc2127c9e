"""Functions that take tokens by an index: the earlier place of each token of the result.

Each function runs on the token numbers, in as few dimensions as it reads. Sorting takes tokens by the indices that it returns.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from overt.lens.capture.token_axes.factors import dims_read, index_entries, named_dims
from overt.lens.capture.token_axes.labels import FunctionCall
from overt.lens.capture.token_axes.origins import NONE, replayed, shrunk
from overt.lens.storage.tensor_cache import unexpanded

Taking = Callable[[Tensor, torch.Size], Tensor]


def by_entries(tokens: Tensor, shape: torch.Size, index: Any) -> Tensor:
    """The tokens of `tensor[index]` for a tensor of this shape."""
    entries = list(index) if isinstance(index, tuple) else [index]
    entries = [entry if _plain(entry) else torch.as_tensor(entry, device=tokens.device) for entry in entries]
    entries = index_entries(tuple(entries), len(shape))
    dim, sizes = 0, list(tokens.shape)
    for entry in entries:
        for item in range(dim, dim + dims_read(entry)):
            sizes[item] = shape[item] if entry != slice(None) else sizes[item]
        dim += dims_read(entry)
    taken = replayed(Tensor.__getitem__, (tokens.expand(sizes), tuple(entries)), {})
    return shrunk(taken) if any(isinstance(entry, Tensor) for entry in entries) else unexpanded(taken)


def by_indices(tokens: Tensor, dim: int, index: Tensor) -> Tensor:
    """The tokens that `gather` takes along a dimension."""
    index, sizes = shrunk(index, keep=dim), list(tokens.shape)  # the index may be repeated for each feature
    for entry in range(tokens.ndim):
        if entry != dim and sizes[entry] > 1:
            tokens = tokens.narrow(entry, 0, min(sizes[entry], index.shape[entry]) if index.shape[entry] > 1 else sizes[entry])
    if tokens.shape[dim] == 1:
        return tokens
    common = [max(a, b) for a, b in zip(tokens.shape, index.shape, strict=True)]
    lengths = [(size if part != dim else tokens.shape[dim]) for part, size in enumerate(common)]
    wanted = [(size if part != dim else index.shape[dim]) for part, size in enumerate(common)]
    return tokens.expand(lengths).gather(dim, index.expand(wanted))


def _plain(entry: Any) -> bool:
    return entry is None or entry is Ellipsis or type(entry) is int or isinstance(entry, slice | Tensor)


def _entries(step: FunctionCall, tensor: Tensor) -> Taking:
    return lambda tokens, shape: by_entries(tokens, shape, step.args[1])


def _index_select(step: FunctionCall, tensor: Tensor) -> Taking:
    dim, index = step.argument(1, "dim") % tensor.ndim, step.argument(2, "index")
    return lambda tokens, _: tokens if tokens.shape[dim] == 1 else tokens.index_select(dim, index.reshape(-1))


def _lookup(step: FunctionCall, tensor: Tensor) -> Taking:
    """An embedding whose table holds the tokens."""
    return lambda tokens, _: tokens[:, 0][step.argument(0, "input")][..., None]


def _gather(step: FunctionCall, tensor: Tensor) -> Taking | None:
    at = (2, "index", 1) if step.name == "gather" else (1, "indices", 2)
    index, dim = step.argument(at[0], at[1]), step.argument(at[2], "dim")
    if not isinstance(dim, int) or not isinstance(index, Tensor):
        return None
    return lambda tokens, _: by_indices(tokens, dim % tensor.ndim, index)


def _sorted(step: FunctionCall, tensor: Tensor) -> Taking | None:
    if not isinstance(step.output, tuple) or len(step.output) != 2 or not tensor.ndim:
        return None
    dim = step.argument({"sort": 1, "topk": 2}[step.name], "dim", -1)
    return lambda tokens, _: by_indices(tokens, (dim if isinstance(dim, int) else -1) % tensor.ndim, step.output[1])


def _along(number: int, name: str) -> Callable[[FunctionCall, Tensor], Taking | None]:
    """A function that runs unchanged on the tokens, in the dimensions that it names."""

    def make(step: FunctionCall, tensor: Tensor) -> Taking | None:
        default = {"fliplr": 1, "flipud": 0}.get(step.name)
        dims = named_dims(step.argument(number, name, default), tensor.ndim)
        return lambda tokens, shape: _replay(step, tokens, shape, dims)

    return make


def _repeated(step: FunctionCall, tensor: Tensor) -> Taking | None:
    dim = step.argument(2, "dim")
    return None if dim is None else lambda tokens, shape: _replay(step, tokens, shape, {dim % tensor.ndim})


def _unfold(step: FunctionCall, tensor: Tensor) -> Taking | None:
    if step.func is functional.unfold:
        return lambda tokens, shape: _window_tokens(step, tokens, shape)
    dim = step.argument(1, "dimension") % tensor.ndim
    return lambda tokens, shape: _replay(step, tokens, shape, {dim})


def _window_tokens(step: FunctionCall, tokens: Tensor, shape: torch.Size) -> Tensor:
    """The tokens (1, C · windows, positions) of the patches of pictures (B, C, H, W)."""
    picture = tokens.reshape(-1, *tokens.shape[-2:])[:1].expand(1, *shape[-2:])[None] + 1
    windows = replayed(step.func, (picture.double(), *step.args[1:]), step.kwargs).long() - 1  # padding becomes −1: no token
    windows = windows.repeat(1, shape[-3], 1)
    return windows[0] if len(shape) == 3 else windows


def _pad(step: FunctionCall, tensor: Tensor) -> Taking | None:
    pads, mode = list(step.argument(1, "pad")), step.argument(2, "mode", "constant")
    dims = {tensor.ndim - 1 - number // 2 for number, size in enumerate(pads) if size}
    if mode != "constant":
        return None

    def padded(tokens: Tensor, shape: torch.Size) -> Tensor:
        sizes = [shape[dim] if dim in dims else size for dim, size in enumerate(tokens.shape)]
        return shrunk(replayed(functional.pad, (tokens.expand(sizes), pads), {"value": NONE})) if dims else tokens

    return padded


def _replay(step: FunctionCall, tokens: Tensor, shape: torch.Size, dims: set[int]) -> Tensor:
    sizes = [shape[dim] if dim in dims else size for dim, size in enumerate(tokens.shape)]
    return unexpanded(replayed(step.func, (tokens.expand(sizes), *step.args[1:]), step.kwargs))


# TAKING: how each function takes numbers from a tensor; None if it does not.
TAKING: dict[str, Callable[[FunctionCall, Tensor], Taking | None]] = {
    "__getitem__": _entries,
    "index_select": _index_select,
    "embedding": _lookup,
    "gather": _gather,
    "take_along_dim": _gather,
    "sort": _sorted,
    "topk": _sorted,
    "flip": _along(1, "dims"),
    "fliplr": _along(1, "dims"),
    "flipud": _along(1, "dims"),
    "roll": _along(2, "dims"),
    "repeat_interleave": _repeated,
    "unfold": _unfold,
    "pad": _pad,
}
