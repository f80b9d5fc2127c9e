"""The score and the bias of a score_mod: scaling, soft caps and added numbers as kernels know them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.biases import Bias, RelativePositionBias, sum_of
from overt.attention.scores import Dot
from overt.errors import KindError
from overt.integrations.flex.expression import (
    BATCH,
    HEAD,
    KEY,
    QUERY,
    SCORE,
    Expression,
    applied,
    is_minus_infinity,
    linear_in_positions,
)
from overt.integrations.flex.masks import mapped, table_of
from overt.integrations.flex.sizes import Sizes


@dataclass(frozen=True)
class ScoreForm:
    """scale · s, or cap · tanh(scale · s / cap), plus the bias, and −∞ where it is not allowed: numbers and expressions.

    `dtype` is that of s, in which torch adds to it and multiplies it.
    """

    dtype: torch.dtype
    scale: Any = 1.0
    cap: Any = None
    bias: Any = None
    allowed: Any = None

    def times(self, factor: Any) -> "ScoreForm | None":
        """The form multiplied by a number or by an expression without positions."""
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if (self.cap is not None or self.allowed is not None) and not (number and factor > 0):
            return None
        factor = applied("widened", factor, self.dtype) if isinstance(factor, Expression) else factor
        cap = None if self.cap is None else self.cap * factor
        return replace(self, scale=self.scale * factor, cap=cap, bias=None if self.bias is None else self.bias * factor)


def score_form(expression: Any, dtype: torch.dtype) -> ScoreForm | None:
    """The form of an expression of a score of this dtype; None where it has another."""
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
    biases = [0.0 if each.bias is None else each.bias for each in (inside, second)]
    return replace(inside, bias=Expression("where", condition, *biases))


def _as_precise(cast: Expression, dtype: torch.dtype) -> bool:
    """Whether a cast of the score loses nothing: to a floating-point dtype that holds all of its own numbers."""
    targets = {"float": [torch.float32], "double": [torch.float64]}.get(
        cast.function, [*cast.arguments[1:], *cast.options.values()]
    )
    return all(isinstance(each, torch.dtype) and torch.promote_types(each, dtype) == each for each in targets)


def _negative(argument: Any) -> Any:
    return applied("neg", argument) if isinstance(argument, Expression) else -argument


def _alike(first: Any, second: Any) -> bool:
    return first is second or (isinstance(first, int | float) and isinstance(second, int | float) and first == second)


def _has_score(argument: Any) -> bool:
    return isinstance(argument, Expression) and SCORE in argument.symbols()


def dot_of(form: ScoreForm, scale: float, sizes: Sizes) -> Dot:
    """The scaled dot product of a form."""
    factor = form.scale * scale
    if isinstance(factor, Expression):
        factor = torch.as_tensor(factor.value(sizes.indices()))  # (B or 1, H or 1, Q or 1, K or 1)
    return Dot(factor, form.cap)


class ExpressionBias(Bias):
    """An expression of positions, heads and batch entries that is added to the scores, computed block by block."""

    trailing: ClassVar[dict[str, int] | None] = None

    def __init__(self, expression: Expression, sizes: Sizes):
        self.expression = expression
        self.sizes = sizes

    def bind(self, leading: int, queries: int, keys: int) -> "ExpressionBias":
        """Itself."""
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The expression of these rows and keys."""
        return self.expression.value(self.sizes.indices(rows, keys))

    @property
    def leading(self) -> tuple[int, ...]:
        """Batch and heads."""
        symbols = self.expression.symbols()
        return (self.sizes.batch if BATCH in symbols else 1, self.sizes.heads if HEAD in symbols else 1)

    @property
    def source(self) -> Tensor:
        """A captured tensor, or one of its device."""
        tensors = [each for each in self.expression.tensors() if each.device == self.sizes.device]
        return tensors[0] if tensors else torch.empty(0, device=self.sizes.device)


def bias_of(expression: Any, sizes: Sizes, dtype: torch.dtype) -> Any:
    """What is added to the scores, as a tensor or a bias that kernels know where it is one; None for nothing."""
    if expression is None:
        return None
    if not isinstance(expression, Expression):
        expression = applied("widened", expression, dtype)
    symbols = expression.symbols()
    if not {QUERY, KEY} <= symbols:
        value = torch.as_tensor(expression.value(sizes.indices()), device=sizes.device)  # (B or 1, H or 1, Q or 1, K or 1)
        return _floating(value, dtype).reshape((1,) * (2 - value.ndim) + tuple(value.shape))
    table = table_of(expression.arguments[0] if expression.function == "widened" else expression, sizes)
    if table is not None:
        return _floating(table, dtype)
    if BATCH not in symbols and of_distance(expression):
        return _by_distance(expression, sizes, dtype)
    if expression.function == "widened":
        return bias_of(expression.arguments[0], sizes, dtype)
    if expression.function in ("add", "sub") and not expression.options:
        first, second = expression.arguments
        return sum_of(
            *(bias_of(each, sizes, dtype) for each in (first, second if expression.function == "add" else _negative(second)))
        )
    return ExpressionBias(expression, sizes)


def _floating(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value if value.is_floating_point() else value.to(dtype)


def of_distance(argument: Any) -> bool:
    """Whether an expression depends on the positions only by the key's less the query's."""
    if not isinstance(argument, Expression) or not argument.symbols() & {QUERY, KEY}:
        return True
    form = linear_in_positions(argument)
    if form is not None:
        return form[0] == -form[1]
    parts = [each for argument in argument.arguments for each in (argument if isinstance(argument, tuple) else (argument,))]
    return bool(argument.arguments) and all(of_distance(each) for each in parts) and not argument.options


def _by_distance(expression: Expression, sizes: Sizes, dtype: torch.dtype) -> RelativePositionBias:
    """The expression at every distance from the last query to the first key and the other way round: (H or 1, 2m + 1) numbers."""
    furthest = max(sizes.queries, sizes.keys, 1) - 1
    distances = torch.arange(-furthest, furthest + 1, device=sizes.device)
    values = sizes.indices(torch.zeros(1, dtype=torch.int64, device=sizes.device), distances)
    table = _floating(torch.as_tensor(expression.value(values)), dtype)  # (1, H or 1, 1, 2m + 1)
    return RelativePositionBias(table.reshape(-1, table.shape[-1]).squeeze(0), offset=0)


@dataclass(frozen=True)
class ModScore:
    """A score_mod that is no such form, applied to blocks of scores.

    Query and key have their indices as last features: of a query its batch entry, its head and its position, of a key its position. So the
    score of a pair depends on the two alone, whatever block they are in.
    """

    mod: Callable[..., Tensor] | Expression
    scale: float

    pairwise = True

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """The modified scores of these queries and keys (..., Q, K)."""
        scores = query[..., :-3] @ key[..., :-1].mT * self.scale  # (..., Q, K)
        batch, head, row = (query[..., each, None].int() for each in (-3, -2, -1))  # (..., Q, 1)
        column = key[..., None, :, -1].int()  # (..., 1, K)
        if isinstance(self.mod, Expression):
            result = self.mod.value({SCORE: scores, BATCH: batch, HEAD: head, QUERY: row, KEY: column})
        else:
            result = mapped(self.mod, scores, batch, head, row, column)
        if not result.is_floating_point():
            raise KindError("the score_mod to return a floating-point number", got=f"a {result.dtype}", fix="return the score")
        return result.expand(scores.shape)


def with_indices(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Query (B, H, Q, D + 3) and key (…, K, D + 1) with their indices as last features, for `ModScore`."""
    dtype = torch.promote_types(query.dtype, torch.float32)  # 2²⁴ positions and more are exact
    sizes = [torch.arange(size, device=query.device, dtype=dtype) for size in (*query.shape[:3], key.shape[2])]
    of_query = torch.stack(torch.broadcast_tensors(sizes[0][:, None, None], sizes[1][:, None], sizes[2]), dim=-1)
    of_key = sizes[3][:, None].expand(*key.shape[:2], -1, 1)
    return torch.cat([query.to(dtype), of_query], dim=-1), torch.cat([key.to(dtype), of_key], dim=-1)
