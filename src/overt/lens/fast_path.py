"""torch's fast path, whose kernels run a whole attention or encoder layer at once: its query, key, value and output, computed beside it.

`nn.MultiheadAttention` and `nn.TransformerEncoderLayer` take it in evaluation without gradients. The kernels are given the layer's
parameters, so query, key and value are projected again here. The same kernel runs again with the identity in place of the output
projection, which gives each head's output; led through the rest of the layer, that has to come to the layer's own output.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from overt.lens.once import Once
from overt.lens.ranges import Read, read
from overt.masks import Lengths

_TORCH: Any = torch  # these three are torch's own, without a public name
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
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}  # of the largest number


class FastCall(NamedTuple):
    """A call of attention on the fast path: query, key, value and output, (B, H, N, D) each, and what masks it.

    `weight` is the parameter that projects into query, key and value, by which the layer is known. `apart` is how far the layer's
    own output is from the one that this output comes to, relative to its largest number.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    mask: Any
    bias: Tensor | None
    weight: Tensor
    apart: float

    @property
    def agrees(self) -> bool:
        """Whether the layer's own output is this one's, up to rounding."""
        return self.apart <= _TOLERANCE[self.output.dtype]

    @property
    def note(self) -> str:
        """What a reader of the call has to know."""
        within = "" if self.apart == 0 else f" within {_TOLERANCE[self.output.dtype]:.0e}"
        return (
            "torch ran the whole layer as one kernel, its fast path: query, key and value are computed beside it from the layer's "
            "parameters, and the output by the same kernel without its output projection; the rest of the layer makes of that "
            f"the layer's own output{within or ', to the bit'}"
        )


class FastPath:
    """Recognises the kernels of the fast path, and the nested tensors in which an encoder hands padded sequences to them."""

    functions = frozenset({_NATIVE, _LAYER, _NESTED})

    def __init__(self):
        self.masks = Once()
        self.sizes = WeakTensorKeyDictionary()  # how long the sequences of a nested tensor are with their padding

    def see(self, func: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> FastCall | None:
        """The call that a function computed, if it computes any."""
        if func is _NESTED:
            self.sizes[output] = args[0].shape[1]
            return None
        given = dict(zip(_ARGUMENTS[func], args, strict=False)) | kwargs
        size = self._size(given["query" if func is _NATIVE else "src"])
        if func is _NATIVE:
            inputs, own, rest = tuple(given[each] for each in ("query", "key", "value")), output[0], _projected
        else:
            source = given["src"]
            if source.is_nested:
                self.sizes[output] = size
            inputs, own, rest = (_normed(source, given, 1) if given["norm_first"] else source,) * 3, output, _finished
        return self._call(given, inputs, own, rest, size)

    def _call(self, given: dict[str, Any], inputs: tuple[Tensor, ...], own: Tensor, rest: Callable, size: int) -> FastCall:
        heads = given.get("num_head") or given["num_heads"]
        parts = zip((_padded(each, size) for each in inputs), *(given[each].chunk(3) for each in _PROJECTIONS[:2]), strict=True)
        query, key, value = (_by_head(functional.linear(*part), heads) for part in parts)
        output = _padded(_unprojected(given, inputs, heads), size)  # (B, N, E)
        lengths = inputs[0]._nested_tensor_size()[:, 0].to(own.device) if inputs[0].is_nested else None
        mask, bias = self._mask(given) if lengths is None else Read(Lengths(lengths, lengths), None)
        apart = _apart(rest(output, given, size), _padded(own, size), lengths)
        return FastCall(query, key, value, _by_head(output, heads), mask, bias, given["qkv_weight"], apart)

    def _mask(self, given: dict[str, Any]) -> Read:
        """Mask and bias; the kernels bar whatever is not zero in their mask, finite numbers of a float mask too."""
        barred = given.get("mask")
        if barred is None:
            return Read(None, None)
        barred = barred[:, None, None] if given["mask_type"] == 1 else barred  # (B, K) -> (B, 1, 1, K)
        if barred.is_inference():  # torch does not count how often these are written to
            return read(barred == 0)
        return self.masks(barred, lambda tensor: read(tensor == 0))

    def _size(self, tensor: Tensor) -> int:
        if not tensor.is_nested:
            return tensor.shape[1]
        return self.sizes.get(tensor) or int(tensor._nested_tensor_size()[:, 0].max())


def _unprojected(given: dict[str, Any], inputs: tuple[Tensor, ...], heads: int) -> Tensor:
    """What the kernel makes of the inputs, with the identity as its output projection."""
    size, weight = given["embed_dim"], given["proj_weight"]
    identity = torch.eye(size, dtype=weight.dtype, device=weight.device), weight.new_zeros(size)
    options = given.get("mask"), False, True, given.get("mask_type")  # no weights
    return _NATIVE(*inputs, size, heads, given["qkv_weight"], given["qkv_bias"], *identity, *options)[0]


def _projected(mixed: Tensor, given: dict[str, Any], size: int) -> Tensor:
    return functional.linear(mixed, given["proj_weight"], given["proj_bias"])


def _finished(mixed: Tensor, given: dict[str, Any], size: int) -> Tensor:
    """The rest of an encoder layer: projection, residuals, norms and the feed-forward network, by the kernels of the fast path."""
    first = _padded(given["src"], size) + _projected(mixed, given, size)
    first = first if given["norm_first"] else _normed(first, given, 1)
    flat = (_normed(first, given, 2) if given["norm_first"] else first).flatten(0, -2)
    (up, up_bias), (down, down_bias) = ((given[f"ffn_weight_{each}"], given[f"ffn_bias_{each}"]) for each in (1, 2))
    inner = _TORCH._addmm_activation(up_bias, flat, up.t(), use_gelu=given["use_gelu"])
    second = first + functional.linear(inner, down, down_bias).view_as(first)
    return second if given["norm_first"] else _normed(second, given, 2)


def _normed(tensor: Tensor, given: dict[str, Any], number: int) -> Tensor:
    weight, bias = given[f"norm_weight_{number}"], given[f"norm_bias_{number}"]
    return functional.layer_norm(tensor, (given["embed_dim"],), weight, bias, given["eps"])


def _by_head(tensor: Tensor, heads: int) -> Tensor:
    return tensor.unflatten(-1, (heads, -1)).transpose(-3, -2)  # (B, N, E) -> (B, H, N, D)


def _padded(tensor: Tensor, size: int) -> Tensor:
    """A nested tensor with zeros behind its sequences: (B, N, E)."""
    return tensor.to_padded_tensor(0.0, (tensor.size(0), size, tensor.size(2))) if tensor.is_nested else tensor


def _apart(ours: Tensor, own: Tensor, lengths: Tensor | None) -> float:
    """The largest difference, NaN beside NaN being none, relative to the largest number; of a nested tensor, what is in it."""
    same = (ours == own) | (ours.isnan() & own.isnan())
    difference = torch.where(same, 0, (ours - own).abs())
    if lengths is not None:
        inside = torch.arange(own.shape[1], device=own.device) < lengths[:, None]  # (B, N)
        difference = torch.where(inside[..., None], difference, 0)
    if not difference.numel():
        return 0.0
    largest = max(float(own.abs().nan_to_num(0.0, 0.0).max()), torch.finfo(own.dtype).tiny)
    return float(difference.max().nan_to_num(torch.inf)) / largest
