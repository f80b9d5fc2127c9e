"""Guards of what the layers read: kinds and widths, in the layers' own words."""

from typing import Any

from torch import Tensor

from overt.errors import InputError, KindError


def states(who: str, name: str, given: Any, features: int, least: int = 2) -> None:
    """Refuse what is not a floating-point tensor (..., n, features), or (..., features) where `least` is 1."""
    shape = "(..., n, features)" if least == 2 else "(..., features)"
    if not isinstance(given, Tensor):
        raise KindError(f"{who} reads {name} as a torch tensor {shape}", got=type(given).__name__, cure="pass a tensor")
    if not given.is_floating_point():
        raise KindError(
            f"{who} reads {name} as floating-point numbers",
            got=f"a {given.dtype} tensor",
            cure=f"embed the tokens first, or convert: {name}.float()",
        )
    if given.ndim < least or given.shape[-1] != features:
        raise InputError(
            f"{who} reads {name} {shape} with features = {features}",
            got=f"{name} {tuple(given.shape)}",
            cure=f"build the layer with features={given.shape[-1]}"
            if given.ndim >= least
            else "give it a length: unsqueeze(0)",
        )


def widths(who: str, **features: Any) -> None:
    """Refuse widths that are not whole numbers of at least 1; None stands for a default."""
    for name, width in features.items():
        if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
            raise InputError(f"{who} has {name} of at least 1", got=repr(width), cure="pass the width of the vectors it reads")
