"""Matrix products as models write them (@, bmm, baddbmm, einsum), with a letter for each dimension."""

from typing import Any, NamedTuple

from torch import Tensor

_ELLIPSIS = "ABCDEFGH"


class Product(NamedTuple):
    """left · right · alpha + added, the dimensions named by letters: left "bhqk", right "bkhe", output "bhqe"."""

    left: Tensor
    right: Tensor
    output: Tensor
    letters: tuple[str, str, str]
    alpha: float = 1.0
    added: Tensor | None = None

    def scores(self) -> tuple[Tensor, Tensor] | None:
        """Query (..., Q, D) and key (..., K, D), where the output is (..., Q, K)."""
        left, right, output = self.letters
        summed = _only(letter for letter in left if letter in right and letter not in output)
        if summed is None or len(output) < 2 or output[-2] in right or output[-1] in left:
            return None
        batch, query, key = output[:-2], output[-2], output[-1]
        return _both(
            _arranged(self.left, left, f"{batch}{query}{summed}"), _arranged(self.right, right, f"{batch}{key}{summed}")
        )

    def weighted(self, weights: Tensor, turned: bool) -> tuple[Tensor, Tensor, Tensor] | None:
        """Weights (..., Q, K), value (..., K, E) and output (..., Q, E), whichever operand the weights are.

        `turned`: they are (..., K, Q) as the model multiplies them.
        """
        left, right, output = self.letters
        mine, others, value = (left, right, self.right) if weights is self.left else (right, left, self.left)
        if self.added is not None or self.alpha != 1 or len(mine) < 2:
            return None
        query, key = (mine[-1], mine[-2]) if turned else (mine[-2], mine[-1])
        wide = _only(letter for letter in others if letter in output and letter not in mine)
        if wide is None or key in output or key not in others or query in others or query not in output:
            return None
        batch = "".join(letter for letter in output if letter not in (query, wide))
        inputs = _both(
            _arranged(weights, mine, f"{batch}{query}{key}"),
            _arranged(value, others, f"{batch}{key}{wide}"),
        )
        mixed = _arranged(self.output, output, f"{batch}{query}{wide}")
        return None if inputs is None or mixed is None else (*inputs, mixed)


def product(name: str, given: list[Any], output: Tensor) -> Product | None:
    """What a call of one of these functions multiplies; None where it is no such call, or not of two matrices."""
    if name == "einsum":
        equation, *tensors = given
        letters = _einsum_letters(equation, tensors, output) if isinstance(equation, str) and len(tensors) == 2 else None
        return None if letters is None else Product(tensors[0], tensors[1], output, letters)
    if name == "baddbmm":
        added, left, right = given[:3]
        beta, alpha = (1.0 if number is None else number for number in (*given[3:], None, None)[:2])
        if beta not in (0, 1):
            return None
        return Product(left, right, output, ("bij", "bjk", "bik"), alpha, added if beta else None)
    if name not in ("matmul", "bmm", "mm"):
        return None
    left, right = given[:2]
    if left.ndim < 2 or right.ndim < 2:
        return None
    batch = _ELLIPSIS[: output.ndim - 2]
    letters = f"{_last(batch, left.ndim - 2)}ij", f"{_last(batch, right.ndim - 2)}jk", f"{batch}ik"
    return Product(left, right, output, letters)


def _einsum_letters(equation: str, tensors: list[Tensor], output: Tensor) -> tuple[str, str, str] | None:
    """The letters of both operands and the output, an ellipsis spelled out; None where no output is written."""
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    if not arrow or inputs.count(",") != 1:
        return None
    found = []
    for letters, tensor in zip((*inputs.split(","), out), (*tensors, output), strict=True):
        more = tensor.ndim - len(letters.replace("...", ""))
        letters = letters.replace("...", _last(_ELLIPSIS, more))
        if len(set(letters)) != len(letters) or len(letters) != tensor.ndim:
            return None
        found.append(letters)
    return found[0], found[1], found[2]


def _arranged(tensor: Tensor, letters: str, wanted: str) -> Tensor | None:
    """The tensor with its dimensions in this order, 1 for those that it lacks; None if it has others."""
    if set(letters) - set(wanted):
        return None
    found = tensor.permute([letters.index(letter) for letter in wanted if letter in letters])
    for place, letter in enumerate(wanted):
        if letter not in letters:
            found = found.unsqueeze(place)
    return found


def _both(first: Tensor | None, second: Tensor | None) -> tuple[Tensor, Tensor] | None:
    return None if first is None or second is None else (first, second)


def _only(letters: Any) -> str | None:
    found = list(letters)
    return found[0] if len(found) == 1 else None


def _last(letters: str, count: int) -> str:
    return letters[len(letters) - count :]
