"""DTensor inputs of a call; the tensors in its pieces are whole on every process, and so are their gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from overt.errors import KindError


def is_sharded(tensor: Any) -> bool:
    """Whether the tensor is a DTensor, without importing torch.distributed.tensor."""
    kind = type(tensor)
    return kind is not Tensor and kind.__module__.startswith("torch.distributed.tensor")


def whole_pieces(inputs: dict[str, Any], pieces: tuple[Any, ...]) -> tuple[Any, ...]:
    """Score, mask, bias and normalizer with plain tensors in place of DTensors, if all inputs are DTensors."""
    plain = [name for name, tensor in inputs.items() if not is_sharded(tensor)]
    if plain:
        raise KindError(
            "query, key and value to be all DTensors, or none of them",
            got=f"{' and '.join(plain)} of type {', '.join(type(inputs[name]).__name__ for name in plain)}",
            fix="distribute them alike: torch.distributed.tensor.distribute_tensor(tensor, mesh, placements)",
        )
    return pytree.tree_map(lambda leaf: waited(leaf.full_tensor()) if is_sharded(leaf) else leaf, pieces)


def waited(tensor: Tensor) -> Tensor:
    """Wait for the result of one of torch's collective operations."""
    return tensor.wait() if hasattr(tensor, "wait") else tensor  # type: ignore[operator]


def summed_gradient(tensor: Tensor, groups: list[Any]) -> Tensor:
    """The same tensor, of which each process of the groups uses a part: its gradient is summed over these processes."""
    needed = groups and tensor.requires_grad and torch.is_grad_enabled()
    return _SummedGradient.apply(tensor, groups) if needed else tensor  # type: ignore[return-value]


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is summed over the processes of each group."""

    @staticmethod
    def forward(ctx, tensor, groups):  # type: ignore[override]
        ctx.groups = groups
        return tensor.view_as(tensor)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[override]
        total = gradient.to(torch.promote_types(gradient.dtype, torch.float32), copy=True).contiguous()
        for group in ctx.groups:
            torch.distributed.all_reduce(total, group=group)
        return total.to(gradient.dtype), None
