"""Forward-mode differentiation of terms: the tangent of a score, as terms, from the tangents of its inputs."""

from collections.abc import Callable

from overt.attention.expressions.adjoints import RULES
from overt.attention.expressions.terms import REDUCTIONS, Term, Terms, ordered

Tangent = Term | None  # None: a tangent of 0


def tangent(terms: Terms, root: Term, direction: Callable[[Term], Tangent]) -> Term:
    """The tangent of a term; `direction` gives the tangents of the columns of queries and keys and of the constants.

    It is linear in these: the slopes are the rules of the backward pass applied to a gradient of 1.
    """
    tangents: dict[int, Tangent] = {}
    for term in ordered([root]):
        if term.name == "product":
            tangents[id(term)] = _product_tangent(terms, term, direction)
        elif not term.arguments:
            tangents[id(term)] = None if term.name == "number" else direction(term)
        else:
            moves = [tangents[id(argument)] for argument in term.arguments]
            tangents[id(term)] = _function_tangent(terms, term, moves) if any(moves) else None
    return tangents[id(root)] or terms.literal(0.0)


def _function_tangent(t: Terms, term: Term, moves: list[Tangent]) -> Tangent:
    if term.name in REDUCTIONS:
        (move,), size = moves, term.numbers[0]
        assert move is not None
        if term.name == "sum":
            return t.sum(move, size)
        is_it = t.make("eq", term.arguments[0], term)
        return t.div(t.sum(t.mul(is_it, move), size), t.sum(is_it, size))
    if term.name == "select":
        condition, *others = term.arguments[0], *(move or t.literal(0.0) for move in moves[1:])
        return t.make("select", condition, *others) if any(moves[1:]) else None
    slopes = RULES[term.name](t, term, t.literal(1.0))
    return _sum(t, [t.mul(slope, move) for slope, move in zip(slopes, moves, strict=True) if slope and move])


def _product_tangent(t: Terms, product: Term, direction: Callable[[Term], Tangent]) -> Tangent:
    first, second, size = product.numbers
    query, key = (t.make(name, numbers=(slot, size), size=size) for name, slot in (("query", first), ("key", second)))
    query_tangent, key_tangent = direction(query), direction(key)
    return _sum(t, [t.sum(t.mul(x, y), size) for x, y in ((query_tangent, key), (query, key_tangent)) if x and y])


def _sum(t: Terms, parts: list[Term]) -> Tangent:
    total = None
    for part in parts:
        total = part if total is None else t.add(total, part)
    return total
