"""Run a caller's score once on stand-ins for query and key: functions of one side run, functions of pairs are recorded.

A stand-in looks like a tensor to the score. A stand-in of queries or of keys holds real numbers: torch's functions run on them, with
autograd. As soon as queries meet keys, the result has a number for each pair, and an `Expression` in place of numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.expression import NotElementwise
from overt.attention.expressions.functions import ALIASES, REFLECTED

Function = Callable[..., Any]

METADATA = {
    "shape",
    "ndim",
    "dtype",
    "device",
    "layout",
    "requires_grad",
    "is_cuda",
    "is_sparse",
    "is_quantized",
    "is_nested",
    "is_leaf",
}
METADATA |= {
    "size",
    "dim",
    "numel",
    "nelement",
    "ndimension",
    "is_floating_point",
    "is_complex",
    "get_device",
    "element_size",
    "__len__",
}
METADATA |= {"is_cpu", "is_meta", "is_mps", "is_xpu", "is_inference", "is_contiguous", "is_same_size", "__hash__", "has_names"}
TRANSPOSES = {"T", "mT", "mH", "H"}
READING = {
    "item",
    "tolist",
    "numpy",
    "__array__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
    "nonzero",
    "equal",
}
READING |= {"allclose", "is_nonzero", "unique", "masked_select", "__iter__", "argwhere", "cpu", "data_ptr", "__complex__"}
WRITING = {"__setitem__", "data", "grad", "grad_fn", "set_", "resize_", "requires_grad_"}
RANDOM = {"bernoulli", "rand_like", "randn_like", "randint_like", "multinomial", "normal", "poisson", "rrelu", "gumbel_softmax"}
DROPOUTS = {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"}
# EXPANDING: functions that give a tensor of one side the other's length without a copy; they are deferred until pairs are computed.
EXPANDING = {"expand", "expand_as", "broadcast_to", "broadcast_tensors", "repeat", "tile"}


class Untraceable(Exception):
    """The score does something that no program over pairs can represent; the message names it."""


class WritesInput(Exception):
    """The score writes to its query or key; the message names the function."""


@dataclass(eq=False)
class Leaf:
    """An input tensor of pairs: of the queries, of the keys, or captured."""

    tensor: Tensor
    side: str  # "query", "key" or "constant"


@dataclass(eq=False)
class Number:
    """A number in the caller's code that enters pairs."""

    value: float


class StandIn(Tensor):
    """A tensor of one side with its `real` numbers, or a tensor of pairs with its `expression`."""

    run: "Trace"
    vectors: Tensor | None
    side: str
    expression: Any
    meta: Tensor
    number: int
    aliased: bool

    @staticmethod
    def made(
        trace: "Trace", meta: Tensor, vectors: Tensor | None = None, side: str = "pairs", expression: Any = None
    ) -> "StandIn":
        """Create a stand-in with the shape and dtype of `meta`."""
        result: Any = Tensor._make_wrapper_subclass(StandIn, meta.shape, dtype=meta.dtype, device=trace.device)
        result.run, result.meta, result.vectors, result.side, result.expression = trace, meta, vectors, side, expression
        result.number, result.aliased = trace.count, False
        trace.count += 1
        return result

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        standing = stand_ins(arguments, options)
        if not standing:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **options)
        return standing[0].run.call(function, arguments, options, standing)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        raise Untraceable(f"{function} is called below torch's functions")


class Trace:
    """One run of a score: the functions called, in order (`log`), and the leaves and numbers of its expressions."""

    def __init__(self, query: Tensor, key: Tensor, handlers: dict[str, Function]):
        self.device, self.dtype = query.device, query.dtype
        self.handlers = handlers
        self.grad = torch.is_grad_enabled()
        self.count = 0
        self.log: list[Any] = []
        self.leaves: list[Leaf] = []
        self.numbers: list[Number] = []
        self._leaf_by_id: dict[int, Leaf] = {}
        self._alive: list[Any] = []
        self.inputs = [self.stand_in(query, "query"), self.stand_in(key, "key")]

    def stand_in(self, vectors: Tensor, side: str) -> StandIn:
        """Create a stand-in for real numbers of one side."""
        return StandIn.made(self, as_meta(vectors), vectors, side)

    def pair_stand_in(self, meta: Tensor, expression: Any) -> StandIn:
        """Create a stand-in for pairs."""
        return StandIn.made(self, meta, expression=expression)

    def call(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any], standing: list[StandIn]) -> Any:
        """The result of a torch function, some of whose arguments are stand-ins."""
        name = _function_name(function)
        if name in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **options)
        self._refuse(name, arguments, options)
        if name in TRANSPOSES:
            name, function, options = "transpose", torch.transpose, {"dim0": -2, "dim1": -1}
            if standing[0].ndim < 2:
                raise Untraceable("the transpose of fewer than two dimensions")
        if name.endswith("_") and not name.endswith("__"):
            return self._written(name, arguments, options, standing)
        sides = {one.side for one in standing}
        if len(sides) == 1 and "pairs" not in sides and name not in EXPANDING:
            self.log.append((name, *(_logged(part, False) for part in (*arguments, *options.items()))))
            return self._wrapped(function(*_real(arguments), **_real(options)), standing[0].side)
        return self._call_on_pairs(name, function, arguments, options)

    def _call_on_pairs(self, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if name[:1] == "r" and name[1:] in (*REFLECTED, "div"):
            name, arguments, function = name[1:], arguments[::-1], getattr(torch, ALIASES.get(name[1:], name[1:]))
        name = ALIASES.get(name, name)
        handler = self.handlers.get(name)
        if handler is None:
            raise Untraceable(f"{name} of pairs of queries and keys is no function that programs know")
        self.log.append((name, *(_logged(part, True) for part in (*arguments, *options.items()))))
        try:
            return handler(self, name, function, arguments, options)
        except NotElementwise:
            raise Untraceable("it computes more terms of a pair than a program holds") from None

    def _wrapped(self, result: Any, side: str) -> Any:
        if isinstance(result, Tensor):
            return self.stand_in(result, side)
        if isinstance(result, (tuple, list)):
            parts = [self._wrapped(part, side) for part in result]
            return type(result)(parts) if type(result) in (tuple, list) or hasattr(result, "n_fields") else type(result)(*parts)
        raise Untraceable(f"it reads a {type(result).__name__} from its numbers")

    def _refuse(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if name in READING:
            raise Untraceable(f"its control flow depends on numbers ({name.strip('_')})")
        if name in RANDOM or (
            name in DROPOUTS and options.get("training", True) and options.get("p", 1) > 0 and not _inactive(arguments)
        ):
            raise Untraceable(f"it draws random numbers ({name})")
        if self.grad and not torch.is_grad_enabled():
            raise Untraceable("it switches gradients off")
        if options.get("out") is not None or name in WRITING:
            raise Untraceable(f"it writes in place ({name.strip('_')})")
        for tensor in _tensors((*arguments, *options.values())):
            if (
                not isinstance(tensor, StandIn)
                and tensor.device != self.device
                and (tensor.ndim or tensor.device.type != "cpu")
            ):
                raise Untraceable(f"it computes with a tensor on {tensor.device}")

    def _written(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any], standing: list[StandIn]) -> Any:
        target = arguments[0]
        if not isinstance(target, StandIn):
            raise Untraceable(f"it writes in place into a captured tensor ({name})")
        if target.vectors is not None:
            storage = target.vectors.untyped_storage().data_ptr()
            if any(storage == one.vectors.untyped_storage().data_ptr() for one in self.inputs if one.vectors is not None):
                raise WritesInput(name)
            raise Untraceable(f"it writes in place ({name})")
        if target.aliased:
            raise Untraceable(f"it writes in place into a view ({name})")
        base = name.rstrip("_")
        result = self._call_on_pairs(base, getattr(torch, base), arguments, options)
        if not isinstance(result, StandIn) or result.meta.shape != target.meta.shape or result.meta.dtype != target.meta.dtype:
            raise Untraceable(f"it writes in place ({name})")
        target.expression, target.meta = result.expression, result.meta
        return target

    def operand(self, argument: Any) -> Any:
        """Convert an argument to an operand of an expression: an expression, a leaf or a number."""
        if isinstance(argument, StandIn) and argument.vectors is None:
            return argument.expression
        if isinstance(argument, Tensor):
            if id(argument) not in self._leaf_by_id:
                leaf = Leaf(argument.vectors, argument.side) if isinstance(argument, StandIn) else Leaf(argument, "constant")  # type: ignore[union-attr, arg-type]
                self._leaf_by_id[id(argument)] = leaf
                self._alive.append(argument)
                self.leaves.append(leaf)
            return self._leaf_by_id[id(argument)]
        if isinstance(argument, (int, float)):
            self.numbers.append(Number(float(argument)))
            return self.numbers[-1]
        raise Untraceable(f"it computes pairs with a {type(argument).__name__}")


def common_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which tensors of these shapes broadcast. (torch's own function for this imports its compiler.)"""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, size in enumerate(shape, rank - len(shape)):
            if size != 1 and result[index] not in (1, size):
                raise Untraceable(f"tensors of shapes {', '.join(str(tuple(shape)) for shape in shapes)} do not fit each other")
            result[index] = size if size != 1 else result[index]
    return tuple(result)


def as_meta(argument: Any) -> Any:
    """The argument without data, from which torch infers the shape and dtype of a result."""
    if isinstance(argument, StandIn):
        return argument.meta
    if isinstance(argument, Tensor):
        return torch.empty(argument.shape, dtype=argument.dtype, device="meta")
    if isinstance(argument, (tuple, list)):
        return type(argument)(as_meta(part) for part in argument)
    return argument


def stand_ins(arguments: Any, options: Any) -> list[StandIn]:
    """All stand-ins among the arguments of a call."""
    return [tensor for tensor in _tensors((*arguments, *options.values())) if isinstance(tensor, StandIn)]


def _tensors(arguments: Any) -> list[Tensor]:
    result = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            result.append(argument)
        elif isinstance(argument, (tuple, list)):
            result += _tensors(argument)
    return result


def _real(argument: Any) -> Any:
    if isinstance(argument, StandIn):
        return argument.vectors
    if isinstance(argument, dict):
        return {name: _real(part) for name, part in argument.items()}
    return type(argument)(map(_real, argument)) if type(argument) in (tuple, list) else argument


def _inactive(arguments: tuple[Any, ...]) -> bool:
    """Whether the positional arguments of a dropout, (input, p, training), disable it."""
    return (len(arguments) > 1 and arguments[1] == 0) or (len(arguments) > 2 and not arguments[2])


def _function_name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        owner = function.__self__
        return getattr(owner, "__name__", None) or owner.fget.__name__
    if name in METADATA | READING | WRITING:
        return name
    if name.startswith("__i") and name.endswith("__") and name not in ("__index__", "__invert__", "__int__", "__iter__"):
        return name[3:-2] + "_"
    return name.strip("_") if name.startswith("__") else name.lstrip("_") if name.startswith("_") else name


def _logged(argument: Any, pairs: bool) -> Any:
    """The structural part of an argument: numbers of elementwise functions are excluded, and their tensors contribute only their shape."""
    if isinstance(argument, StandIn):
        return ("stand-in", argument.number)
    if isinstance(argument, Tensor):
        return ("tensor", tuple(argument.shape), argument.dtype)
    if isinstance(argument, (tuple, list)):
        return tuple(_logged(part, pairs) for part in argument)
    if isinstance(argument, float):
        return "float"
    if isinstance(argument, (bool, int, str, type(None), torch.dtype)):
        return argument
    return repr(argument) if isinstance(argument, (slice, type(Ellipsis))) else type(argument).__name__
