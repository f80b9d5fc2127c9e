"""The products in models' code (@, bmm, baddbmm, einsum, linear, or multiply and sum), with a letter for each dimension."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from torch import Tensor

CallArguments = tuple[tuple[Any, ...], dict[str, Any]]  # a function's arguments by position and by name

_ELLIPSIS = "ABCDEFGH"
# _ORDER: the names of torch's arguments, for functions whose arguments this module distinguishes.
_ORDER = {
    "softmax": ("input", "dim"),
    "log_softmax": ("input", "dim"),
    "dropout": ("input", "p", "training", "inplace"),
    "matmul": ("input", "other"),
    "bmm": ("input", "mat2"),
    "mm": ("input", "mat2"),
    "baddbmm": ("input", "batch1", "batch2", "beta", "alpha"),
    "mul": ("input", "other"),
    "div": ("input", "other", "rounding_mode"),
    "add": ("input", "other", "alpha"),
    "sub": ("input", "other", "alpha"),
    "sum": ("input", "dim", "keepdim"),
    "masked_fill": ("input", "mask", "value"),
    "where": ("condition", "input", "other"),
    "transpose": ("input", "dim0", "dim1"),
    "permute": ("input", "dims"),
    "linear": ("input", "weight", "bias"),
}


class Product(NamedTuple):
    """left · right · alpha + added, the dimensions named by letters: left "bhqk", right "bkhe", output "bhqe"."""

    left: Tensor
    right: Tensor
    output: Tensor
    letters: tuple[str, str, str]
    alpha: float = 1.0
    added: Tensor | None = None

    def scores(self) -> tuple[Tensor, Tensor] | None:
        """Query (..., Q, D) and key (..., K, D), if the output is (..., Q, K)."""
        left, right, output = self.letters
        summed = _only(letter for letter in left if letter in right and letter not in output)
        if summed is None or len(output) < 2 or output[-2] in right or output[-1] in left:
            return None
        batch, query, key = output[:-2], output[-2], output[-1]
        queries = _arranged(self.left, left, f"{batch}{query}{summed}")
        keys = _arranged(self.right, right, f"{batch}{key}{summed}")
        return None if queries is None or keys is None else (queries, keys)

    def summed_over(self, weights: Tensor, dim: int) -> tuple[Tensor, int] | None:
        """The other operand and its dimension summed with dimension `dim` of the weights; None if `dim` is not summed."""
        mine, others, value = self.sides(weights)
        letter = mine[dim]
        return None if letter in self.letters[2] or letter not in others else (value, others.index(letter))

    def weighted(self, weights: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Weights (..., Q, K), value (..., K, E) and output (..., Q, E), whichever operand the weights are.

        `dim` is the dimension of the weights that counts keys. Weights without a dimension of queries belong to one query.
        """
        mine, others, value = self.sides(weights)
        output, key = self.letters[2], mine[dim]
        if self.added is not None or self.alpha != 1:
            return None
        wide = _only(letter for letter in others if letter in output and letter not in mine)
        queries = [letter for letter in mine if letter in output and letter not in others]
        neighbours = [mine[part] for part in (mine.index(key) - 1, mine.index(key) + 1) if 0 <= part < len(mine)]
        query = next((letter for letter in (*neighbours, *reversed(queries)) if letter in queries), "")
        if wide is None or key in output or key not in others:
            return None
        batch = "".join(letter for letter in output if letter not in (query, wide))
        parts = (
            _arranged(weights, mine, f"{batch}{query}{key}"),
            _arranged(value, others, f"{batch}{key}{wide}"),
            _arranged(self.output, output, f"{batch}{query}{wide}"),
        )
        if any(part is None for part in parts):
            return None
        first, second, third = parts
        return (first, second, third) if query else (first.unsqueeze(-2), second, third.unsqueeze(-2))  # type: ignore[union-attr,return-value]

    def sides(self, weights: Tensor) -> tuple[str, str, Tensor]:
        """The letters of the weights, the letters of the other operand, and the other operand."""
        left, right, _ = self.letters
        return (left, right, self.right) if weights is self.left else (right, left, self.left)


def product(name: str, operands: list[Any], output: Tensor) -> Product | None:
    """The product that a function computes; None for other functions, or without two operands."""
    if name in ("linear", "addmm", "addbmm"):
        return None
    tensors, letters = operand_letters(name, operands, output)
    if len(tensors) != 2 or not all(letters[:2]):
        return None
    alpha, added = 1.0, None
    if name == "baddbmm":
        beta, alpha = (1.0 if number is None else number for number in (*operands[3:], None, None)[:2])
        if beta not in (0, 1):
            return None
        added = operands[0] if beta else None
    return Product(tensors[0], tensors[1], output, (letters[0], letters[1], letters[2]), alpha, added)


def multiplied_and_summed(left: Tensor, right: Tensor, dim: int, output: Tensor) -> Product:
    """The product `(left * right).sum(dim)`, whose `output` lacks the dimension."""
    ndim = max(left.ndim, right.ndim)
    names = ascii_letters[:ndim]
    operands = []
    for tensor, other in ((left, right), (right, left)):
        sizes = [tensor.shape[dim] if -dim <= tensor.ndim else 0 for dim in range(-ndim, 0)]
        others = [other.shape[dim] if -dim <= other.ndim else 0 for dim in range(-ndim, 0)]
        # A dimension of size 1 next to a longer one is repeated, so the product treats it as missing.
        repeated = [dim for dim in range(ndim) if sizes[dim] == 1 and others[dim] > 1]
        letters = "".join(names[dim] for dim in range(ndim) if sizes[dim] and dim not in repeated)
        operands.append((tensor.squeeze([item - ndim for item in repeated]) if repeated else tensor, letters))
    (left, first), (right, second) = operands
    return Product(left, right, output, (first, second, names[: dim % ndim] + names[dim % ndim + 1 :]))


def operand_letters(name: str, operands: list[Any], output: Tensor) -> tuple[list[Tensor], list[str]]:
    """The tensors that a call multiplies, and the letters of each tensor and of the output; empty if they are unknown."""
    if name == "einsum":
        equation, *tensors = operands
        letters = _einsum_letters(equation, tensors, output) if isinstance(equation, str) else None
        return ([], []) if letters is None else (tensors, letters)
    name = name.removeprefix("_sparse_")
    if name in ("baddbmm", "addmm", "addbmm"):
        batch = {"baddbmm": ("b", "b"), "addmm": ("", ""), "addbmm": ("b", "")}[name]
        return list(operands[1:3]), [f"{batch[0]}ij", f"{batch[0]}jk", f"{batch[1]}ik"]
    if name == "linear":
        batch = _ELLIPSIS[: operands[0].ndim - 1]
        if operands[1].ndim != 2 or len(batch) != operands[0].ndim - 1:
            return [], []
        return list(operands[:2]), [f"{batch}i", "oi", f"{batch}o"]
    if name not in ("matmul", "bmm", "mm", "mv"):
        return [], []
    left, right = operands[:2]
    rows, columns = "i" if left.ndim > 1 else "", "k" if right.ndim > 1 else ""
    batch = _ELLIPSIS[: output.ndim - len(rows) - len(columns)]
    return [left, right], [
        f"{_last(batch, left.ndim - 1 - len(rows))}{rows}j",
        f"{_last(batch, right.ndim - 1 - len(columns))}j{columns}",
        f"{batch}{rows}{columns}",
    ]


def arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """A function's arguments in torch's order, None for missing ones, with lists of operands flattened."""
    operands = list(args)
    if kwargs and plain(name) in _ORDER:
        operands += [kwargs.get(item) for item in _ORDER[plain(name)][len(args) :]]
    elif kwargs:
        operands += kwargs.values()
    return [item for one in operands for item in (one if _operands(one) else [one])]


def plain(name: str) -> str:
    """The name of a function without the suffix of in-place functions: `mul_` is mul."""
    return name if name.startswith("__") else name.rstrip("_")


def _operands(operands: Any) -> bool:
    return isinstance(operands, list | tuple) and bool(operands) and isinstance(operands[0], Tensor)


def _einsum_letters(equation: str, tensors: list[Tensor], output: Tensor) -> list[str] | None:
    """The letters of each operand and the output, with ellipses expanded; None if the equation names no output."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    if not arrow or inputs.count(",") != len(tensors) - 1:
        return None
    spelled = []
    for letters, tensor in zip((*inputs.split(","), out), (*tensors, output), strict=True):
        more = tensor.ndim - len(letters.replace("...", ""))
        letters = letters.replace("...", _last(_ELLIPSIS, more))
        if len(set(letters)) != len(letters) or len(letters) != tensor.ndim:
            return None
        spelled.append(letters)
    return spelled


def arranged(tensor: Tensor, letters: Sequence[Any], wanted: Sequence[Any]) -> Tensor:
    """The tensor with its dimensions in the `wanted` order, missing ones with size 1.

    >>> import torch
    >>> arranged(torch.ones(2, 3), "ab", "bca").shape
    torch.Size([3, 1, 2])
    """
    result = tensor.permute([letters.index(letter) for letter in wanted if letter in letters])
    for dim, letter in enumerate(wanted):
        result = result if letter in letters else result.unsqueeze(dim)
    return result


def _arranged(tensor: Tensor, letters: str, wanted: str) -> Tensor | None:
    """`arranged`, but None if the tensor also has other dimensions."""
    return None if set(letters) - set(wanted) else arranged(tensor, letters, wanted)


def _only(letters: Any) -> str | None:
    several = list(letters)
    return several[0] if len(several) == 1 else None


def _last(letters: str, count: int) -> str:
    return letters[len(letters) - count :] if count > 0 else ""
