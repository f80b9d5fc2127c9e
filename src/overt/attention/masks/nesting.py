"""How masks nest: a chain of one operator is regrouped as a balanced tree, and masks deeper than `DEEPEST` are refused.

Functions of masks are recursive, and Python allows about 1,000 nested calls.
"""

from typing import Any

from overt.errors import InputError

DEEPEST = 100  # levels of nested masks


def balanced(kind: Any, left: Any, right: Any) -> Any:
    """The mask `kind(left, right)`, with depth log₂ n for a chain of n masks, in the same order.

    >>> from overt import Causal
    >>> mask = Causal()
    >>> for _ in range(1023):
    ...     mask = mask & Causal()
    >>> mask.depth
    10
    """
    if type(left) is kind and _chain(left.right, kind) + _chain(right, kind) <= _chain(left.left, kind):
        return kind(left.left, balanced(kind, left.right, right))
    if type(right) is kind and _chain(left, kind) + _chain(right.left, kind) <= _chain(right.right, kind):
        return kind(balanced(kind, left, right.left), right.right)
    return kind(left, right)


def note_depth(mask: Any, *parts: Any) -> None:
    """Store a new mask's depth, and the number of masks that its operator joins. Raises InputError if it is too deep."""
    depth = 1 + max(getattr(part, "depth", 0) for part in parts)
    if depth > DEEPEST:
        raise InputError(
            f"masks at most {DEEPEST} deep, where & | ~ alternate",
            got=f"{depth} inside one another",
            fix="join those of one operator first, as in a & (b | c | d), or write a class with block(rows, keys)",
        )
    object.__setattr__(mask, "depth", depth)
    object.__setattr__(mask, "chain", sum(_chain(part, type(mask)) for part in parts))


def _chain(mask: Any, kind: Any) -> int:
    """The number of masks that an operator joins in a mask."""
    return getattr(mask, "chain", 1) if type(mask) is kind else 1
