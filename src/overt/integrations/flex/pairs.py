"""The pairs of query and key at which a mod is evaluated: existing pairs and, if masked ones could have an effect, only visible ones.

0 · NaN is NaN: if the derivative of a mod is not finite, a masked pair would spoil the gradient of every tensor that the mod captures;
and a captured table may lack values for a masked pair. In these cases a visible pair replaces each masked one, whose result
the mask removes.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.expression import Expression
from overt.attention.masks import Mask
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY, SCORE
from overt.integrations.flex.sizes import PAIRS, Sizes, within_tables

NAMES = (BATCH, HEAD, QUERY, KEY)

_LINEAR = {"add", "sub", "neg", "widened", "float", "double", "to", "where"}
_BOUNDED = _LINEAR | {
    "mul",
    "abs",
    "int",
    "long",
    "bool",
    "clamp",
    "minimum",
    "maximum",
    "sign",
    "floor",
    "ceil",
    "round",
    "relu",
}
_BOUNDED |= {"getitem", "ge", "gt", "le", "lt", "eq", "ne", "and", "or", "xor", "not"}


class Pairs:
    """The pairs of a call, and which of them `mask` allows; errors name the mod."""

    def __init__(self, sizes: Sizes, mask: Mask | None, mod: str):
        self.sizes = sizes
        self.mask: Any = None if mask is None else mask.bind(2, sizes.queries, sizes.keys)
        self.mod = mod

    def values(self, expression: Expression) -> Tensor:
        """The values of an expression that depends on queries or keys, not both: (B or 1, H or 1, Q or 1, K or 1)."""
        symbols, indices = expression.symbols(), self.sizes.indices()
        return self._value(expression, indices, lambda: _first_visible_index(indices, self._visible(symbols)))

    def at_distances(self, expression: Expression) -> Tensor:
        """The values of an expression of distance j − i and head, at the distances 1 − Q to K − 1: (1, H or 1, 1, Q + K − 1)."""
        indices = self.sizes.indices()
        distances = torch.arange(1 - self.sizes.queries, self.sizes.keys, device=self.sizes.device).int().view(1, 1, 1, -1)
        indices |= {QUERY: (-distances).clamp(min=0), KEY: distances.clamp(min=0)}  # existing pairs

        def substitutes() -> dict[str, Tensor]:
            visible = self._visible_along("distances").any(0, keepdim=True)
            visible = visible if HEAD in expression.symbols() else visible.any(1, keepdim=True)
            return _first_visible_index({name: indices[name] for name in (HEAD, QUERY, KEY)}, visible[:, :, None])

        return self._value(expression, indices, substitutes)

    def block_values(self, expression: Expression, rows: Tensor, keys: Tensor) -> Tensor:
        """The values of an expression at these rows and keys: broadcastable to (B, H, rows, keys)."""
        indices = self.sizes.indices(rows, keys)
        return self._value(expression, indices, lambda: self.visible_only(indices, self.allowed(rows, keys)))

    def allowed(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Which pairs of these rows and keys may attend: (B or 1, H or 1, rows, keys)."""
        allowed = self.mask.block(rows, keys)
        allowed = allowed.reshape((1,) * (4 - allowed.ndim) + tuple(allowed.shape))
        return allowed.expand(*allowed.shape[:2], len(rows), len(keys))

    def visible_only(self, values: Mapping[str, Tensor], allowed: Tensor, **more: Any) -> dict[str, Tensor]:
        """Values of pairs, with those of masked pairs replaced by one visible pair's; `more` are its values under other names."""
        first = self.first_visible | more
        return {name: torch.where(allowed, value, first[name]) for name, value in values.items()}

    def careful(self, expression: Any) -> bool:
        """Whether masked pairs could have an effect: the mod is differentiated, and its derivative may be non-finite."""
        if self.mask is None or not torch.is_grad_enabled():
            return False
        if not isinstance(expression, Expression):
            return True
        differentiated = SCORE in expression.symbols() or any(tensor.requires_grad for tensor in expression.tensors())
        return differentiated and not _has_finite_derivatives(expression)

    def evaluated(self, mod: Any, everywhere: Callable[[], Any], visible: Callable[[], Any]) -> Any:
        """`everywhere()`, or `visible()` if masked pairs could have an effect or lie outside a captured table."""
        if not self.careful(mod):
            try:
                return everywhere()
            except IndexError:
                if self.mask is None:
                    with within_tables(self.mod, self.sizes):
                        raise
        with within_tables(self.mod, self.sizes):
            return visible()

    @cached_property
    def first_visible(self) -> dict[str, Any]:
        """The indices of one visible pair; of the first pair if all are masked."""
        first, count, sizes = 0, 1, self.sizes
        keys = torch.arange(sizes.keys, device=sizes.device)
        while first < sizes.queries:
            rows = torch.arange(first, min(first + count, sizes.queries), device=sizes.device)
            allowed = self.allowed(rows, keys)
            if bool(allowed.any()):
                batch, head, row, key = torch.unravel_index(allowed.flatten().int().argmax(), allowed.shape)
                return dict(zip(NAMES, (number.item() for number in (batch, head, row + first, key)), strict=True))
            first, count = first + count, min(2 * count, max(PAIRS // max(sizes.keys, 1), 1))
        return dict.fromkeys(NAMES, 0)

    def _value(self, expression: Expression, indices: dict[str, Tensor], substitutes: Any) -> Tensor:
        """The expression at these indices, or only at visible ones if necessary."""
        value = self.evaluated(expression, lambda: expression.value(indices), lambda: expression.value(indices | substitutes()))
        return torch.as_tensor(value, device=self.sizes.device)

    def _visible(self, symbols: set[str]) -> Tensor:
        """Whether these symbols belong to a visible pair: (B or 1, H or 1, Q or 1, K or 1)."""
        visible = self._visible_along("keys" if KEY in symbols else "queries")
        visible = visible if BATCH in symbols else visible.any(0, keepdim=True)
        visible = visible if HEAD in symbols else visible.any(1, keepdim=True)
        if KEY in symbols:
            return visible[:, :, None]
        return visible[..., None] if QUERY in symbols else visible.any(-1)[..., None, None]

    def _visible_along(self, along: str) -> Tensor:
        """Which queries, keys or distances belong to a visible pair: (B or 1, H or 1, Q, K or Q + K − 1)."""
        queries, keys, device = self.sizes.queries, self.sizes.keys, self.sizes.device
        if not (isinstance(self.mask, Mask) and self.mask.has_row_ranges):
            return self._visible_in_blocks(along)
        edges = [torch.as_tensor(edge, device=device).long() for edge in self.mask.row_ranges(queries, keys, device) or ()]
        edges = [edge.reshape((1,) * (3 - edge.ndim) + tuple(edge.shape)).clamp(0, keys) for edge in edges]
        low, high = torch.broadcast_tensors(*(edge.expand(*edge.shape[:2], queries) for edge in edges))
        some = (high > low).int()
        if along == "queries":
            return some.bool()
        shift = torch.arange(queries - 1, -1, -1, device=device) if along == "distances" else 0
        count = keys + 1 if along == "keys" else queries + keys
        starts = torch.zeros(*low.shape[:2], count, dtype=torch.int32, device=device)
        starts.scatter_add_(-1, low + shift, some).scatter_add_(-1, high + shift, -some)
        return starts.cumsum(-1)[..., :-1] > 0

    def _visible_in_blocks(self, along: str) -> Tensor:
        queries, keys = self.sizes.queries, torch.arange(self.sizes.keys, device=self.sizes.device)
        step = self.sizes.rows_at_once
        parts: list[Tensor] = []
        for rows in torch.arange(queries, device=keys.device).split(step):
            allowed = self.allowed(rows, keys)
            if along == "queries":
                parts.append(allowed.any(-1))
                continue
            visible = allowed.any(-2)
            if along == "distances":
                index = (keys - rows[:, None] + queries - 1).flatten()
                visible = torch.zeros(*allowed.shape[:2], queries + len(keys) - 1, dtype=torch.int32, device=keys.device)
                visible = visible.index_add_(-1, index, allowed.flatten(2).int()).bool()
            parts = [visible | parts[0]] if parts else [visible]
        return torch.cat(parts, dim=-1)


def _first_visible_index(indices: Mapping[str, Tensor], visible: Tensor) -> dict[str, Tensor]:
    """The index vectors along which visibility varies, with masked indices replaced by the first visible one."""
    if not bool(visible.any()):
        return {}
    first, result = visible.flatten().int().argmax(), {}
    for name, vector in indices.items():
        if torch.broadcast_shapes(vector.shape, visible.shape) == visible.shape:
            vector = vector.expand(visible.shape)
            result[name] = torch.where(visible, vector, vector.flatten()[first])
    return result


def _has_finite_derivatives(argument: Any) -> bool:
    """Whether an expression's derivatives are finite for all values of captured tensors: sums of these, times positions."""
    if not isinstance(argument, Expression) or argument.function == "getitem" or not _is_differentiable(argument):
        return True
    if argument.function == "mul" and not argument.options:
        factors = [operand for operand in argument.arguments if _is_differentiable(operand)]
        others = [operand for operand in argument.arguments if not _is_differentiable(operand)]
        return (
            len(factors) == 1 and all(_has_finite_derivatives(factor) for factor in factors) and all(map(_is_bounded, others))
        )
    return argument.function in _LINEAR and all(_has_finite_derivatives(part) for part in argument.parts())


def _is_bounded(argument: Any) -> bool:
    """Whether an expression of positions and whole numbers is finite for all of them."""
    if not isinstance(argument, Expression) or argument.symbol:
        return True
    return argument.function in _BOUNDED and all(_is_bounded(part) for part in argument.parts())


def _is_differentiable(argument: Any) -> bool:
    """Whether an argument contains a captured floating-point tensor or the score."""
    if isinstance(argument, Tensor):
        return argument.is_floating_point()
    if not isinstance(argument, Expression):
        return False
    return SCORE in argument.symbols() or any(tensor.is_floating_point() for tensor in argument.tensors())
