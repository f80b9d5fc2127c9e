"""The score and the bias of a score_mod: scaling, soft caps and added numbers in the kernels' form."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.biases import Bias, RelativePositionBias, sum_of
from overt.attention.expressions.expression import Expression, applied
from overt.attention.scores import Dot
from overt.errors import KindError
from overt.integrations.flex.masks import captured_table, mapped
from overt.integrations.flex.pairs import Pairs
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY, SCORE, is_minus_infinity, linear_in_positions


@dataclass(frozen=True)
class ScoreForm:
    """scale · s, or cap · tanh(scale · s / cap), plus the bias, and −∞ if not allowed: numbers and expressions.

    `dtype` is the dtype of s, in which torch adds to it and multiplies it.
    """

    dtype: torch.dtype
    scale: Any = 1.0
    cap: Any = None
    bias: Any = None
    allowed: Any = None

    def times(self, factor: Any) -> "ScoreForm | None":
        """The form multiplied by a number or by an expression without positions."""
        number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
        if (self.cap is not None or self.allowed is not None) and not (number and factor > 0):
            return None
        factor = applied("widened", factor, self.dtype) if isinstance(factor, Expression) else factor
        cap = None if self.cap is None else self.cap * factor
        return replace(self, scale=self.scale * factor, cap=cap, bias=None if self.bias is None else self.bias * factor)


def score_form(expression: Any, dtype: torch.dtype) -> ScoreForm | None:
    """The form of an expression of a score with this dtype; None if it has no such form."""
    if not isinstance(expression, Expression):
        return None
    name, arguments = expression.function, expression.arguments
    if expression.symbol == SCORE:
        return ScoreForm(dtype)
    if expression.options and name not in ("add", "sub", "to"):
        return None
    if name in ("float", "double", "to"):
        return score_form(arguments[0], dtype) if _as_precise(expression, dtype) else None
    if name == "neg":
        inside = score_form(arguments[0], dtype)
        return None if inside is None else inside.times(-1.0)
    if name == "tanh":
        inside = score_form(arguments[0], dtype)
        if inside is None or inside.cap is not None or inside.bias is not None or inside.allowed is not None:
            return None
        return replace(inside, cap=1.0)
    if name == "where":
        return _where(arguments[0], arguments[1], arguments[2], dtype)
    if name not in ("add", "sub", "mul", "div") or expression.options:
        return None
    return _arithmetic(name, arguments[0], arguments[1], dtype)


def _arithmetic(name: str, first: Any, second: Any, dtype: torch.dtype) -> ScoreForm | None:
    if _has_score(first) == _has_score(second):
        return None
    if _has_score(second):
        if name == "div":
            return None
        if name == "sub":
            inside = score_form(_negative(second), dtype)
            return None if inside is None else _plus(inside, first)
        first, second = second, first
    inside = score_form(first, dtype)
    if inside is None:
        return None
    if name in ("add", "sub"):
        return _plus(inside, second if name == "add" else _negative(second))
    if isinstance(second, Expression) and {QUERY, KEY} <= second.symbols():
        return None
    return inside.times(
        second if name == "mul" else applied("div", 1.0, second) if isinstance(second, Expression) else 1.0 / second
    )


def _plus(form: ScoreForm, bias: Any) -> ScoreForm:
    bias = applied("widened", bias, form.dtype)
    return replace(form, bias=bias if form.bias is None else form.bias + bias)


def _where(condition: Any, chosen: Any, other: Any, dtype: torch.dtype) -> ScoreForm | None:
    if _has_score(condition) or not isinstance(condition, Expression):
        return None
    if is_minus_infinity(chosen):
        condition, chosen, other = applied("not", condition), other, chosen
    inside = score_form(chosen, dtype)
    if inside is None:
        return None
    if is_minus_infinity(other):
        return replace(inside, allowed=condition if inside.allowed is None else inside.allowed & condition)
    second = score_form(other, dtype)
    if second is None or inside.allowed is not None or second.allowed is not None:
        return None
    if not (_alike(inside.scale, second.scale) and _alike(inside.cap, second.cap)):
        return None
    biases = [0.0 if term.bias is None else term.bias for term in (inside, second)]
    return replace(inside, bias=Expression("where", condition, *biases))


def _as_precise(cast: Expression, dtype: torch.dtype) -> bool:
    """Whether a cast of the score is lossless: to a floating-point dtype that contains all of its numbers."""
    targets = {"float": [torch.float32], "double": [torch.float64]}.get(
        cast.function, [*cast.arguments[1:], *cast.options.values()]
    )
    return all(isinstance(target, torch.dtype) and torch.promote_types(target, dtype) == target for target in targets)


def _negative(argument: Any) -> Any:
    return applied("neg", argument) if isinstance(argument, Expression) else -argument


def _alike(first: Any, second: Any) -> bool:
    return first is second or (isinstance(first, (int, float)) and isinstance(second, (int, float)) and first == second)


def _has_score(argument: Any) -> bool:
    return isinstance(argument, Expression) and SCORE in argument.symbols()


def scaled_dot(form: ScoreForm, scale: float, pairs: Pairs) -> Dot | None:
    """The scaled dot product of a form; None if its scale is not finite at every pair."""
    factor = form.scale * scale
    if isinstance(factor, Expression):
        factor = pairs.values(factor)  # (B or 1, H or 1, Q or 1, K or 1)
        if not bool(factor.isfinite().all()):
            return None
    return Dot(factor, form.cap)


class ExpressionBias(Bias):
    """An expression of positions, heads and batch entries that is added to the scores, computed block by block."""

    trailing: ClassVar[dict[str, int] | None] = None

    def __init__(self, expression: Expression, pairs: Pairs):
        self.expression = expression
        self.pairs = pairs
        self.sizes = pairs.sizes
        _ = pairs.first_visible if pairs.careful(expression) else None  # computed while values can be read

    def bind(self, leading: int, queries: int, keys: int) -> "ExpressionBias":
        """Itself."""
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The expression at these rows and keys."""
        return self.pairs.block_values(self.expression, rows, keys)

    @property
    def leading(self) -> tuple[int, ...]:
        """Batch and heads."""
        symbols = self.expression.symbols()
        return (self.sizes.batch if BATCH in symbols else 1, self.sizes.heads if HEAD in symbols else 1)

    @property
    def source(self) -> Tensor:
        """A captured tensor, or a tensor on its device."""
        tensors = [tensor for tensor in self.expression.tensors() if tensor.device == self.sizes.device]
        return tensors[0] if tensors else torch.empty(0, device=self.sizes.device)


def added_bias(expression: Any, pairs: Pairs, dtype: torch.dtype) -> Any:
    """The added part of the scores, as a tensor or a bias known to kernels if possible; None if there is none."""
    if expression is None:
        return None
    if not isinstance(expression, Expression):
        expression = applied("widened", expression, dtype)
    symbols = expression.symbols()
    if not {QUERY, KEY} <= symbols:
        value = pairs.values(expression)  # (B or 1, H or 1, Q or 1, K or 1)
        return _floating(value, dtype).reshape((1,) * (2 - value.ndim) + tuple(value.shape))
    table = captured_table(expression.arguments[0] if expression.function == "widened" else expression, pairs.sizes)
    if table is not None:
        return _floating(table, dtype)
    if BATCH not in symbols and is_relative(expression):
        return _by_distance(expression, pairs, dtype)
    if expression.function == "widened":
        return added_bias(expression.arguments[0], pairs, dtype)
    if expression.function in ("add", "sub") and not expression.options:
        first, second = expression.arguments
        return sum_of(
            *(added_bias(term, pairs, dtype) for term in (first, second if expression.function == "add" else _negative(second)))
        )
    return ExpressionBias(expression, pairs)


def _floating(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value if value.is_floating_point() else value.to(dtype)


def is_relative(argument: Any) -> bool:
    """Whether an expression depends only on the key's position minus the query's."""
    if not isinstance(argument, Expression) or not argument.symbols() & {QUERY, KEY}:
        return True
    form = linear_in_positions(argument)
    if form is not None:
        return form[0] == -form[1]
    parts = [item for argument in argument.arguments for item in (argument if isinstance(argument, tuple) else (argument,))]
    return bool(argument.arguments) and all(is_relative(part) for part in parts) and not argument.options


def _by_distance(expression: Expression, pairs: Pairs, dtype: torch.dtype) -> RelativePositionBias:
    """The expression at every distance of a pair; missing distances up to ±m repeat the nearest: (H or 1, 2m + 1) numbers."""
    queries, keys, device = pairs.sizes.queries, pairs.sizes.keys, pairs.sizes.device
    if not queries or not keys:
        return RelativePositionBias(torch.zeros(1, dtype=dtype, device=device), offset=0)
    numbers = _floating(pairs.at_distances(expression), dtype)  # (1, H or 1, 1, Q + K − 1)
    furthest = max(queries, keys) - 1
    distances = torch.arange(-furthest, furthest + 1, device=device).clamp(1 - queries, keys - 1)
    table = numbers.expand(*numbers.shape[:-1], queries + keys - 1)[..., distances + queries - 1]
    return RelativePositionBias(table.reshape(-1, table.shape[-1]).squeeze(0), offset=0)


@dataclass(frozen=True)
class ModScore:
    """A score_mod without such a form, applied to blocks of scores.

    The last features of query and key are their indices, counted from 1: a query's batch entry, head and position, a key's
    position. So a pair's score depends only on the two vectors, in any block; blocks write 0 for masked ones.
    """

    mod: Callable[..., Tensor] | Expression
    scale: float
    pairs: Pairs
    score_of_first: Tensor | float = 0.0
    """The score of the first visible pair, which replaces masked ones."""

    pairwise = True

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """The modified scores of these queries and keys (..., Q, K)."""
        scores = query[..., :-3] @ key[..., :-1].mT * self.scale  # (..., Q, K)
        batch, head, row = (query[..., column, None].int() - 1 for column in (-3, -2, -1))  # (..., Q, 1)
        values = {SCORE: scores, BATCH: batch, HEAD: head, QUERY: row, KEY: key[..., None, :, -1].int() - 1}  # (..., 1, K)
        clamped = {name: value if name == SCORE else value.clamp(min=0) for name, value in values.items()}

        def visible() -> Tensor:
            return self._value(self.pairs.visible_only(clamped, self._allowed(values), **{SCORE: self.score_of_first}))

        return self.pairs.evaluated(self.mod, lambda: self._value(clamped), visible).expand(scores.shape)

    def _value(self, values: dict[str, Tensor]) -> Tensor:
        result = self.mod.value(values) if isinstance(self.mod, Expression) else mapped(self.mod, *values.values())
        if not result.is_floating_point():
            raise KindError("the score_mod to return a floating-point number", got=f"a {result.dtype}", fix="return the score")
        return result

    def _allowed(self, values: dict[str, Tensor]) -> Tensor:
        """Which pairs may attend: (..., Q, K)."""
        batch, head, row, column = (values[name] for name in (BATCH, HEAD, QUERY, KEY))
        rows, keys = (indices.flatten(end_dim=-3).amax(0).flatten().clamp(min=0) for indices in (row[None], column[None]))
        allowed = self.pairs.allowed(rows, keys)  # (B or 1, H or 1, Q, K)
        entries = (
            indices.flatten(-2).amax(-1).clamp(0, size - 1).long()
            for indices, size in zip((batch, head), allowed.shape[:2], strict=True)
        )
        return allowed[tuple(entries)] & (row >= 0) & (column >= 0)


def mod_score(mod: Any, scale: float, pairs: Pairs, query: Tensor, key: Tensor) -> ModScore:
    """A mod as a score, with the score of the first visible pair if masked pairs could have an effect."""
    if not pairs.careful(mod) or not query.numel() or not key.numel():
        return ModScore(mod, scale, pairs)
    batch, head, row, column = pairs.first_visible.values()
    group = query.shape[1] // key.shape[1]
    vectors = query[batch, head, row], key[min(batch, key.shape[0] - 1), head // group, column]
    row_query, column_key = (vector.detach().to(torch.promote_types(vector.dtype, torch.float32)) for vector in vectors)
    return ModScore(mod, scale, pairs, (row_query * column_key).sum() * scale)


def with_indices(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Query (B, H, Q, D + 3) and key (…, K, D + 1) with their indices, counted from 1, as last features, for `ModScore`."""
    dtype = torch.promote_types(query.dtype, torch.float32)  # 2²⁴ positions and more are exact
    sizes = [torch.arange(1, size + 1, device=query.device, dtype=dtype) for size in (*query.shape[:3], key.shape[2])]
    query_indices = torch.stack(torch.broadcast_tensors(sizes[0][:, None, None], sizes[1][:, None], sizes[2]), dim=-1)
    key_indices = sizes[3][:, None].expand(*key.shape[:2], -1, 1)
    return torch.cat([query.to(dtype), query_indices], dim=-1), torch.cat([key.to(dtype), key_indices], dim=-1)
