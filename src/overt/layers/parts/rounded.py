"""Keys and values stored in fewer bits: what is rounded, how, and what that changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels import cpu
from overt.attention.kernels.plan import permits
from overt.attention.mechanism import attend, observers
from overt.errors import InputError

STORES = ("int8", "bfloat16")
FIRST = 4  # tokens that stay whole: many heads give most of their weight to the first ones (Xiao et al. 2024)
NEWEST = 64  # tokens at the end that stay whole


@dataclass(frozen=True)
class RoundedTokens:
    """The first `length` slots of a cache: FIRST of them whole, the others encoded, each key's and value's tensors one after the other."""

    store: str
    length: int = 0
    whole: tuple[Tensor, ...] = ()  # key and value (B, Hk, at most FIRST, ·)
    encoded: tuple[tuple[Tensor, ...], ...] = ()  # of key and value, with spare capacity

    def with_more(self, key: Tensor, value: Tensor) -> "RoundedTokens":
        """These slots and more, (B, Hk, n, ·), after them."""
        pair, length = (key, value), self.length
        whole, encoded = self.whole, self.encoded
        if not whole:
            whole = tuple(tensor[:, :, :0] for tensor in pair)
            encoded = tuple(encode(tensor[:, :, :0], self.store) for tensor in pair)
        retained = max(min(FIRST - length, key.shape[-2]), 0)
        whole = tuple(torch.cat([old, new[:, :, :retained]], dim=-2) for old, new in zip(whole, pair, strict=True))
        start = max(length - FIRST, 0)
        encoded = tuple(
            tuple(
                _appended(old, new, start) for old, new in zip(parts, encode(tensor[:, :, retained:], self.store), strict=True)
            )
            for parts, tensor in zip(encoded, pair, strict=True)
        )
        return replace(self, length=length + key.shape[-2], whole=whole, encoded=encoded)

    def decoded(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Key and value of the slots, (B, Hk, length, ·); none before there are any."""
        count = max(self.length - FIRST, 0)
        return tuple(
            torch.cat([whole, decode([part[:, :, :count] for part in parts], dtype)], dim=-2)
            for whole, parts in zip(self.whole, self.encoded, strict=True)
        )

    def attended(self, query: Tensor, newest: Sequence[Tensor], scale: float) -> Tensor:
        """Attention (B, H, Q, E) of a few queries to these tokens and the newest, key and value (B, Hk, n, ·): codes as they are stored."""
        count = self.length - FIRST
        key, value = (torch.cat(pair, dim=-2) for pair in zip(self.whole, newest, strict=True))
        codes = [[part[:, :, :count] for part in parts] for parts in self.encoded]
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        outputs = query.new_empty(2, *query.shape[:-1], value.shape[-1], dtype=dtype)
        sums = query.new_empty(2, *query.shape[:2], 2, query.shape[2], dtype=dtype)
        cpu.plain_dot(query, key, value, scale, (outputs[0], sums[0]))
        cpu.dot_codes(query, codes[0], codes[1], scale, (outputs[1], sums[1]))
        bases, totals = sums.unbind(-2)
        shares = totals * torch.exp2(bases - bases.amax(0))
        return (outputs * (shares / shares.sum(0))[..., None]).sum(0).to(query.dtype)

    def reads_codes(self, query: Tensor) -> bool:
        """Whether the native core may read the codes for this query (B, H, 1, D): others get decoded numbers."""
        plain = query.device.type == "cpu" and query.shape[-2] == 1 and self.length > FIRST and self.store == "int8"
        if not plain or torch.compiler.is_compiling() or not native.available() or not permits("native"):
            return False
        observed = observers.get() or (torch.is_grad_enabled() and query.requires_grad)
        return not observed and type(query) is Tensor and not torch._C._are_functorch_transforms_active()

    def first(self, length: int) -> "RoundedTokens":
        """The first slots alone."""
        return replace(self, length=length, whole=tuple(tensor[:, :, :length] for tensor in self.whole))

    def rows(self, indices: Tensor) -> "RoundedTokens":
        """The rows of the batch with these indices."""
        encoded = tuple(tuple(part.index_select(0, indices) for part in parts) for parts in self.encoded)
        return replace(self, whole=tuple(tensor.index_select(0, indices) for tensor in self.whole), encoded=encoded)

    @property
    def tensors(self) -> list[Tensor]:
        """All that is stored."""
        return [*self.whole, *(part for parts in self.encoded for part in parts)]


def encode(tensor: Tensor, store: str) -> tuple[Tensor, ...]:
    """Numbers as bfloat16, or as int8 with a scale for each token and head: x ≈ scale · code, scale = max |x| / 127.

    A vector with a number that is not finite becomes NaN.
    """
    if store == "bfloat16":
        return (tensor.bfloat16(),)
    largest = tensor.abs().amax(-1, keepdim=True).float()
    scale = torch.where(largest == 0, 1, largest / 127)
    codes = (tensor / scale).round().nan_to_num(0, 0, 0).to(torch.int8)
    return codes, torch.where(scale.isfinite(), scale, torch.nan)


def decode(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The numbers that are stored."""
    numbers = parts[0].to(dtype)
    return numbers if len(parts) == 1 else numbers * parts[1].to(dtype)


def change_of_outputs(query: Tensor | None, key: Tensor, value: Tensor, store: str) -> Tensor:
    """How far outputs are from those of rounded keys and values, for each head: √(Σ (o' − o)² / Σ o²)."""
    with torch.no_grad():
        query = key if query is None else query
        output = attend(query, key, value)
        key, value = (decode(encode(tensor, store), tensor.dtype) for tensor in (key, value))
        changed = attend(query, key, value) - output
        return (changed.square().sum((0, 2, 3)) / output.square().sum((0, 2, 3)).clamp(min=1e-30)).sqrt()


def check_store(store: Any, window: int | None) -> None:
    """Refuse what is no store, and a store with a window."""
    if store is not None and store not in STORES:
        raise InputError('store of a cache to be None, "int8" or "bfloat16"', got=repr(store), fix="choose one of them")
    if store is not None and window is not None:
        raise InputError(
            "a cache with a window or a store, not both", got=f"window={window}, store={store!r}", fix="leave one of them out"
        )


def check_no_gradients(store: str, *tensors: Tensor) -> None:
    """Refuse tensors with gradients, which rounding has none of."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise InputError(
            "no gradients through a cache that rounds what it stores",
            got=f"a chunk that requires them, for store={store!r}",
            fix="call the layer under torch.no_grad(), or use KVCache()",
        )


def _appended(old: Tensor, new: Tensor, start: int) -> Tensor:
    """A tensor with new slots written from `start` on, in place where there is capacity, which doubles."""
    stop = start + new.shape[-2]
    read_only = old.is_inference() and not torch.is_inference_mode_enabled()
    if read_only or stop > old.shape[-2]:
        larger = old.new_empty(*old.shape[:2], max(2 * start, stop), old.shape[-1])
        larger[:, :, :start] = old[:, :, :start]
        old = larger
    old[:, :, start:stop] = new
    return old
