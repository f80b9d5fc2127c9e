"""One recorded call of attention: what went in, what came out, and which heads of it are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from overt.errors import InputError
from overt.kernels.call import Call
from overt.masks import Mask
from overt.scores import Cosine, Dot, Gaussian


@dataclass(frozen=True, eq=False, repr=False)
class Captured:
    """A call of attention inside a model: query, key and value as `call` holds them, and the model's own output.

    `number` counts the calls of the whole recording and `place` those of one pass, both from 0, calls that were not kept included.
    `heads` are the kept heads by the model's own numbers, out of `total`; `score_dtype` is what the model rounds its scores to.
    `notes` say what a reader of the weights has to know, such as a part of the model's configuration that its own path left out.
    """

    number: int
    place: int
    turn: int
    layer: str
    source: str
    call: Call
    output: Tensor
    heads: tuple[int, ...]
    copies: tuple[int, ...]
    total: int
    score_dtype: torch.dtype
    versions: tuple[tuple[Tensor, int], ...]
    notes: tuple[str, ...] = ()

    def checked_call(self) -> Call:
        """The call, if the mask and bias, which are the model's own tensors, are still what they were."""
        if any(tensor._version != version for tensor, version in self.versions):
            raise InputError(
                f"the mask of {self.layer} is kept by reference and has to stay as it was",
                got="a tensor that the model wrote over after the call",
                cure="look at the recording before the model runs on, or hand the model a copy of the mask",
            )
        return self.call


def head_count(call: Call) -> int:
    """How many heads a call has: dimension −3 of a query with four or more dimensions, else one."""
    return call.batch[-1] if call.query.ndim >= 4 and call.batch else 1


def kept_heads(wanted: Sequence[int] | None, total: int, layer: str) -> tuple[int, ...]:
    """The heads to keep, checked against how many there are."""
    if wanted is None:
        return tuple(range(total))
    wrong = [head for head in wanted if not 0 <= head < total]
    if wrong:
        raise InputError(f"{layer} has heads 0 to {total - 1}", got=f"heads={list(wanted)}", cure="leave out the others")
    return tuple(dict.fromkeys(wanted))


def sliceable(call: Call) -> bool:
    """Whether one head of the call can be scored without the others: no score parameters, which may differ by head."""
    if type(call.score) not in (Dot, Cosine, Gaussian):
        return False
    held = [call.score, call.normalizer]
    return not any(isinstance(value, Tensor) for piece in held for value in getattr(piece, "__dict__", {}).values())


def size(call: Call, output: Tensor, heads: int, total: int) -> int:
    """Bytes that a copy of these heads takes."""
    tensors = (call.query, call.key, call.value, output)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) * heads // total


def copied(call: Call, output: Tensor, heads: tuple[int, ...], total: int) -> tuple[Call, Tensor]:
    """The call with copies of its inputs, cut down to these heads: models write over their own buffers, caches above all.

    Mask and bias are the model's own tensors, cut off from its gradients.
    """
    tensors = {"query": call.query, "key": call.key, "value": call.value}
    pieces = {name: own(getattr(call, name)) for name in ("mask", "bias", "score", "normalizer")}
    if len(heads) == total:
        return replace(
            call, **{name: tensor.detach().clone() for name, tensor in tensors.items()}, **pieces
        ), output.detach().clone()
    tensors = {name: chosen(tensor, heads, total) for name, tensor in tensors.items()}
    pieces["mask"] = None if call.mask is None else HeadsOfMask(pieces["mask"], heads, total)
    pieces["bias"] = heads_of_bias(pieces["bias"], heads, total)
    return replace(call, batch=(*call.batch[:-1], len(heads)), **tensors, **pieces), chosen(output, heads, total)


def chosen(tensor: Tensor, heads: tuple[int, ...], total: int) -> Tensor:
    """A copy of what these query heads read, dimension −3, repeated where heads share one."""
    tensor = tensor.detach()
    if tensor.ndim < 3 or tensor.shape[-3] == 1:
        return tensor.clone()
    group = total // tensor.shape[-3]
    return tensor.index_select(-3, torch.tensor([head // group for head in heads], device=tensor.device))


def own(piece: Any) -> Any:
    """The same piece with its tensors detached; a callable of the caller's own stays as it is.

    Tensors made in inference mode do not count how often they are written to, so these are copied.
    """
    return tree_map(lambda leaf: _detached(leaf) if isinstance(leaf, Tensor) else leaf, piece)


def _detached(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor.detach()


class HeadsOfMask(Mask):
    """Some heads of a mask that is bound to its call."""

    def __init__(self, inner: Any, heads: tuple[int, ...], total: int):
        self.inner, self.heads, self.total = inner, heads, total

    def block(self, rows, keys):
        """The chosen heads of the inner mask's block."""
        block = self.inner.block(rows, keys)
        return chosen(block, self.heads, self.total) if block.ndim >= 3 else block


def heads_of_bias(bias: Any, heads: tuple[int, ...], total: int) -> Any:
    """Some heads of a bias that is bound to its call: of a tensor, or of the parameters of one of overt's."""
    if isinstance(bias, Tensor):
        return chosen(bias, heads, total) if bias.ndim >= 3 and bias.shape[-3] > 1 else bias
    for name in ("slopes", "table"):
        held = getattr(bias, name, None)
        if isinstance(held, Tensor) and (name == "slopes" or held.ndim > 1) and held.shape[0] == total:
            return replace(bias, **{name: held[list(heads)]})
    return bias


def versions(call: Call) -> tuple[tuple[Tensor, int], ...]:
    """The tensors of mask and bias and how often each was written to, where torch counts that."""
    leaves = tree_leaves((call.mask, call.bias))
    return tuple((leaf, leaf._version) for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_inference())
