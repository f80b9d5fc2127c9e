"""Attention that a model writes out itself, scores → softmax → product with the values, tracked from function to function.

The result of a softmax is tracked until it is multiplied by the values, in a matrix product or element by element before a sum: this
is attention with these weights. With unknown query and key it is attention only if the sum is over tokens: a router's choice among
experts, or a mixture of layers, is not attention.

Scores of tokens against tokens that another function turns into weights (a sigmoid, a squared relu, sparsemax) are tracked in the
same way. A gate is different: its scores are a product with parameters, and it is multiplied by its values element by element.

The scores are also tracked, beginning with the product of query and key. If only scales, masks and biases follow, they give the
complete call; otherwise the weights themselves are recorded.
"""

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.lens.capture.token_axes.factors import SPLITS, named_dims
from overt.lens.capture.token_axes.labels import FunctionCall, Mixing
from overt.lens.capture.token_axes.propagate import TokenAxes
from overt.lens.capture.token_axes.put import PUTS, put
from overt.lens.capture.written_out.by_edge import EdgeSum, into_queries, over_neighbours, sparse_product
from overt.lens.capture.written_out.products import CallArguments, Product, arguments, multiplied_and_summed, plain, product
from overt.lens.capture.written_out.scored import SAME, Scores
from overt.lens.capture.written_out.weighted import NONLINEAR, WeightedSum, Weights

Heads = Callable[[], int | None]

_REMEMBERED = 64  # the most tensors tracked at once; the oldest are dropped
_OTHER_PRODUCTS = {"einsum", "tensordot", "addmm", "addbmm"}
_REARRANGED = {"pad", "as_strided", "cat", "stack", "roll", "index_select", "gather", "take_along_dim"}

_LINEAR = {"where", "masked_fill", "div"}  # a product of query and key may not be weights yet after these functions
_IN_ANOTHER_ORDER = "softmax and product with the values are written out in an order that is not recognised"


@dataclass(frozen=True, eq=False)
class ElementwiseProduct:
    """Weights multiplied by values element by element; a sum over the keys completes the attention."""

    weights: Tensor
    value: Tensor
    known: Weights
    dim: int  # of the keys, counted from the last


@dataclass(frozen=True)
class Exponentials:
    """Exponentials of unknown scores, which become weights after division by their sum.

    With a dimension these are logarithms of weights along it instead, which become weights by an exponential.
    """

    dim: int | None = None

    def after(self, name: str, operands: list[Any], tracked: Tensor, output: Tensor) -> "Weights | Exponentials | None":
        """The exponentials or weights after one more function, or None."""
        if name in SAME or (name in ("mul", "masked_fill", "where") and output.shape == tracked.shape):
            return self
        if name == "exp" and self.dim is not None:
            return Weights.along(output, self.dim, None)
        if name not in ("div", "true_divide") or operands[0] is not tracked or not isinstance(operands[1], Tensor):
            return None
        total = operands[1].shape
        if total == output.shape == tracked.shape:
            return Weights(None, 0, (), None, by_edge=True)
        dims = [dim for dim in range(-tracked.ndim, 0) if tracked.shape[dim] > 1 and (-dim > len(total) or total[dim] == 1)]
        return Weights.along(output, dims[0], None, by_hand=True) if len(dims) == 1 else None


class Unrecorded(NamedTuple):
    """Attention over edges that cannot be recorded, and the module that made its weights."""

    mixing: Mixing
    owner: nn.Module | None

    @property
    def mixings(self) -> list[tuple[Mixing, nn.Module]]:
        """How the module mixes tokens."""
        return [] if self.owner is None else [(self.mixing, self.owner)]


Attention = WeightedSum | EdgeSum | Unrecorded


class WrittenOut:
    """Tracks scores and weights through the functions that a model calls."""

    def __init__(self, tokens: TokenAxes, in_registry: Callable[[], bool] = lambda: False):
        self.in_registry = in_registry  # whether a function of transformers' registry runs, which only attends
        self.known: dict[int, tuple[weakref.ref[Tensor], Scores | Weights | ElementwiseProduct | Exponentials]] = {}
        self.tokens = tokens

    def before(self, name: str, operands: list[Any]) -> Tensor | None:
        """The tracked tensor among the operands of the next function; a copy if in-place dropout will change it."""
        tracked = next(
            (operand for operand in operands if isinstance(operand, Tensor) and self._tracked_as(operand) is not None), None
        )
        if tracked is not None and plain(name) == "dropout" and (name.endswith("_") or (len(operands) > 3 and operands[3])):
            return tracked.detach().clone()
        return tracked

    def observe(
        self, name: str, func: Any, call: CallArguments, before: Tensor | None, output: Any, heads: Heads
    ) -> Attention | str | None:
        """Track one function, called with (args, kwargs). Returns the attention that it completes, or the obstacle, or None.

        `before` is the result of the method of this name, `heads` the number of heads of the running module.
        """
        name, operands = plain(name), arguments(name, *call)
        if before is not None and name in SPLITS and isinstance(output, list | tuple):
            return self._split(operands, call, output)
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        if name == "softmax":
            self._softmax(operands, output)
        elif (multiplied := product(name, operands, output)) is not None:
            return self._product(multiplied, output, heads)
        elif before is not None:
            return self._trace(name, func, call, before, output, heads)
        elif name in ("exp", "log_softmax"):
            self._track(output, Exponentials(None if name == "exp" else _softmax_dim(operands, output)))
        return None

    def sparse(self, name: str, operands: list[Any], output: Any) -> EdgeSum | Unrecorded | None:
        """Track a function of sparse matrices: a softmax of one, and its product with values, which is attention over its entries."""
        if name == "_sparse_softmax":
            self._track(output, Weights(None, 0, (), None, by_edge=True))
        known = self._tracked_as(operands[0])
        if not isinstance(known, Weights) or name not in ("mm", "matmul", "_sparse_mm") or output.layout != torch.strided:
            return None
        return self._by_edge(sparse_product(operands[0], operands[1], output), known)

    def _softmax(self, operands: list[Any], output: Tensor) -> None:
        scores = self._tracked_as(operands[0])
        if not output.ndim:
            return
        dim = _softmax_dim(operands, output)
        last = dim % output.ndim == output.ndim - 1
        self._track(output, Weights.along(output, dim, scores if isinstance(scores, Scores) and last else None))

    def _split(self, operands: list[Any], call: CallArguments, outputs: Any) -> None:
        """Track the parts of weights, each with its keys."""
        known = self._tracked_as(operands[0])
        args, kwargs = call
        dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        start = 0
        for output in outputs:
            dim, size = dim % output.ndim, output.shape[dim]
            if isinstance(known, Weights):
                index = (slice(None),) * dim + (slice(start, start + size),)
                after = known.after("__getitem__", Tensor.__getitem__, ((operands[0], index), {}), operands[0], output)
                if after is not None:
                    self._track(output, after)
            start += size

    def _product(self, multiplied: Product, output: Tensor, heads: Heads) -> Attention | str | None:
        for tensor in (multiplied.left, multiplied.right):
            if not isinstance(known := self._tracked_as(tensor), Weights):
                continue
            sides = {dim: multiplied.summed_over(tensor, dim) for dim in known.dims(tensor)}
            dim = next((dim for dim, side in sides.items() if side is not None), None)
            over = range(tensor.ndim) if dim is None else [dim]
            summed = [(item, *other) for item in over if (other := multiplied.summed_over(tensor, item)) is not None]
            if not self._attends(known, tensor, summed, dim is not None):
                return None
            return self._mixed(multiplied, tensor, dim, known, None if dim is None else known.part(tensor, dim), heads)
        if (pair := multiplied.scores()) is not None:
            query, key = (tensor.detach() for tensor in pair)
            added = () if multiplied.added is None else (multiplied.added.detach(),)
            among_tokens = all(self.tokens.counts_tokens(output, dim) for dim in (-1, -2))
            self._track(output, Scores(query, key, multiplied.alpha, added, among_tokens))
        return None

    def _mixed(
        self, multiplied: Product, tensor: Tensor, dim: int | None, known: Weights, part: str | None, heads: Heads
    ) -> Attention | str | None:
        entries, value = self.tokens.parts_of_input(tensor), multiplied.sides(tensor)[2]
        if dim is not None and self._gathered(value):
            before = None if known.undropped is None else known.undropped.detach().reshape(tensor.shape)
            edges = over_neighbours(multiplied, tensor, dim, self.tokens.label(value), before)  # type: ignore[arg-type]
            if edges is not None:
                return self._by_edge(edges, known, tensor, value)
        if known.undropped is not None:
            undropped = known.undropped.detach().reshape(tensor.shape)
            multiplied = multiplied._replace(**{"left" if tensor is multiplied.left else "right": undropped})
            tensor = undropped
        parts = None if dim is None else multiplied.weighted(tensor, dim)
        if parts is None:
            return _IN_ANOTHER_ORDER
        if (reason := _no_weights(known, parts[0])) is not None:
            return reason or None
        weights, value, output = arranged = _by_head(known, *parts, heads)
        made = () if known.made_by[0] == "softmax" else (_how_made(known, weights),)
        blocks = () if arranged[0].shape[0] == parts[0].shape[0] or parts[0].ndim < 5 else (_blocks(parts[0]),)
        notes = (*made, *(() if part is None else (part,)), *blocks)
        return WeightedSum(
            weights, value.to(output.dtype), output, known.dropout, known.scores, notes, () if entries is None else (entries,)
        )

    def _attends(self, known: Weights, tensor: Tensor, summed: list[tuple[int, Tensor, int]], sure: bool = True) -> bool:
        """Whether weights that meet values are attention: by their scores, or because the sum is over tokens.

        `summed` lists the summed dimensions of the weights, each with the values and their dimension; `sure` is true if these are the
        keys.
        """
        by_softmax = known.made_by[0] == "softmax"
        if by_softmax and tensor.ndim > 2 and self.in_registry():
            return True
        if by_softmax and known.scores is not None and (known.scores.among_tokens or tensor.ndim > 2):
            return True
        if not sure and not (by_softmax and tensor.ndim > 2):
            return False
        # Two dimensions may also be a classifier's answer, so the sum must be known to be over tokens.
        counted = self.tokens.counts_tokens if len(known.leading) < 1 else self.tokens.may_count_tokens
        return any(counted(tensor, dim) or counted(value, over) for dim, value, over in summed)

    def _are_token_weights(self, known: Weights, tensor: Tensor) -> bool:
        """Whether weights belong to tokens, by their scores or their dimension of keys."""
        dims = known.dims(tensor) or (range(tensor.ndim) if known.total > 1 else [])
        return known.scores is not None or any(self.tokens.may_count_tokens(tensor, dim) for dim in dims)

    def _trace(
        self, name: str, func: Any, call: CallArguments, before: Tensor, output: Tensor, heads: Heads
    ) -> Attention | str | None:
        operands = arguments(name, *call)
        tracked = next(operand for operand in operands if isinstance(operand, Tensor) and self._tracked_as(operand) is not None)
        known, after = self._tracked_as(tracked), None
        if isinstance(known, ElementwiseProduct):
            if name in PUTS:
                return self._put(FunctionCall(name, func, *call, output), known, tracked)
            return self._summed(name, call, known, tracked, output, heads)
        if isinstance(known, Scores):
            after = self._scored(name, known, operands, tracked, output)
        elif isinstance(known, Exponentials):
            after = known.after(name, operands, tracked, output)
        elif known is not None:
            others = [operand for operand in operands if isinstance(operand, Tensor) and operand is not tracked]
            if name == "mul" and known.by_edge and len(others) == 1 and self._gathered(others[0]):
                after = ElementwiseProduct(tracked, others[0], known, 0)
            elif name == "mul" and len(others) == 1 and output.numel() > tracked.numel() and known.dims(tracked):
                after = ElementwiseProduct(tracked, others[0], known, known.dims(tracked)[0] - tracked.ndim)
            elif name in _OTHER_PRODUCTS and self._attends(
                known, tracked, [(dim, tracked, dim) for dim in range(tracked.ndim)], False
            ):
                return f"weights are multiplied with their values by {name}, which is not tracked"
            elif name in _REARRANGED and len(known.leading) > 1 and self._are_token_weights(known, tracked):
                return f"weights are rearranged by {name}, and not tracked from there"
            else:
                after = known.after(name, func, call, before, output)
        self.known.pop(id(output), None)
        if after is not None:
            self._track(output, after)
        return None

    def _scored(
        self, name: str, known: Scores, operands: list[Any], tracked: Tensor, output: Tensor
    ) -> Scores | Weights | None:
        """Track scores through one more function, which leaves scores or makes weights of them."""
        numbers = [number for number, operand in enumerate(operands) if operand is tracked]
        if name == "exp":
            return Weights.along(output, -1, known, by_hand=True)
        after = known.after(name, operands, numbers[0], output) if len(numbers) == 1 else None
        if after is None and known.among_tokens and name in NONLINEAR and output.shape == tracked.shape:
            return Weights.along(output, -1, None, made_by=(name,))
        return after

    def _gathered(self, tensor: Tensor) -> bool:
        """Whether an index took the tokens of a tensor."""
        label = self.tokens.label(tensor)
        return label is not None and bool(label.origins)

    def _put(self, step: FunctionCall, known: ElementwiseProduct, tracked: Tensor) -> EdgeSum | Unrecorded | None:
        """The attention of weights times values that are summed into the places of their queries."""
        label, slots = self.tokens.label(known.value), put(step)
        if label is None or len(slots) != 1 or slots[0].value is not tracked:
            return None
        edges = into_queries(known.weights, known.value, slots[0], label, step.output, known.known.undropped)
        return self._by_edge(edges, known.known, known.weights, known.value)

    def _by_edge(self, edges: EdgeSum | Mixing | None, known: Weights, *tensors: Tensor) -> EdgeSum | Unrecorded | None:
        """The attention of these weights and values over edges."""
        if isinstance(edges, EdgeSum):
            self.tokens.moved.recorded(*tensors)
            return replace(edges, owner=known.owner, dropout=known.dropout)
        return None if edges is None else Unrecorded(edges, known.owner)

    def _summed(
        self, name: str, call: CallArguments, known: ElementwiseProduct, tracked: Tensor, output: Tensor, heads: Heads
    ) -> Attention | str | None:
        """Track weights times values until the sum over their keys."""
        args, kwargs = call
        if name in SAME:
            self._track(output, known)
        if name not in ("sum", "mean") or known.known.by_edge:
            return None
        dims, key = named_dims(args[1] if len(args) > 1 else kwargs.get("dim"), tracked.ndim), known.dim % tracked.ndim
        weights, value = known.weights, known.value
        over = known.dim if -known.dim <= value.ndim else 0
        if key not in dims or not self._attends(known.known, weights, [(known.dim, value, over)]):
            return None
        if dims != {key} or name == "mean":
            return _IN_ANOTHER_ORDER
        summed = output.squeeze(key) if output.ndim == tracked.ndim else output
        multiplied = multiplied_and_summed(weights, value, key, summed)
        letter = next((item for item in multiplied.letters[0] if item not in multiplied.letters[2]), None)
        dim = None if letter is None else multiplied.letters[0].index(letter)
        result = self._mixed(multiplied, multiplied.left, dim, known.known, known.known.part(weights, known.dim), heads)
        if isinstance(result, EdgeSum):
            self.tokens.moved.recorded(weights)
        return result

    def _tracked_as(self, tensor: Any) -> Scores | Weights | ElementwiseProduct | Exponentials | None:
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _track(self, tensor: Tensor, what: Scores | Weights | ElementwiseProduct | Exponentials) -> None:
        key = id(tensor)
        while len(self.known) >= _REMEMBERED:
            del self.known[next(iter(self.known))]
        if isinstance(what, Weights) and what.owner is None:
            what = replace(what, owner=self.tokens.moved.module)
        self.known[key] = weakref.ref(tensor, lambda _: self.known.pop(key, None)), what


def _softmax_dim(operands: list[Any], output: Tensor) -> int:
    """The dimension of a softmax; torch's own choice if none is named."""
    return operands[1] if len(operands) > 1 and isinstance(operands[1], int) else 0 if output.ndim in (0, 1, 3) else 1


def _no_weights(known: Weights, weights: Tensor) -> str | None:
    """The reason why the factor of the values is not weights; empty for a plain product, as in linear attention."""
    if known.by_hand and bool((weights.sum(-1) > 1.5).any()):
        return "exponentials of scores are multiplied with the values before they are divided by their sum"
    if known.made_by[0] == "softmax":
        return None
    negative = bool((weights < 0).any())
    if not set(known.made_by) <= _LINEAR:
        return f"weights by {' and '.join(known.made_by)} are negative in places, and not recorded" if negative else None
    sums = weights.sum(-1)
    if not bool(((sums - 1).abs() < 1e-3).all()):
        return ""
    return "weights by division by a plain sum are negative in places, and not recorded" if negative else None


def _how_made(known: Weights, weights: Tensor) -> str:
    """A note on weights that were not made by a softmax."""
    sums = weights.detach().sum(-1)
    low, high = (f"{float(part):.3g}" for part in (sums.min(), sums.max())) if sums.numel() else ("0", "0")
    rows = low if low == high else f"{low} to {high}"
    return f"weights by {' and '.join(known.made_by)}, not by a softmax: rows sum to {rows}"


def _by_head(known: Weights, weights: Tensor, value: Tensor, output: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, value and output with a dimension of heads, and with blocks of queries and keys as batch entries."""
    parts = (weights, value, output)
    leading = known.leading if len(known.leading) > 1 else (-1, count) if (count := heads()) else None
    if weights.ndim == 3 and leading is not None and weights.shape[0] % math.prod(leading) == 0:
        parts = tuple(part if part.ndim < 3 else part.unflatten(0, leading) for part in parts)
    ndim = parts[0].ndim
    count = heads() if ndim > 4 else None
    if count is not None and count == math.prod(parts[0].shape[1:-2]):  # (B, Hk, H/Hk, Q, K)
        parts = tuple(part.flatten(1, -3) if part.ndim == ndim else part for part in parts)
    elif count is not None and count == parts[0].shape[1] != parts[0].shape[-3]:  # (B, H, blocks, Q, K)
        leading = parts[0].shape[:-2]
        parts = tuple(part.expand(*leading, *part.shape[-2:]).movedim(1, -3).flatten(0, -4) for part in parts)
    return parts[0], parts[1], parts[2]


def _blocks(weights: Tensor) -> str:
    """A note on weights (B, H, blocks, Q, K) whose blocks became batch entries."""
    count = math.prod(weights.shape[2:-2])
    return (
        f"queries and keys are cut into {count} blocks, which are batch entries here: entry {count} · input + block, "
        "with positions inside its block"
    )
