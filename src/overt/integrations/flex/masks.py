"""The masks of a mask_mod: comparisons of positions become the library's masks, known to kernels; others are computed block by block."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from overt.attention.expressions.expression import Expression
from overt.attention.masks import Causal, Dense, Documents, Keys, Lengths, Mask, Window
from overt.errors import KindError
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY, linear_in_positions
from overt.integrations.flex.sizes import Sizes, within_tables


class ExpressionMask(Mask):
    """The pairs for which an expression of positions, heads and batch entries is true."""

    def __init__(self, expression: Expression, sizes: Sizes):
        self.expression = expression
        self.sizes = sizes

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The expression of these rows and keys."""
        with within_tables("the mask_mod", self.sizes):
            return self.expression.value(self.sizes.indices(rows, keys)).bool()


class ModMask(Mask):
    """The pairs that a mask_mod without an expression allows: called for each pair under `torch.vmap`, as in FlexAttention."""

    def __init__(self, mod: Callable[..., Tensor], sizes: Sizes):
        self.mod = mod
        self.sizes = sizes

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The mod of these rows and keys."""
        with within_tables("the mask_mod", self.sizes):
            allowed = mapped(self.mod, *self.sizes.indices(rows, keys).values())
        _check_bool(allowed.dtype)
        return allowed


def _check_bool(dtype: torch.dtype) -> None:
    if dtype != torch.bool:
        raise KindError("the mask_mod to return a bool", got=f"a {dtype}", fix="compare, as in q_idx >= kv_idx")


class _Indexing(TorchFunctionMode):
    """Indexing of tables by scalar tensors under `torch.vmap` of torch 2.7, which reads the scalar's number and fails."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function, or indexing as an operator that vmap supports."""
        if func == Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(position, Tensor) for position in index):
                return torch.ops.aten.index(args[0], list(index))
        return func(*args, **(kwargs or {}))


@functools.cache
def _vmap_indexes() -> bool:
    """Whether a scalar that `torch.vmap` maps may index a tensor."""
    table = torch.zeros(1)
    try:
        torch.vmap(lambda position: table[position])(torch.zeros(1, dtype=torch.int64))
    except RuntimeError:
        return False
    return True


def vmapped_indices() -> AbstractContextManager[Any]:
    """Within the block a scalar that `torch.vmap` maps may index a tensor, on every torch."""
    return nullcontext() if _vmap_indexes() else _Indexing()


def mapped(mod: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """A mod called for each element of arguments that broadcast."""
    arguments = torch.broadcast_tensors(*arguments)
    with vmapped_indices():
        result = torch.vmap(mod)(*(argument.reshape(-1) for argument in arguments))
    if result.ndim != 1:
        raise KindError("the mod to return one number", got=f"shape {tuple(result.shape[1:])}", fix="index down to one element")
    return result.view(arguments[0].shape)


def expression_mask(expression: Any, sizes: Sizes) -> Mask | None:
    """The mask of an expression, or of a constant; None if every query may attend to every key. Raises KindError if it is not bool."""
    if isinstance(expression, bool):
        return None if expression else Lengths(0)
    _check_bool(_dtype(expression, sizes))
    name, arguments = expression.function, expression.arguments
    if name in ("and", "or", "logical_and", "logical_or"):
        left, right = (_operand(argument, sizes) for argument in arguments)
        if left is not None and right is not None:
            return left & right if name.endswith("and") else left | right
    elif name in ("not", "logical_not") and (inner := _operand(arguments[0], sizes)) is not None:
        return ~inner
    elif name == "where" and (parts := [_operand(argument, sizes) for argument in arguments]) and None not in parts:
        condition, chosen, other = parts
        return (condition & chosen) | (~condition & other)  # type: ignore[operator]
    elif name in ("ge", "gt", "le", "lt") and (compared := _compared(name, arguments[0], arguments[1], sizes)) is not None:
        return compared
    elif name in ("eq", "ne") and (equal := _equal(arguments[0], arguments[1], sizes)) is not None:
        return equal if name == "eq" else ~equal
    return _computed(expression, sizes)


def _operand(expression: Any, sizes: Sizes) -> Mask | None:
    """The mask of an operand of & | ~; None if it is not bool, such as an integer of bits."""
    if isinstance(expression, bool):
        return expression_mask(expression, sizes) or Lengths(sizes.keys)
    if not isinstance(expression, Expression) or _dtype(expression, sizes) != torch.bool:
        return None
    return expression_mask(expression, sizes)


def _dtype(expression: Expression, sizes: Sizes) -> torch.dtype:
    first = torch.zeros(1, dtype=torch.int64, device=sizes.device)
    values = sizes._replace(batch=1, heads=1).indices(first, first)
    return torch.as_tensor(expression.value(values)).dtype


def _compared(name: str, left: Any, right: Any, sizes: Sizes) -> Mask | None:
    """The mask of a comparison of sums of positions."""
    if name in ("le", "lt"):
        name, left, right = ("ge" if name == "le" else "gt"), right, left
    for inside, other, sign in ((left, right, 1), (right, left, -1)):
        if isinstance(inside, Expression) and inside.function == "abs":
            return _absolute(name, inside.arguments[0], other, sign, sizes)
    first, second = linear_in_positions(left), linear_in_positions(right)
    if first is None or second is None:
        return None
    query, key = first[0] - second[0], first[1] - second[1]
    constant = _integer(first[2] - second[2], sizes)
    if constant is None:
        return None
    least = constant - (1 if name == "gt" else 0)  # query · i + key · j + least >= 0
    if (query, key) == (1, -1):
        return Causal(offset=least)
    if (query, key) == (-1, 1):
        return Window(0, None, offset=-least)
    if (query, key) == (0, -1):
        return Lengths(_at_least_none(least + 1))
    if (query, key) == (0, 1):
        return ~Lengths(_at_least_none(-least))
    if (query, key) == (-1, 0):
        return Lengths(sizes.keys, queries=_at_least_none(least + 1))
    if (query, key) == (1, 0):
        return ~Lengths(sizes.keys, queries=_at_least_none(-least))
    return None


def _absolute(name: str, inside: Any, other: Any, sign: int, sizes: Sizes) -> Mask | None:
    """`other >= |inside|` for a sign of −1, `|inside| >= other` for 1: two comparisons."""
    if not isinstance(other, (int, Tensor, Expression)) or isinstance(other, bool):
        return None
    pairs = [(inside, other), (-inside, other)] if sign > 0 else [(other, inside), (other, -inside)]
    first, second = (_compared(name, *pair, sizes) for pair in pairs)
    return None if first is None or second is None else first | second if sign > 0 else first & second


def _equal(left: Any, right: Any, sizes: Sizes) -> Mask | None:
    """The mask of an equality between a value of the query and a value of the key, such as document ids, or positions at a distance."""
    first, second = linear_in_positions(left), linear_in_positions(right)
    if first is not None and second is not None and (first[0] - second[0], first[1] - second[1]) in ((1, -1), (-1, 1)):
        both = [_compared(name, left, right, sizes) for name in ("ge", "le")]
        return None if None in both else both[0] & both[1]  # type: ignore[operator]
    sides = [side.symbols() if isinstance(side, Expression) else set() for side in (left, right)]
    if sides[0] <= {KEY, BATCH} and sides[1] <= {QUERY, BATCH}:
        left, right, sides = right, left, sides[::-1]
    if not (sides[0] <= {QUERY, BATCH} and sides[1] <= {KEY, BATCH} and QUERY in sides[0] and KEY in sides[1]):
        return None
    queries, keys = (torch.as_tensor(side.value(sizes.indices())) for side in (left, right))
    if queries.is_floating_point() or keys.is_floating_point():
        return None
    # (B or 1, 1, Q, 1) and (B or 1, 1, 1, K); a negative number belongs to no document in `Documents`, and to its own here.
    queries, keys = queries.long().flatten(1), keys.long().flatten(1)
    least = torch.minimum(queries.amin(), keys.amin()) if queries.numel() and keys.numel() else 0
    ids = [tensor.expand(sizes.batch, -1) - least for tensor in (keys, queries)]
    return Documents(*ids)


def _computed(expression: Expression, sizes: Sizes) -> Mask:
    """A mask from the values of an expression: computed at once if there are at most as many as queries or keys, else block by block."""
    symbols = expression.symbols()
    if not {QUERY, KEY} <= symbols:
        allowed = torch.as_tensor(expression.value(sizes.indices())).bool()
        if symbols <= {KEY, BATCH} and KEY in symbols:
            return Keys(allowed.reshape(-1, sizes.keys).expand(sizes.batch, -1))
        return Dense(allowed)
    table = captured_table(expression, sizes)
    return ExpressionMask(expression, sizes) if table is None or table.dtype != torch.bool else Dense(table)


def captured_table(expression: Any, sizes: Sizes) -> Tensor | None:
    """The captured tensor that an expression reads at the query's and the key's position, as a view (B or 1, H or 1, Q, K)."""
    if not isinstance(expression, Expression) or expression.function != "getitem":
        return None
    tensor, indices = expression.arguments
    names = [index.symbol or "" if isinstance(index, Expression) else "" for index in indices]
    if "" in names or len(set(names)) < len(names) or not {QUERY, KEY} <= set(names):
        return None
    lengths = {BATCH: sizes.batch, HEAD: sizes.heads, QUERY: sizes.queries, KEY: sizes.keys}
    if any(size < lengths[name] for name, size in zip(names, tensor.shape, strict=True)):
        return None
    for dimension, name in enumerate(names):
        tensor = tensor.narrow(dimension, 0, lengths[name])
    order = [name for name in lengths if name in names]
    tensor = tensor.permute([names.index(name) for name in order])
    for dimension, name in enumerate(lengths):
        tensor = tensor if name in names else tensor.unsqueeze(dimension)
    return tensor


def _integer(constant: Any, sizes: Sizes) -> Any:
    """The position-free part of a sum: an int, or a tensor (B,) or (B, H); None if it is no integer."""
    if isinstance(constant, int):
        return constant
    value = torch.as_tensor(constant.value(sizes.indices()) if isinstance(constant, Expression) else constant)
    if value.is_floating_point() or value.dtype == torch.bool:
        return None
    value = value.long().to(sizes.device)  # one number, or (B or 1, H or 1, 1, 1)
    by_head = isinstance(constant, Expression) and HEAD in constant.symbols()
    value = value.reshape(value.shape[:2]) if value.ndim else value.reshape(1, 1)
    return value.expand(sizes.batch, sizes.heads) if by_head else value[:, 0].expand(sizes.batch)


def _at_least_none(length: Any) -> Any:
    return length.clamp(min=0) if isinstance(length, Tensor) else max(length, 0)
