"""What a normalizer of a caller's own makes of scores, taken apart: a number for each pair, and what divides the numbers of a row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from overt.attention.expressions.expression import Expression
from overt.attention.expressions.functions import FUNCTIONS
from overt.attention.expressions.stand_ins import Leaf, Number, StandIn, Untraceable

Function = Callable[[Tensor, Tensor], Tensor]  # of query and key, a score; of scores and `allowed`, a normalizer


@dataclass(frozen=True, eq=False)
class Division:
    """What a program computes, and what its numbers are divided by: an expression of `sums`, those of numbers over a row's keys."""

    numbers: Any
    by: Any
    sums: list[Expression]

    @staticmethod
    def split(result: StandIn, normalizer: Function | None) -> "Division":
        """The result of a score or of a normalizer taken apart."""
        expression = result.expression
        if normalizer is not None and isinstance(expression, Expression) and expression.function == "div":
            numbers, by = expression.arguments
            if sums := list(_sums_over_keys(by, result.ndim)):
                return Division(numbers, by, sums)
        return Division(expression, None, [])

    def divisor(self, total: Tensor) -> Tensor:
        """What a row's numbers (..., Q, K) are divided by, of their sum (..., Q, 1)."""
        return _evaluated(self.by, {id(part): total for part in self.sums})


def _sums_over_keys(expression: Any, ndim: int) -> Iterator[Expression]:
    """The sums over a row's keys that an expression holds."""
    if isinstance(expression, Expression):
        if expression.function == "sum" and expression.options["dim"] == (ndim - 1,) and expression.options["keepdim"]:
            yield expression
        else:
            for part in expression.parts():
                yield from _sums_over_keys(part, ndim)


def _evaluated(part: Any, totals: dict[int, Tensor]) -> Any:
    """A part of a divisor, of rows' sums, numbers and captured tensors of no dimension."""
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
