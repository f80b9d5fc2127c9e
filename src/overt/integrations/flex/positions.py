"""The symbols of FlexAttention's mods, and the positions in their expressions."""

import math
import operator
from typing import Any

from torch import Tensor

from overt.attention.expressions.expression import Expression, is_index

SCORE, BATCH, HEAD, QUERY, KEY = "score", "batch", "head", "query", "key"


def is_minus_infinity(argument: Any) -> bool:
    """Whether an argument of an expression is the constant −inf."""
    if isinstance(argument, Expression) and argument.function == "full_like":
        argument = argument.arguments[1] if len(argument.arguments) > 1 else argument.options.get("fill_value")
    if isinstance(argument, Tensor) and argument.device.type == "cpu" and not argument.requires_grad and not argument.ndim:
        argument = argument.item()
    return isinstance(argument, float) and argument == -math.inf


def linear_in_positions(expression: Any) -> tuple[int, int, Any] | None:
    """The coefficients of the query's and the key's position in a sum of integers, and the position-free part; None for other expressions.

    >>> q, k = Expression(QUERY), Expression(KEY)
    >>> linear_in_positions(2 + k - q)
    (-1, 1, 2)
    """
    if isinstance(expression, int) and not isinstance(expression, bool):
        return 0, 0, expression
    if is_index(expression):
        return 0, 0, expression
    if not isinstance(expression, Expression):
        return None
    if expression.symbol in (QUERY, KEY):
        return int(expression.symbol == QUERY), int(expression.symbol == KEY), 0
    if not expression.symbols() & {SCORE, QUERY, KEY}:
        return 0, 0, expression
    if expression.function in ("int", "long", "neg"):
        inside = linear_in_positions(expression.arguments[0])
        return None if inside is None else inside if expression.function != "neg" else _combined(0, inside, -1)
    if expression.function in ("add", "sub") and not expression.options:
        first, second = (linear_in_positions(argument) for argument in expression.arguments)
        return None if first is None or second is None else _combined(first, second, 1 if expression.function == "add" else -1)
    return None


def _combined(first: Any, second: tuple[int, int, Any], sign: int) -> tuple[int, int, Any]:
    q, k, constant = first or (0, 0, 0)
    more = second[2] if sign > 0 else operator.neg(second[2])
    return q + sign * second[0], k + sign * second[1], more if isinstance(constant, int) and constant == 0 else constant + more
