"""The tokens that arrive in each of the places that an index names."""

import torch
from torch import Tensor

from overt.lens.capture.token_axes.carried import same_tokens
from overt.lens.capture.token_axes.origins import FAR, Origins, highest, lowest, one_or_several
from overt.lens.capture.token_axes.put import Slots
from overt.lens.storage.tensor_cache import unexpanded


def aligned(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of tokens can be broadcast against each other, counted from the last dimension."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one.shape), reversed(other.shape), strict=False))


def matching(slots: Slots, sources: list[Origins]) -> list[Origins]:
    """The tokens, among those of several dimensions, that belong to these slots: equal ones, as many, or else the first."""
    size = slots.target.shape[slots.dim]
    same = [
        source
        for source in sources
        if source.length == size and aligned(source.tokens, slots.slots) and same_tokens(source.tokens, slots.slots)
    ]
    return (same or [source for source in sources if source.length == size] or sources)[:1]


def arrived_tokens(slots: Slots, tokens: Tensor, output: Tensor) -> Tensor | None:
    """The token in each place of the output: none, one, or several. None if places depend on more dimensions than the tokens have."""
    index, tokens = torch.broadcast_tensors(*_padded(slots.slots, tokens))
    if slots.apart:
        sizes, dim = [*index.shape], slots.dim
        sizes[dim] = output.shape[dim]
    else:
        varying = [item for item, size in enumerate(slots.slots.shape) if size > 1]
        if {item for item, size in enumerate(tokens.shape) if size > 1} - set(varying):
            return None
        index, tokens, sizes, dim = index.flatten(), tokens.flatten(), [output.shape[slots.dim]], 0
    low = index.new_full(sizes, FAR).scatter_reduce(dim, index, lowest(tokens), "amin")
    high = index.new_full(sizes, -FAR).scatter_reduce(dim, index, highest(tokens), "amax")
    arrived = one_or_several(low, high)
    return unexpanded(arrived) if slots.apart else arrived.view([-1 if dim == slots.dim else 1 for dim in range(output.ndim)])


def sent_twice(slots: Slots, tokens: Tensor) -> bool:
    """Whether a token is put into several places, judged by the first batch entry."""
    index, tokens = torch.broadcast_tensors(*_padded(slots.slots, tokens))
    if slots.apart:
        for dim in range(index.ndim):
            if dim != slots.dim:
                index, tokens = index.narrow(dim, 0, 1), tokens.narrow(dim, 0, 1)
    pairs = torch.stack([index.flatten(), tokens.flatten()], -1)[tokens.flatten() >= 0].unique(dim=0)
    return len(pairs[:, 1].unique()) < len(pairs)


def _padded(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    ndim = max(one.ndim, other.ndim)
    first, second = (part.reshape(*(1,) * (ndim - part.ndim), *part.shape) for part in (one, other))
    return first, second
