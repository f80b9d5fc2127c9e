"""Lower a recorded expression of pairs to terms: label dimensions as queries, keys or features, and use few primitive functions.

The result of a score is (..., Q, K), so its dimensions are known from the end. Going backward through the expression labels each
dimension of each tensor: "Q", "K", a number for a batch dimension, counted from its end, or "F" for features.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from overt.attention.expressions.expression import Expression
from overt.attention.expressions.stand_ins import Leaf, Number, Untraceable
from overt.attention.expressions.terms import Term, Terms

Labels = tuple[Any, ...]


@dataclass(frozen=True)
class LeafColumns:
    """The location of a leaf: `size` columns of its side from `slot` on, 0 for a single number; and the labels of its dimensions."""

    leaf: int
    slot: int
    size: int
    labels: Labels


class Lowering:
    """Builds the terms of one score's expression."""

    def __init__(self, leaves: list[Leaf], numbers: list[Number], sizes: tuple[int, int]):
        self.terms = Terms()
        self.columns: dict[str, list[LeafColumns]] = {"query": [], "key": [], "constant": []}
        self._leaf_index = {id(leaf): index for index, leaf in enumerate(leaves)}
        self._number_index = {id(number): index for index, number in enumerate(numbers)}
        self._sizes = dict(zip("QK", sizes, strict=True))
        self._known: dict[Any, Term] = {}

    def width(self, side: str) -> int:
        """The number of columns of a side."""
        return sum(max(columns.size, 1) for columns in self.columns[side])

    def lower(self, node: Any, labels: Labels) -> Term:
        """The term of an expression, leaf or number whose dimensions have these labels."""
        if isinstance(node, Number):
            return self.terms.make("number", numbers=("call", self._number_index[id(node)]))
        if isinstance(node, (int, float)):
            return self.terms.literal(float(node))
        key = (id(node), labels)
        if key not in self._known:
            self._known[key] = self._leaf(node, labels) if isinstance(node, Leaf) else self._function(node, labels)
        return self._known[key]

    def _leaf(self, leaf: Leaf, labels: Labels) -> Term:
        side, size = leaf.side, 0
        for length, label in zip(leaf.tensor.shape, labels, strict=True):
            if length == 1:
                continue
            if label == "F":
                size = int(length)
            wrong = label in ("Q", "K") and (
                label[0].lower() != {"query": "q", "key": "k"}.get(side) or length != self._sizes[label]
            )
            if wrong or label is None or (side != "constant" and label == "F" and length == self._sizes["QK"[side == "key"]]):
                raise Untraceable("a score of one query and one key depends on others, or on their positions")
        if leaf.tensor.dtype.is_complex:
            raise Untraceable("it computes with complex numbers")
        self.columns[side].append(LeafColumns(self._leaf_index[id(leaf)], self.width(side), size, labels))
        return self.terms.make(side, numbers=(self.columns[side][-1].slot, size), size=size)

    def _function(self, node: Expression, labels: Labels) -> Term:
        name, arguments, options = node.function, node.arguments, node.options
        if name == "view":
            return self.lower(arguments[0], _before_view(arguments[0], options["order"], labels))
        if name in ("sum", "mean", "amax", "amin"):
            return self._reduction(node, labels)
        if name == "matmul":
            return self._matmul(arguments, labels)
        if name == "einsum":
            return self._einsum(node, labels)
        if name == "cat":
            raise Untraceable("features of pairs are joined by cat, and no linear map follows")
        parts = [self.lower(argument, _broadcast(argument, labels)) for argument in arguments if argument is not None]
        if name == "clamp":
            return self._clamped(parts, [argument is None for argument in arguments[1:]])
        if name == "pow" and isinstance(arguments[1], float):
            return power(self.terms, parts[0], arguments[1])
        rule = RULES.get(name)
        if rule is None:
            raise Untraceable(f"{name} of pairs of queries and keys is no function that programs know")
        return rule(self.terms, *parts)

    def _clamped(self, parts: list[Term], missing: list[bool]) -> Term:
        value, *bounds = parts
        for name, absent in zip(("gt", "lt"), missing, strict=True):  # as in torch, the gradient at a bound is the operand's
            if not absent:
                bound = bounds.pop(0)
                outside = self.terms.make("gt", *((bound, value) if name == "gt" else (value, bound)))
                value = self.terms.make("select", outside, bound, value)
        return value

    def _reduction(self, node: Expression, labels: Labels) -> Term:
        inner, dims = node.arguments[0], node.options["dim"]
        shape = _shape(inner)
        wide = [dim for dim in dims if shape[dim] != 1]
        if len(wide) > 1:
            raise Untraceable(f"{node.function} over more than one dimension of features")
        remaining = list(labels)
        before = (
            [None if dim in dims else remaining.pop(0) for dim in range(len(shape))]
            if not node.options["keepdim"]
            else [None if dim in dims else label for dim, label in enumerate(labels)]
        )
        if not wide:
            return self.lower(inner, tuple(before))
        if shape[wide[0]] in self._sizes.values():
            raise Untraceable(f"{node.function} over queries or keys")
        self._one_feature(before)
        before[wide[0]] = "F"
        size = shape[wide[0]]
        body = self.lower(inner, tuple(before))
        if node.function in ("amax", "amin"):
            return self.terms.extremum(node.function, body, size)
        total = self.terms.sum(body, size)
        return self.terms.mul(total, self.terms.literal(1 / size)) if node.function == "mean" else total

    def _one_feature(self, labels: list[Any]) -> None:
        if "F" in labels:
            raise Untraceable("features of a pair are computed from sums over other features")

    def _matmul(self, arguments: tuple[Any, ...], labels: Labels) -> Term:
        first, second = arguments
        ranks = len(_shape(first)), len(_shape(second))
        if min(ranks) < 2:
            raise Untraceable("a matrix product with a vector of queries or keys")
        self._one_feature(list(labels))
        batch, row, column = labels[:-2], labels[-2], labels[-1]
        left = (*batch[len(batch) - (ranks[0] - 2) :], row, "F") if ranks[0] > 2 else (row, "F")
        right = (*batch[len(batch) - (ranks[1] - 2) :], "F", column) if ranks[1] > 2 else ("F", column)
        return self._product([(first, left), (second, right)], _shape(first)[-1])

    def _einsum(self, node: Expression, labels: Labels) -> Term:
        inputs, output = node.options["inputs"], node.options["output"]
        letter_labels = dict(zip(output, labels, strict=True))
        shapes = [_shape(argument) for argument in node.arguments]
        sizes = {
            letter: size for one, shape in zip(inputs, shapes, strict=True) for letter, size in zip(one, shape, strict=True)
        }
        summed = [letter for letter in sizes if letter not in letter_labels and sizes[letter] != 1]
        if len(summed) > 1 or any(len(set(one)) < len(one) for one in inputs):
            raise Untraceable("einsum over more than one dimension of features, or along a diagonal")
        if summed:
            self._one_feature(list(labels))
            letter_labels[summed[0]] = "F"
        operands = [(node.arguments[i], tuple(letter_labels.get(letter) for letter in one)) for i, one in enumerate(inputs)]
        return self._product(operands, sizes[summed[0]] if summed else 0)

    def _product(self, operands: list[tuple[Any, Labels]], size: int) -> Term:
        result = self.lower(*operands[0])
        for operand in operands[1:]:
            result = self.terms.mul(result, self.lower(*operand))
        return self.terms.sum(result, size) if size else result


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.tensor.shape) if isinstance(node, Leaf) else node.shape if isinstance(node, Expression) else ()


def _broadcast(node: Any, labels: Labels) -> Labels:
    """The labels of an operand that is aligned right with the result."""
    return labels[len(labels) - len(_shape(node)) :]


def _before_view(node: Any, order: tuple[int, ...], labels: Labels) -> Labels:
    before: list[Any] = [None] * len(_shape(node))
    for label, index in zip(labels, order, strict=True):
        if index >= 0:
            before[index] = label
    return tuple(before)


# The remaining functions express one function by primitive ones.

Rule = Callable[..., Term]


def power(t: Terms, x: Term, exponent: float) -> Term:
    """x to a literal power: products for integers, square roots for halves."""
    if exponent < 0:
        return t.div(t.literal(1.0), power(t, x, -exponent))
    if exponent == 0:
        return t.literal(1.0)
    if exponent == int(exponent) and exponent <= 16:
        half = power(t, x, exponent // 2) if exponent > 1 else None
        squared = None if half is None else t.mul(half, half)
        return x if squared is None else t.mul(squared, x) if exponent % 2 else squared
    if 2 * exponent == int(2 * exponent) and exponent <= 8:
        root = t.make("root", x)
        return root if exponent == 0.5 else t.mul(power(t, x, exponent - 0.5), root)
    return t.make("pow", x, t.literal(exponent))


def _relu(t: Terms, x: Term) -> Term:
    return t.make("maximum", x, t.literal(0.0))


def _log_scaled(base: float) -> Rule:
    return lambda t, x: t.mul(t.make("log", x), t.literal(1 / math.log(base)))


def _exp(t: Terms, x: Term) -> Term:
    return t.make("exp", x)


def _softplus(t: Terms, x: Term, beta: Term, threshold: Term) -> Term:
    """log(1 + e^(βx)) / β, or x above the threshold."""
    scaled = t.mul(x, beta)
    soft = t.add(_relu(t, scaled), t.make("log1p", _exp(t, t.neg(t.make("abs", scaled)))))
    return t.make("select", t.make("gt", scaled, threshold), x, t.div(soft, beta))


def _gelu(t: Terms, x: Term) -> Term:
    return t.mul(t.mul(x, t.literal(0.5)), t.add(t.literal(1.0), t.make("erf", t.mul(x, t.literal(math.sqrt(0.5))))))


def _gelu_tanh(t: Terms, x: Term) -> Term:
    inner = t.mul(t.add(x, t.mul(power(t, x, 3), t.literal(0.044715))), t.literal(math.sqrt(2 / math.pi)))
    return t.mul(t.mul(x, t.literal(0.5)), t.add(t.literal(1.0), t.make("tanh", inner)))


def _asinh(t: Terms, x: Term) -> Term:
    """sign(x) · log1p(|x| + x² / (1 + √(x² + 1)))."""
    size, squared = t.make("abs", x), t.mul(x, x)
    root = t.make("root", t.add(squared, t.literal(1.0)))
    return t.mul(t.make("sign", x), t.make("log1p", t.add(size, t.div(squared, t.add(t.literal(1.0), root)))))


def _acosh(t: Terms, x: Term) -> Term:
    """log1p(d + √(d · (x + 1))) with d = x − 1."""
    above = t.sub(x, t.literal(1.0))
    return t.make("log1p", t.add(above, t.make("root", t.mul(above, t.add(x, t.literal(1.0))))))


def _atanh(t: Terms, x: Term) -> Term:
    ratio = t.div(t.mul(x, t.literal(2.0)), t.sub(t.literal(1.0), x))
    return t.mul(t.make("log1p", ratio), t.literal(0.5))


def _asin(t: Terms, x: Term) -> Term:
    """atan(x / √((1 − x)(1 + x)))."""
    one = t.literal(1.0)
    return t.make("atan", t.div(x, t.make("root", t.mul(t.sub(one, x), t.add(one, x)))))


def _sinh(t: Terms, x: Term) -> Term:
    """With m = e^x − 1: (m + m / (m + 1)) / 2."""
    minus = t.make("expm1", x)
    return t.mul(t.add(minus, t.div(minus, t.add(minus, t.literal(1.0)))), t.literal(0.5))


def _cosh(t: Terms, x: Term) -> Term:
    exponential = _exp(t, x)
    return t.mul(t.add(exponential, t.div(t.literal(1.0), exponential)), t.literal(0.5))


def _not(t: Terms, x: Term) -> Term:
    return t.make("eq", x, t.literal(0.0))


def _truth(t: Terms, x: Term) -> Term:
    return x if x.name in ("gt", "ge", "eq") else _not(t, _not(t, x))


def _or(t: Terms, x: Term, y: Term) -> Term:
    return t.make("maximum", _truth(t, x), _truth(t, y))


RULES: dict[str, Rule] = {
    "expand": lambda t, x: x,
    "positive": lambda t, x: x,
    "add": Terms.add,
    "sub": Terms.sub,
    "mul": Terms.mul,
    "div": Terms.div,
    "neg": Terms.neg,
    **{
        name: (lambda t, *x, name=name: t.make(name, *x))
        for name in ("abs", "sign", "exp", "log", "log1p", "expm1", "tanh", "root")
    },
    **{
        name: (lambda t, *x, name=name: t.make(name, *x))
        for name in ("sigmoid", "sin", "cos", "erf", "atan", "maximum", "minimum")
    },
    **{name: (lambda t, *x, name=name: t.make(name, *x)) for name in ("gt", "ge", "eq")},
    "pow": lambda t, x, y: t.make("pow", x, y),
    "square": lambda t, x: t.mul(x, x),
    "sgn": lambda t, x: t.make("sign", x),
    "expit": lambda t, x: t.make("sigmoid", x),
    "sqrt": lambda t, x: t.make("root", x),
    "rsqrt": lambda t, x: t.div(t.literal(1.0), t.make("root", x)),
    "reciprocal": lambda t, x: t.div(t.literal(1.0), x),
    "exp2": lambda t, x: _exp(t, t.mul(x, t.literal(math.log(2)))),
    "log2": _log_scaled(2),
    "log10": _log_scaled(10),
    "relu": _relu,
    "relu6": lambda t, x: t.make("minimum", _relu(t, x), t.literal(6.0)),
    "leaky_relu": lambda t, x, slope: t.make("select", t.make("gt", x, t.literal(0.0)), x, t.mul(x, slope)),
    "hardtanh": lambda t, x, low, high: t.make("minimum", t.make("maximum", x, low), high),
    "elu": lambda t, x, alpha: t.make("select", t.make("gt", x, t.literal(0.0)), x, t.mul(alpha, t.make("expm1", x))),
    "softplus": _softplus,
    "silu": lambda t, x: t.mul(x, t.make("sigmoid", x)),
    "gelu none": _gelu,
    "gelu tanh": _gelu_tanh,
    "log_sigmoid": lambda t, x: t.neg(_softplus(t, t.neg(x), t.literal(1.0), t.literal(1e30))),
    "mish": lambda t, x: t.mul(x, t.make("tanh", _softplus(t, x, t.literal(1.0), t.literal(20.0)))),
    "softsign": lambda t, x: t.div(x, t.add(t.literal(1.0), t.make("abs", x))),
    "tan": lambda t, x: t.div(t.make("sin", x), t.make("cos", x)),
    **dict.fromkeys(("sinh",), _sinh),
    **dict.fromkeys(("cosh",), _cosh),
    **dict.fromkeys(("asinh", "arcsinh"), _asinh),
    **dict.fromkeys(("acosh", "arccosh"), _acosh),
    **dict.fromkeys(("atanh", "arctanh"), _atanh),
    **dict.fromkeys(("asin", "arcsin"), _asin),
    **dict.fromkeys(("acos", "arccos"), lambda t, x: t.sub(t.literal(math.pi / 2), _asin(t, x))),
    **dict.fromkeys(("atan", "arctan"), lambda t, x: t.make("atan", x)),
    "erfc": lambda t, x: t.sub(t.literal(1.0), t.make("erf", x)),
    "hypot": lambda t, x, y: t.make("root", t.add(t.mul(x, x), t.mul(y, y))),
    "lt": lambda t, x, y: t.make("gt", y, x),
    "le": lambda t, x, y: t.make("ge", y, x),
    "ne": lambda t, x, y: _not(t, t.make("eq", x, y)),
    **dict.fromkeys(("not", "logical_not"), _not),
    **dict.fromkeys(("and", "logical_and"), lambda t, x, y: t.make("minimum", _truth(t, x), _truth(t, y))),
    **dict.fromkeys(("or", "logical_or"), _or),
    **dict.fromkeys(("xor", "logical_xor"), lambda t, x, y: _not(t, t.make("eq", _truth(t, x), _truth(t, y)))),
    "where": lambda t, condition, x, y: t.make("select", _truth(t, condition), x, y),
}
