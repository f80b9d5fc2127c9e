"""The common base of scores, masks, biases and normalizers: frozen dataclasses that hold tensors, transparent to torch.

A piece is a frozen dataclass that torch's transforms see through: its tensors (and the pieces inside it) are its leaves,
everything else is fixed. So `torch.func.grad` differentiates a score's weight, `vmap` maps over it, and `torch.compile`
traces it. Each piece is registered under a name, by which files identify it.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, dataclass_transform

import numpy
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils import _pytree as pytree

from overt.attention import check
from overt.errors import InputError, KindError

Piece = TypeVar("Piece", bound=type)

# SelectHeads: from a tensor and the number of dimensions after the heads', the part of the selected heads; None if that
# would copy Q × K numbers.
SelectHeads = Callable[[Tensor, int], Tensor | None]

FAR = 2**60  # beyond any key; the sum of a few of these and a position is less than 2⁶³
_NUMBERS = (int, float, numpy.floating, numpy.integer)

registered: dict[str, type] = {}
"""The pieces by their names in files: overt's own by class name, others with their module's name before it."""


@dataclass_transform(frozen_default=True, eq_default=False)
def piece(cls: Piece) -> Piece:
    """Make a class a frozen dataclass, compared by identity, whose tensors torch's transforms can see.

    >>> from overt.attention.scores import Additive
    >>> import torch
    >>> leaves, _ = torch.utils._pytree.tree_flatten(Additive(torch.ones(3)))
    >>> leaves
    [tensor([1., 1., 1.])]
    """
    registered[registered_name(cls)] = dataclass(frozen=True, eq=False)(cls)
    cls.__init__ = _refusing_wrong_arguments(cls)  # type: ignore[misc]
    pytree.register_pytree_node(
        cls, _flatten, lambda values, context: _unflatten(cls, values, context), serialized_type_name=f"overt.{cls.__name__}"
    )
    return cls


def _refusing_wrong_arguments(cls: type) -> Callable[..., None]:
    """A piece's constructor, with an error that lists its arguments if one is missing or unknown."""
    construct = cls.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            construct(self, *arguments, **options)
        except TypeError as error:
            signature = inspect.signature(cls)
            try:
                signature.bind(*arguments, **options)
            except TypeError as problem:
                taken = ", ".join(
                    str(parameter.replace(annotation=parameter.empty)) for parameter in signature.parameters.values()
                )
                name = f"overt.{cls.__name__}" if cls.__module__.startswith("overt.") else cls.__qualname__
                got = str(problem).removeprefix("got ")
                raise KindError(f"{name}({taken})", got=got, fix="pass the arguments by these names") from error
            raise

    return __init__


def registered_name(cls: type) -> str:
    """The name under which a piece is registered.

    >>> from overt import Causal
    >>> registered_name(Causal)
    'Causal'
    """
    return cls.__name__ if cls.__module__.startswith("overt.") else f"{cls.__module__}.{cls.__qualname__}"


def inherit_only_with(formula: str, cls: type, base: type, names: tuple[str, ...]) -> None:
    """Reset inherited attributes that describe a formula, if the class redefines the formula but not the attributes.

    A subclass of `Causal` with its own `block` is no longer causal: its ranges and spans become the base class's, which claim nothing.
    """
    for name in names if formula in vars(cls) else ():
        defined_in = next(owner for owner in cls.__mro__ if name in vars(owner))
        if defined_in is not cls and getattr(defined_in, formula) is not getattr(base, formula):
            setattr(cls, name, vars(base)[name])


def changed(piece: Any, **values: Any) -> Any:
    """A copy with other values of some fields, derived from checked values and therefore not checked again."""
    instance = object.__new__(type(piece))
    for name in (field.name for field in fields(piece)):  # not `vars`, which torch.compile before 2.9 cannot trace
        object.__setattr__(instance, name, values[name] if name in values else getattr(piece, name))
    return instance


def select_heads(piece: Any, select: SelectHeads) -> Any:
    """A bound mask or bias with `select` applied to its tensors, also those of nested pieces.

    None if the class does not declare in `trailing` how many dimensions of a tensor follow the heads'.
    """
    if getattr(piece, "trailing", None) is None:
        return None
    selected: dict[str, Any] = {}
    for name, value in ((field.name, getattr(piece, field.name)) for field in fields(piece)):
        if isinstance(value, Tensor):
            selected[name] = select(value, piece.trailing[name]) if name in piece.trailing else None
        elif hasattr(value, "block"):
            selected[name] = value.for_heads(select) if hasattr(value, "for_heads") else None
    return None if any(value is None for value in selected.values()) else replace(piece, **selected)


def narrowed(tensor: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> Tensor:
    """The rows and keys of a tensor that broadcasts against (..., Q, K); dimensions of size 1 stay."""
    tensor = tensor if tensor.ndim < 2 or tensor.shape[-2] == 1 else tensor[..., rows, :]
    return tensor if tensor.shape[-1] == 1 else tensor[..., keys]


def number(name: str, value: Any, above: float = -math.inf, fix: str = "", minus_infinity: bool = False) -> None:
    """Refuse anything but a finite number above `above` or a floating-point tensor of finite numbers above it; −∞ may be allowed.

    A tensor's numbers are checked only if `readable` returns True.
    """
    kind = "a finite number" if above == -math.inf else f"a number above {above:g}"
    rule = f"{name} to be {kind}" if above == -math.inf else f"{name} to be above {above:g}"
    if isinstance(value, Tensor):
        check.float_tensor(name, value)
        if not readable(value):
            return
        with torch._C.DisableTorchFunction():
            least, largest = (bound.item() for bound in value.detach().aminmax())
        got = f"a tensor of numbers from {least:g} to {largest:g}" if value.ndim else f"tensor({least:g})"
    elif isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise KindError(f"{name} to be {kind}, or a floating-point tensor", got=check.describe(value), fix=f"pass {kind}")
    else:
        least, largest, got = value, value, repr(value)
    if not (least > above or (minus_infinity and least == -math.inf)) or not largest < math.inf:
        rule += " and finite" if above != -math.inf and largest == math.inf else ""
        raise InputError(rule, got=got, fix=fix or f"pass {kind}")


def readable(tensor: Tensor) -> bool:
    """Whether a tensor's numbers can be read immediately: on the CPU, while torch neither compiles, traces nor transforms."""
    return (
        not torch.compiler.is_compiling()
        and tensor.device.type == "cpu"
        and type(tensor) in (Tensor, Parameter)
        and tensor.numel() > 0
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()  # type: ignore[reportPrivateImportUsage]
    )


def whole_numbers(who: str, name: str, value: Any, tensor: bool = False, minimum: int | None = None) -> None:
    """Refuse anything but a whole number or an integer tensor (with `tensor`, only the latter), and numbers below a minimum."""
    check.dense(value, name)
    integral = (
        isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool and not value.is_complex()
    )
    number = isinstance(value, int) and not isinstance(value, bool) and not tensor
    if not integral and not number and not (value is None and name == "queries"):
        raise KindError(
            f"{name} of overt.{who} to be {'an integer tensor' if tensor else 'an int or an integer tensor'}",
            got=check.describe(value),
            fix="convert it with .long()" if isinstance(value, Tensor) else "pass whole numbers",
        )
    if minimum is None or value is None or (isinstance(value, Tensor) and not readable(value)):
        return
    with torch._C.DisableTorchFunction():
        least = value.min().item() if isinstance(value, Tensor) else value
    if least < minimum:
        raise InputError(f"{name} of overt.{who} of at least {minimum}", got=str(least), fix=f"pass {minimum} or more")


def within_64_bits(value: Any) -> Any:
    """Clamp a whole number or an integer tensor to ±2⁶⁰, so that it can be added to positions; None stays.

    >>> within_64_bits(2**70) == within_64_bits(torch.tensor(2**62)).item() == 2**60
    True
    """
    if isinstance(value, Tensor):
        return value.clamp(-FAR, FAR) if value.dtype == torch.int64 else value
    return value if value is None else max(-FAR, min(value, FAR))


def _flatten(instance: Any) -> tuple[list[Any], Any]:
    values = {field.name: getattr(instance, field.name) for field in fields(instance)}
    leaves = {
        name: value
        for name, value in values.items()
        if isinstance(value, Tensor) or (type(value) in pytree.SUPPORTED_NODES and hasattr(type(value), "__dataclass_fields__"))
    }
    fixed = tuple((name, value) for name, value in values.items() if name not in leaves)
    return list(leaves.values()), (tuple(leaves), fixed)


def _unflatten(cls: type, values: Any, context: Any) -> Any:
    # Transforms replace tensors by placeholders, so the constructor's checks do not apply here.
    names, fixed = context
    instance = object.__new__(cls)
    for name, value in [*zip(names, values, strict=True), *fixed]:
        object.__setattr__(instance, name, value)
    return instance
