"""Attention that a model writes out itself, scores → softmax → matrix product, followed from function to function.

A result of softmax, or exponentials of scores, are followed until they meet the values: that product is attention, and the weights
are what was multiplied.
The scores are followed too, from the product of query and key on. Where nothing but scales, masks and biases came between, they
say the call in full; otherwise the weights themselves are kept.
"""

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.errors import OvertError
from overt.kernels.call import Call, unrounded
from overt.layers.bias_sum import sum_of
from overt.lens.products import Product, product
from overt.lens.ranges import MasksSeen
from overt.mechanism import formula
from overt.pieces import piece
from overt.scores import Dot

Heads = Callable[[], int | None]

KEPT = "query and key are not to be had here, so the model's own weights are kept"
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_REMEMBERED = 64  # tensors that are followed at once; what comes to nothing is let go
_BEGIN = {"softmax", "matmul", "bmm", "mm", "baddbmm", "einsum"}
_SAME = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach"}
_SHAPED = {"view", "reshape", "unflatten", "flatten", "unsqueeze", "squeeze", "__getitem__"}
_OTHER_PRODUCTS = {"einsum", "tensordot", "addmm", "addbmm"}
_REARRANGED = {"pad", "as_strided", "cat", "stack", "roll"}
_SWAPS = {"transpose", "swapaxes", "swapdims", "permute"}
# The names of torch's arguments, for those functions whose arguments are told apart here.
_ORDER = {
    "softmax": ("input", "dim"),
    "log_softmax": ("input", "dim"),
    "dropout": ("input", "p", "training", "inplace"),
    "matmul": ("input", "other"),
    "bmm": ("input", "mat2"),
    "mm": ("input", "mat2"),
    "baddbmm": ("input", "batch1", "batch2", "beta", "alpha"),
    "mul": ("input", "other"),
    "div": ("input", "other", "rounding_mode"),
    "add": ("input", "other", "alpha"),
    "sub": ("input", "other", "alpha"),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "transpose": ("input", "dim0", "dim1"),
    "permute": ("input", "dims"),
}
_TRANSPOSES = (Tensor.mT.__get__, Tensor.T.__get__)  # type: ignore[attr-defined]


@piece
class AsKept:
    """Not a normalizer of the model's: it turns the logarithms of weights, which are kept as a bias, into the weights again.

    >>> AsKept()(torch.tensor([[0.25, 0.75]]).log(), torch.ones(1, 2, dtype=torch.bool))
    tensor([[0.2500, 0.7500]])
    """

    def __call__(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """exp(log w)."""
        return torch.exp(scores)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores on their way to a softmax: scale · query · key + what was added; all as the model multiplied them."""

    query: Tensor
    key: Tensor
    scale: float = 1.0
    added: tuple[Tensor, ...] = ()

    def after(self, name: str, given: list[Any], own: int, output: Tensor) -> "Scores | None":
        """What they are after one more function, of which they are argument number `own`; None if that cannot be told."""
        if (
            name in _SAME
            or (name == "log_softmax" and given[1] in (-1, output.ndim - 1))
            or (name in _SHAPED and output.shape[-2:] == (self.query.shape[-2], self.key.shape[-2]))
        ):
            return self
        simple = len([each for each in given if each is not None]) == 2 and (own == 0 or name in ("mul", "add"))
        other = given[1 - own] if simple else None
        if name in ("mul", "div") and simple and (number := _number(other)):
            factor = number if name == "mul" else 1 / number
            scaled = tuple(tensor * factor for tensor in self.added)
            return replace(self, scale=self.scale * factor, added=scaled)
        if name in ("add", "sub") and simple and isinstance(other, Tensor):
            return replace(self, added=(*self.added, other.detach() if name == "add" else -other.detach()))
        if name == "masked_fill" and own == 0:
            return self._filled(given[1], given[2])
        if name == "where" and own == 1 and len(given) == 3:
            return self._filled(~given[0], given[2])
        return None

    def _filled(self, barred: Tensor, value: Any) -> "Scores | None":
        number = _number(value)
        lowest = torch.finfo(self.query.dtype).min
        if number is None or number > -1e4 or (number > lowest and bool(barred.all(-1).any())):
            return None
        floor = torch.full((), -math.inf if number == -math.inf else lowest, dtype=self.query.dtype, device=barred.device)
        return replace(self, added=(*self.added, torch.where(barred, floor, torch.zeros_like(floor))))

    def call(self, like: Tensor, value: Tensor, masks: MasksSeen) -> Call:
        """The call of attention that they are part of, where `like` are its weights (..., Q, K)."""
        query, key, *added = (_shaped(tensor, like) for tensor in (self.query, self.key, *self.added))
        mask, bias = None, None
        for tensor in added:
            found = masks.read(tensor)
            mask = found.mask if mask is None else mask if found.mask is None else mask & found.mask
            bias = sum_of(bias, found.bias)
        return Call.of(query, key, value, score=Dot(self.scale), mask=mask, bias=bias)


@dataclass(frozen=True, eq=False)
class Weights:
    """A result of softmax on its way to the values, its leading dimensions and its scores.

    `turned` says that the keys are not the last dimension but the one before, None that they are neither; `by_hand` that they are
    exponentials of scores, which the model has to divide by their sum.
    """

    leading: tuple[int, ...]
    scores: Scores | None
    turned: bool | None
    undropped: Tensor | None = None
    dropout: float = 0.0
    by_hand: bool = False

    def after(self, name: str, func: Any, given: list[Any], before: Tensor, output: Tensor) -> "Weights | None":
        """What they are after one more function; None where they are weights no more."""
        if name == "dropout":
            rate, active = given[1] if len(given) > 1 else 0.5, given[2] if len(given) > 2 else True
            return replace(self, undropped=before, dropout=rate) if active and rate > 0 else self
        if self.undropped is not None and name not in _SAME | _SHAPED:
            return replace(self, turned=None)
        if name in _SWAPS or func in _TRANSPOSES:
            return replace(self, turned=_turned(self.turned, name, given, before.ndim))
        return self if output.shape[-2:] == before.shape[-2:] or name in _SHAPED else None


@dataclass(frozen=True, eq=False)
class Mixed:
    """Weights (..., Q, K) that met values (..., K, E) in a product, its output (..., Q, E), and the scores that they came from."""

    weights: Tensor
    value: Tensor
    output: Tensor
    dropout: float
    scores: Scores | None

    def call(self, masks: MasksSeen) -> tuple[Call, bool] | None:
        """The call, and whether query and key are in it; None where it is not attention."""
        if self.scores is not None:
            try:
                call = self.scores.call(self.weights, self.value, masks)
            except (OvertError, RuntimeError):  # shapes that do not come together: something else was scored
                call = None
            if call is not None and agrees(call, self.weights):
                return call, True
        return None if bool((self.weights < 0).any()) else (self.kept(), False)

    def kept(self) -> Call:
        """The call with the weights themselves, as logarithms, in place of query and key."""
        weights = self.weights.detach().to(torch.promote_types(self.weights.dtype, torch.float32))
        bias = weights.nan_to_num(nan=0.0).log()
        query, key = (self.value.new_zeros(*shape[:-1], 0) for shape in (weights.shape, self.value.shape))
        return Call.of(query, key, self.value, bias=bias, normalizer=AsKept())


class WrittenOut:
    """Follows scores and weights through the functions that a model calls."""

    def __init__(self):
        self.known: dict[int, tuple[weakref.ref[Tensor], Scores | Weights]] = {}

    def relevant(self, name: str) -> bool:
        """Whether a function of this name can begin or go on with attention."""
        return bool(self.known) or name in _BEGIN

    def before(self, name: str, given: list[Any]) -> Tensor | None:
        """The followed tensor that a function is about to take; a copy, if dropout is going to write over it."""
        followed = next((each for each in given if isinstance(each, Tensor) and self._of(each) is not None), None)
        if followed is not None and plain(name) == "dropout" and (name.endswith("_") or (len(given) > 3 and given[3])):
            return followed.detach().clone()
        return followed

    def see(
        self, name: str, func: Any, given: list[Any], before: Tensor | None, output: Any, heads: Heads
    ) -> Mixed | str | None:
        """Follow one function: the attention that it completed, or why that cannot be recorded, or None.

        `before` is what the method of that name said, `heads` how many heads the module that runs has.
        """
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        name = plain(name)
        if name == "softmax":
            self._softmax(given, output)
        elif (found := product(name, given, output)) is not None:
            return self._product(found, output, heads)
        elif before is not None:
            return self._follow(name, func, given, before, output)
        return None

    def _softmax(self, given: list[Any], output: Tensor) -> None:
        scores = self._of(given[0])
        scores = scores if isinstance(scores, Scores) else None
        dim = given[1] % output.ndim - output.ndim if len(given) > 1 and isinstance(given[1], int) else -1
        # Two dimensions may be a classifier's answer as well: only what query and key were multiplied to is attention.
        if output.ndim > 2 or (scores is not None and output.ndim == 2):
            turned = {-1: False, -2: True}.get(dim)
            self._know(output, Weights(tuple(output.shape[:-2]), scores if dim == -1 else None, turned))

    def _product(self, found: Product, output: Tensor, heads: Heads) -> Mixed | str | None:
        for tensor in (found.left, found.right):
            if isinstance(self._of(tensor), Weights):
                return self._mixed(found, tensor, heads)
        if (pair := found.scores()) is not None:
            query, key = (tensor.detach() for tensor in pair)
            added = () if found.added is None else (found.added.detach(),)
            self._know(output, Scores(query, key, found.alpha, added))
        return None

    def _mixed(self, found: Product, tensor: Tensor, heads: Heads) -> Mixed | str:
        known = self._of(tensor)
        assert isinstance(known, Weights)
        if known.undropped is not None:
            undropped = known.undropped.detach().reshape(tensor.shape)
            found = found._replace(**{"left" if tensor is found.left else "right": undropped})
            tensor = undropped
        parts = None if known.turned is None else found.weighted(tensor, known.turned)
        if parts is None:
            return "softmax and matrix product are written out in an order that is not understood"
        weights, value, output = parts
        if known.by_hand and bool((weights.sum(-1) > 1.5).any()):
            return "exponentials of scores meet a matrix product before they are divided by their sum"
        leading = known.leading if len(known.leading) > 1 else (-1, count) if (count := heads()) else None
        if weights.ndim == 3 and leading is not None and weights.shape[0] % math.prod(leading) == 0:
            weights, value, output = (
                part if part.ndim < 3 else part.unflatten(0, leading) for part in (weights, value, output)
            )
        count = heads() if weights.ndim > 4 else None
        if count is not None and count == math.prod(weights.shape[1:-2]):  # (B, Hk, H/Hk, Q, K)
            weights, value, output = (
                part.flatten(1, -3) if part.ndim == weights.ndim else part for part in (weights, value, output)
            )
        elif count is not None and count == weights.shape[1] != weights.shape[-3]:  # (B, H, blocks, Q, K)
            return "queries and keys are cut into blocks, whose places are not those of the sequence"
        return Mixed(weights, value.to(output.dtype), output, known.dropout, known.scores)

    def _follow(self, name: str, func: Any, given: list[Any], before: Tensor, output: Tensor) -> str | None:
        followed = next(each for each in given if isinstance(each, Tensor) and self._of(each) is not None)
        known = self._of(followed)
        if isinstance(known, Scores):
            places = [place for place, each in enumerate(given) if each is followed]
            after = known.after(name, given, places[0], output) if len(places) == 1 else None
            if name == "exp":
                after = Weights(tuple(output.shape[:-2]), known, False, by_hand=True)
        else:
            assert known is not None
            if name == "mul" and output.numel() > followed.numel():
                return "weights and values are multiplied and summed, not a matrix product"
            if name in _OTHER_PRODUCTS:
                return f"weights meet their values in {name}, which is not followed"
            if name in _REARRANGED and len(known.leading) > 1:
                return f"weights are laid out anew by {name}, and not followed from there"
            after = known.after(name, func, given, before, output)
        self.known.pop(id(output), None)
        if after is not None:
            self._know(output, after)
        return None

    def _of(self, tensor: Any) -> Scores | Weights | None:
        found = self.known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def _know(self, tensor: Tensor, what: Scores | Weights) -> None:
        place = id(tensor)
        while len(self.known) >= _REMEMBERED:
            del self.known[next(iter(self.known))]
        self.known[place] = weakref.ref(tensor, lambda _: self.known.pop(place, None)), what


def agrees(call: Call, weights: Tensor) -> bool:
    """Whether a call gives these weights (..., Q, K), as far as its first, middle and last rows tell."""
    return disagreement(call, weights) <= _TOLERANCE[call.query.dtype]


@torch.no_grad()
def disagreement(call: Call, weights: Tensor) -> float:
    """How far a call's weights are from these at most, in the first, middle and last row; NaN is not compared."""
    ready, largest = call.ready(), 0.0
    with unrounded(call.query):
        for row in {0, call.queries // 2, call.queries - 1}:
            found = formula(ready.block(ready.rows(row, row + 1), every_key=True))[2]
            model = weights[..., row : row + 1, :].detach().to(found.dtype)
            if found.shape != model.shape:
                return math.inf
            largest = max(largest, float((found - model).abs().nan_to_num(nan=0.0).max()))
    return largest


def arguments(name: str, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """What a function was given, in torch's order, None where nothing was; lists of operands opened."""
    given = list(args)
    if kwargs and plain(name) in _ORDER:
        given += [kwargs.get(each) for each in _ORDER[plain(name)][len(args) :]]
    elif kwargs:
        given += kwargs.values()
    return [each for one in given for each in (one if _operands(one) else [one])]


def _operands(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], Tensor)


def plain(name: str) -> str:
    """The name of a function without the mark of writing in place: `mul_` is mul."""
    return name if name.startswith("__") else name.rstrip("_")


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _turned(turned: bool | None, name: str, given: list[Any], ndim: int) -> bool | None:
    """Where the keys are after dimensions were swapped."""
    places = list(range(ndim))
    if name in ("transpose", "swapaxes", "swapdims"):
        first, second = given[1] % ndim, given[2] % ndim
        places[first], places[second] = places[second], places[first]
    elif name == "permute":
        dims = given[1] if isinstance(given[1], list | tuple) else given[1:]
        places = [dim % ndim for dim in dims]
    elif ndim > 1:
        places[-2:] = places[:-3:-1]
    last = places[-2:]
    if turned is None or set(last) != {ndim - 2, ndim - 1}:
        return None
    return turned if last == [ndim - 2, ndim - 1] else not turned


def _shaped(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor with its leading dimensions as `like` has them: B·H in two, the heads of groups in one."""
    if tensor.ndim > like.ndim == 4:
        return tensor.flatten(1, -3)
    merged = tensor.ndim == 3 and like.ndim == 4 and tensor.shape[0] == like.shape[0] * like.shape[1]
    return tensor.unflatten(0, like.shape[:2]) if merged else tensor
