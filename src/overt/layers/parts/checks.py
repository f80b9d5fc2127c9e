"""Guards of what the layers read: kinds and widths, in the layers' own words."""

from typing import Any

from torch import Tensor

from overt.errors import InputError, KindError


def states(who: str, name: str, given: Any, features: int, least: int = 2, option: str = "features") -> None:
    """Refuse what is not a floating-point tensor (..., n, features), or (..., features) where `least` is 1.

    `option` is what the layer's constructor calls this width.
    """
    shape = f"(..., n, {option})" if least == 2 else f"(..., {option})"
    if not isinstance(given, Tensor):
        raise KindError(f"{who} reads {name} as a torch tensor {shape}", got=type(given).__name__, fix="pass a tensor")
    if not given.is_floating_point():
        raise KindError(
            f"{who} reads {name} as floating-point numbers",
            got=f"a {given.dtype} tensor",
            fix=f"embed the tokens first, or convert: {name}.float()",
        )
    if given.ndim < least or given.shape[-1] != features:
        raise InputError(
            f"{who} reads {name} {shape} with {option} = {features}",
            got=f"{name} {tuple(given.shape)}",
            fix=f"build the layer with {option}={given.shape[-1]}" if given.ndim >= least else "give it a length: unsqueeze(0)",
        )


def refuse_torch_keywords(who: str, others: dict[str, Any]) -> None:
    """Refuse torch's keywords for masks, whose True means the opposite, and any other that is not known."""
    fixes = {
        "key_padding_mask": "mask=overt.masks.from_padding(key_padding_mask)",
        "attn_mask": "mask=~attn_mask if it is bool, or bias=attn_mask if it holds numbers",
    }
    for name in others:
        if name in fixes:
            raise InputError(
                f"{who} takes mask=, in which True means that a query may attend; in torch's {name} True bars it",
                got=f"{name}=",
                fix=f"pass {fixes[name]}",
            )
        raise TypeError(f"{who} got an unexpected keyword argument {name!r}")


def refuse_ambiguous(who: str, mask: Any, bias: Any, dimensions: int) -> None:
    """Refuse a tensor with some of the leading dimensions (B, …, H): which ones, its shape does not say.

    `dimensions` are those of the inputs (..., n, width); the weights (..., H, Q, K) have one more.
    """
    for name, given in (("mask", mask), ("bias", bias)):
        if isinstance(given, Tensor) and 2 < given.ndim <= dimensions:
            raise InputError(
                f"{who} takes a {name} of (Q, K) or (B, H, Q, K), since three dimensions may be (B, Q, K) or (H, Q, K)",
                got=f"a {name} {tuple(given.shape)}",
                fix=f"say which: {name}[:, None] for one a batch entry, {name}[None] for one a head",
            )


def widths(who: str, **features: Any) -> None:
    """Refuse widths that are not whole numbers of at least 1; None stands for a default."""
    for name, width in features.items():
        if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
            raise InputError(f"{who} has {name} of at least 1", got=repr(width), fix="pass a whole number")
