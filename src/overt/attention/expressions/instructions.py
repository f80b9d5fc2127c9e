"""Compile terms to instructions of a machine with one value, temporaries and inputs; native/attention/programs/ executes them.

A program is a list of stages, each run for the features 0 to count − 1. An instruction is seven numbers: its operation and two
operands, each of which is a kind, a base index and an increment of the index for each feature.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from overt.attention.expressions.adjoints import InputGradient, adjoints
from overt.attention.expressions.tangents import tangent
from overt.attention.expressions.terms import BINARY, INPUTS, REDUCTIONS, UNARY, Term, decoded, literal_count, ordered

# KINDS: operand kinds, by the numbers in native/attention/programs/program.hpp.
KINDS = {"none": 0, "query": 1, "key": 2, "constant": 3, "number": 4, "temporary": 5, "product": 6, "gradient": 7, "score": 8}
_REVERSED = {"add": "add", "mul": "mul", "maximum": "maximum", "minimum": "minimum", "eq": "eq", "sub": "rsub", "div": "rdiv"}
_REVERSED |= {"gt": "lt", "ge": "le", "pow": "rpow"}
OPERATIONS = [
    "load",
    "store",
    *UNARY,
    *BINARY,
    "rsub",
    "rdiv",
    "lt",
    "le",
    "rpow",
    "select",
    *REDUCTIONS,
    "add_to",
    "subtract_from",
    "distribute",
]
_CODES = {name: code for code, name in enumerate(OPERATIONS)}
_STARTS = {"sum": 0.0, "amax": float("-inf"), "amin": float("inf")}

Operand = tuple[int, int, int]
NOTHING: Operand = (0, 0, 0)


class Program(NamedTuple):
    """The native core's input: instructions, constants in addition to the call's numbers, and operations per pair and per feature."""

    code: list[int]
    numbers: list[float]
    pair_cost: int
    feature_cost: int


class _Machine:
    """Emits the stages of one pass."""

    def __init__(self, count: int, literals: list[float], products: list[Any], numbers: list[float] | None = None):
        self.first_number = count  # the call's numbers come first
        self.literals = literals
        self.numbers: list[float] = [] if numbers is None else numbers
        self.products = products
        self.stages: list[tuple[int, list[tuple[int, ...]]]] = []
        self.temporaries = 0
        self._free: list[int] = []
        self._stored: dict[int, int] = {}
        self._uses: Counter[int] = Counter()
        self._local: list[Term] | None = None

    def operand(self, term: Term) -> Operand | None:
        """The operand from which an instruction can read a term: an input, or a temporary; None if neither holds it."""
        if id(term) in self._stored:
            return KINDS["temporary"], self._stored[id(term)], 0
        if term.name in ("query", "key", "constant"):
            return KINDS[term.name], term.numbers[0], 1 if term.size else 0
        if term.name == "number":
            return KINDS["number"], term.numbers[1] if term.numbers[0] == "call" else self._literal(term), 0
        if term.name == "product":
            return KINDS["product"], self.products.index(term.numbers), 0
        return (KINDS["gradient"], term.numbers[0], 0) if term.name == "gradient" else None

    def _literal(self, term: Term) -> int:
        return self.number(self.literals[term.numbers[1]])

    def number(self, value: float) -> int:
        """The index of a number, added if it is new."""
        if value not in self.numbers:
            self.numbers.append(value)
        return self.first_number + self.numbers.index(value)

    def encoded(self) -> list[int]:
        """The pass as the list of integers that the native core reads."""
        stages = [(size, instructions) for size, instructions in self.stages if instructions]
        result = [self.temporaries, len(stages)]
        for size, instructions in stages:
            result += [size, len(instructions), *(number for instruction in instructions for number in instruction)]
        return result

    def emit(self, name: str, first: Operand = NOTHING, second: Operand = NOTHING) -> None:
        """Append an instruction to the open stage."""
        self.stages[-1][1].append((_CODES[name], *first, *second))

    def temporary(self) -> int:
        """The index of a free temporary."""
        if self._free:
            return self._free.pop()
        self.temporaries += 1
        return self.temporaries - 1

    def straight(self) -> None:
        """Open a stage that runs once, if none is open."""
        if not self.stages or self.stages[-1][0] != 0:
            self.stages.append((0, []))

    def need(self, roots: Sequence[Term]) -> None:
        """Count the uses of each term in these roots."""
        self._uses = Counter()
        todo, visited = list(roots), set()
        while todo:
            term = todo.pop()
            if id(term) in visited or self.operand(term) is not None:
                continue
            visited.add(id(term))
            for argument in term.arguments:
                self._uses[id(argument)] += 1
                todo.append(argument)

    def store(self, term: Term) -> int:
        """Store the machine's value, which is this term's, in a temporary."""
        index = self.temporary()
        self._stored[id(term)] = index
        if self._local is not None:
            self._local.append(term)
        self.emit("store", (KINDS["temporary"], index, 0))
        return index

    def value(self, term: Term) -> None:
        """Emit instructions that make the term the machine's value."""
        where = self.operand(term)
        if where is not None:
            return self.emit("load", where)
        if term.name in UNARY:
            self.value(term.arguments[0])
            self.emit(term.name)
        elif term.name == "select":
            self._select(term)
        else:
            self._binary(term)
        if self._uses[id(term)] > 1:
            self.store(term)
        return None

    def _binary(self, term: Term) -> None:
        first, second = term.arguments
        if self.operand(second) is None:
            if self.operand(first) is None:
                self.value(second if second is not first else first)
                if self.operand(second) is None:
                    self.store(second)
            elif term.name in _REVERSED:
                self.value(second)
                operand = self.operand(first)
                assert operand is not None
                return self.emit(_REVERSED[term.name], operand)
        self.value(first)
        operand = self.operand(second)
        assert operand is not None
        self.emit(term.name, operand)
        return None

    def _select(self, term: Term) -> None:
        condition, first, second = term.arguments
        for part in (first, second):
            if self.operand(part) is None:
                self.value(part)
                if self.operand(part) is None:
                    self.store(part)
        self.value(condition)
        chosen, other = self.operand(first), self.operand(second)
        assert chosen is not None
        assert other is not None
        self.emit("select", chosen, other)

    def per_pair(self, terms: Sequence[Term]) -> None:
        """Compute terms of a pair into temporaries, in a stage that runs once."""
        missing = [term for term in terms if self.operand(term) is None]
        if not missing:
            return
        self.straight()
        self.need(missing)
        for term in missing:
            if self.operand(term) is None:
                self.value(term)
                if self.operand(term) is None:
                    self.store(term)

    def loop(self, size: int, bodies: list[tuple[Term, list[tuple[str, Operand]]]]) -> None:
        """Emit a stage over features: each body's term becomes the value, and its instructions accumulate it."""
        self.stages.append((size, []))
        self._local = []
        self.need([body for body, _ in bodies])
        self._uses.update(id(body) for body, _ in bodies)
        for body, actions in bodies:
            self.value(body)
            for name, operand in actions:
                self.emit(name, operand)
        for term in self._local:
            self._free.append(self._stored.pop(id(term)))
        self._local = None

    def distribute(self, total: Term, gradient: Term) -> None:
        """Emit a stage that adds the gradients of a simple sum to its inputs."""
        operand = self.operand(gradient)
        if operand is None or operand[0] not in (KINDS["temporary"], KINDS["gradient"]):
            self.straight()
            self.need([gradient])
            self.value(gradient)
            operand = KINDS["temporary"], self.store(gradient), 0
        self.stages.append((total.numbers[0], []))
        self.need([total.arguments[0]])
        self.value(total.arguments[0])
        self.emit("distribute", operand)

    def reductions(self, terms: list[Term]) -> None:
        """Emit sums and extrema over features; other reductions in their arguments are already stored."""
        self.per_pair([one for term in terms for one in _pair_terms(term.arguments[0])])
        by_size: dict[int, list[Term]] = {}
        for term in terms:
            by_size.setdefault(term.numbers[0], []).append(term)
        for size, group in by_size.items():
            self.straight()
            bodies = []
            for term in group:
                self.emit("load", (KINDS["number"], self.number(_STARTS[term.name]), 0))
                index = self.store(term)
                bodies.append((term.arguments[0], [(term.name, (KINDS["temporary"], index, 0))]))
            self.loop(size, bodies)


def _pair_terms(body: Term) -> list[Term]:
    """The terms of size 0 on which a term with features depends, inputs excepted."""
    result: list[Term] = []
    todo, visited = [body], set()
    while todo:
        term = todo.pop()
        if id(term) in visited:
            continue
        visited.add(id(term))
        if term.size:
            todo += term.arguments
        elif term.name not in INPUTS:
            result.append(term)
    return result


def _levels(roots: Sequence[Term]) -> list[list[Term]]:
    """Group the reductions by depth: the number of reductions that must precede them."""
    level: dict[int, int] = {}
    result: list[list[Term]] = []
    for term in ordered(roots):
        deepest = max((level[id(argument)] for argument in term.arguments), default=0)
        level[id(term)] = deepest + (term.name in REDUCTIONS)
        if term.name in REDUCTIONS:
            result += [[] for _ in range(deepest + 1 - len(result))]
            result[deepest].append(term)
    return result


def assemble(code: Sequence[int], numbers: Sequence[float]) -> Program:
    """Compile a program in rows (`terms.encoded`) with its numbers to instructions, forward and backward."""
    return _assemble(tuple(code), tuple(numbers[: literal_count(code)]), len(numbers), None)


def assemble_moving(code: Sequence[int], numbers: Sequence[float], columns: Mapping[str, int]) -> Program:
    """Compile a program with tangents: forward to the score and its tangent, backward from the gradients of both.

    `columns` maps "query", "key" and "constant", if they have tangents, to their numbers of columns; as many columns of directions
    follow, which get no gradients. Raises Untraceable if the program would be too long.
    """
    return _assemble(tuple(code), tuple(numbers[: literal_count(code)]), len(numbers), tuple(columns.items()))


@lru_cache(maxsize=256)
def _assemble(
    code: tuple[int, ...], literals: tuple[float, ...], count: int, moving: tuple[tuple[str, int], ...] | None
) -> Program:
    terms, root = decoded(code, literals)
    columns, roots = dict(moving or ()), [root]

    def direction(term: Term) -> Term | None:
        slot, size = term.numbers
        return terms.make(term.name, numbers=(slot + columns[term.name], size), size=size) if term.name in columns else None

    if moving is not None:
        roots.append(tangent(terms, root, direction))
    sinks = [
        sink for sink in adjoints(terms, roots, simple=True) if sink.input.numbers[0] < columns.get(sink.input.name, math.inf)
    ]
    everything = ordered([*roots, *(sink.term for sink in sinks)])
    products = [term.numbers for term in everything if term.name == "product"]
    forward = _Machine(count, terms.literals, products)
    for level in _levels(roots):
        forward.reductions(level)
    forward.straight()
    forward.need(roots)
    forward._uses.update(map(id, roots))
    for one in roots:
        forward.value(one)
        if one is not roots[-1]:
            forward.emit("store", (KINDS["score"], 0, 0))
    backward = _Machine(count, terms.literals, products, forward.numbers)
    for level in _levels([sink.term for sink in sinks]):
        backward.reductions(level)
    _sinks(backward, sinks)
    numbers = [len(products), *(number for product in products for number in product), *forward.encoded(), *backward.encoded()]
    pair_cost, feature_cost = (sum(len(one) for size, one in forward.stages if (size > 0) == loop) for loop in (False, True))
    return Program(numbers, forward.numbers, pair_cost, feature_cost)


def _sinks(machine: _Machine, sinks: list[InputGradient]) -> None:
    """Emit the sums of gradients: loops for inputs with a number per feature, a stage that runs once for the others."""
    by_size: dict[int, dict[int, tuple[Term, list[tuple[str, Operand]]]]] = {}
    for target, gradient in sinks:
        if target.name == "sum":
            machine.distribute(target, gradient)
            continue
        name, term = ("subtract_from", gradient.arguments[0]) if gradient.name == "neg" else ("add_to", gradient)
        operand = machine.operand(target)
        assert operand is not None
        group = by_size.setdefault(target.size, {})
        group.setdefault(id(term), (term, []))[1].append((name, operand))
    for size, group in by_size.items():
        if size:
            bodies = list(group.values())
            machine.per_pair([one for term, _ in bodies for one in (_pair_terms(term) if term.size else [term])])
            machine.loop(size, bodies)
    machine.straight()
    with_gradient = {target.numbers for target, _ in sinks if target.name == "product"}
    for index, product in enumerate(machine.products):
        if product not in with_gradient:  # each product needs a gradient, even if it is 0
            machine.emit("load", (KINDS["number"], machine.number(0.0), 0))
            machine.emit("add_to", (KINDS["product"], index, 0))
    bodies = list(by_size.get(0, {}).values())
    machine.need([term for term, _ in bodies])
    for term, actions in bodies:
        machine.value(term)
        for name, operand in actions:
            machine.emit(name, operand)
