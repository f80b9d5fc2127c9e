"""One recorded call of attention: its inputs, its output, and which of its heads were recorded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from overt.attention.biases import Bias, TensorBias
from overt.attention.kernels.call import Call
from overt.attention.masks import Mask
from overt.attention.pieces import piece
from overt.attention.scores import Cosine, Dot, Gaussian
from overt.errors import InputError
from overt.lens.capture.by_head import piece_for_heads, some_heads
from overt.lens.capture.written_out.weighted import ExpOfLogWeights
from overt.lens.storage.tensor_cache import TensorCache

# MASKED_GAP: a score this far below the row's largest one is masked (weight 0); models mask with −inf or their dtype's lowest number.
MASKED_GAP = 3e4


@dataclass(frozen=True, eq=False, repr=False)
class Captured:
    """A call of attention inside a model: the base class of full calls, summaries and stored calls.

    `number` counts the calls of the whole recording, `call_index` the calls of pass `pass_index`. All count from 0 and include
    calls that were not recorded. `heads` are the recorded heads by the model's own numbers, out of `total`. `batch` is the number
    of sequences, and `score_dtype` the dtype to which the model rounds its scores. `notes` warn a reader of the weights, for
    example that the model's code path ignored a part of its configuration.
    """

    number: int
    call_index: int
    pass_index: int
    layer: str
    source: str
    heads: tuple[int, ...]
    total: int
    batch: int
    queries: int
    keys: int
    score_dtype: torch.dtype
    notes: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the recorded tensors, without masks that are the model's own tensors."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of `Captured`, which identify the call."""
        return {field.name: getattr(self, field.name) for field in fields(Captured)}

    def opened(self) -> "Captured":
        """The call with its tensors, which are read from their files if they were offloaded."""
        return self

    def frozen(self) -> "Captured":
        """The call without tensors that the model may still write to."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class CapturedCall(Captured):
    """A call with its query, key and value, in `call`, and the model's own `output`.

    Mask and bias are the model's own tensors, listed in `versions` with their version counters. `copies` are the heads in `call`:
    more than the recorded ones if heads cannot be separated.
    """

    call: Call
    output: Tensor
    copies: tuple[int, ...]
    versions: tuple[tuple[Tensor, int], ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of query, key, value and output."""
        return size(self.call, self.output)

    def checked_call(self) -> Call:
        """The call. Raises InputError if the model wrote to its mask or bias after it."""
        if any(tensor._version != version for tensor, version in self.versions):
            raise InputError(
                f"the mask of {self.layer} unchanged, because a recording refers to it and does not copy it",
                got="a tensor that the model wrote to after the call",
                fix="read the recording before the model runs on, or pass the model a copy of the mask",
            )
        return self.call

    def frozen(self) -> "CapturedCall":
        """The call after one last check of its mask and bias, which later reads do not repeat."""
        return replace(self, call=self.checked_call(), versions=())


class RowsRead(NamedTuple):
    """The first `queries` of the `length` tokens that pass `pass_index` read, in the sequences `rows` (None: all, in order)."""

    pass_index: int
    rows: tuple[int, ...] | None
    queries: int
    length: int


def head_count(call: Call) -> int:
    """The number of heads of a call: dimension −3 of a query with four or more dimensions, else 1."""
    return call.batch[-1] if call.query.ndim >= 4 and call.batch else 1


def by_head(call: Call, tensor: Tensor, last: int = 2) -> Tensor:
    """A result of a call as (B, H, …): all dimensions before the `last` ones, joined into these two."""
    heads, ends = head_count(call), tensor.shape[tensor.ndim - last :]
    return tensor.expand(*call.batch, *ends).reshape(math.prod(call.batch) // max(heads, 1), heads, *ends)


def checked_heads(heads: Sequence[int] | None, total: int, layer: str) -> tuple[int, ...]:
    """The heads to record, without duplicates; all heads for None. Raises InputError for a head that the layer does not have."""
    if heads is None:
        return tuple(range(total))
    if any(not 0 <= head < total for head in heads):
        raise InputError(f"heads from 0 to {total - 1} of {layer}", got=f"heads={list(heads)}", fix="leave out the others")
    return tuple(dict.fromkeys(heads))


def sliceable(call: Call) -> bool:
    """Whether one head of the call can be scored without the others: its score and normalizer have no tensors of parameters."""
    if type(call.score) not in (Dot, Cosine, Gaussian):
        return False
    pieces = [call.score, call.normalizer]
    return not any(isinstance(value, Tensor) for piece in pieces for value in getattr(piece, "__dict__", {}).values())


def size(call: Call, output: Tensor, heads: int = 1, total: int = 1) -> int:
    """The bytes of a copy of `heads` of `total` heads."""
    tensors = [call.query, call.key, call.value, output]
    if isinstance(call.normalizer, ExpOfLogWeights):
        assert call.bias is not None
        tensors.append(call.bias.source)  # the model's weights themselves
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) * heads // total


def copied(call: Call, output: Tensor, heads: tuple[int, ...], total: int, cache: TensorCache) -> tuple[Call, Tensor]:
    """The call of only these heads with copies of its inputs, because models write to their own buffers, such as caches.

    Mask and bias are the model's own tensors, detached from its gradients.
    """
    tensors = {"query": call.query, "key": call.key, "value": call.value}
    pieces: dict[str, Any] = {name: detached(getattr(call, name), cache) for name in ("mask", "bias")}
    pieces |= {name: _contiguous_copy(getattr(call, name)) for name in ("score", "normalizer")}
    pieces["library"] = None  # results are tensors even if the call's arrays come from another library
    if len(heads) == total:
        copies = {name: _contiguous_copy(tensor) for name, tensor in tensors.items()}
        return replace(call, **copies, **pieces), _contiguous_copy(output)
    copies = {name: select_heads(tensor, heads, total) for name, tensor in tensors.items()}
    if call.mask is not None:
        mask = piece_for_heads(pieces["mask"], some_heads(heads, total))
        pieces["mask"] = HeadsOfMask(pieces["mask"], heads, total) if mask is None else mask
    if call.bias is not None:
        pairs, bias = call.bias.added_pairs(), piece_for_heads(pieces["bias"], some_heads(heads, total))
        if pairs is not None:
            pieces["bias"] = TensorBias(select_heads(pairs, heads, total))
        else:
            pieces["bias"] = HeadsOfBias(pieces["bias"], heads, total) if bias is None else bias
    return replace(call, batch=(*call.batch[:-1], len(heads)), **copies, **pieces), select_heads(output, heads, total)


def without_copies(call: Call, output: Tensor, heads: tuple[int, ...], total: int, cache: TensorCache) -> tuple[Call, Tensor]:
    """The call like `copied`, but without copies if all heads are recorded: valid until the model continues."""
    if len(heads) < total:
        return copied(call, output, heads, total, cache)
    tensors = {name: getattr(call, name).detach() for name in ("query", "key", "value")}
    pieces = {name: detached(getattr(call, name), cache) for name in ("mask", "bias", "score", "normalizer")}
    return replace(call, **tensors, **pieces), output.detach()


def select_heads(tensor: Tensor, heads: tuple[int, ...], total: int) -> Tensor:
    """A copy of the heads (dimension −3) that these query heads read; a head that several query heads share is repeated."""
    tensor = tensor.detach()
    if tensor.ndim < 3 or tensor.shape[-3] == 1:
        return tensor.clone()
    group = total // tensor.shape[-3]
    if len(heads) == 1:
        return tensor.narrow(-3, heads[0] // group, 1).clone(memory_format=torch.contiguous_format)
    return tensor.index_select(-3, torch.tensor([head // group for head in heads], device=tensor.device))


def select_entries(tensor: Tensor, entries: Sequence[int] | None, after: int) -> Tensor:
    """These entries of the batch, the dimension before the last `after` ones; all for None, or if one entry serves the whole batch."""
    if entries is None or tensor.ndim <= after or tensor.shape[-1 - after] == 1:
        return tensor
    return tensor.index_select(-1 - after, torch.tensor(entries, dtype=torch.long, device=tensor.device))


def detached(piece: Any, cache: TensorCache) -> Any:
    """The piece with its tensors detached. A caller's own class of piece stays as it is.

    Tensors made in inference mode are copied, because torch does not count writes to them.
    """

    def detach(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return cache(leaf, Tensor.clone, torch.equal) if leaf.is_inference() else leaf.detach()

    return tree_map(detach, piece)


@dataclass(frozen=True, eq=False)
class _HeadsOf:
    inner: Any
    heads: tuple[int, ...]
    total: int

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The block of these heads."""
        block = self.inner.block(rows, keys)
        return select_heads(block, self.heads, self.total) if block.ndim >= 3 else block


@piece
class HeadsOfMask(_HeadsOf, Mask):
    """Some heads of a mask that is bound to its call."""


@piece
class HeadsOfBias(_HeadsOf, Bias):
    """Some heads of a bias that is bound to its call."""


class _PartOf:
    def __init__(self, part: Callable[[Tensor, Tensor], Tensor]):
        self.part = part

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The function's result for this block."""
        return self.part(rows, keys)


class _PartOfMask(_PartOf, Mask):
    """A part of a mask that is bound to its call."""


class _PartOfBias(_PartOf, Bias):
    """A part of a bias that is bound to its call."""


def parts_of_pieces(call: Call, part: Callable[[Any, Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """The call's mask and bias, if any, wrapped so that their blocks are `part(piece, rows, keys)`."""
    mask, bias = (None if piece is None else partial(part, piece) for piece in (call.mask, call.bias))
    return {"mask": None if mask is None else _PartOfMask(mask), "bias": None if bias is None else _PartOfBias(bias)}


def versions(call: Call) -> tuple[tuple[Tensor, int], ...]:
    """The tensors of mask and bias with their version counters, if torch counts writes to them."""
    leaves = tree_leaves((call.mask, call.bias))
    return tuple((leaf, leaf._version) for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_inference())


def fresh(call: Call) -> Call:
    """The call with contiguous copies of its tensors, so that strides cannot change the rounding of a result."""
    names = ("query", "key", "value", "score", "normalizer")
    return replace(call, **{name: _contiguous_copy(getattr(call, name)) for name in names})


def _contiguous_copy(tensor_or_piece: Any) -> Any:
    def copy(leaf: Any) -> Any:
        return leaf.detach().clone(memory_format=torch.contiguous_format) if isinstance(leaf, Tensor) else leaf

    return tree_map(copy, tensor_or_piece)
