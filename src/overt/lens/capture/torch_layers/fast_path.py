"""torch's fast path, whose kernels run a whole attention or encoder layer: its query, key, value and output, recomputed.

`nn.MultiheadAttention` and `nn.TransformerEncoderLayer` take it in evaluation without gradients. The kernels get the layer's
parameters, so query, key and value are projected again here. The same kernel runs again with the identity as output projection, which
gives each head's output; the rest of the layer, applied to it, must reproduce the layer's own output.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from overt.attention.masks import Lengths
from overt.lens.capture.ranges import MaskReading, read
from overt.lens.storage.tensor_cache import TensorCache

Arguments = dict[str, Any]
_TORCH: Any = torch  # the three kernels of torch below have no public names
_NATIVE, _LAYER, _NESTED = (
    _TORCH._native_multi_head_attention,
    _TORCH._transformer_encoder_layer_fwd,
    _TORCH._nested_tensor_from_mask,
)
_PROJECTIONS = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")
_NORMS, _NETWORK = (
    tuple(f"{kind}_{part}_{number}" for number in (1, 2) for part in ("weight", "bias")) for kind in ("norm", "ffn")
)
_RETURNED, _OPTIONS = ("need_weights", "average_attn_weights"), ("use_gelu", "norm_first", "eps")
_ARGUMENTS = {
    _NATIVE: ("query", "key", "value", "embed_dim", "num_head", *_PROJECTIONS, "mask", *_RETURNED, "mask_type"),
    _LAYER: ("src", "embed_dim", "num_heads", *_PROJECTIONS, *_OPTIONS, *_NORMS, *_NETWORK, "mask", "mask_type"),
}
# _TOLERANCE: by dtype, the largest difference of `FastCall.agrees`, relative to the largest number.
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class FastCall(NamedTuple):
    """A call of attention on the fast path: query, key, value and output, (B, H, N, D) each, and its masks.

    `weight` is the parameter that projects into query, key and value, which identifies the layer. `apart` is the largest difference
    between the layer's own output and the reproduced one, relative to its largest number.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    mask: Any
    bias: Tensor | None
    weight: Tensor
    difference: float

    @property
    def agrees(self) -> bool:
        """Whether the layer's own output equals the reproduced one, up to rounding."""
        return self.difference <= _TOLERANCE[self.output.dtype]

    @property
    def note(self) -> str:
        """The note for a reader of the call."""
        within = "" if self.difference == 0 else f" within {_TOLERANCE[self.output.dtype]:.0e}"
        return (
            "torch ran the whole layer as one kernel, its fast path: query, key and value are recomputed from the layer's "
            "parameters, and the output by the same kernel without its output projection; the rest of the layer computes "
            f"the layer's own output from that{within or ', to the bit'}"
        )


class FastPath:
    """Recognises the kernels of the fast path, and the nested tensors with an encoder's padded sequences."""

    functions: ClassVar[frozenset[Any]] = frozenset({_NATIVE, _LAYER, _NESTED})

    def __init__(self):
        self.masks: TensorCache = TensorCache()
        # The padded length of the sequences of each nested tensor.
        self.sizes: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def observe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> FastCall | None:
        """The call that a function computed, or None."""
        if func is _NESTED:
            self.sizes[output] = args[0].shape[1]
            return None
        arguments = dict(zip(_ARGUMENTS[func], args, strict=False)) | kwargs
        if func is _NATIVE:
            inputs = tuple(arguments[name] for name in ("query", "key", "value"))
            return self._call(arguments, inputs, output[0], _projected, self._size(inputs[0]))
        source = arguments["src"]
        size = self._size(source)
        if source.is_nested:
            self.sizes[output] = size
        inputs = (_normed(source, arguments, 1) if arguments["norm_first"] else source,) * 3
        return self._call(arguments, inputs, output, _finished, size)

    def _call(
        self, arguments: Arguments, inputs: tuple[Tensor, ...], actual: Tensor, remaining: Callable[..., Any], size: int
    ) -> FastCall:
        """The call: `remaining` applies the rest of the layer to its output, and `actual` is the layer's own output."""
        heads = arguments.get("num_head") or arguments["num_heads"]
        padded = [_padded(entry, size) for entry in inputs]
        parts = zip(padded, arguments["qkv_weight"].chunk(3), arguments["qkv_bias"].chunk(3), strict=True)
        query, key, value = (_by_head(functional.linear(*part), heads) for part in parts)
        output = _padded(_unprojected(arguments, inputs, heads), size)  # (B, N, E)
        lengths = inputs[0]._nested_tensor_size()[:, 0].to(actual.device) if inputs[0].is_nested else None
        mask, bias = self._mask(arguments) if lengths is None else MaskReading(Lengths(lengths, lengths), None)
        difference = _relative_difference(remaining(output, arguments, size), _padded(actual, size), lengths)
        return FastCall(query, key, value, _by_head(output, heads), mask, bias, arguments["qkv_weight"], difference)

    def _mask(self, arguments: Arguments) -> MaskReading:
        """Mask and bias; the kernels mask every nonzero entry, including finite numbers of a float mask."""
        masked = arguments.get("mask")
        if masked is None:
            return MaskReading(None, None)
        masked = masked[:, None, None] if arguments["mask_type"] == 1 else masked  # (B, K) -> (B, 1, 1, K)
        if masked.is_inference():  # torch does not count writes to these tensors
            return read(masked == 0)
        return self.masks(masked, lambda tensor: read(tensor == 0))

    def _size(self, tensor: Tensor) -> int:
        if not tensor.is_nested:
            return tensor.shape[1]
        return self.sizes.get(tensor) or int(tensor._nested_tensor_size()[:, 0].max())


def _unprojected(arguments: Arguments, inputs: tuple[Tensor, ...], heads: int) -> Tensor:
    """The kernel's output for the inputs, with the identity as output projection."""
    size, weight = arguments["embed_dim"], arguments["proj_weight"]
    identity = torch.eye(size, dtype=weight.dtype, device=weight.device), weight.new_zeros(size)
    options = arguments.get("mask"), False, True, arguments.get("mask_type")  # no weights
    return _NATIVE(*inputs, size, heads, arguments["qkv_weight"], arguments["qkv_bias"], *identity, *options)[0]


def _projected(mixed: Tensor, arguments: Arguments, size: int) -> Tensor:
    return functional.linear(mixed, arguments["proj_weight"], arguments["proj_bias"])


def _finished(mixed: Tensor, arguments: Arguments, size: int) -> Tensor:
    """The rest of an encoder layer: projection, residuals, norms and the feed-forward network, by the kernels of the fast path."""
    first = _padded(arguments["src"], size) + _projected(mixed, arguments, size)
    first = first if arguments["norm_first"] else _normed(first, arguments, 1)
    flat = (_normed(first, arguments, 2) if arguments["norm_first"] else first).flatten(0, -2)
    (up, up_bias), (down, down_bias) = ((arguments[f"ffn_weight_{part}"], arguments[f"ffn_bias_{part}"]) for part in (1, 2))
    inner = _TORCH._addmm_activation(up_bias, flat, up.t(), use_gelu=arguments["use_gelu"])
    second = first + functional.linear(inner, down, down_bias).view_as(first)
    return second if arguments["norm_first"] else _normed(second, arguments, 2)


def _normed(tensor: Tensor, arguments: Arguments, number: int) -> Tensor:
    weight, bias = arguments[f"norm_weight_{number}"], arguments[f"norm_bias_{number}"]
    return functional.layer_norm(tensor, (arguments["embed_dim"],), weight, bias, arguments["eps"])


def _by_head(tensor: Tensor, heads: int) -> Tensor:
    return tensor.unflatten(-1, (heads, -1)).transpose(-3, -2)  # (B, N, E) -> (B, H, N, D)


def _padded(tensor: Tensor, size: int) -> Tensor:
    """A nested tensor with zeros after its sequences: (B, N, E)."""
    return tensor.to_padded_tensor(0.0, (tensor.size(0), size, tensor.size(2))) if tensor.is_nested else tensor


def _relative_difference(ours: Tensor, actual: Tensor, lengths: Tensor | None) -> float:
    """The largest difference relative to the largest number; two NaN are equal, and padding of nested tensors does not count."""
    same = (ours == actual) | (ours.isnan() & actual.isnan())
    difference = torch.where(same, 0, (ours - actual).abs())
    if lengths is not None:
        inside = torch.arange(actual.shape[1], device=actual.device) < lengths[:, None]  # (B, N)
        difference = torch.where(inside[..., None], difference, 0)
    if not difference.numel():
        return 0.0
    largest = max(float(actual.abs().nan_to_num(0.0, 0.0).max()), torch.finfo(actual.dtype).tiny)
    return float(difference.max().nan_to_num(torch.inf)) / largest
