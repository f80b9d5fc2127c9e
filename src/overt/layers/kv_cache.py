"""The key-value cache: at inference tokens come one at a time, and what the earlier ones were projected to is kept.

Under a causal mask nothing that comes later changes the keys and values of a token, so each is computed once: a new token's
query asks the keys kept so far and its own. A step then costs one row of the weights, not all of them again.

Each row of the batch is kept from slot 0 on, so rows of different lengths differ by one number each, their offset:

    row 0:  the cat sat on   | new
    row 1:  hello  | new

A mask or bias that is told that offset lines both up, and `Lengths` bars what lies beyond a row's end.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention import check
from overt.errors import InputError, KindError
from overt.layers.parts.padding import blanked, checked_lengths


class Slots(NamedTuple):
    """What the queries of a chunk may attend to: the S slots that are kept for them.

    `key` (B, Hk, S, D) and `value` (B, Hk, S, E); `offset`, the slot of the chunk's first token, as masks and biases take it: an
    int where all rows agree, otherwise (B,); `lengths` (B,), the slots that each row has filled, None where that is all S in
    every row; `first`, the absolute position of slot 0, an int or (B,).
    """

    key: Tensor
    value: Tensor
    offset: int | Tensor
    lengths: Tensor | None
    first: int | Tensor


class KVCache:
    """The keys and values of one attention layer, a chunk of tokens at a time.

    With `window` a query sees that many tokens, its own included, and what none can see any more is forgotten: there is never
    room for more than 2 · (window + spare) tokens and the longest chunk. `spare` is how many `rewind` can take back all the same.

    Under `torch.no_grad()` a chunk is written in place, into room that doubles when it is full. Where autograd is on nothing may
    be written over, so each chunk copies what is kept, and gradients flow to all of it.

    >>> import overt
    >>> query, key, value = torch.randn(3, 1, 2, 5, 4)
    >>> cache, steps = KVCache(), []
    >>> for i in range(5):
    ...     held = cache.extend(key[:, :, i : i + 1], value[:, :, i : i + 1])
    ...     steps.append(overt.attend(query[:, :, i : i + 1], held.key, held.value, mask=overt.Causal(held.offset)))
    >>> torch.testing.assert_close(torch.cat(steps, dim=-2), overt.attend(query, key, value, mask=overt.Causal()))
    """

    def __init__(self, window: int | None = None, spare: int = 0):
        if window is not None:
            check.whole_number("window", window)
        check.whole_number("spare", spare, minimum=0)
        self.window, self.spare = window, spare
        self._stored: tuple[Tensor, ...] = ()  # key and value, with room for more: (B, Hk, room, D) and (B, Hk, room, E)
        self._used: list[int] = []  # how many slots of each row are filled; kept off the device, so that nothing waits for it
        self._first: list[int] = []  # the absolute position of each row's slot 0

    def extend(self, key: Tensor, value: Tensor, lengths: Any = None) -> Slots:
        """Add a chunk at the end of each row and give what its queries may attend to.

        key (B, Hk, n, D) and value (B, Hk, n, E). `lengths` (B,) says how many of the n tokens are each row's own; the rest is
        padding, which nobody ever sees. A chunk unlike what is stored is an InputError or a KindError, and changes nothing.
        """
        _check_pair(key, value)
        if self._stored:
            _check_like(self._stored, (key, value))
        rows, tokens = key.shape[0], key.shape[-2]
        counts = [tokens] * rows
        if lengths is not None:
            counts = _counts(lengths, key)
            own = torch.tensor(counts, device=key.device)
            key, value = blanked(key, own), blanked(value, own)
        if not self._stored:
            self._stored = key[:, :, :0], value[:, :, :0]
            self._used, self._first = [0] * rows, [0] * rows
        self._write(key, value)
        before, self._used = self._used, [used + count for used, count in zip(self._used, counts, strict=True)]
        return self._held(before)

    def places(self, tokens: int, device: torch.device | None = None) -> Tensor:
        """The absolute positions of the next tokens, (n,), or (B, n) where rows differ; on the device of what is stored."""
        device = self._device if device is None else device
        seen = _one(self._seen, device) if self._seen else 0
        ahead = torch.arange(tokens, device=device)
        return seen + ahead if isinstance(seen, int) else seen[:, None] + ahead

    def reorder(self, indices: Any) -> None:
        """Let row i go on from what is now row indices[i], as beam search asks; there may be more rows than before, or fewer."""
        chosen = _whole("indices", indices)
        if any(not 0 <= index < len(self._used) for index in chosen):
            raise InputError(
                f"reorder takes rows of the cache, 0 to {len(self._used) - 1}"
                if self._used
                else "reorder takes rows of the cache",
                got=str(chosen) if self._used else f"{chosen} for an empty cache",
                fix="pass for each row to come the row that it goes on from",
            )
        picked = torch.tensor(chosen, dtype=torch.long, device=self._device)
        with torch.set_grad_enabled(self._recording):
            self._stored = tuple(tensor.index_select(0, picked) for tensor in self._stored)
        self._used, self._first = [self._used[i] for i in chosen], [self._first[i] for i in chosen]

    def rewind(self, count: int | Tensor) -> None:
        """Take back each row's last `count` tokens, an int or (B,), as speculative decoding does with those it rejects.

        Under a window `spare` tokens can be taken back, more only where they are still there; further back is an InputError.
        """
        counts = [count] * len(self._used) if isinstance(count, int) else _whole("count", count)
        if len(counts) != len(self._used):
            raise InputError(
                "rewind takes one count for all rows, or one each",
                got=f"{len(counts)} counts for {len(self._used)} rows",
                fix="pass an int, or a tensor (B,)",
            )
        for row, (wanted, able) in enumerate(zip(counts, self._able, strict=True)):
            if not 0 <= wanted <= able:
                fix = f"KVCache(window={self.window}, spare={wanted}) keeps enough" if self._first[row] else "take fewer back"
                raise InputError(
                    "rewind takes back tokens that are still there", got=f"{wanted} for row {row}, which has {able}", fix=fix
                )
        self._used = [used - wanted for used, wanted in zip(self._used, counts, strict=True)]

    def clear(self) -> None:
        """Forget everything; the next chunk may have another batch, dtype or device."""
        self._stored, self._used, self._first = (), [], []

    @property
    def lengths(self) -> Tensor:
        """How many tokens each row has seen, those included that a window has forgotten: (B,)."""
        return torch.tensor(self._seen, dtype=torch.long, device=self._device)

    @property
    def bytes(self) -> int:
        """What keys and values take, the room for more included."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._stored)

    def __len__(self) -> int:
        return max(self._seen, default=0)

    def __bool__(self) -> bool:
        return True  # an empty cache is a cache: `if cache` asks whether one was given

    def __repr__(self) -> str:
        rows, tokens = len(self._used), sorted({*self._seen}) or [0]
        span = str(tokens[0]) if len(tokens) == 1 else f"{tokens[0]} to {tokens[-1]}"
        options = "" if self.window is None else f", window={self.window}, spare={self.spare}"
        return f"KVCache({rows} rows of {span} tokens, {self.bytes} bytes{options})"

    @property
    def _seen(self) -> list[int]:
        return [first + used for first, used in zip(self._first, self._used, strict=True)]

    @property
    def _device(self) -> torch.device:
        return self._stored[0].device if self._stored else torch.device("cpu")

    @property
    def _recording(self) -> bool:
        """A chunk without gradients between two with them must not lose what the first recorded."""
        return torch.is_grad_enabled() or any(tensor.requires_grad for tensor in self._stored)

    @property
    def _able(self) -> list[int]:
        """How many tokens each row can take back: all of them, or what leaves the next query its window."""
        before = 0 if self.window is None else self.window - 1
        return [max(used - before, 0) if first else used for first, used in zip(self._first, self._used, strict=True)]

    def _write(self, key: Tensor, value: Tensor) -> None:
        tokens, room = key.shape[-2], self._stored[0].shape[-2]
        kept = self._used if self.window is None else [min(used, self.window - 1 + self.spare) for used in self._used]
        most, longest = max(self._used, default=0), max(kept, default=0)
        # What was stored in inference mode may not be written to outside it.
        locked = self._stored[0].is_inference() and not torch.is_inference_mode_enabled()
        if not torch.is_grad_enabled():
            key, value = key.detach(), value.detach()
        with torch.set_grad_enabled(self._recording):
            if self._recording:
                self._move(kept, longest + tokens)
            elif locked or most + tokens > room:
                # As much room again as is kept, so that a token is copied about once, however many there will be.
                self._move(kept, longest + tokens + longest)
            for tensor, new in zip(self._stored, (key, value), strict=True):
                _put(tensor, new, self._used)

    def _move(self, kept: list[int], room: int) -> None:
        """Keep the last slots of each row, and move them to the front of new room."""
        starts = [used - left for used, left in zip(self._used, kept, strict=True)]
        self._stored = tuple(_moved(tensor, starts, max(kept, default=0), room) for tensor in self._stored)
        self._first = [first + start for first, start in zip(self._first, starts, strict=True)]
        self._used = kept

    def _held(self, before: list[int]) -> Slots:
        """The slots from the first that the chunk may see to the last that is filled."""
        low = 0 if self.window is None else max(min(before, default=0) - (self.window - 1), 0)
        key, value = (tensor[:, :, low : max(self._used, default=0)] for tensor in self._stored)
        offset, filled, first = (
            _one(slots, key.device)
            for slots in (
                [used - low for used in before],
                [used - low for used in self._used],
                [first + low for first in self._first],
            )
        )
        return Slots(key, value, offset, None if isinstance(filled, int) else filled, first)


@contextmanager
def step_of(cache: KVCache | None) -> Iterator[None]:
    """What is called here takes the cache a step on, or ends in an error and leaves it as it was."""
    if not isinstance(cache, KVCache):
        yield
        return
    before = cache._stored, cache._used, cache._first  # a chunk is written behind what is used, so nothing there has changed
    try:
        yield
    except BaseException:
        cache._stored, cache._used, cache._first = before
        raise


def _put(tensor: Tensor, new: Tensor, slots: list[int]) -> None:
    """Write each row's tokens from its slot on."""
    first = _one(slots, tensor.device)
    if isinstance(first, int):
        tensor[:, :, first : first + new.shape[-2]] = new
    else:
        places = first[:, None] + torch.arange(new.shape[-2], device=tensor.device)  # (B, n)
        tensor[_rows(tensor), :, places] = new.transpose(1, 2)  # (B, n, Hk, D)


def _moved(tensor: Tensor, starts: list[int], length: int, room: int) -> Tensor:
    """The slots of each row from its start on, at the front of new room; zeros beyond, since NaN may be left in memory."""
    first = _one(starts, tensor.device)
    fresh = tensor.new_zeros(*tensor.shape[:2], room, tensor.shape[-1])
    if isinstance(first, int):
        fresh[:, :, :length] = tensor[:, :, first : first + length]
    else:
        places = first[:, None] + torch.arange(length, device=tensor.device)  # (B, length)
        fresh[:, :, :length] = tensor[_rows(tensor), :, places].transpose(1, 2)  # (B, Hk, length, D)
    return fresh


def _rows(tensor: Tensor) -> Tensor:
    return torch.arange(tensor.shape[0], device=tensor.device)[:, None]  # (B, 1)


def _one(numbers: list[int], device: torch.device) -> int | Tensor:
    """One number where all rows agree, otherwise one each."""
    return numbers[0] if len({*numbers}) == 1 else torch.tensor(numbers, dtype=torch.long, device=device)


def _counts(lengths: Any, key: Tensor) -> list[int]:
    lengths = torch.as_tensor(lengths).cpu()
    return checked_lengths(lengths, key[:, 0, :, :0].cpu()).expand(key.shape[0]).tolist()


def _whole(name: str, numbers: Tensor | Sequence[int]) -> list[int]:
    """Row numbers or counts as a list of ints."""
    given = numbers if isinstance(numbers, Tensor) else torch.as_tensor(numbers)
    if given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool:
        raise KindError(
            f"a cache takes {name} as whole numbers (B,), one a row",
            got=f"a {given.dtype} tensor {tuple(given.shape)}",
            fix="pass a 1-D integer tensor",
        )
    return given.tolist()


def _check_pair(key: Any, value: Any) -> None:
    for name, tensor in (("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise KindError("a cache stores floating-point tensors", got=f"{name} of {kind}", fix=f"convert it: {name}.float()")
    if key.ndim != 4 or value.ndim != 4 or key.shape[:3] != value.shape[:3]:
        raise InputError(
            "a cache stores key (B, Hk, n, D) and value (B, Hk, n, E)",
            got=check.shapes(key=key, value=value),
            fix="give both a batch and a head dimension, as unsqueeze(0) does, and one value for each key",
        )
    if (key.dtype, key.device) != (value.dtype, value.device):
        raise KindError(
            "a cache stores key and value of one dtype and device", got=_kinds(key, value), fix="convert one with .to(…)"
        )


def _check_like(stored: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> None:
    """Refuse a chunk of other rows, heads or widths than those stored, or of another kind."""
    for name, old, tensor in zip(("key", "value"), stored, new, strict=True):
        if (*old.shape[:2], old.shape[-1]) != (*tensor.shape[:2], tensor.shape[-1]):
            raise InputError(
                f"a cache goes on with the rows, heads and widths that it has, {name} {_pattern(old)}",
                got=f"{name} {tuple(tensor.shape)}",
                fix="reorder() the cache for another batch, or clear() it to begin anew",
            )
        if (old.dtype, old.device) != (tensor.dtype, tensor.device):
            raise KindError(
                f"a cache goes on with the dtype and device that it has, {old.dtype} on {old.device}",
                got=f"{name} of {tensor.dtype} on {tensor.device}",
                fix="convert the chunk with .to(…), or clear() the cache to begin anew",
            )


def _pattern(tensor: Tensor) -> str:
    rows, heads, _, width = tensor.shape
    return f"({rows}, {heads}, n, {width})"


def _kinds(key: Tensor, value: Tensor) -> str:
    return f"key {key.dtype} on {key.device}, value {value.dtype} on {value.device}"
