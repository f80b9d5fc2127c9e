"""Handlers of torch functions on pairs: elementwise functions, and sums and extrema over features."""

import math
from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.expression import Expression
from overt.attention.expressions.stand_ins import StandIn, Trace, Untraceable, as_meta, common_shape

UNARY = {
    "neg",
    "abs",
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "square",
    "reciprocal",
    "sign",
    "sgn",
}
UNARY |= {
    "tanh",
    "sigmoid",
    "expit",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "asin",
    "acos",
    "atan",
    "erf",
}
UNARY |= {
    "relu",
    "relu6",
    "silu",
    "log_sigmoid",
    "softsign",
    "mish",
    "not",
    "logical_not",
    "arcsinh",
    "arccosh",
    "arctanh",
    "arccos",
}
UNARY |= {"arcsin", "arctan", "positive", "erfc"}
BINARY = {"add", "sub", "mul", "div", "minimum", "maximum", "ge", "gt", "le", "lt", "eq", "ne", "and", "or", "xor", "hypot"}
BINARY |= {"logical_and", "logical_or", "logical_xor", "pow", "float_power"}
# WITH_OPTIONS: functions with literal options, which belong to the structure: the options' names in order, and their defaults.
WITH_OPTIONS: dict[str, dict[str, Any]] = {
    "leaky_relu": {"negative_slope": 0.01},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "gelu": {"approximate": "none"},
    "elu": {"alpha": 1.0},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
}


_TRUTHS = {"ge", "gt", "le", "lt", "eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not"}


def numberless(shape: Any, dtype: torch.dtype) -> Tensor:
    """A tensor of this shape without data. (A view of one is quick to create; other functions would import torch's compiler.)"""
    return torch.empty(shape, dtype=dtype, device="meta")


def broadcast(name: str, *operands: Any) -> Tensor:
    """The result of an elementwise function without data: the common shape, and the dtype to which torch promotes the operands."""
    parts = [as_meta(operand) for operand in operands]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    dtype = parts[0].dtype if len(parts) == 1 else torch.bool
    if len(parts) > 1 and name not in _TRUTHS:
        dtype = torch.result_type(parts[0], parts[1])
        for part in parts[2:]:
            dtype = torch.result_type(numberless((1,) * min(len(tensors[0].shape), 1), dtype), part)
    if name in _TRUTHS:
        dtype = torch.bool
    return numberless(common_shape(*(tensor.shape for tensor in tensors)), dtype)


def recorded(trace: Trace, meta: Tensor, name: str, *operands: Any, **options: Any) -> StandIn:
    """A stand-in for a function of pairs, with the shape and dtype of `meta`."""
    if meta.dtype not in (trace.dtype, torch.bool):
        raise Untraceable(f"{name} of pairs computes in {meta.dtype}, query and key are {trace.dtype}")
    expression = Expression(name, *operands, **options)
    expression.shape = tuple(meta.shape)
    return trace.pair_stand_in(meta, expression)


def elementwise(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """An elementwise function of tensors that broadcast."""
    if name in ("add", "sub") and "alpha" in options:
        alpha, options = options["alpha"], {key: value for key, value in options.items() if key != "alpha"}
        arguments = (arguments[0], torch.mul(arguments[1], alpha))
    if options.pop("rounding_mode", None) is not None or options.pop("inplace", False):
        raise Untraceable(f"{name} of pairs with a rounding mode or in place")
    if set(options) - {"other", "input", "exponent", "self"}:
        raise Untraceable(f"{name} of pairs with {', '.join(options)}")
    operands = (*arguments, *options.values())
    meta = broadcast(name, *operands)
    if name == "div" and isinstance(operands[1], (int, float)) and operands[1]:
        name, operands = "mul", (operands[0], 1 / operands[1])  # a division takes many times as long as a product
    if name in ("pow", "float_power") and isinstance(operands[1], (int, float)):
        trace.log.append(operands[1])
        return recorded(trace, meta, "pow", trace.operand(operands[0]), float(operands[1]))
    return recorded(trace, meta, name, *map(trace.operand, operands))


def with_options(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """An activation function with literal options."""
    names = WITH_OPTIONS[name]
    literals = {**names, **dict(zip(names, arguments[1:], strict=False)), **{k: v for k, v in options.items() if k in names}}
    if options.get("inplace") or not all(isinstance(value, (int, float, str)) for value in literals.values()):
        raise Untraceable(f"{name} of pairs in place or with tensors as options")
    trace.log.append(tuple(literals.values()))
    value = arguments[0] if arguments else options["input"]
    if name == "gelu":
        name, literals = f"gelu {literals['approximate']}", {}
    return recorded(trace, broadcast(name, value), name, trace.operand(value), *literals.values())


def where(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.where: one of two numbers for each pair."""
    parts = (*arguments, *options.values())
    condition, chosen, other = (*parts[1:], parts[0]) if name == "masked_fill" else parts
    meta = numberless(broadcast("eq", *parts).shape, broadcast(name, chosen, other).dtype)
    return recorded(trace, meta, "where", *map(trace.operand, (condition, chosen, other)))


def clamp(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.clamp: numbers between limits."""
    value, *limits = arguments
    low, high = [*limits, None, None][:2]
    low, high = options.get("min", low), options.get("max", high)
    if name == "clamp_max":
        low, high = None, high if low is None else low
    trace.log.append((low is None, high is None))
    bounds = [None if bound is None else trace.operand(bound) for bound in (low, high)]
    meta = broadcast(name, value, *(bound for bound in (low, high) if bound is not None))
    return recorded(trace, meta, "clamp", trace.operand(value), *bounds)


def filled(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A tensor filled with one number for all pairs."""
    like, *others = arguments
    value = {"zeros_like": 0.0, "ones_like": 1.0}.get(name)
    value = (others[0] if others else options["fill_value"]) if value is None else value
    meta = as_meta(like)
    return (
        trace.pair_stand_in(meta, trace.operand(value))
        if isinstance(value, (int, float))
        else recorded(trace, meta, "expand", trace.operand(value))
    )


def reduction(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A sum, mean, maximum or minimum over features."""
    value, *others = arguments
    if name in ("maximum", "minimum") and (
        (others and isinstance(others[0], Tensor)) or isinstance(options.get("other"), Tensor)
    ):
        return elementwise(trace, name, getattr(torch, name), arguments, options)
    dim, keepdim, *_ = (*others, None, None)
    dim, keepdim = options.get("dim", options.get("axis", dim)), bool(options.get("keepdim", keepdim))
    if options.get("dtype") is not None and options["dtype"] != trace.dtype:
        raise Untraceable(f"{name} of pairs computes in {options['dtype']}")
    meta = as_meta(value)
    if dim is None:
        raise Untraceable(f"{name} over all pairs")
    if isinstance(dim, str):
        raise Untraceable("named dimensions")
    dims = tuple(sorted(one % meta.ndim for one in (dim if isinstance(dim, (tuple, list)) else (dim,))))
    kinds = {"maximum": "amax", "minimum": "amin", "max": "amax", "min": "amin"}
    if meta.dtype == torch.bool:
        raise Untraceable(f"{name} of pairs' truth values")
    shape = [1 if index in dims else size for index, size in enumerate(meta.shape) if keepdim or index not in dims]
    operation = kinds.get(name, name)
    result = recorded(trace, numberless(shape, meta.dtype), operation, trace.operand(value), dim=dims, keepdim=keepdim)
    return torch.return_types.max((result, None)) if name in ("maximum", "minimum") else result  # type: ignore[attr-defined]


def vector_norm(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The p-norm over features."""
    value, *others = arguments
    order, dim, keepdim = [*others, *[None] * 3][:3]
    order = options.get("ord", options.get("p", order))
    dim, keepdim = options.get("dim", dim), bool(options.get("keepdim", keepdim))
    order = 2.0 if order in (None, "fro") else float(order)
    trace.log.append(order)
    if dim is None:
        raise Untraceable("a norm over all pairs")
    if order == math.inf:
        return value.abs().amax(dim, keepdim)
    if order == 1:
        return value.abs().sum(dim, keepdim)
    if order == 2:
        squared = value.square().sum(dim, keepdim)
        return recorded(trace, squared.meta, "root", trace.operand(squared))
    if order <= 0:
        raise Untraceable(f"a norm of order {order}")
    return value.abs().pow(order).sum(dim, keepdim).pow(1 / order)


def cosine_similarity(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The cosine of the angle between two vectors (torch.nn.functional.cosine_similarity)."""
    first, second, dim, eps = by_name(("x1", "x2", "dim", "eps"), (1, 1e-8), arguments, options)
    if dim >= 0:
        dim -= max(first.ndim, second.ndim)
    norms = [torch.linalg.vector_norm(one, dim=dim).clamp(min=eps) for one in (first, second)]
    return (first * second).sum(dim) / (norms[0] * norms[1])


def pairwise_distance(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.nn.functional.pairwise_distance."""
    first, second, order, eps, keepdim = by_name(("x1", "x2", "p", "eps", "keepdim"), (2.0, 1e-6, False), arguments, options)
    return torch.linalg.vector_norm(first - second + eps, order, -1, keepdim)


def cdist(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.cdist: the distances between the vectors of two tensors."""
    first, second, order, *_ = by_name(("x1", "x2", "p", "compute_mode"), (2.0, None), arguments, options)
    return torch.linalg.vector_norm(first.unsqueeze(-2) - second.unsqueeze(-3), order, -1)


def normalize(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.nn.functional.normalize."""
    value, order, dim, eps, _ = by_name(("input", "p", "dim", "eps", "out"), (2.0, 1, 1e-12, None), arguments, options)
    return value / torch.linalg.vector_norm(value, order, dim, True).clamp(min=eps)


def softmax(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """softmax, log_softmax and logsumexp over features."""
    value, dim = arguments[0], arguments[1] if len(arguments) > 1 else options.get("dim")
    if dim is None:
        raise Untraceable(f"{name} over all pairs")
    largest = value.amax(dim, keepdim=True)
    exponentials = (value - largest).exp()
    total = exponentials.sum(dim, keepdim=True)
    if name == "softmax":
        return exponentials / total
    if name == "log_softmax":
        return value - largest - total.log()
    result = largest + total.log()
    keepdim = arguments[2] if len(arguments) > 2 else options.get("keepdim", False)
    return result if keepdim else result.squeeze(dim)


def layer_norm(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """torch.nn.functional.layer_norm over the last dimension."""
    value, shape, weight, bias, eps = by_name(
        ("input", "normalized_shape", "weight", "bias", "eps"), (None, None, 1e-5), arguments, options
    )
    if len(shape) != 1:
        raise Untraceable("layer_norm of pairs over more than one dimension")
    centered = value - value.mean(-1, keepdim=True)
    result = centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def by_name(
    names: tuple[str, ...], defaults: tuple[Any, ...], arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, ...]:
    """Arguments by position or name, with defaults."""
    values = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    values |= dict(zip(names, arguments, strict=False)) | options
    return tuple(values[name] for name in names)
