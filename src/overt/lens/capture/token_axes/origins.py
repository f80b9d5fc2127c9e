"""The tokens from which the numbers of a tensor were taken, after a function took tokens by an index.

`Origins` holds them as integers in the shape of the tensor. A function that rearranges a tensor also runs on these integers, so any
sequence of functions is followed exactly: tokens that are sorted, processed and put back are in order again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from overt.lens.capture.token_axes.factors import Axis, Factor
from overt.lens.storage.tensor_cache import unexpanded

NONE, FAR = -1, 2**62  # NONE: no token (numbers below it: several tokens together); FAR: larger than all token numbers


@dataclass(eq=False)
class Move:
    """One function of a `module` that took tokens by an index; `restored` after all of them are in order again.

    A move is `complete` if it took as many tokens as there are, and `whole_entries` if it took whole entries of a batch.
    """

    module: nn.Module
    complete: bool = False
    whole_entries: bool = False
    restored: bool = False


@dataclass(frozen=True, eq=False)
class Origins:
    """The token of each number of a tensor: its position along `home`, the dimension that was indexed.

    `tokens` has as many dimensions as the tensor, with size 1 if the token is the same along a dimension.
    """

    home: Axis
    tokens: Tensor
    moves: tuple[Move, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens along `home`."""
        return math.prod(factor.size for factor in self.home)

    @property
    def varying(self) -> list[int]:
        """The dimensions along which tokens differ."""
        return [dim for dim, size in enumerate(self.tokens.shape) if size > 1]

    def identity(self, several: bool = False) -> int | None:
        """The dimension along which each place has its own token or none; None if there is no such dimension.

        If `several`, all tokens may occur equally often, and a few may be unknown.
        """
        for dim in self.varying if self.length > 1 else []:
            copies, remainder = divmod(self.tokens.shape[dim], self.length)
            if remainder or copies == 0 or (copies > 1 and not several):
                continue
            ordered = counted(copies * self.length, dim, self.tokens.ndim, self.tokens.device) // copies
            none = self.tokens == NONE
            few = copies == 1 or 2 * int(none.sum()) < self.length
            if few and bool(((self.tokens == ordered) | none).all()):
                return dim
        return None

    def restore(self) -> None:
        """Note that all moved tokens are in order again."""
        for move in self.moves:
            move.restored = True

    def axis_at(self, dim: int) -> Axis:
        """The axis of the dimension `dim`, along which each token is in order."""
        copies = self.tokens.shape[dim] // self.length
        return self.home if copies == 1 else (*self.home, Factor(copies))


def token_factors(axis: Axis) -> Axis:
    """The factors of a dimension up to the last one that counts tokens; later factors count numbers of one token.

    >>> [factor.size for factor in token_factors((Factor(2, "0"), Factor(9, "1"), Factor(4)))]
    [2, 9]
    """
    marked = [number for number, factor in enumerate(axis) if factor.mark]
    return axis[: marked[-1] + 1] if marked else axis


def counted_along(axis: Axis, dim: int, ndim: int, device: torch.device) -> Tensor:
    """The token number of each place along a dimension that counts `axis`."""
    size, tokens = (math.prod(factor.size for factor in factors) for factors in (axis, token_factors(axis)))
    return counted(size, dim, ndim, device) // (size // tokens)


def counted(length: int, dim: int, ndim: int, device: torch.device) -> Tensor:
    """The numbers of the tokens along one dimension of a tensor."""
    return torch.arange(length, device=device).view([length if entry == dim else 1 for entry in range(ndim)])


def shrunk(tokens: Tensor, keep: int | None = None) -> Tensor:
    """The tokens with size 1 in every dimension, except `keep`, along which they are equal (their values are compared)."""
    tokens = unexpanded(tokens)
    for dim, size in enumerate(tokens.shape):
        if size > 1 and dim != keep and bool((tokens == tokens.narrow(dim, 0, 1)).all()):
            tokens = tokens.narrow(dim, 0, 1)
    return tokens


def reshaped_tokens(tokens: Tensor, shape: Sequence[int], after: Sequence[int]) -> Tensor | None:
    """The tokens of a tensor of this shape after a reshape; None if its dimensions do not divide.

    >>> reshaped_tokens(torch.arange(6)[:, None], (6, 8), (2, 3, 4, 2)).shape
    torch.Size([2, 3, 1, 1])
    """
    parts = _common_parts(shape, after)
    if parts is None:
        return None
    split, groups = parts
    sizes: list[int] = []
    for dim, pieces in enumerate(split):
        sizes += pieces if tokens.shape[dim] > 1 else [1] * len(pieces)
    tokens, pieces = tokens.reshape(sizes), [piece for item in split for piece in item]
    merged, start, result = list(sizes), 0, []
    for count in groups:
        stop = start + count
        if max(sizes[start:stop], default=1) > 1:
            merged[start:stop] = pieces[start:stop]
        result.append(math.prod(merged[start:stop]))
        start = stop
    mixed = merged != sizes
    tokens = tokens.expand(merged).reshape(result)
    return shrunk(tokens) if mixed else tokens


def _common_parts(shape: Sequence[int], after: Sequence[int]) -> tuple[list[list[int]], list[int]] | None:
    """Both shapes cut into common pieces: the pieces of each first dimension, and how many pieces each second dimension joins."""
    split: list[list[int]] = [[] for _ in shape]
    left = [(dim, size) for dim, size in enumerate(shape) if size != 1]
    if math.prod(shape) != math.prod(after) or 0 in shape:
        return None
    left.reverse()
    groups = []
    for size in after:
        count, missing = 0, size
        while missing > 1:
            dim, piece = left.pop()
            if missing % piece and piece % missing:
                return None
            taken = min(piece, missing)
            split[dim].append(taken)
            if piece > missing:
                left.append((dim, piece // missing))
            missing //= taken
            count += 1
        groups.append(count)
    return split, groups


def one_or_several(low: Tensor, high: Tensor) -> Tensor:
    """The token of each place from its lowest and highest: none, one, or a separate number for several tokens."""
    several = NONE - 1 - torch.arange(low.numel(), device=low.device).view(low.shape)
    return torch.where(low == FAR, NONE, torch.where(low == high, low, several))


def lowest(tokens: Tensor) -> Tensor:
    """The tokens with FAR in place of NONE."""
    return torch.where(tokens == NONE, FAR, tokens)


def highest(tokens: Tensor) -> Tensor:
    """The tokens with a low number in place of NONE."""
    return torch.where(tokens == NONE, -FAR, tokens)


def are_several(tokens: Tensor) -> bool:
    """Whether some places hold several tokens."""
    return bool((tokens < NONE).any())


def replayed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of one of torch's rearranging functions for integers."""
    with torch._C.DisableTorchFunction():
        return func(*args, **kwargs)
