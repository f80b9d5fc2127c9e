"""One head of one recorded call: its weights, recomputed exactly from query, key and value, as much of them as is asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.kernels.blocked import block_of
from overt.attention.kernels.call import Call, unrounded
from overt.attention.masks import Mask
from overt.attention.mechanism import formula
from overt.attention.summary import Summary, gathered
from overt.attention.trace import Steps
from overt.errors import InputError
from overt.lens.capture.by_head import of_heads, one_head
from overt.lens.captured import Captured, CapturedCall, fresh, sliceable
from overt.lens.patches import patch_grid
from overt.lens.tokens import Tokens, Words

Rows = int | slice | Sequence[int] | None


class Top(NamedTuple):
    """The largest weights of one query and the keys that get them, both (B, k), largest first."""

    weights: Tensor
    keys: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """One head of one recorded call. Results have one entry a batch element: B is 1 where the model ran without a batch.

    >>> import torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> head = recording[0, 1]
    >>> head.weights(rows=2, keys=slice(0, 4)).shape, head.entropy().shape
    (torch.Size([3, 1, 4]), torch.Size([3, 5]))
    """

    captured: Captured
    head: int
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def layer(self) -> str:
        """The module that attended."""
        return self.captured.layer

    @property
    def queries(self) -> int:
        """Q."""
        return self.captured.queries

    @property
    def keys(self) -> int:
        """K."""
        return self.captured.keys

    @property
    def query_tokens(self) -> Words | None:
        """The strings of the queries, where the recording was given any: one list, or one for each batch element."""
        return self.tokens.of_queries(self.captured)

    @property
    def key_tokens(self) -> Words | None:
        """The strings of the keys."""
        return self.tokens.of_keys(self.captured)

    @property
    def query(self) -> Tensor:
        """The head's queries (B, Q, D), as the model made them."""
        return self._part(self._kept.call.query)

    @property
    def key(self) -> Tensor:
        """The head's keys (B, K, D)."""
        return self._part(self._kept.call.key)

    @property
    def value(self) -> Tensor:
        """The head's values (B, K, E)."""
        return self._part(self._kept.call.value)

    @property
    def output(self) -> Tensor:
        """What the model itself made of them (B, Q, E)."""
        return self._part(self._kept.output)

    @property
    def call(self) -> Call:
        """The checked call that the head is part of: its score, mask, bias and normaliser."""
        return self._kept.call

    def mask(self) -> Any:
        """Which keys each query may attend to, as a mask of one sequence and one head; None where all may."""
        mask = self._call.mask
        if mask is None:
            return None
        device = self.call.query.device
        block = mask.block(torch.arange(self.queries, device=device), torch.arange(self.keys, device=device))
        return block.reshape(-1, *block.shape[-2:])[0]

    @torch.no_grad()
    def weights(self, rows: Rows = None, keys: Rows = None) -> Tensor:
        """Any block of the weights, before dropout, exactly: (B, rows, keys). None is all of them, Q × K numbers."""
        parts = [self.stages(first, stop).weights for first, stop in _runs(places("row", rows, self.queries))]
        weights = torch.cat(parts, dim=-2) if parts else self.stages(0, 0).weights
        return weights if keys is None else weights[..., places("key", keys, self.keys)]

    def top(self, row: int, k: int = 8) -> Top:
        """The k largest weights of one query."""
        found = self.weights(row)[:, 0].topk(min(k, self.keys), dim=-1)  # (B, k)
        return Top(found.values, found.indices)

    def entropy(self) -> Tensor:
        """How spread out each query's weights are, −Σ w log w in nats: (B, Q)."""
        return self._flat(self._summary().entropy, 1)

    def received(self) -> Tensor:
        """The mean weight that each key gets: (B, K)."""
        return self._flat(self._summary().received, 1)

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean weight in each of size × size near-equal cells of the weights: (B, rows, columns)."""
        found = self._summary(size).map_mean
        assert found is not None
        return self._flat(found, 2)

    def patches(self, row: int, grid: tuple[int, int] | None = None, aside: int | None = None) -> Tensor:
        """The weights of one query on the patches of an image, (B, rows, columns), as `overt.lens.overlay_patches` draws them.

        Patches are the last keys. A class token before them is left out by itself where they make up a square; otherwise give the
        grid's (rows, columns), or how many tokens stand before it, `aside`.
        """
        before, (rows, columns) = patch_grid(self.keys, grid, aside)
        return self.weights(row)[:, 0, before:].unflatten(-1, (rows, columns))

    @torch.no_grad()
    def steps(self, row: int) -> Steps:
        """The steps of one query: scores, masked scores and weights (B, 1, K), output (B, 1, E)."""
        (place,) = places("row", int(row), self.queries)
        return self.stages(place, place + 1)

    @torch.no_grad()
    def stages(self, first: int, stop: int) -> Steps:
        """The steps of queries first to stop."""
        with unrounded(self.call.query):
            call = self._call.ready()
            careful = call.mask is not None and not call.finite
            found = formula(block_of(call, call.rows(first, stop), every_key=True, careful=careful))
        return Steps(*(self._flat(tensor, 2) for tensor in found))

    def __repr__(self) -> str:
        return f"<head {self.head} of {self.layer}: {self.queries} queries, {self.keys} keys>"

    @property
    def _kept(self) -> CapturedCall:
        """The call with its query, key and value."""
        assert isinstance(self.captured, CapturedCall)
        return self.captured

    @cached_property
    def _whole(self) -> bool:
        """Whether all heads are computed together, since the score or normaliser has parameters that may differ by head."""
        return self._count > 1 and not sliceable(self.call)

    @property
    def _count(self) -> int:
        return len(self._kept.copies) if self.call.query.ndim >= 4 else 1

    @property
    def _index(self) -> int:
        return self._kept.copies.index(self.head)

    @cached_property
    def _call(self) -> Call:
        """The call of this head alone, where heads come apart; dropout is left out, since weights are those before it."""
        call = replace(self._kept.checked_call(), dropout=0.0)
        index = None if self._whole or call.query.ndim < 4 else self._index
        if index is None:
            return fresh(call)
        mask = None if call.mask is None else _one_mask(call.mask, index, self._count)
        bias = _one_bias(call.bias, index, self._count) if isinstance(call.bias, Bias) else call.bias
        bias = one(bias, index, self._count) if isinstance(bias, Tensor) else bias
        query, key, value = (one(tensor, index, self._count) for tensor in (call.query, call.key, call.value))
        return fresh(replace(call, query=query, key=key, value=value, mask=mask, bias=bias, batch=call.batch[:-1]))

    def _summary(self, map_size: int | tuple[int, int] | None = None) -> Summary:
        return gathered(self._call, top=1, map_size=map_size)

    def _flat(self, tensor: Tensor, last: int) -> Tensor:
        """The head's own part, with all leading dimensions in one, B; the last ones stay."""
        tensor = tensor.select(-last - 1, self._index) if self._whole else tensor
        lead, rest = tensor.shape[: tensor.ndim - last], tensor.shape[tensor.ndim - last :]
        return tensor.reshape(math.prod(lead), *rest)

    def _part(self, tensor: Tensor) -> Tensor:
        tensor = one(tensor, self._index, self._count) if self.call.query.ndim >= 4 else tensor
        return tensor.reshape(math.prod(tensor.shape[:-2]), *tensor.shape[-2:])  # features may be none, so no −1


def one(tensor: Tensor, head: int, total: int) -> Tensor:
    """What one query head reads, with dimension −3 gone: the head itself, the one that its group shares, or the only one."""
    return tensor if tensor.ndim < 3 else tensor.select(-3, head // (total // tensor.shape[-3]) if tensor.shape[-3] > 1 else 0)


def _one_mask(mask: Any, head: int, total: int) -> Any:
    """One head of a mask that is bound to its call; of the mask's own kind where that is known, as the kernels' ranges are."""
    found = of_heads(mask, one_head(head, total))
    return _OneMask(mask, head, total) if found is None else found


def _one_bias(bias: Bias, head: int, total: int) -> Bias:
    found = of_heads(bias, one_head(head, total))
    return _OneBias(bias, head, total) if found is None else found


class _OneMask(Mask):
    """One head of a mask that is bound to its call."""

    def __init__(self, inner: Any, head: int, total: int):
        self.inner, self.head, self.total = inner, head, total

    def block(self, rows, keys):
        return one(self.inner.block(rows, keys), self.head, self.total)


class _OneBias(Bias):
    """One head of a bias that is bound to its call."""

    def __init__(self, inner: Bias, head: int, total: int):
        self.inner, self.head, self.total = inner, head, total

    def block(self, rows, keys):
        return one(self.inner.block(rows, keys), self.head, self.total)


def places(what: str, asked: Rows, length: int) -> list[int]:
    """The rows or keys asked for, counted from 0; refuse those that are not there."""
    if asked is None:
        return list(range(length))
    if isinstance(asked, slice):
        return list(range(length))[asked]
    places = [asked] if isinstance(asked, int) else [int(place) for place in asked]
    wrong = [place for place in places if not -length <= place < length]
    if wrong:
        raise InputError(f"this head has {what}s 0 to {length - 1}", got=f"{what} {wrong[0]}", fix="ask for one of them")
    return [place % length for place in places]


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Neighbouring places joined: first and last-plus-one of each run."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs
