"""The slow path of `nn.MultiheadAttention`: torch's `multi_head_attention_forward`, observed function by function."""

import types
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Parameter, functional
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

_NAMES = functional.multi_head_attention_forward.__code__.co_varnames


def visible_inside(function: types.FunctionType) -> Callable[..., Any]:
    """The function with a `has_torch_function` that is always False, so that the functions inside it reach the mode.

    Otherwise torch's own Python functions reach a mode only as a whole.
    """
    names = {**function.__globals__, "has_torch_function": lambda tensors: False}
    visible = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    visible.__kwdefaults__ = function.__kwdefaults__
    return visible


VISIBLE_INSIDE = visible_inside(functional.multi_head_attention_forward)


def overridden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The name of a tensor class or mode with its own torch functions, which must get the call as a whole; else None.

    A mode of overt's own with `sees_inside` takes the functions inside one by one.
    """
    tensors = [type(part) for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
    modes = [type(mode) for mode in _get_current_function_mode_stack()]
    others = [tensor for tensor in tensors if tensor not in (Tensor, Parameter)]
    # torch's own mode, DeviceContext, changes only functions that create tensors.
    others += [mode for mode in modes if mode is not DeviceContext and not getattr(mode, "sees_inside", False)]
    return others[0].__name__ if others else None


class MultiHeadSteps:
    """The steps of `nn.MultiheadAttention` if weights are requested: scale, product, softmax, product."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]):
        arguments = dict(zip(_NAMES, args, strict=False)) | kwargs
        self.heads: int = arguments["num_heads"]
        self.dropout: float = arguments["dropout_p"] if arguments.get("training", True) else 0.0
        self.scaled: tuple[Tensor, Tensor, float] | None = None
        self.scores: tuple[Tensor, Tensor | None] | None = None
        self.output: tuple[Tensor, Tensor] | None = None

    def observe(self, name: str, args: tuple[Any, ...], output: Any) -> bool:
        """Observe one function. Returns whether it was the last one, which gives the output."""
        if name == "mul" and self.scores is None and isinstance(args[1], float):
            self.scaled = (output, args[0], args[1])
        elif name in ("bmm", "baddbmm") and self.scores is None:
            bias, product = (args[0], args[1:]) if name == "baddbmm" else (None, args)
            if self.scaled is not None and product[0] is self.scaled[0]:
                self.scores = (product[1].mT, bias)
        elif name == "bmm" and self.scores is not None:
            self.output = (args[1], output)
            return True
        return False

    def inputs_and_output(self) -> tuple[Tensor, Tensor, Tensor, float, Tensor | None, Tensor] | None:
        """Query, key, value, scale, bias and output with a dimension of heads; None if torch's kernel ran."""
        if self.scaled is None or self.scores is None or self.output is None:
            return None
        query, key, value, output = (self._by_head(t) for t in (self.scaled[1], self.scores[0], *self.output))
        bias = self.scores[1]
        if bias is not None:
            bias = bias[None] if bias.shape[0] == 1 else self._by_head(bias)
        return query, key, value, self.scaled[2], bias, output

    def _by_head(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (-1, self.heads))  # (B·H, …) -> (B, H, …)
