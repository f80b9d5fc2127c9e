"""What scores, masks, biases and normalizers have in common: frozen, holding their tensors, transparent to torch.

A piece is a frozen dataclass that torch's transforms see through: its tensors (and the pieces it is made of) are its leaves,
everything else is fixed. So `torch.func.grad` differentiates in a score's weight, `vmap` maps over it, and `torch.compile`
traces it. Each piece is registered under a name, by which a file may name it.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, dataclass_transform

from torch import Tensor
from torch.utils import _pytree as pytree

Piece = TypeVar("Piece", bound=type)

# Selects heads: from a tensor and how many of its dimensions follow the heads', the selected heads' part of it; None where that
# would be a copy of Q × K numbers.
SelectHeads = Callable[[Tensor, int], Tensor | None]

registered: dict[str, type] = {}
"""The pieces by the names that files use. Overt's own have their class's name, others their module's before it."""


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
    pytree.register_pytree_node(
        cls, _flatten, lambda values, context: _unflatten(cls, values, context), serialized_type_name=f"overt.{cls.__name__}"
    )
    return cls


def registered_name(cls: type) -> str:
    """The name under which a piece is registered.

    >>> from overt import Causal
    >>> registered_name(Causal)
    'Causal'
    """
    return cls.__name__ if cls.__module__.startswith("overt.") else f"{cls.__module__}.{cls.__qualname__}"


def inherit_only_with(formula: str, cls: type, base: type, names: tuple[str, ...]) -> None:
    """Reset what a class inherits about its formula, where it defines another formula and not these names.

    A subclass of `Causal` with a `block` of its own is no longer causal: its ranges and spans are the base's, which claim nothing.
    """
    for name in names if formula in vars(cls) else ():
        defined_in = next(each for each in cls.__mro__ if name in vars(each))
        if defined_in is not cls and getattr(defined_in, formula) is not getattr(base, formula):
            setattr(cls, name, vars(base)[name])


def select_heads(piece: Any, select: SelectHeads) -> Any:
    """A bound mask or bias with `select` applied to its tensors, those of the pieces in it included.

    None where the class does not say, in `trailing`, how many dimensions of a tensor follow the heads'.
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
    # Transforms put placeholders where tensors were, so the constructor's checks do not apply here.
    names, fixed = context
    instance = object.__new__(cls)
    for name, value in [*zip(names, values, strict=True), *fixed]:
        object.__setattr__(instance, name, value)
    return instance
