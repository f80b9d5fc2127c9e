"""Reverse-mode differentiation of terms: the gradients of a program's inputs, as terms, from the gradient of its score."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from overt.attention.expressions.terms import REDUCTIONS, Term, Terms, decoded, is_simple, ordered, term_values


class InputGradient(NamedTuple):
    """The gradient (`term`) of an input, one number for a pair or for each of its features, to be summed over pairs.

    If `input` is a simple sum over features, one loop computes the gradients of its inputs from `term`.
    """

    input: Term
    term: Term


def adjoints(terms: Terms, roots: Sequence[Term], simple: bool = False) -> list[InputGradient]:
    """The gradients of all inputs except numbers, in order of first use; the roots' own gradients are inputs named "gradient".

    With `simple`, a simple sum gets one gradient in place of the gradients of its inputs.
    """
    gradients: dict[int, Term] = {}
    for index, root in enumerate(roots):
        _add(terms, gradients, root, terms.make("gradient", numbers=(index, 0)))
    sinks = []
    for term in reversed(ordered(roots)):
        gradient = gradients.get(id(term))
        if gradient is None or term.name == "number":
            continue
        if not term.arguments or (simple and is_simple(term)):
            sinks.append(InputGradient(term, gradient))
            continue
        parts = _reduction(terms, term, gradient) if term.name in REDUCTIONS else RULES[term.name](terms, term, gradient)
        for argument, part in zip(term.arguments, parts, strict=True):
            if part is None:
                continue
            _add(terms, gradients, argument, part if argument.size or not part.size else terms.sum(part, part.size))
    return sinks[::-1]


def _add(terms: Terms, gradients: dict[int, Term], term: Term, part: Term) -> None:
    before = gradients.get(id(term))
    gradients[id(term)] = part if before is None else terms.add(before, part)


def _reduction(t: Terms, term: Term, g: Term) -> tuple[Term | None, ...]:
    if term.name == "sum":
        return (g,)
    # As in torch, all features that attain the extremum share its gradient.
    is_it = t.make("eq", term.arguments[0], term)
    return (t.mul(t.div(g, t.sum(is_it, term.numbers[0])), is_it),)


Parts = tuple[Term | None, ...]


def _times(slope: Callable[[Terms, Term, Term], Term]) -> Callable[[Terms, Term, Term], Parts]:
    """The rule of a function y of one number x: the gradient times its slope at x."""
    return lambda t, term, g: (t.mul(g, slope(t, term.arguments[0], term)),)


def _one_less_square(t: Terms, y: Term) -> Term:
    return t.sub(t.literal(1.0), t.mul(y, y))


def _div(t: Terms, term: Term, g: Term) -> Parts:
    share = t.div(g, term.arguments[1])
    return share, t.neg(t.mul(share, term))


def _root(t: Terms, term: Term, g: Term) -> Parts:
    slope = t.div(t.mul(g, t.literal(0.5)), term)
    return (t.make("select", term, slope, t.literal(0.0)),)


def _pow(t: Terms, term: Term, g: Term) -> Parts:
    x, y = term.arguments
    x_gradient = t.mul(g, t.mul(y, t.make("pow", x, t.sub(y, t.literal(1.0)))))
    logarithm = t.make("select", x, t.make("log", x), t.literal(0.0))
    return x_gradient, None if t.literal_value(y) is not None else t.mul(g, t.mul(term, logarithm))


def _extremum(sign: int) -> Callable[[Terms, Term, Term], Parts]:
    def rule(t: Terms, term: Term, g: Term) -> Parts:
        larger, smaller = term.arguments if sign > 0 else term.arguments[::-1]
        # As in torch, each operand gets half of the gradient if both are equal.
        share = t.mul(t.add(t.make("gt", larger, smaller), t.make("ge", larger, smaller)), t.literal(0.5))
        first_gradient = t.mul(g, share)
        return first_gradient, t.sub(g, first_gradient)

    return rule


def _maximum(t: Terms, term: Term, g: Term) -> Parts:
    x, y = term.arguments
    bound = t.literal_value(y)
    if bound is not None:  # a relu, whose gradient at 0 is 0
        return t.mul(g, t.make("gt", x, y)), None
    return _extremum(1)(t, term, g)


def _select(t: Terms, term: Term, g: Term) -> Parts:
    condition, *_ = term.arguments
    zero = t.literal(0.0)
    return None, t.make("select", condition, g, zero), t.make("select", condition, zero, g)


RULES: dict[str, Callable[[Terms, Term, Term], Parts]] = {
    "neg": lambda t, term, g: (t.neg(g),),
    "abs": _times(lambda t, x, y: t.make("sign", x)),
    "sign": lambda t, term, g: (None,),
    "exp": _times(lambda t, x, y: y),
    "log": lambda t, term, g: (t.div(g, term.arguments[0]),),
    "log1p": lambda t, term, g: (t.div(g, t.add(t.literal(1.0), term.arguments[0])),),
    "expm1": _times(lambda t, x, y: t.add(y, t.literal(1.0))),
    "root": _root,
    "tanh": _times(lambda t, x, y: _one_less_square(t, y)),
    "sigmoid": _times(lambda t, x, y: t.mul(y, t.sub(t.literal(1.0), y))),
    "sin": _times(lambda t, x, y: t.make("cos", x)),
    "cos": _times(lambda t, x, y: t.neg(t.make("sin", x))),
    "erf": _times(lambda t, x, y: t.mul(t.make("exp", t.neg(t.mul(x, x))), t.literal(2 / math.sqrt(math.pi)))),
    "atan": lambda t, term, g: (t.div(g, t.add(t.literal(1.0), t.mul(term.arguments[0], term.arguments[0]))),),
    "square": _times(lambda t, x, y: t.mul(x, t.literal(2.0))),
    "add": lambda t, term, g: (g, g),
    "sub": lambda t, term, g: (g, t.neg(g)),
    "mul": lambda t, term, g: (t.mul(g, term.arguments[1]), t.mul(g, term.arguments[0])),
    "div": _div,
    "maximum": _maximum,
    "minimum": _extremum(-1),
    "gt": lambda t, term, g: (None, None),
    "ge": lambda t, term, g: (None, None),
    "eq": lambda t, term, g: (None, None),
    "pow": _pow,
    "select": _select,
}


def program_gradients(
    code: Sequence[int], numbers: Sequence[float], query: Tensor, key: Tensor, constants: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and constants for each batch entry, in plain torch, as programs compute them."""
    terms, root = decoded(code, numbers)
    sinks = adjoints(terms, [root])
    batch, pairs = upstream.shape[:-2], upstream.shape
    result = {
        "query": query.new_zeros((*batch, *query.shape[-2:])),
        "key": query.new_zeros((*batch, *key.shape[-2:])),
        "constant": query.new_zeros((*batch, constants.shape[-1])),
    }
    summed = {"query": -2, "key": -3, "constant": (-2, -3)}
    values = term_values(terms, [sink.term for sink in sinks], numbers, query, key, constants, upstream)
    for (target, term), value in zip(sinks, values, strict=True):
        if target.name == "product":
            first, second, size = target.numbers
            result["query"][..., first : first + size] += value.expand(pairs) @ key[..., second : second + size]
            result["key"][..., second : second + size] += value.expand(pairs).mT @ query[..., first : first + size]
            continue
        slot, size = target.numbers
        value = (value if term.size else value.unsqueeze(-1) if value.ndim else value).expand(*pairs, max(size, 1))
        result[target.name][..., slot : slot + max(size, 1)] += value.sum(summed[target.name])
    return result["query"], result["key"], result["constant"]
