"""A judge of attention that is not overt: it sees the operators that run below torch's functions, and computes in float64.

`Judge` is a `TorchDispatchMode`. Every softmax that runs numbers its rows and columns; the numbers go along through whatever lays its
weights out anew, multiplies or masks them. Where they meet a product that sums over one row of a softmax, that is attention, and the
weights are those that met the product. Fused operators hide their softmax: there the weights are computed from the operator's own
arguments. Products of two computed tensors that pass through another function than softmax are followed in the same way.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.matrix import fused
from benchmarks.matrix.running import running

SOFTMAX = {"_softmax", "_safe_softmax"}
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "mv": 0}
# Functions of a score that make a weight of it where no softmax does.
CURVED = {
    "sigmoid",
    "relu",
    "gelu",
    "silu",
    "pow",
    "exp",
    "tanh",
    "softplus",
    "clamp",
    "clamp_min",
    "elu",
    "threshold",
    "hardtanh",
}
LAYOUT = {
    "view", "_unsafe_view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select", "clone", "alias", "detach",
    "unbind", "split", "split_with_sizes", "repeat", "index_select", "gather", "flip", "roll", "unfold", "_reshape_alias", "narrow",
    "diagonal", "lift_fresh", "repeat_interleave", "_reshape_copy", "index",
}  # fmt: skip
STEP = 1 << 20


@dataclass(frozen=True, eq=False)
class Event:
    """One call of attention as it ran: where, by which operator, its weights (N, Q, K) in float64, how large its scores were.

    Weights that meet values in a product element by element, summed over afterwards, are attention in deformable layers and a choice of
    experts in others: such an event may be recorded and is not required to be.
    """

    module: str
    operator: str
    weights: Tensor
    largest_score: float = 0.0
    required: bool = True


@dataclass(frozen=True, eq=False)
class _Followed:
    """Where each number of a tensor comes from, row · STEP + column, or −1; and what it went through."""

    positions: Tensor
    largest: float
    normalized: bool
    curved: bool = False
    factor: Tensor | None = None


class Judge(TorchDispatchMode):
    """Sees every attention inside a model for as long as the block runs: `with Judge(model) as judge: model(x)`."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.events: list[Event] = []
        self.model = model
        self.running: list[str] = []
        self.followed: dict[int, tuple[Tensor, _Followed]] = {}
        self.widths: dict[int, int] = {}
        self.rows = 0
        self.fixed = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers()) if each.numel()}

    def __enter__(self):
        self.naming = running(self.model)
        self.running = self.naming.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        self.naming.__exit__(*error)
        self.followed.clear()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator, and look at what it did."""
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name in fused.OPERATORS:
            self._event(func._schema.name, fused.OPERATORS[name](*args, **kwargs))
        output = func(*args, **kwargs)
        if name in SOFTMAX:
            self._number(output, args[1], _largest(args[0]), True)
        elif name in PRODUCTS:
            self._product(name, args, output)
        elif self.followed:
            self._follow(func, name.removesuffix("_"), args, kwargs, output)
        return output

    def _event(self, operator: str, weights: tuple[Tensor, float] | None, required: bool = True) -> None:
        if weights is not None and weights[0].numel():
            self.events.append(Event(self.running[-1] if self.running else "", operator, *weights, required))

    def _number(self, output: Tensor, dim: int, largest: float, normalized: bool) -> None:
        """Number the rows of a softmax, or of a product of two computed tensors."""
        if not output.numel() or not output.ndim:
            return
        moved = output.movedim(dim, -1)
        count = moved.shape[:-1].numel()
        rows = torch.arange(count).reshape(*moved.shape[:-1], 1) + self.rows
        positions = torch.empty_strided(output.shape, output.stride(), dtype=torch.long)
        positions.movedim(dim, -1).copy_(rows * STEP + torch.arange(moved.shape[-1]))
        self.widths[self.rows] = moved.shape[-1]
        self.rows += count
        self._keep(output, _Followed(positions, largest, normalized))

    def _keep(self, tensor: Any, followed: _Followed) -> None:
        if isinstance(tensor, Tensor) and tensor.shape == followed.positions.shape:
            self.followed[id(tensor)] = tensor, followed

    def _of(self, tensor: Any) -> _Followed | None:
        return self.followed[id(tensor)][1] if isinstance(tensor, Tensor) and id(tensor) in self.followed else None

    def _computed(self, tensor: Tensor) -> bool:
        """Whether it is no parameter of the model."""
        return tensor.untyped_storage().data_ptr() not in self.fixed

    def _product(self, name: str, args: tuple, output: Tensor) -> None:
        left, right = args[PRODUCTS[name] : PRODUCTS[name] + 2]
        for operand, other, dim in ((left, right, -1), (right, left, -2 if right.ndim > 1 else -1)):
            followed = self._of(operand)
            weighs = followed is not None and (followed.normalized or followed.curved) and self._computed(other)
            if weighs and self._sums_a_row(followed.positions, dim):
                return self._met(name, operand.movedim(dim, -1), followed)
        followed = self._of(left)
        if followed is not None and followed.normalized and not self._computed(right) and output.shape == left.shape:
            return self._keep(output, followed)  # heads mixed with each other by a matrix of the model's
        if output.ndim > 1 and self._computed(left) and self._computed(right):
            self._number(output, -1, _largest(output), False)
        return None

    def _met(self, name: str, weights: Tensor, followed: _Followed) -> None:
        """Weights (…, Q, K) that met a product."""
        rows = weights if weights.ndim == 3 else weights[None] if weights.ndim == 2 else weights[None, None]
        source = "softmax" if followed.normalized else "weights without softmax"
        self._event(f"{source} and {name}", (rows.double().clone(), followed.largest))

    def _sums_a_row(self, positions: Tensor, dim: int) -> bool:
        """Whether each sum along this dimension is over different columns of one row."""
        if not positions.numel():
            return False
        lines = positions.movedim(dim, -1)
        lines = lines.reshape(-1, lines.shape[-1])
        known = lines >= 0
        lines = lines[known.any(-1)]
        if not len(lines):
            return False
        known = lines >= 0
        rows, columns = lines // STEP, lines % STEP
        first = torch.where(known, rows, rows.amax(-1, keepdim=True))
        if not bool((first == rows.amax(-1, keepdim=True)).all()):
            return False
        if lines.shape[-1] > 1:
            return bool((columns.sort(-1).values.diff(dim=-1) > 0).any())
        start = max((each for each in self.widths if each <= int(rows[0, 0])), default=0)
        return self.widths.get(start) == 1

    def _follow(self, func: Any, name: str, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        sources = [each for leaf in leaves if (each := self._of(leaf)) is not None]
        if not sources:
            return
        source = max(sources, key=lambda each: each.normalized)
        if name in LAYOUT or name in ("cat", "stack", "constant_pad_nd", "_to_copy", "topk", "sort"):
            self._laid_out(func, name, args, kwargs, output, source)
        elif name == "sum" and source.factor is not None and len(args) > 1:
            self._weighted_sum(args[1], source, source.factor)
        elif isinstance(output, Tensor):
            self._by_element(name, leaves, output, source)
        elif name == "native_dropout":
            self._keep(output[0], source)

    def _laid_out(self, func: Any, name: str, args: tuple, kwargs: dict[str, Any], output: Any, source: _Followed) -> None:
        def positions(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            followed = self._of(leaf)
            if followed is not None:
                return followed.positions
            return torch.full_like(leaf, -1, dtype=torch.long) if name in ("cat", "stack") else leaf

        try:
            if name in ("topk", "sort"):
                dim = args[2] if name == "topk" and len(args) > 2 else args[1] if name == "sort" and len(args) > 1 else -1
                values, indices = output
                laid: Any = source.positions.gather(dim, indices)
                output = values
            elif name == "constant_pad_nd":
                laid = func(positions(args[0]), args[1], -1)
            elif name == "_to_copy":
                laid = source.positions.clone()
            else:
                laid = func(*tree_map(positions, args), **{key: value for key, value in kwargs.items() if key != "dtype"})
        except (RuntimeError, IndexError, TypeError):
            return
        for tensor, each in zip(tree_leaves(output), tree_leaves(laid), strict=False):
            self._keep(tensor, _Followed(each, source.largest, source.normalized, source.curved))

    def _by_element(self, name: str, leaves: list[Tensor], output: Tensor, source: _Followed) -> None:
        if name == "convolution" and leaves[1].shape[2:].numel() == 1:
            leaves = leaves[:1]  # heads mixed with each other, as talking heads are
        try:
            positions = source.positions.expand(output.shape)
            if torch.broadcast_shapes(*(leaf.shape for leaf in leaves)) != output.shape:
                return
        except RuntimeError:
            return
        if positions.stride() != output.stride():  # what lays it out anew later needs it laid out alike
            positions = torch.empty_strided(output.shape, output.stride(), dtype=torch.long).copy_(positions)
        factor = source.factor
        if name == "mul" and source.normalized and output.numel() > source.positions.numel():
            factor = next((leaf for leaf in leaves if self._of(leaf) is source), None)
        followed = _Followed(positions, source.largest, source.normalized, source.curved or name in CURVED, factor)
        self._keep(output, followed)

    def _weighted_sum(self, dims: Any, source: _Followed, weights: Tensor) -> None:
        """A sum over values that were weighted element by element."""
        dims = [dims] if isinstance(dims, int) else list(dims or [])
        if len(dims) != 1 or not self._sums_a_row(source.positions, dims[0]):
            return
        dim = dims[0] if dims[0] < 0 else dims[0] - source.positions.ndim
        if -dim <= weights.ndim:
            rows = weights.movedim(dim, -1)
            rows = rows.reshape(1, -1, rows.shape[-1])
            self._event("softmax, product of elements and sum", (rows.double(), source.largest), required=False)


def _largest(scores: Tensor) -> float:
    """The largest finite score that could matter: those of masks, which are as good as minus infinity, left out."""
    finite = scores[scores.isfinite() & (scores.abs() < 1e4)] if scores.is_floating_point() else scores[:0]
    return float(finite.abs().max()) if finite.numel() else 0.0


def tolerance(event: Event) -> float:
    """How far float32 may take a weight from its value: the table's 1e-5, and what rounding of such large scores comes to."""
    return 1e-5 + 4 * torch.finfo(torch.float32).eps * event.largest_score


ORDERS = ((0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0))


def apart(recorded: Tensor, event: Event) -> float:
    """The largest difference of any weight, recorded as (B, H, Q, K), whatever order the rows ran in; inf for another shape."""
    rows = event.weights.reshape(-1, event.weights.shape[-1])
    recorded = recorded.double().nan_to_num(nan=0.0)
    if recorded.shape[-1] != rows.shape[-1] or recorded.numel() != rows.numel():
        return math.inf
    if not rows.numel():
        return 0.0
    best = math.inf
    for order in ORDERS:
        # Where the event is NaN, a row of nothing or one that never ran, there is nothing to be held against.
        best = min(best, float((recorded.permute(*order, 3).reshape(rows.shape) - rows).nan_to_num(nan=0.0).abs().max()))
        if best <= tolerance(event):
            return best
    # Rows in any other order: sorted by one random number of each, equal rows come to stand beside each other.
    draw = torch.randn(rows.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mine, rows = recorded.reshape(rows.shape), rows.nan_to_num(nan=0.0)
    return min(best, float((mine[(mine @ draw).argsort()] - rows[(rows @ draw).argsort()]).abs().max()))


@dataclass(frozen=True)
class Judgement:
    """What a recording has of what ran: `wrong` says what is false in it, `unseen` the modules whose attention it lacks in silence."""

    events: int
    matched: int
    wrong: str = ""
    unseen: tuple[str, ...] = ()


def judged(events: list[Event], weights: list[tuple[str, Tensor]], missing: list[tuple[str, str]]) -> Judgement:
    """Match each recorded call, its layer and weights (B, H, Q, K), to one that ran; attention that is left must be listed as missing."""
    left = list(events)
    for layer, recorded in weights:
        distances = [(apart(recorded, event), event) for event in left]
        event = next((each for distance, each in distances if distance <= tolerance(each)), None)
        if event is None:
            nearest = min((distance for distance, _ in distances), default=math.inf)
            what = f"off by {nearest:.1e}" if nearest < math.inf else "of a shape that never ran"
            return Judgement(len(events), len(events) - len(left), f"the weights recorded for {layer} are {what}")
        left.remove(event)
    unseen = [f"{event.module} ({event.operator})" for event in left if event.required and not listed(event.module, missing)]
    return Judgement(len(events), len(events) - len(left), "", tuple(dict.fromkeys(unseen)))


def listed(module: str, missing: list[tuple[str, str]]) -> bool:
    """Whether a module, one that it is in, or one inside it is named among the missing."""
    return any(near(name, module) for name, _ in missing)


def near(name: str, other: str) -> bool:
    """Whether both names are of one module, or one is inside the other."""
    return name == other or other.startswith(f"{name}.") or name.startswith(f"{other}.")
