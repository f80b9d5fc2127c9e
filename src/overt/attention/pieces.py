"""What scores, masks, biases and normalizers have in common: frozen, holding their tensors, transparent to torch.

A piece is a frozen dataclass that torch's transforms see through: the tensors it holds (and the pieces it is made of) are
its leaves, everything else is fixed. So `torch.func.grad` differentiates in a score's weight, `vmap` maps over it, and
`torch.compile` traces it.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

from torch import Tensor
from torch.utils import _pytree as pytree

Piece = TypeVar("Piece", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False)
def piece(cls: Piece) -> Piece:
    """Make a class a frozen dataclass, compared by identity, whose tensors torch's transforms can see.

    >>> from overt.attention.scores import Additive
    >>> import torch
    >>> leaves, _ = torch.utils._pytree.tree_flatten(Additive(torch.ones(3)))
    >>> leaves
    [tensor([1., 1., 1.])]
    """
    made = dataclass(frozen=True, eq=False)(cls)
    pytree.register_pytree_node(
        made, _leaves, lambda values, context: _rebuilt(made, values, context), serialized_type_name=f"overt.{made.__name__}"
    )
    return made


def _leaves(instance: Any) -> tuple[list[Any], Any]:
    held = {field.name: getattr(instance, field.name) for field in fields(instance)}
    moving = {name: value for name, value in held.items() if isinstance(value, Tensor) or _is_piece(value)}
    fixed = tuple((name, value) for name, value in held.items() if name not in moving)
    return list(moving.values()), (tuple(moving), fixed)


def _rebuilt(cls: type, values: Any, context: Any) -> Any:
    # Transforms put placeholders where tensors were, so the constructor's checks do not apply here.
    names, fixed = context
    instance = object.__new__(cls)
    for name, value in [*zip(names, values, strict=True), *fixed]:
        object.__setattr__(instance, name, value)
    return instance


def _is_piece(value: Any) -> bool:
    return type(value) in pytree.SUPPORTED_NODES and hasattr(type(value), "__dataclass_fields__")
