"""A call of attention, checked and explicit: every default is filled in, every shape known."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from overt.attention import check, keywords, normalizers, scores
from overt.attention.arrays import array_converter, as_tensor, is_array
from overt.attention.biases import Bias, TensorBias
from overt.attention.kernels import misfit
from overt.attention.kernels.sharded.inputs import is_sharded, whole_pieces
from overt.attention.masks import Mask, as_mask
from overt.attention.scores import KernelForm, Score
from overt.attention.typing import MaskLike, NormalizerFunction, NormalizerLike, ScoreFunction, ScoreLike
from overt.errors import KindError

_DOT, _SOFTMAX = scores.NAMED["dot"], normalizers.NAMED["softmax"]  # the defaults of a call
# _ADDITIVE: the fix for names of scores that only layers accept, since `attend` needs their weight as an argument.
_ADDITIVE = "write overt.Additive(weight), whose weight is yours; overt.layers learn one"
_BILINEAR = "write overt.Bilinear(weight), whose weight is yours; overt.layers learn one"
_WITH_ARGUMENTS = {
    "additive": _ADDITIVE,
    "concat": _ADDITIVE,
    "general": _BILINEAR,
    "bilinear": _BILINEAR,
    "gaussian": "write overt.Gaussian(bandwidth)",
}


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of `attend`, checked. Mask and bias are bound to the call's lengths; `batch` are the leading dimensions.

    Arrays of other libraries become tensors here, and `library` makes arrays of results: kernels and recordings see tensors only.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    mask: Any
    bias: Bias | None
    normalizer: Any
    dropout: float
    batch: tuple[int, ...]
    library: Callable[[Tensor], Any] | None = None

    @classmethod
    def checked(
        cls,
        query: Any,
        key: Any,
        value: Any,
        score: Any = None,
        mask: Any = None,
        bias: Any = None,
        normalizer: Any = None,
        dropout: float = 0.0,
        unknown: Mapping[str, Any] | None = None,
    ) -> "Call":
        """Check kinds and shapes, and fill in the defaults; `unknown` keywords are refused."""
        if unknown:
            keywords.refuse(unknown)
        library = None
        if is_sharded(query) or is_sharded(key) or is_sharded(value):
            inputs = {"query": query, "key": key, "value": value}
            score, mask, bias, normalizer = whole_pieces(inputs, (score, mask, bias, normalizer))
        if not isinstance(query, Tensor) and is_array(query):
            library = array_converter(query=query, key=key, value=value)
            query, key, value = as_tensor("query", query), as_tensor("key", key), as_tensor("value", value)
            mask = as_tensor("mask", mask) if is_array(mask) else mask
            bias = as_tensor("bias", bias) if is_array(bias) else bias
        check.attention_inputs(query, key, value)
        autocast = not query.is_meta and torch.is_autocast_enabled(query.device.type)
        if autocast and torch.float64 not in (query.dtype, key.dtype, value.dtype):
            # Inputs are cast as in torch's own attention; float64 stays.
            dtype = torch.get_autocast_dtype(query.device.type)
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        check.one_dtype(query, key, value)
        batch = check.broadcast_leading(query, key, value)
        check.probability("dropout", dropout)
        score = _DOT if score is None else as_score(score)
        if isinstance(score, Score):
            score.check(query, key)
            misfit.check_devices(score, Score, query)
        normalizer = _SOFTMAX if normalizer is None else as_normalizer(normalizer)
        misfit.check_devices(normalizer, normalizers.Normalizer, query)
        mask = None if mask is None else _bound_mask(mask, query, key, batch)
        bias = None if bias is None else _bound_bias(bias, query, key, batch)
        return cls(query, key, value, score, mask, bias, normalizer, float(dropout), batch, library)

    def returned(self, result: Tensor) -> Any:
        """Convert a result to an array of the inputs' library."""
        return result if self.library is None else self.library(result)

    @property
    def sharded(self) -> bool:
        """Whether the inputs are DTensors, of which each process holds a part."""
        return is_sharded(self.query)

    @property
    def queries(self) -> int:
        """Q."""
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        """K."""
        return self.key.shape[-2]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of scores, softmax and sums: at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @property
    def form(self) -> KernelForm | None:
        """The score's form for the fused kernels; None if they do not support it."""
        return self.score.kernel_form() if isinstance(self.score, Score) else None

    @property
    def inspectable(self) -> bool:
        """Whether values can be read: not while torch traces, transforms or captures, nor from tensors without data."""
        if torch.compiler.is_compiling() or self.transformed or self.query.is_meta:
            return False
        return not (self.query.is_cuda and torch.cuda.is_current_stream_capturing())

    @property
    def transformed(self) -> bool:
        """Whether a torch.func transform is active."""
        return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()

    @cached_property
    def finite(self) -> bool:
        """Whether query, key and value hold no NaN and no infinity. To be read only if `inspectable`."""
        return all(
            not tensor.numel() or bool(torch.isfinite(torch.stack(tensor.detach().aminmax())).all())
            for tensor in (self.query, self.key, self.value)
        )


def _bound_mask(argument: MaskLike, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> Any:
    mask, queries, keys = as_mask(argument), query.shape[-2], key.shape[-2]
    if isinstance(argument, Tensor):
        check.same_device("the mask", argument, query)
        check.fits("mask", argument.shape, (*batch, queries, keys), query, key)
        return mask.bind(len(batch), queries, keys)  # its shape already shows the shape of a block
    bound = mask.bind(len(batch), queries, keys) if isinstance(mask, Mask) else mask
    if isinstance(bound, Mask) and bound.numbers is not None:
        return bound  # it depends on positions only, so it fits any call; a decoder's step need not wait for a probe
    misfit.check_devices(bound, Mask, query)
    misfit.check_pairs(bound, query, key, batch)
    first = [min(size, 1) for size in (queries, keys)]
    probe = bound.block(*(torch.arange(size, device=query.device) for size in first))
    if not isinstance(probe, Tensor) or probe.dtype != torch.bool:
        kind = f"a {probe.dtype} tensor" if isinstance(probe, Tensor) else type(probe).__name__
        raise KindError("block(rows, keys) of the mask to return a bool tensor", got=kind, fix="compare, do not subtract")
    check.same_device("the mask", probe, query)
    if not check.broadcasts_to(probe.shape, (*batch, *first)):
        misfit.refuse_mask(bound, tuple(probe.shape), query, key, batch)
    return bound


def _bound_bias(bias: Any, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> Bias:
    queries, keys = query.shape[-2], key.shape[-2]
    if not isinstance(bias, Bias):
        check.bias_tensor(bias)
        check.same_device("the bias", bias, query)
        check.fits("bias", bias.shape, (*batch, queries, keys), query, key)
        return TensorBias(bias).bind(len(batch), queries, keys)
    misfit.check_bias(bias, query, key, batch)
    bound = bias.bind(len(batch), queries, keys)
    misfit.check_offsets(bound, query, batch)
    return bound


def as_score(score: ScoreLike) -> ScoreFunction:
    """Convert a caller's argument to a score: a score, the name of one, or any callable (query, key) -> (..., Q, K).

    >>> as_score("cosine")
    Cosine(scale=1.0)
    """
    return _by_name_or_callable("score", score, scores.NAMED, "(query, key) -> (..., Q, K)")


def as_normalizer(normalizer: NormalizerLike) -> NormalizerFunction:
    """Convert a caller's argument to a normalizer: a normalizer, the name of one, or any callable (scores, allowed) -> weights.

    >>> as_normalizer("entmax")
    Entmax(alpha=1.5)
    """
    return _by_name_or_callable("normalizer", normalizer, normalizers.NAMED, "(scores, allowed) -> weights")


def _by_name_or_callable(kind: str, argument: Any, named: dict[str, Any], signature: str) -> Any:
    if isinstance(argument, str):
        check.choice(f"the {kind}", argument, named, _WITH_ARGUMENTS if kind == "score" else None)
        return named[argument]
    if not callable(argument):
        raise KindError(
            f"the {kind} to be callable, {signature}",
            got=check.describe(argument),
            fix=f"pass one of overt.{kind}s, a function, or one of the names {', '.join(named)}",
        )
    check.not_a_class(f"the {kind}", argument)
    return argument


def is_exporting() -> bool:
    """Whether torch.export traces. Before 2.13 torch.compile assumes that torch's function of this name is true; it reads the flag."""
    return torch.compiler._is_exporting_flag


def unrounded(tensor: Tensor) -> AbstractContextManager[None]:
    """Disable autocast, so that scores, softmax and sums keep their dtype; the meta device has no autocast."""
    autocast = not tensor.is_meta and torch.is_autocast_enabled(tensor.device.type)
    return torch.autocast(tensor.device.type, enabled=False) if autocast else nullcontext()  # type: ignore[return-value]
