"""Terms: the values that a program computes for a pair, or for a pair and a feature; each is created once.

A term of size 0 is one number for a pair. A term of size F has a number for each of F features; only terms of this size, or a sum,
maximum or minimum over features, may use it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.stand_ins import Untraceable, common_shape

INPUTS = ("query", "key", "constant", "number", "product", "gradient")
UNARY = ("neg", "abs", "sign", "exp", "log", "log1p", "expm1", "root", "tanh", "sigmoid", "sin", "cos", "erf", "atan", "square")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "eq", "pow")
REDUCTIONS = ("sum", "amax", "amin")
NAMES = (*INPUTS, *UNARY, *BINARY, "select", *REDUCTIONS)
CODES = {name: code for code, name in enumerate(NAMES)}
LARGEST = 400  # terms of a program

_TORCH: dict[str, Any] = {
    **{name: getattr(torch, name) for name in UNARY if name not in ("root", "gradient")},
    **{name: getattr(torch, name) for name in BINARY if name not in ("gt", "ge", "eq", "maximum", "minimum")},
}


@dataclass(frozen=True, eq=False)
class Term:
    """A function (`name`) of other terms. `numbers` is (slot, size) for an input and (size,) for a reduction."""

    name: str
    arguments: tuple["Term", ...]
    numbers: tuple[Any, ...]
    size: int


class Terms:
    """Creates terms, each one once, and simplifies operations that change nothing."""

    def __init__(self) -> None:
        self._known: dict[Any, Term] = {}
        self.literals: list[float] = []

    def make(self, name: str, *arguments: Term, numbers: tuple[Any, ...] = (), size: int | None = None) -> Term:
        """The term of this function."""
        sizes = {argument.size for argument in arguments} - {0}
        if size is None and len(sizes) > 1:
            raise Untraceable("a pair's features meet features of another number")
        size = (sizes.pop() if sizes else 0) if size is None else size
        identity = (name, numbers, *map(id, arguments))
        if identity not in self._known:
            if len(self._known) >= LARGEST:
                raise Untraceable(f"it computes more than {LARGEST} terms of a pair")
            self._known[identity] = Term(name, arguments, numbers, size)
        return self._known[identity]

    def literal(self, value: float) -> Term:
        """The term of a constant of the program."""
        if value not in self.literals or value != value:
            self.literals.append(value)
        return self.make(
            "number", numbers=("literal", self.literals.index(value) if value == value else len(self.literals) - 1)
        )

    def literal_value(self, term: Term) -> float | None:
        """The value of a term that is a constant of the program; None for others."""
        return self.literals[term.numbers[1]] if term.name == "number" and term.numbers[0] == "literal" else None

    def neg(self, x: Term) -> Term:
        """−x."""
        if x.name == "neg":
            return x.arguments[0]
        value = self.literal_value(x)
        if value is not None:
            return self.literal(-value)
        return self.sub(x.arguments[1], x.arguments[0]) if x.name == "sub" else self.make("neg", x)

    def add(self, x: Term, y: Term) -> Term:
        """x + y."""
        for one, other in ((x, y), (y, x)):
            if self.literal_value(one) == 0:
                return other
        if y.name == "neg":
            return self.sub(x, y.arguments[0])
        return self.sub(y, x.arguments[0]) if x.name == "neg" else self.make("add", *_query_first(x, y))

    def sub(self, x: Term, y: Term) -> Term:
        """x − y."""
        if self.literal_value(y) == 0:
            return x
        if y.name == "neg":
            return self.add(x, y.arguments[0])
        return self.make("sub", x, y) if self.literal_value(x) != 0 else self.neg(y)

    def mul(self, x: Term, y: Term) -> Term:
        """x · y."""
        for one, other in ((x, y), (y, x)):
            factor = self.literal_value(one)
            if factor == 1:
                return other
            if factor == -1:
                return self.neg(other)
        if x.name == "neg":
            return self.neg(self.mul(x.arguments[0], y))
        if y.name == "neg":
            return self.neg(self.mul(x, y.arguments[0]))
        return self.make("square", x) if x is y else self.make("mul", *_query_first(x, y))

    def div(self, x: Term, y: Term) -> Term:
        """x / y."""
        divisor = self.literal_value(y)
        if divisor is not None and divisor != 0 and math.frexp(divisor)[0] == 0.5:
            return self.mul(x, self.literal(1 / divisor))
        return self.neg(self.div(x.arguments[0], y)) if x.name == "neg" else self.make("div", x, y)

    def sum(self, x: Term, size: int) -> Term:
        """Σ over the features; a term without features is multiplied by `size`."""
        if x.size == 0:
            return self.mul(x, self.literal(float(size)))
        if x.name == "neg":
            return self.neg(self.sum(x.arguments[0], size))
        if x.name in ("mul", "div"):  # a factor that all features share multiplies the sum
            for one, other in ((0, 1), (1, 0)) if x.name == "mul" else ((1, 0),):
                if x.arguments[one].size == 0:
                    return (self.mul if x.name == "mul" else self.div)(self.sum(x.arguments[other], size), x.arguments[one])
        if x.name == "mul" and {argument.name for argument in x.arguments} == {"query", "key"}:
            query, key = sorted(x.arguments, key=lambda argument: argument.name, reverse=True)
            if query.size == key.size == size:
                return self.make("product", numbers=(query.numbers[0], key.numbers[0], size), size=0)
        return self.make("sum", x, numbers=(size,), size=0)

    def extremum(self, name: str, x: Term, size: int) -> Term:
        """The maximum or minimum over the features."""
        return x if x.size == 0 else self.make(name, x, numbers=(size,), size=0)


def _query_first(x: Term, y: Term) -> tuple[Term, Term]:
    return (y, x) if (x.name, y.name) == ("key", "query") else (x, y)


def is_simple(term: Term) -> bool:
    """Whether a term is Σ_d [w_d ·] g(q_d ∘ k_d), whose value and gradient the kernels compute in loops over features: simple_sum.hpp."""
    if term.name != "sum" or term.arguments[0].size == 0:
        return False
    body, size = term.arguments[0], term.numbers[0]
    if body.name == "mul" and any(one.name == "constant" and one.size for one in body.arguments):
        body = next(one for one in body.arguments[::-1] if not (one.name == "constant" and one.size)) if body.size else body
    shaped = body.name in ("abs", "square") or (body.name == "maximum" and body.arguments[1].name == "number")
    body = body.arguments[0] if shaped else body
    meetings = ("sub", "add") if shaped else ("sub", "add", "mul")
    if body.name not in meetings or not all(one.size == size for one in body.arguments):
        return False
    return tuple(one.name for one in body.arguments) == ("query", "key")


def ordered(roots: Sequence[Term]) -> list[Term]:
    """All terms on which these roots depend, arguments first."""
    result: dict[int, Term] = {}
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        term, ready = todo.pop()
        if id(term) in result:
            continue
        if ready:
            result[id(term)] = term
        else:
            todo.append((term, True))
            todo += [(argument, False) for argument in reversed(term.arguments)]
    return list(result.values())


def encoded(root: Term, literals: int) -> list[int]:
    """A term and its arguments as rows of four integers, arguments first; numbers of a call come after the literals."""
    rows, index = [], {}
    for term in ordered([root]):
        index[id(term)] = len(index)
        if term.name == "number":
            literal = term.numbers[0] == "literal"
            payload: tuple[int, ...] = (term.numbers[1] + (0 if literal else literals), int(literal))
        else:
            payload = (*(index[id(argument)] for argument in term.arguments), *term.numbers)
        rows += [CODES[term.name], *payload, *(0,) * (3 - len(payload))]
    return rows


def literal_count(code: Sequence[int]) -> int:
    """The number of literals in these rows; the call's numbers follow."""
    return max((code[at + 1] + 1 for at in range(0, len(code), 4) if code[at] == CODES["number"] and code[at + 2]), default=0)


def decoded(code: Sequence[int], literals: Sequence[float]) -> tuple[Terms, Term]:
    """The terms of encoded rows."""
    terms, known = Terms(), []
    for start in range(0, len(code), 4):
        name, (a, b, c) = NAMES[code[start]], code[start + 1 : start + 4]
        if name in ("query", "key", "constant"):
            term = terms.make(name, numbers=(a, b), size=b)
        elif name == "number":
            term = terms.literal(literals[a]) if b else terms.make(name, numbers=("call", a))
        elif name == "product":
            term = terms.make(name, numbers=(a, b, c), size=0)
        elif name in REDUCTIONS:
            term = terms.make(name, known[a], numbers=(b,), size=0)
        else:
            arguments = {1: (a,), 2: (a, b), 3: (a, b, c)}[1 if name in UNARY else 2 if name in BINARY else 3]
            term = terms.make(name, *(known[index] for index in arguments))
        known.append(term)
    return terms, known[-1]


def program_scores(code: Sequence[int], numbers: Sequence[float], query: Tensor, key: Tensor, constants: Tensor) -> Tensor:
    """The scores (..., Q, K) of a program in plain torch, differentiable; all features of all pairs are in memory."""
    terms, root = decoded(code, numbers)
    shape = common_shape((*query.shape[:-1], 1), (*key.shape[:-2], 1, key.shape[-2]), (*constants.shape[:-1], 1, 1))
    return term_values(terms, [root], numbers, query, key, constants)[0].to(query.dtype).expand(shape)


def term_values(
    terms: Terms,
    roots: Sequence[Term],
    numbers: Sequence[float],
    query: Tensor,
    key: Tensor,
    constants: Tensor,
    gradient: Tensor | None = None,
) -> list[Tensor]:
    """The values of terms, which broadcast to (..., Q, K), or to (..., Q, K, F) if they have features."""
    known: dict[int, Tensor] = {}
    for term in ordered(roots):
        arguments = [known[id(argument)] for argument in term.arguments]
        if term.size:  # a number of a pair is the same for all its features
            pairs = zip(term.arguments, arguments, strict=True)
            arguments = [value.unsqueeze(-1) if argument.size == 0 and value.ndim else value for argument, value in pairs]
        if term.name == "gradient" and gradient is not None:
            known[id(term)] = gradient
        elif term.name in INPUTS:
            known[id(term)] = _input(terms, term, numbers, query, key, constants)
        else:
            known[id(term)] = _applied(term, arguments)
    return [known[id(root)] for root in roots]


def _input(terms: Terms, term: Term, numbers: Sequence[float], query: Tensor, key: Tensor, constants: Tensor) -> Tensor:
    if term.name == "number":
        value = terms.literal_value(term)
        return torch.tensor(numbers[term.numbers[1]] if value is None else value, dtype=query.dtype, device=query.device)
    if term.name == "product":
        first, second, size = term.numbers
        return query[..., first : first + size] @ key[..., second : second + size].mT
    slot, size = term.numbers
    columns = slice(slot, slot + size) if size else slot
    if term.name == "query":
        return query[..., :, None, columns] if size else query[..., :, columns][..., None]
    if term.name == "key":
        return key[..., None, :, columns] if size else key[..., :, columns][..., None, :]
    return constants[..., None, None, columns]


def _applied(term: Term, arguments: list[Tensor]) -> Tensor:
    name, first = term.name, arguments[0]
    if name in ("gt", "ge", "eq"):
        return getattr(torch, name)(first, arguments[1]).to(first.dtype)
    if name in ("maximum", "minimum"):
        return getattr(torch, name)(*torch.broadcast_tensors(*arguments))
    if name == "select":
        return torch.where(first != 0, arguments[1], arguments[2])
    if name == "root":  # the gradient at 0 is 0, as for a norm
        return torch.where(first == 0, 0, torch.sqrt(torch.where(first == 0, 1, first)))
    if name in REDUCTIONS:
        first = first if first.shape[-1] == term.numbers[0] else first.expand(*first.shape[:-1], term.numbers[0])
        return getattr(torch, name)(first, -1)
    return _TORCH[name](*arguments)
