"""A bound on the rounding between the sum of the contributions and the logit that the model computed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

from overt.lens.analysis.contributions.functions import tensors

_TINY = torch.finfo(torch.float64).tiny
_STORED = 2**24  # most squares of matrices kept for the next target of a run: 64 MB in float32


class PathRounding:
    """The rounding of every function on the linear paths, times its effect on the target.

    A function rounds each number y of its result by up to ε|y|, and if y = Σ_k x_k w_k is a sum of n terms, its partial sums by
    ε√(n Σ (x_k w_k)²) if their errors have random signs. These errors move the target by the gradient g times their size; and the
    gradient, computed by the same products backwards, is rounded as often. All squares add up, and the bound is four times their root.
    """

    def __init__(self):
        self.squares: float = 0.0
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}  # matrices by their ids, and their squares

    def expect(
        self, result: Tensor, terms: int, func: Callable[..., Any] | None, inputs: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> None:
        """Count the rounding of a function's result as soon as its gradient is known; each number of the result sums `terms` numbers."""
        value = result.detach()

        def count(gradient: Tensor | None) -> None:
            if gradient is None:
                return
            wide = gradient.detach().double()
            eps = torch.finfo(value.dtype).eps / 2 if value.is_floating_point() else 0.0
            self.squares += 2 * eps**2 * float(torch.linalg.vector_norm(wide * value)) ** 2
            if func is not None and terms > 2:
                self.squares += self._partial_sums(func, inputs, wide.square(), value, terms)

        result.register_hook(count)

    @torch.no_grad()
    def _partial_sums(self, func: Callable[..., Any], inputs: Any, square: Tensor, value: Tensor, terms: int) -> float:
        eps = torch.finfo(torch.promote_types(value.dtype, torch.float32)).eps / 2
        rows, columns = (square.reshape(-1, square.shape[-1]) > 0).any(1), (square.reshape(-1, square.shape[-1]) > 0).any(0)
        args, kwargs = inputs
        if not bool(rows.any()):
            return 0.0
        if func is functional.linear and not kwargs:
            # Only rows and columns that reach the target: an output matrix has a row for every word.
            inputs_read, weights = args[0].reshape(-1, args[0].shape[-1])[rows], args[1]
            every = bool(columns.all())
            reached = square.reshape(-1, square.shape[-1])[rows][:, columns]
            # The matrix stays in float32: squaring it takes most of the time. Factors that could underflow are scaled by their largest.
            wide = torch.promote_types(value.dtype, torch.float32)
            largest = reached.amax(), inputs_read.abs().amax().double()
            if not bool(largest[1]):  # sums of zeros are exact
                return 0.0
            sizes = (inputs_read.to(wide) / largest[1].clamp(min=_TINY)).square()
            squares = self._squares(weights, wide) if every else weights[columns].to(wide).square()
            by_input = (reached / largest[0].clamp(min=_TINY)).to(wide) @ squares
            total = float((by_input.double() * sizes.double()).sum() * largest[0] * largest[1].square())
        else:
            squares = tree_map(_square, inputs)
            total = float((square * tensors(func(*squares[0], **squares[1]))[0].double()).sum())
        return 2 * (terms + int(columns.sum())) * eps**2 * total

    def _squares(self, weights: Tensor, dtype: torch.dtype) -> Tensor:
        """The squares of a matrix, kept for the next target of the same run."""
        if id(weights) not in self.stored:
            squares = weights.to(dtype).square()
            if sum(squared.numel() for _, squared in self.stored.values()) + squares.numel() > _STORED:
                return squares
            self.stored[id(weights)] = weights, squares
        return self.stored[id(weights)][1]

    def bound(self) -> float:
        """Four times the root of the counted squares."""
        return 4 * self.squares**0.5


def _square(leaf: Any) -> Any:
    return leaf.square() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
