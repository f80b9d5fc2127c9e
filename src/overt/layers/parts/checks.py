"""Checks of the layers' inputs: kinds, widths, and arguments with another meaning in torch."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from overt.attention import check
from overt.errors import InputError, KindError


def states(layer: str, name: str, tensor: Any, features: int, min_dimensions: int = 2, option: str = "features") -> None:
    """Refuse anything but a floating-point tensor (..., n, features), or (..., features) if `min_dimensions` is 1.

    `option` is the name of this width in the layer's constructor.
    """
    shape = f"(..., n, {option})" if min_dimensions == 2 else f"(..., {option})"
    if not isinstance(tensor, Tensor):
        raise KindError(f"{name} of {layer} as a torch tensor {shape}", got=type(tensor).__name__, fix="pass a tensor")
    check.dense(tensor, name)
    if not check.is_float(tensor):
        fix = check.float_fix(name, tensor)
        raise KindError(
            f"{name} of {layer} as floating-point numbers",
            got=f"a {tensor.dtype} tensor",
            fix=f"embed the tokens first, or convert: {name}.float()" if ".float()" in fix else fix,
        )
    if tensor.ndim < min_dimensions or tensor.shape[-1] != features:
        too_few = tensor.ndim < min_dimensions
        raise InputError(
            f"{name} of {layer} as {shape} with {option} = {features}",
            got=f"{name} {tuple(tensor.shape)}",
            fix="give it a length: unsqueeze(0)" if too_few else f"build the layer with {option}={tensor.shape[-1]}",
        )


# _MASKS: torch's keywords for masks, whose True means the opposite; and their replacements.
_MASKS = {
    "key_padding_mask": "mask=overt.masks.from_padding(key_padding_mask)",
    "attn_mask": "mask=~attn_mask if it is bool, or bias=attn_mask if it holds numbers",
}


def refuse_torch_keywords(layer: str, unknown: Mapping[str, Any], causal: bool = True) -> None:
    """Refuse the keywords of torch's layer, and any other unknown one; `causal` says whether this layer has a `causal` option."""
    fixes = {
        "need_weights": "call layer.weights(…), since the layer returns its output alone",
        "average_attn_weights": "call layer.weights(…), and average the weights of several heads: .mean(-3)",
        "is_causal": "build the layer with causal=True" if causal else "pass mask=overt.Causal(offset=0)",
    }
    for name, value in unknown.items():
        if name in _MASKS:
            raise InputError(
                f"mask= of {layer}, in which True means that a query may attend",
                got=f"torch's {name}=, in which True means that it may not",
                fix=f"pass {_MASKS[name]}",
            )
        if name in fixes:
            ignored = value is False or value is None
            raise KindError(
                f"the arguments of {layer}", got=f"torch's {name}={value}", fix="leave it out" if ignored else fixes[name]
            )
        raise TypeError(f"{layer} got an unexpected keyword argument {name!r}")


def refuse_ambiguous(layer: str, mask: Any, bias: Any, dimensions: int) -> None:
    """Refuse a tensor with only some of the leading dimensions (B, …, H), whose shape is ambiguous.

    `dimensions` is the number of the inputs' dimensions (..., n, width); the weights (..., H, Q, K) have one more.
    """
    for name, tensor in (("mask", mask), ("bias", bias)):
        if isinstance(tensor, Tensor) and 2 < tensor.ndim <= dimensions:
            missing = dimensions + 1 - tensor.ndim
            readings = [(before, missing - before) for before in range(missing + 1)]
            check.refuse_ambiguous(name, tensor.shape, readings, f" of {layer}")


def widths(layer: str, **features: Any) -> None:
    """Refuse widths that are not whole numbers of at least 1; None is a default."""
    for name, width in features.items():
        if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
            raise InputError(f"{name} of {layer} of at least 1", got=repr(width), fix="pass a whole number")
