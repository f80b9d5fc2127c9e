"""Keys and values stored in fewer bits: which tokens are rounded, how, and the effect."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels import cpu
from overt.attention.kernels.heap import in_large_pages
from overt.attention.kernels.plan import permits
from overt.attention.mechanism import attend, observers
from overt.errors import InputError

STORES = ("int8", "bfloat16")
FIRST = 4  # tokens that are not rounded: many heads give most of their weight to the first ones (Xiao et al. 2024)
NEWEST = 64  # tokens at the end that are not rounded


@dataclass(frozen=True)
class RoundedTokens:
    """The first `length` slots of a cache: FIRST of them unrounded, the others encoded; keys' tensors precede values'.

    Int8 codes are woven if a matrix unit of the processor multiplies them in that order (`cpu.weave_codes`).
    """

    store: str
    length: int = 0
    whole: tuple[Tensor, ...] = ()  # key and value (B, Hk, at most FIRST, ·)
    encoded: tuple[tuple[Tensor, ...], ...] = ()  # of key and value, with spare capacity
    woven: bool = False

    def with_more(self, key: Tensor, value: Tensor) -> "RoundedTokens":
        """These slots followed by new ones, (B, Hk, n, ·)."""
        pair, length = (key, value), self.length
        whole, encoded, woven = self.whole, self.encoded, self.woven
        if not whole:
            on_cpu = self.store == "int8" and key.device.type == "cpu"
            woven = on_cpu and cpu.weaves_codes(key.dtype, key.shape[-1], value.shape[-1])
            whole = tuple(tensor[:, :, :0] for tensor in pair)
            encoded = tuple(encode(tensor[:, :, :0], self.store) for tensor in pair)
        retained = max(min(FIRST - length, key.shape[-2]), 0)
        whole = tuple(torch.cat([old, new[:, :, :retained]], dim=-2) for old, new in zip(whole, pair, strict=True))
        start = max(length - FIRST, 0)
        added = (encode(tensor[:, :, retained:], self.store) for tensor in pair)
        encoded = tuple(
            tuple(
                _woven_appended(stored, part, start, are_keys)
                if woven and part.dtype == torch.int8
                else _appended(stored, part, start)
                for stored, part in zip(old, new, strict=True)
            )
            for old, new, are_keys in zip(encoded, added, (True, False), strict=True)
        )
        return replace(self, length=length + key.shape[-2], whole=whole, encoded=encoded, woven=woven)

    def decoded(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Key and value of the slots, (B, Hk, length, ·); empty if there are no slots."""
        count = max(self.length - FIRST, 0)
        encoded = self._filled(count)
        if self.woven:
            encoded = [
                (cpu.unweave_codes(codes, are_keys)[:, :, :count], scale)
                for (codes, scale), are_keys in zip(encoded, (True, False), strict=True)
            ]
        return tuple(torch.cat([whole, decode(parts, dtype)], dim=-2) for whole, parts in zip(self.whole, encoded, strict=True))

    def _filled(self, count: int) -> list[tuple[Tensor, ...]]:
        """The first `count` encoded slots, for woven codes in whole groups."""
        sizes = (_in_groups(count), count) if self.woven else (count, count)
        return [tuple(part[:, :, :size] for part, size in zip(parts, sizes, strict=False)) for parts in self.encoded]

    def attended(self, query: Tensor, newest: Sequence[Tensor], scale: float) -> Tensor:
        """Attention (B, H, Q, E) of a few queries to these tokens and the newest, key and value (B, Hk, n, ·), directly from codes."""
        key, value = self._filled(self.length - FIRST)
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        outputs = query.new_empty(3, *query.shape[:-1], newest[1].shape[-1], dtype=dtype)
        sums = query.new_empty(3, *query.shape[:2], 2, query.shape[2], dtype=dtype)
        *parts, last = zip(outputs.unbind(), sums.unbind(), strict=True)
        for (whole_key, whole_value), part in zip((self.whole, newest), parts, strict=True):
            cpu.plain_dot(query, whole_key, whole_value, scale, part)
        cpu.dot_codes(query, key, value, scale, last, self.woven)
        return cpu.joined(outputs, sums).to(query.dtype)

    def reads_codes(self, query: Tensor) -> bool:
        """Whether the native core may read the codes for this query (B, H, 1, D); otherwise numbers are decoded."""
        plain = query.device.type == "cpu" and query.shape[-2] == 1 and self.length > FIRST and self.store == "int8"
        if not plain or torch.compiler.is_compiling() or not native.available() or not permits("native"):
            return False
        if self.woven and not cpu.weaves_codes(query.dtype):
            return False
        observed = observers.get() or (torch.is_grad_enabled() and query.requires_grad)
        return not observed and type(query) is Tensor and not torch._C._are_functorch_transforms_active()

    def first(self, length: int) -> "RoundedTokens":
        """The first `length` slots."""
        return replace(self, length=length, whole=tuple(tensor[:, :, :length] for tensor in self.whole))

    def rows(self, indices: Tensor) -> "RoundedTokens":
        """The rows of the batch with these indices."""
        encoded = tuple(tuple(part.index_select(0, indices) for part in parts) for parts in self.encoded)
        return replace(self, whole=tuple(tensor.index_select(0, indices) for tensor in self.whole), encoded=encoded)

    @property
    def tensors(self) -> list[Tensor]:
        """All stored tensors."""
        return [*self.whole, *(part for parts in self.encoded for part in parts)]


def encode(tensor: Tensor, store: str) -> tuple[Tensor, ...]:
    """Encode numbers as bfloat16, or as int8 with a scale for each token and head: x ≈ scale · code, scale = max |x| / 127.

    A vector with a non-finite number becomes NaN.
    """
    if store == "bfloat16":
        return (tensor.bfloat16(),)
    largest = tensor.abs().amax(-1, keepdim=True).float()
    scale = torch.where(largest == 0, 1, largest / 127)
    codes = (tensor / scale).round().nan_to_num(0, 0, 0).to(torch.int8)
    return codes, torch.where(scale.isfinite(), scale, torch.nan)


def decode(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Decode stored numbers."""
    numbers = parts[0].to(dtype)
    return numbers if len(parts) == 1 else numbers * parts[1].to(dtype)


def change_of_outputs(query: Tensor | None, key: Tensor, value: Tensor, store: str) -> Tensor:
    """The change of outputs if keys and values are rounded, for each head: √(Σ (o' − o)² / Σ o²)."""
    with torch.no_grad():
        query = key if query is None else query
        output = attend(query, key, value)
        key, value = (decode(encode(tensor, store), tensor.dtype) for tensor in (key, value))
        changed = attend(query, key, value) - output
        return (changed.square().sum((0, 2, 3)) / output.square().sum((0, 2, 3)).clamp(min=1e-30)).sqrt()


def check_store(store: Any, window: int | None) -> None:
    """Refuse an unknown store, and a store with a window."""
    if store is not None and store not in STORES:
        raise InputError('store of a cache to be None, "int8" or "bfloat16"', got=repr(store), fix="choose one of them")
    if store is not None and window is not None:
        raise InputError(
            "a cache with a window or a store, not both", got=f"window={window}, store={store!r}", fix="leave one of them out"
        )


def check_no_gradients(store: str, *tensors: Tensor) -> None:
    """Refuse tensors with gradients, which rounding does not support."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise InputError(
            "no gradients through a cache that rounds what it stores",
            got=f"a chunk that requires them, for store={store!r}",
            fix="call the layer under torch.no_grad(), or use KVCache()",
        )


def _in_groups(count: int) -> int:
    """Round a number of slots up to whole groups of woven codes."""
    return -(-count // cpu.CODE_KEYS) * cpu.CODE_KEYS


def _woven_appended(old: Tensor, new: Tensor, start: int, are_keys: bool) -> Tensor:
    """Write rows of new codes into woven codes from `start` on; the last group is padded with zeros."""
    begun = start - start % cpu.CODE_KEYS
    rows = cpu.unweave_codes(old[:, :, begun : _in_groups(start)], are_keys)[:, :, : start - begun]
    count = rows.shape[-2] + new.shape[-2]
    new = torch.cat([rows, new, new.new_zeros(*new.shape[:2], _in_groups(count) - count, new.shape[-1])], dim=-2)
    return _appended(old, cpu.weave_codes(new, are_keys), begun)


def _appended(old: Tensor, new: Tensor, start: int) -> Tensor:
    """Write new slots into a tensor from `start` on, in place if there is capacity, which otherwise doubles."""
    stop = start + new.shape[-2]
    read_only = old.is_inference() and not torch.is_inference_mode_enabled()
    if read_only or stop > old.shape[-2]:
        larger = in_large_pages(old.new_empty(*old.shape[:2], max(2 * start, stop), old.shape[-1]))
        larger[:, :, :start] = old[:, :, :start]
        old = larger
    old[:, :, start:stop] = new
    return old
