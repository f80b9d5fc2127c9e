"""Split a caller's normalizer into one number for each pair and the divisor of each row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from overt.attention.expressions.expression import Expression
from overt.attention.expressions.functions import FUNCTIONS
from overt.attention.expressions.stand_ins import Leaf, Number, StandIn, Untraceable

Function = Callable[[Tensor, Tensor], Tensor]  # (query, key) → scores, or the normalizer (scores, allowed) → weights


@dataclass(frozen=True, eq=False)
class Division:
    """The numbers of a program and their divisor (`by`), an expression of `sums`, the sums of numbers over a row's keys."""

    numbers: Any
    by: Any
    sums: list[Expression]

    @staticmethod
    def split(result: StandIn, normalizer: Function | None) -> "Division":
        """Split the result of a score or normalizer into numbers and divisor."""
        expression = result.expression
        if normalizer is not None and isinstance(expression, Expression) and expression.function == "div":
            numbers, by = expression.arguments
            if sums := list(_sums_over_keys(by, result.ndim)):
                return Division(numbers, by, sums)
        return Division(expression, None, [])

    def divisor(self, total: Tensor) -> Tensor:
        """The divisor of a row's numbers (..., Q, K), from their sum (..., Q, 1)."""
        return _evaluated(self.by, {id(part): total for part in self.sums})


def _sums_over_keys(expression: Any, ndim: int) -> Iterator[Expression]:
    """Yield the sums over a row's keys inside an expression."""
    if isinstance(expression, Expression):
        if expression.function == "sum" and expression.options["dim"] == (ndim - 1,) and expression.options["keepdim"]:
            yield expression
        else:
            for part in expression.parts():
                yield from _sums_over_keys(part, ndim)


def _evaluated(part: Any, totals: dict[int, Tensor]) -> Any:
    """Evaluate a part of a divisor from row sums, numbers and captured tensors without dimensions."""
    if isinstance(part, Number):
        return part.value
    if isinstance(part, Leaf):
        if part.tensor.ndim:
            raise Untraceable("a captured tensor divides its weights")
        return part.tensor
    if id(part) in totals or not isinstance(part, Expression):
        return totals.get(id(part), part)
    if part.function not in FUNCTIONS or part.options:
        raise Untraceable(f"its weights are divided by {part.function} of a sum")
    return FUNCTIONS[part.function](*(_evaluated(argument, totals) for argument in part.arguments))
