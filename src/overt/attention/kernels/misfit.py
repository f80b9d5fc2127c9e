"""Masks and biases that do not fit a call: find the part at fault, name its entries, and suggest the fix."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from overt.attention import check
from overt.attention.biases import ALiBi, Bias, RelativePositionBias, TensorBias
from overt.attention.masks import Causal, Dense, Documents, Keys, Lengths, Mask, Window
from overt.errors import InputError

# _BY_ENTRY, _BY_HEAD: the name of a mask's entry for each batch element, and of a bias's entry for each head.
_BY_ENTRY = {Lengths: "length", Keys: "row of keys", Documents: "row of ids", Causal: "offset", Window: "offset"}
_BY_HEAD = {ALiBi: "slope", RelativePositionBias: "row of the table"}


def refuse_mask(mask: Any, shape: tuple[int, ...], query: Tensor, key: Tensor, batch: tuple[int, ...]) -> None:
    """Raise the error of the part of a bound mask that does not fit the call; `shape` is the mask's first block."""
    first = [min(size, 1) for size in (query.shape[-2], key.shape[-2])]
    indices = [torch.arange(size, device=query.device) for size in first]
    for part in _parts(mask, Mask):
        if type(part) in _BY_ENTRY:
            _check_entries(_BY_ENTRY[type(part)], tuple(part.block(*indices).shape[:-2]), batch)
    check.fits(f"a block of the mask {type(mask).__name__}", shape, (*batch, *first), query, key)


def check_pairs(mask: Any, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> None:
    """Refuse a bound mask with a bool tensor that does not fit the call, or is ambiguous."""
    for part in _parts(mask, Mask):
        if isinstance(part, Dense):
            check.fits("mask", part.allowed.shape, (*batch, query.shape[-2], key.shape[-2]), query, key)


def check_bias(bias: Bias, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> None:
    """Refuse a bias whose number of heads or device is not the call's."""
    target, name = (*batch, query.shape[-2], key.shape[-2]), f"overt.{type(bias).__name__}"
    check.same_device(name, bias.source, query)
    for part in _parts(bias, Bias):
        if isinstance(part, TensorBias):
            check.fits("bias", part.tensor.shape, target, query, key)
    if _fits(bias, target):
        return
    for part in _parts(bias, Bias):
        leading = part.leading
        if type(part) in _BY_HEAD and len(leading) == 1 and not _fits(part, target):
            _refuse_heads(part, leading[0], query, key, batch)
        if not _fits(part, target):
            check.fits(f"overt.{type(part).__name__}", (*leading, *target[-2:]), target, query, key)
    check.fits(name, (*bias.leading, *target[-2:]), target, query, key)


def check_offsets(bias: Bias, query: Tensor, batch: tuple[int, ...]) -> None:
    """Refuse a bound bias whose offset does not fit the batch, or is on another device."""
    for part in _parts(bias, Bias):
        if isinstance(part.offset, Tensor):
            check.same_device(f"the offset of overt.{type(part).__name__}", part.offset, query)
            _check_entries("offset", tuple(part.offset.shape[:-2]), batch)


def check_devices(piece: Any, kind: type, query: Tensor) -> None:
    """Refuse a mask, score or normalizer with a tensor on another device. A single number on the CPU is allowed, as in torch."""
    for part in _parts(piece, kind):
        for name in [field.name for field in fields(part)] if is_dataclass(part) else []:
            tensor = getattr(part, name)
            if isinstance(tensor, Tensor) and (tensor.ndim or tensor.device.type != "cpu"):
                check.same_device(f"the {name} of overt.{type(part).__name__}", tensor, query)


def _fits(bias: Bias, target: tuple[int, ...]) -> bool:
    try:
        return check.broadcasts_to((*bias.leading, *target[-2:]), target)
    except RuntimeError:  # the parts of a sum do not fit each other
        return False


def _parts(piece: Any, kind: type) -> Iterator[Any]:
    """The masks, biases or other pieces of a kind inside a piece; the piece itself if it has no parts, or parts for other lengths."""
    if not getattr(piece, "same_lengths", True):
        yield piece
        return
    values = [getattr(piece, field.name) for field in fields(piece)] if is_dataclass(piece) else []
    inner = [value for value in values if isinstance(value, kind)]
    for part in inner:
        yield from _parts(part, kind)
    if not inner:
        yield piece


def _check_entries(what: str, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    """Refuse a shape with neither one entry for each batch element nor one for all."""
    padded = (1,) * (len(batch) - len(shape)) + shape
    for index, (actual, size) in enumerate(zip(padded, batch, strict=True)):
        if actual != 1 and actual != size:  # `in` does not recognize equal symbolic sizes
            kind = "batch entr" if index == 0 else f"dimension {index}'s entr"
            entries = f"the one {kind}y" if size == 1 else f"each of the {size} {kind}ies"
            raise InputError(f"one {what} for {entries}", got=str(actual), fix="pass one for each, in their order")


def _refuse_heads(bias: Bias, heads: int, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> None:
    name, what = f"overt.{type(bias).__name__}", _BY_HEAD[type(bias)]
    if not batch:
        raise InputError(
            f"a dimension of heads for {name}, (..., H, length, features)",
            got=f"{name} of {heads} heads, {check.shapes(query=query, key=key)}",
            fix="give query, key and value their heads, or pass one of a single head",
        )
    example = f": overt.ALiBi(overt.biases.alibi_slopes({batch[-1]}))" if isinstance(bias, ALiBi) else ""
    raise InputError(
        f"one {what} for each of the {batch[-1]} heads", got=str(heads), fix=f"make it for {batch[-1]} heads{example}"
    )
