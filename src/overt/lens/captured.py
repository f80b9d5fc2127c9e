"""One recorded call of attention: what went in, what came out, and which heads of it are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.masks import Mask
from overt.attention.pieces import piece
from overt.attention.scores import Cosine, Dot, Gaussian
from overt.errors import InputError
from overt.lens.capture.by_head import of_heads, some_heads
from overt.lens.capture.written_out.weighted import ExpOfLogWeights
from overt.lens.storage.tensor_cache import TensorCache


@dataclass(frozen=True, eq=False, repr=False)
class Captured:
    """A call of attention inside a model: which one it was, whatever of it is kept.

    `number` counts the calls of the whole recording and `place` those of one pass (`turn`), all from 0, calls that were not kept
    included. `heads` are the kept heads by the model's own numbers, out of `total`; `batch` is the number of sequences;
    `score_dtype` is what the model rounds its scores to. `notes` say what a reader of the weights has to know, such as a part
    of the model's configuration that its own path left out.
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
        """What is held of the call; masks that are the model's own tensors are not counted."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """Which call it was, without what is kept of it."""
        return {each.name: getattr(self, each.name) for each in fields(Captured)}

    def opened(self) -> "Captured":
        """The call with its tensors at hand."""
        return self

    def frozen(self) -> "Captured":
        """The call without anything that the model may still write over."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class CapturedCall(Captured):
    """A call with its query, key and value as `call` holds them, and the model's own `output`.

    Mask and bias are the model's own tensors; `versions` has how often each was written to by then. `copies` are the heads in
    `call`, which may be more than those asked for where heads do not come apart.
    """

    call: Call
    output: Tensor
    copies: tuple[int, ...]
    versions: tuple[tuple[Tensor, int], ...] = ()

    @property
    def bytes(self):
        """Query, key, value and output."""
        return size(self.call, self.output)

    def checked_call(self) -> Call:
        """The call, if mask and bias are still what they were."""
        if any(tensor._version != version for tensor, version in self.versions):
            raise InputError(
                f"the mask of {self.layer} is kept by reference and has to stay as it was",
                got="a tensor that the model wrote over after the call",
                fix="look at the recording before the model runs on, or hand the model a copy of the mask",
            )
        return self.call

    def frozen(self):
        """With mask and bias believed to stay as they are now."""
        return replace(self, call=self.checked_call(), versions=())


def head_count(call: Call) -> int:
    """How many heads a call has: dimension −3 of a query with four or more dimensions, else one."""
    return call.batch[-1] if call.query.ndim >= 4 and call.batch else 1


def kept_heads(wanted: Sequence[int] | None, total: int, layer: str) -> tuple[int, ...]:
    """The heads to keep, checked against how many there are."""
    if wanted is None:
        return tuple(range(total))
    wrong = [head for head in wanted if not 0 <= head < total]
    if wrong:
        raise InputError(f"{layer} has heads 0 to {total - 1}", got=f"heads={list(wanted)}", fix="leave out the others")
    return tuple(dict.fromkeys(wanted))


def sliceable(call: Call) -> bool:
    """Whether one head of the call can be scored without the others: no score parameters, which may differ by head."""
    if type(call.score) not in (Dot, Cosine, Gaussian):
        return False
    held = [call.score, call.normalizer]
    return not any(isinstance(value, Tensor) for piece in held for value in getattr(piece, "__dict__", {}).values())


def size(call: Call, output: Tensor, heads: int = 1, total: int = 1) -> int:
    """Bytes that a copy of these heads takes."""
    tensors = [call.query, call.key, call.value, output]
    if isinstance(call.normalizer, ExpOfLogWeights):
        tensors.append(call.bias)  # the model's weights themselves
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) * heads // total


def copied(call: Call, output: Tensor, heads: tuple[int, ...], total: int, once: TensorCache) -> tuple[Call, Tensor]:
    """The call with copies of its inputs, cut down to these heads: models write over their own buffers, caches above all.

    Mask and bias are the model's own tensors, cut off from its gradients.
    """
    tensors = {"query": call.query, "key": call.key, "value": call.value}
    pieces: dict[str, Any] = {name: own(getattr(call, name), once) for name in ("mask", "bias")}
    pieces |= {name: _copy(getattr(call, name)) for name in ("score", "normalizer")}
    if len(heads) == total:
        return replace(call, **{name: _copy(tensor) for name, tensor in tensors.items()}, **pieces), _copy(output)
    copies = {name: chosen(tensor, heads, total) for name, tensor in tensors.items()}
    if call.mask is not None:
        some = of_heads(pieces["mask"], some_heads(heads, total))
        pieces["mask"] = HeadsOfMask(pieces["mask"], heads, total) if some is None else some
    if isinstance(call.bias, Bias):
        known = of_heads(pieces["bias"], some_heads(heads, total))
        pieces["bias"] = HeadsOfBias(pieces["bias"], heads, total) if known is None else known
    elif call.bias is not None:
        pieces["bias"] = chosen(pieces["bias"], heads, total)
    return replace(call, batch=(*call.batch[:-1], len(heads)), **copies, **pieces), chosen(output, heads, total)


def lent(call: Call, output: Tensor, heads: tuple[int, ...], total: int, once: TensorCache) -> tuple[Call, Tensor]:
    """The same without copies, where all heads are wanted: for as long as the model has not run on."""
    if len(heads) < total:
        return copied(call, output, heads, total, once)
    tensors = {name: getattr(call, name).detach() for name in ("query", "key", "value")}
    pieces = {name: own(getattr(call, name), once) for name in ("mask", "bias", "score", "normalizer")}
    return replace(call, **tensors, **pieces), output.detach()


def chosen(tensor: Tensor, heads: tuple[int, ...], total: int) -> Tensor:
    """A copy of what these query heads read, dimension −3, repeated where heads share one."""
    tensor = tensor.detach()
    if tensor.ndim < 3 or tensor.shape[-3] == 1:
        return tensor.clone()
    group = total // tensor.shape[-3]
    return tensor.index_select(-3, torch.tensor([head // group for head in heads], device=tensor.device))


def own(held: Any, once: TensorCache) -> Any:
    """The same piece with its tensors detached; an object of the caller's own stays as it is.

    Tensors made in inference mode do not count how often they are written to, so these are copied.
    """
    return tree_map(lambda leaf: _detached(leaf, once) if isinstance(leaf, Tensor) else leaf, held)


def _detached(tensor: Tensor, once: TensorCache) -> Tensor:
    return once(tensor, Tensor.clone, torch.equal) if tensor.is_inference() else tensor.detach()


@piece
class HeadsOfMask(Mask):
    """Some heads of a mask that is bound to its call."""

    inner: Any
    heads: tuple[int, ...]
    total: int

    def block(self, rows, keys):
        """The chosen heads of the inner mask's block."""
        block = self.inner.block(rows, keys)
        return chosen(block, self.heads, self.total) if block.ndim >= 3 else block


@piece
class HeadsOfBias(Bias):
    """Some heads of a bias that is bound to its call."""

    inner: Any
    heads: tuple[int, ...]
    total: int

    def block(self, rows, keys):
        """The chosen heads of the inner bias's block."""
        block = self.inner.block(rows, keys)
        return chosen(block, self.heads, self.total) if block.ndim >= 3 else block


def versions(call: Call) -> tuple[tuple[Tensor, int], ...]:
    """The tensors of mask and bias and how often each was written to, where torch counts that."""
    leaves = tree_leaves((call.mask, call.bias))
    return tuple((leaf, leaf._version) for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_inference())


def fresh(call: Call) -> Call:
    """The call with copies that lie in memory one way only: how a tensor is kept must not be felt in the last digit."""
    return replace(call, **{name: _copy(getattr(call, name)) for name in ("query", "key", "value", "score", "normalizer")})


def _copy(held: Any) -> Any:
    """The same tensor, or piece, with memory of its own."""
    return tree_map(
        lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format) if isinstance(leaf, Tensor) else leaf, held
    )
