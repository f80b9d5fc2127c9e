"""The key-value cache: at inference tokens arrive one at a time, and the keys and values of earlier tokens are stored.

Under a causal mask no later token changes a token's keys and values, so they are computed once: a new token's query attends
to the stored keys and to its own. A step then computes one row of the weights.

Each row of the batch is stored from slot 0 on, so rows of different lengths differ in one number, their offset:

    row 0:  the cat sat on   | new
    row 1:  hello  | new

A mask or bias with that offset aligns both, and `Lengths` excludes the slots after a row's end.
If rows ended at one slot, chunks of different lengths would move what is stored.
"""

import copy
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.attention import check
from overt.attention.kernels.heap import in_large_pages
from overt.attention.masks import Lengths
from overt.attention.mechanism import attend
from overt.attention.scores import Dot
from overt.attention.typing import WindowLike
from overt.errors import InputError, KindError
from overt.layers.parts.chunks import check_like, check_pair, check_step
from overt.layers.parts.padding import checked_lengths, zero_padding
from overt.layers.parts.rounded import NEWEST, RoundedTokens, change_of_outputs, check_no_gradients, check_store


class CacheSlots(NamedTuple):
    """The S stored slots to which the queries of a chunk may attend.

    `key` (B, Hk, S, D) and `value` (B, Hk, S, E); `offset`, the slot of the chunk's first token, for masks and biases: an
    int if it is equal in all rows, otherwise (B,); `lengths` (B,), the number of filled slots of each row, None if all S are
    filled in every row; `first`, the absolute position of slot 0, an int or (B,).
    """

    key: Tensor
    value: Tensor
    offset: int | Tensor
    lengths: Tensor | None
    first: int | Tensor


class KVCache:
    """The keys and values of one attention layer, extended by a chunk of tokens at a time.

    The cache belongs to the layer that writes its first tokens, until these are removed: another layer is refused.

    With `window` a query attends to that many tokens, including its own, and older tokens are dropped: the capacity never
    exceeds 2 · (window + spare) tokens and the longest chunk. `spare` is the number of tokens that `rewind` can always remove.

    With `store="int8"` (a scale for each token and head) or `"bfloat16"` the first 4 tokens, the newest chunk and the last 64 tokens keep
    their dtype, and all others are rounded once; attention computes exactly with the stored numbers, and `error()` measures the rounding.
    Gradients are refused.

    Under `torch.no_grad()` a chunk is written in place, and the capacity doubles when it is full. With autograd nothing may
    be overwritten, so each chunk copies the stored tokens, and gradients flow to all of them.

    >>> import overt
    >>> query, key, value = torch.randn(3, 1, 2, 5, 4)
    >>> cache, steps = KVCache(), []
    >>> for i in range(5):
    ...     slots = cache.extend(key[:, :, i : i + 1], value[:, :, i : i + 1])
    ...     steps.append(overt.attend(query[:, :, i : i + 1], slots.key, slots.value, mask=overt.Causal(slots.offset)))
    >>> torch.testing.assert_close(torch.cat(steps, dim=-2), overt.attend(query, key, value, mask=overt.Causal()))
    """

    def __init__(self, window: int | None = None, spare: int = 0, store: str | None = None):
        check_store(store, window)
        if window is not None:
            check.whole_number("window", window)
        check.whole_number("spare", spare, minimum=0)
        self.window = window
        self.spare = spare
        self.store = store
        self._rounded = RoundedTokens(store or "")  # the slots before those in _stored
        self._stored: tuple[Tensor, ...] = ()  # key (B, Hk, capacity, D) and value (B, Hk, capacity, E)
        self._used: list[int] = []  # filled slots of each row; Python ints, so that nothing waits for the device
        self._first: list[int] = []  # the absolute position of each row's slot 0
        self._layer: weakref.ref[nn.Module] | None = None  # the layer that wrote these tokens, if any

    def extend(self, key: Tensor, value: Tensor, lengths: Any = None) -> CacheSlots:
        """Add a chunk at the end of each row and return the slots that its queries may attend to.

        key (B, Hk, n, D) and value (B, Hk, n, E). `lengths` (B,) is the number of tokens of each row; later tokens of the chunk are
        padding, to which no query attends. A chunk that does not fit the stored ones is an InputError or a KindError, and changes
        nothing.
        """
        return self._slots(self._add(key, value, lengths))

    def step(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
        """Add one token and return its softmax attention (B, H, 1, E) to all tokens, itself included.

        Equals `attend(query, slots.key, slots.value)` with the slots of `extend`. The native core reads int8 codes directly. `scale`
        multiplies the scores; None: 1/√D.

        >>> import overt
        >>> cache, (query, key, value) = KVCache(store="int8"), torch.randn(3, 1, 2, 1, 4)
        >>> torch.equal(cache.step(query, key, value), value)
        True
        """
        check_step(query, key, value, scale)
        before = self._add(key, value)
        if len({*self._used}) == 1 and self._rounded.reads_codes(query):
            newest = [tensor[:, :, : self._used[0] - self._rounded.length] for tensor in self._stored]
            return self._rounded.attended(query, newest, query.shape[-1] ** -0.5 if scale is None else scale)
        slots = self._slots(before)
        mask = None if slots.lengths is None else Lengths(slots.lengths)
        return attend(query, slots.key, slots.value, score=Dot(scale), mask=mask)

    def _add(self, key: Tensor, value: Tensor, lengths: Any = None) -> list[int]:
        """Store a chunk; returns how many slots of each row were filled before it."""
        check_pair(key, value)
        if self.store is not None:
            check_no_gradients(self.store, key, value)
        if self._stored:
            check_like(self._stored, (key, value))
        rows, tokens = key.shape[0], key.shape[-2]
        counts = [tokens] * rows
        if lengths is not None:
            lengths = checked_lengths(torch.as_tensor(lengths).cpu(), key[:, 0, :, :0].cpu()).expand(rows)
            counts = lengths.tolist()
            lengths = lengths.to(key.device)
            key, value = zero_padding(key, lengths), zero_padding(value, lengths)
        if not self._stored:
            self._stored = key[:, :, :0], value[:, :, :0]
            self._used, self._first = [0] * rows, [0] * rows
        self._write(key, value)
        before, self._used = self._used, [used + count for used, count in zip(self._used, counts, strict=True)]
        if self.store is not None:
            self._round(tokens)
        return before

    def error(self, query: Tensor | None = None) -> Tensor:
        """The change of outputs by rounding, for each head: √(Σ (o' − o)² / Σ o²), with attention to the tokens that are not rounded yet.

        `query` (B, H, n, D) attends; without it the tokens' own keys do, (Hk,). The error is 0 without a store.

        >>> cache = KVCache(store="int8")
        >>> _ = cache.extend(*torch.ones(2, 1, 3, 20, 8))
        >>> bool((cache.error() < 0.01).all())
        True
        """
        count = min(self._used, default=0) - self._rounded.length
        if count < 1:
            raise InputError("a cache with tokens that are still whole", got=repr(self), fix="extend it first")
        key, value = (tensor[:, :, :count] for tensor in self._stored)
        if self.store is None:
            return torch.zeros((key if query is None else query).shape[1], dtype=key.dtype, device=key.device)
        return change_of_outputs(query, key, value, self.store)

    def positions(self, tokens: int, device: torch.device | None = None) -> Tensor:
        """The absolute positions of the next tokens, (n,), or (B, n) if rows differ; by default on the cache's device."""
        device = self._device if device is None else device
        first = _int_if_equal(self._lengths, device) if self._lengths else 0
        following = torch.arange(tokens, device=device)
        return first + following if isinstance(first, int) else first[:, None] + following

    def reorder(self, indices: Any) -> None:
        """Replace row i by a copy of row indices[i], for beam search; the number of rows may change."""
        rows = _whole_numbers("indices", indices)
        if any(not 0 <= row < len(self._used) for row in rows):
            raise InputError(
                "rows of the cache as indices" + (f", 0 to {len(self._used) - 1}" if self._used else ""),
                got=str(rows) if self._used else f"{rows} for an empty cache",
                fix="pass for each new row the row that it continues",
            )
        indices = torch.tensor(rows, dtype=torch.long, device=self._device)
        with torch.set_grad_enabled(self._needs_grad):
            self._stored = tuple(tensor.index_select(0, indices) for tensor in self._stored)
            self._rounded = self._rounded.rows(indices)
        self._used, self._first = [self._used[row] for row in rows], [self._first[row] for row in rows]

    def rewind(self, count: int | Tensor) -> None:
        """Remove each row's last `count` tokens, an int or (B,), as speculative decoding does with rejected tokens.

        With a window, `spare` tokens can always be removed, more only if they are still stored; otherwise an InputError.
        """
        counts = [count] * len(self._used) if isinstance(count, int) else _whole_numbers("count", count)
        if len(counts) != len(self._used):
            raise InputError(
                "one count for all rows, or one for each",
                got=f"{len(counts)} counts for {len(self._used)} rows",
                fix="pass an int, or a tensor (B,)",
            )
        # A row that has dropped tokens must keep the window of its next query.
        before = 0 if self.window is None else self.window - 1
        for row, (removed, used, first) in enumerate(zip(counts, self._used, self._first, strict=True)):
            removable = max(used - before, 0) if first else used
            if not 0 <= removed <= removable:
                fix = f"build the cache as KVCache(window={self.window}, spare={removed})" if first else "remove fewer tokens"
                raise InputError(
                    "a count of tokens that are still stored", got=f"{removed} for row {row}, which has {removable}", fix=fix
                )
        self._used = [used - removed for used, removed in zip(self._used, counts, strict=True)]
        if (length := min(self._used, default=0)) < self._rounded.length:  # slots after a row's end may be overwritten
            rounded = self._rounded.decoded(self._stored[0].dtype)
            self._stored = tuple(
                torch.cat([old[:, :, length:], new], -2) for old, new in zip(rounded, self._stored, strict=True)
            )
            self._rounded = self._rounded.first(length)

    def clear(self) -> None:
        """Drop all tokens; the next chunk may have another batch, dtype or device, or come from another layer."""
        self._stored, self._used, self._first, self._layer = (), [], [], None
        self._rounded = RoundedTokens(self.store or "")

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each row, including tokens that a window has dropped: (B,)."""
        return torch.tensor(self._lengths, dtype=torch.long, device=self._device)

    @property
    def bytes(self) -> int:
        """The memory of keys and values, unused capacity included."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self._stored, *self._rounded.tensors))

    def __len__(self) -> int:
        return max(self._lengths, default=0)

    def __bool__(self) -> bool:
        return True  # so that an empty cache is true as well

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_layer": None,
        }  # in another process the layer is another object: the next layer that writes becomes the owner

    def __deepcopy__(self, memo: dict[int, Any]) -> "KVCache":
        result = memo[id(self)] = copy.copy(self)
        result.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        layer = None if self._layer is None else self._layer()
        copied = memo.get(id(layer))  # if a model is copied with its caches
        result._layer = self._layer if copied is None else weakref.ref(copied)
        return result

    def __repr__(self) -> str:
        rows, tokens = len(self._used), sorted({*self._lengths}) or [0]
        span = str(tokens[0]) if len(tokens) == 1 else f"{tokens[0]} to {tokens[-1]}"
        options = "" if self.window is None else f", window={self.window}, spare={self.spare}"
        options += "" if self.store is None else f", store={self.store!r}"
        return f"KVCache({rows} rows of {span} tokens, {self.bytes} bytes{options})"

    @property
    def _lengths(self) -> list[int]:
        return [first + used for first, used in zip(self._first, self._used, strict=True)]

    @property
    def _device(self) -> torch.device:
        return self._stored[0].device if self._stored else torch.device("cpu")

    @property
    def _needs_grad(self) -> bool:
        """Whether autograd is on, or was on for an earlier chunk, whose graph must stay."""
        return self.store is None and (torch.is_grad_enabled() or any(tensor.requires_grad for tensor in self._stored))

    def _write(self, key: Tensor, value: Tensor) -> None:
        tokens, capacity = key.shape[-2], self._stored[0].shape[-2] + self._rounded.length
        remaining = self._used if self.window is None else [min(used, self.window - 1 + self.spare) for used in self._used]
        longest = max(remaining, default=0)
        # Inference mode's tensors cannot be written to outside it.
        read_only = self._stored[0].is_inference() and not torch.is_inference_mode_enabled()
        if self.store is not None or not torch.is_grad_enabled():
            key, value = key.detach(), value.detach()
        with torch.set_grad_enabled(self._needs_grad):
            if self._needs_grad:
                self._move(remaining, longest + tokens)
            elif read_only or max(self._used, default=0) + tokens > capacity:
                # Doubling the capacity copies each token about once, for any number of tokens.
                self._move(remaining, longest + tokens + longest - self._rounded.length)
            for tensor, new in zip(self._stored, (key, value), strict=True):
                _write_rows(tensor, new, [used - self._rounded.length for used in self._used])

    def _round(self, tokens: int) -> None:
        """Round the tokens before the newest chunk and the last tokens, if they are many."""
        more = min(self._used) - max(tokens, NEWEST) - self._rounded.length
        if more < NEWEST:
            return
        with torch.no_grad():
            self._rounded = self._rounded.with_more(*(tensor[:, :, :more] for tensor in self._stored))
            stop = max(self._used) - self._rounded.length + more
            self._stored = tuple(tensor[:, :, more:stop].clone() for tensor in self._stored)

    def _move(self, remaining: list[int], capacity: int) -> None:
        """Move the last `remaining` slots of each row to the front of new tensors, and drop the others."""
        starts, rounded = [used - count for used, count in zip(self._used, remaining, strict=True)], self._rounded.length
        length = max(max(remaining, default=0) - rounded, 0)
        self._stored = tuple(_moved(tensor, starts, length, capacity - rounded) for tensor in self._stored)
        self._first = [first + start for first, start in zip(self._first, starts, strict=True)]
        self._used = remaining

    def _slots(self, before: list[int]) -> CacheSlots:
        """The slots from the first one visible to the chunk to the last filled one; `before` were filled before the chunk."""
        low = 0 if self.window is None else max(min(before, default=0) - (self.window - 1), 0)
        high, rounded = max(self._used, default=0) - self._rounded.length, self._rounded.decoded(self._stored[0].dtype)
        key, value = (tensor[:, :, low:high] for tensor in self._stored)
        if rounded:
            key, value = (torch.cat(pair, dim=-2) for pair in zip(rounded, (key, value), strict=True))
        offset = _int_if_equal([used - low for used in before], key.device)
        filled = _int_if_equal([used - low for used in self._used], key.device)
        first = _int_if_equal([first + low for first in self._first], key.device)
        return CacheSlots(key, value, offset, None if isinstance(filled, int) else filled, first)


@contextmanager
def restored_on_error(cache: KVCache | None) -> Iterator[None]:
    """Restore the cache if the block raises an error."""
    if not isinstance(cache, KVCache):
        yield
        return
    # A chunk is written after the used slots, so these are unchanged.
    before = cache._stored, cache._used, cache._first, cache._layer, cache._rounded
    try:
        yield
    except BaseException:
        cache._stored, cache._used, cache._first, cache._layer, cache._rounded = before
        raise


def check_cache(cache: Any, layer: nn.Module, window: WindowLike, query_is_key: bool) -> None:
    """Refuse a cache of another layer, or without tokens that the window reaches; an empty cache becomes this layer's."""
    if not isinstance(cache, KVCache):
        raise KindError(
            "cache as an overt.layers.KVCache, one for each layer",
            got=type(cache).__name__,
            fix="make one: cache=KVCache()",
        )
    if not query_is_key:
        raise InputError(
            "no key beside cache=, which continues the sequence of the queries themselves",
            got="a key of another sequence",
            fix="call layer(query, cache=cache), and project another sequence once: layer.prepare(key)",
        )
    before = window[0] if isinstance(window, tuple) else window
    if cache.window is not None and (before is None or cache.window <= before):
        raise InputError(
            "a cache that keeps all tokens that the layer's window reaches",
            got=f"KVCache(window={cache.window}) for window={window}",
            fix="use KVCache()" if before is None else f"use KVCache(window={before + 1}), which counts the query's own token",
        )
    if len(cache) and cache._layer is not None and cache._layer() is not layer:
        raise InputError(
            "a cache of this layer", got=f"one with {len(cache)} tokens of another", fix="make one KVCache() for each layer"
        )
    if not len(cache) or cache._layer is None:
        cache._layer = weakref.ref(layer)


def _write_rows(tensor: Tensor, new: Tensor, starts: list[int]) -> None:
    """Write the new tokens of each row from its start slot on."""
    start = _int_if_equal(starts, tensor.device)
    if isinstance(start, int):
        tensor[:, :, start : start + new.shape[-2]] = new
    else:
        slots = start[:, None] + torch.arange(new.shape[-2], device=tensor.device)  # (B, n)
        tensor[_rows(tensor), :, slots] = new.transpose(1, 2)  # (B, n, Hk, D)


def _moved(tensor: Tensor, starts: list[int], length: int, capacity: int) -> Tensor:
    """Copy the slots of each row from its start to the front of a new tensor, followed by zeros, since new memory may hold NaN."""
    start = _int_if_equal(starts, tensor.device)
    result = in_large_pages(tensor.new_empty(*tensor.shape[:2], capacity, tensor.shape[-1])).zero_()
    if isinstance(start, int):
        result[:, :, :length] = tensor[:, :, start : start + length]
    else:
        slots = start[:, None] + torch.arange(length, device=tensor.device)  # (B, length)
        result[:, :, :length] = tensor[_rows(tensor), :, slots].transpose(1, 2)  # (B, Hk, length, D)
    return result


def _rows(tensor: Tensor) -> Tensor:
    return torch.arange(tensor.shape[0], device=tensor.device)[:, None]  # (B, 1)


def _int_if_equal(numbers: list[int], device: torch.device) -> int | Tensor:
    """One int if all rows have the same number, otherwise a tensor (B,)."""
    return numbers[0] if len({*numbers}) == 1 else torch.tensor(numbers, dtype=torch.long, device=device)


def _whole_numbers(name: str, numbers: Tensor | Sequence[int]) -> list[int]:
    """Row numbers or counts as a list of ints."""
    tensor = numbers if isinstance(numbers, Tensor) else torch.as_tensor(numbers)
    check.dense(tensor, name)
    if tensor.ndim != 1 or tensor.is_complex() or tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise KindError(
            f"{name} of a cache as whole numbers (B,), one for each row",
            got=f"a {tensor.dtype} tensor {tuple(tensor.shape)}",
            fix="pass a 1-D integer tensor",
        )
    return tensor.tolist()
