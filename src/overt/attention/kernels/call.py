"""One call of attention, checked and made explicit: every default filled in, every shape known."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention import check, keywords, normalizers, scores
from overt.attention.arrays import as_tensor, is_array, library_of
from overt.attention.biases import Bias
from overt.attention.masks import Mask, as_mask
from overt.attention.scores import KernelForm, Score
from overt.attention.typing import MaskLike, NormalizerFunction, NormalizerLike, ScoreFunction, ScoreLike
from overt.errors import KindError

_DOT, _SOFTMAX = scores.NAMED["dot"], normalizers.NAMED["softmax"]  # what a call without a score and a normalizer uses


class Block(NamedTuple):
    """Some rows of queries against the keys they can reach: all that the formula needs."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    allowed: Tensor | None
    bias: Tensor | None
    normalizer: Any
    dropout: float


class Rows(NamedTuple):
    """Some rows of queries, and their rows of a bias tensor."""

    first: int
    stop: int
    query: Tensor
    bias: Any


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of `attend`, checked. Mask and bias are bound to the call's lengths; `batch` are the leading dimensions."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    mask: Any
    bias: Any
    normalizer: Any
    dropout: float
    batch: tuple[int, ...]
    library: Callable[[Tensor], Any] | None = None

    @classmethod
    def of(
        cls,
        query,
        key,
        value,
        score=None,
        mask=None,
        bias=None,
        normalizer=None,
        dropout=0.0,
        unknown: Mapping[str, Any] | None = None,
    ) -> "Call":
        """Check everything that shapes and kinds can tell, and fill in the defaults; keywords that are `unknown` are refused."""
        if unknown:
            keywords.refuse(unknown)
        library = None
        if not isinstance(query, Tensor) and is_array(query):
            library = library_of(query=query, key=key, value=value)
            query, key, value = as_tensor("query", query), as_tensor("key", key), as_tensor("value", value)
            mask = as_tensor("mask", mask) if is_array(mask) else mask
            bias = as_tensor("bias", bias) if is_array(bias) else bias
        check.attention_inputs(query, key, value)
        query, key, value = _autocast(query, key, value)
        check.one_dtype(query, key, value)
        batch = check.broadcast_leading(query, key, value)
        check.probability("dropout", dropout)
        score = _DOT if score is None else as_score(score)
        if isinstance(score, Score):
            score.check(query, key)
        normalizer = _SOFTMAX if normalizer is None else as_normalizer(normalizer)
        mask = None if mask is None else _bound_mask(mask, query, key, batch)
        bias = None if bias is None else _bound_bias(bias, query, key, batch)
        return cls(query, key, value, score, mask, bias, normalizer, float(dropout), batch, library)

    def returned(self, result: Tensor) -> Any:
        """A result as an array of the library that the inputs came from."""
        return result if self.library is None else self.library(result)

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
        """What scores, softmax and sums are computed in: at least float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @property
    def form(self) -> KernelForm | None:
        """What the score is to the fused kernels; None where they do not know it."""
        return self.score.kernel_form() if isinstance(self.score, Score) else None

    @property
    def inspectable(self) -> bool:
        """Whether values can be read: not while torch traces, transforms or captures, nor of tensors without data."""
        if torch.compiler.is_compiling() or self.transformed or self.query.is_meta:
            return False
        return not (self.query.is_cuda and torch.cuda.is_current_stream_capturing())

    @property
    def transformed(self) -> bool:
        """Whether a torch.func transform is active."""
        return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()

    @cached_property
    def finite(self) -> bool:
        """Whether query, key and value hold no NaN and no infinity. To be read only where `inspectable`."""
        return all(
            not tensor.numel() or bool(torch.isfinite(torch.stack(tensor.detach().aminmax())).all()) for tensor in self._tensors
        )

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def ready(self) -> "Call":
        """The same call with grouped heads repeated and half-precision inputs widened; linear in the inputs."""
        query, key, value = self._tensors
        if self.batch:
            key, value = (_repeat_heads(tensor, self.batch[-1]) for tensor in (key, value))
        if isinstance(self.score, Score):
            # A caller's own score may have parameters of the inputs' dtype, so it gets the inputs as they are.
            query, key = query.to(self.dtype), key.to(self.dtype)
        return replace(self, query=query, key=key, value=value.to(self.dtype))

    def rows(self, first: int, stop: int) -> Rows:
        """Queries first to stop."""
        bias = self.bias[..., first:stop, :] if _has_rows(self.bias) else self.bias
        return Rows(first, stop, self.query[..., first:stop, :], bias)

    def split(self, size: int) -> list[Rows]:
        """All queries, `size` rows at a time; split at once, so that their gradients are concatenated and not added one by one."""
        starts = range(0, max(self.queries, 1), size)
        queries = self.query.split(size, dim=-2)
        biases = self.bias.split(size, dim=-2) if _has_rows(self.bias) else [self.bias] * len(starts)
        stops = (min(start + size, self.queries) for start in starts)
        return [Rows(*parts) for parts in zip(starts, stops, queries, biases, strict=True)]

    def block(self, rows: Rows, every_key: bool = False) -> Block:
        """These rows with the keys that they can reach, or with every key."""
        first, stop, query, bias = rows
        low, high = (0, self.keys) if every_key or not getattr(self.score, "pairwise", False) else self.span(first, stop)
        row_indices = torch.arange(first, stop, device=query.device)
        keys = torch.arange(low, high, device=query.device)
        return Block(
            query,
            self.key[..., low:high, :],
            self.value[..., low:high, :],
            self.score if isinstance(self.score, Score) else lambda q, k: check.score_shape(self.score(q, k), q, k),
            None if self.mask is None else self.mask.block(row_indices, keys),
            bias.block(row_indices, keys) if isinstance(bias, Bias) else bias if bias is None else _columns(bias, low, high),
            lambda scores, allowed: check.weight_shape(self.normalizer(scores, allowed), scores),
            self.dropout,
        )

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The keys outside of which queries first to stop may attend to nothing; at least one, so that no row is empty."""
        low, high = self.mask.span(first, stop, self.keys) if isinstance(self.mask, Mask) else (0, self.keys)
        low = min(max(low, 0), max(self.keys - 1, 0))
        return low, max(min(high, self.keys), min(low + 1, self.keys))


def unrounded(tensor: Tensor) -> AbstractContextManager[None]:
    """Autocast off, so that scores, softmax and sums keep their dtype; there is no autocast on the meta device."""
    autocast = not tensor.is_meta and torch.is_autocast_enabled(tensor.device.type)
    return torch.autocast(tensor.device.type, enabled=False) if autocast else nullcontext()  # type: ignore[return-value]


def _autocast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Under autocast the inputs are cast as torch casts those of its own attention; float64 stays."""
    device = query.device.type
    if device == "meta" or not torch.is_autocast_enabled(device) or torch.float64 in (query.dtype, key.dtype, value.dtype):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def _bound_mask(argument: MaskLike, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> Any:
    mask, queries, keys = as_mask(argument), query.shape[-2], key.shape[-2]
    if isinstance(argument, Tensor):
        check.same_device("the mask", argument, query)
        check.fits("mask", argument.shape, (*batch, queries, keys), query, key)
    bound = mask.bind(len(batch), queries, keys) if isinstance(mask, Mask) else mask
    if isinstance(bound, Mask) and bound.numbers is not None:
        return bound  # of positions alone: it fits any call, and a decoder's step need not wait for a probe
    first = [min(size, 1) for size in (queries, keys)]
    probe = bound.block(*(torch.arange(size, device=query.device) for size in first))
    if not isinstance(probe, Tensor) or probe.dtype != torch.bool:
        kind = f"a {probe.dtype} tensor" if isinstance(probe, Tensor) else type(probe).__name__
        raise KindError("block(rows, keys) of the mask to return a bool tensor", got=kind, fix="compare, do not subtract")
    check.same_device("the mask", probe, query)
    check.fits(f"a block of the mask {type(bound).__name__}", probe.shape, (*batch, *first), query, key)
    return bound


def _bound_bias(bias: Any, query: Tensor, key: Tensor, batch: tuple[int, ...]) -> Any:
    queries, keys = query.shape[-2], key.shape[-2]
    if not isinstance(bias, Bias):
        check.bias_tensor(bias)
        check.same_device("the bias", bias, query)
        check.fits("bias", bias.shape, (*batch, queries, keys), query, key)
        return bias
    name = f"overt.{type(bias).__name__}"
    check.same_device(name, bias.source, query)
    check.fits(name, (*bias.leading, queries, keys), (*batch, queries, keys), query, key)
    bound = bias.bind(len(batch), queries, keys)
    if isinstance(bound.offset, Tensor):
        check.same_device(f"the offset of {name}", bound.offset, query)
        check.fits(f"the offset of {name}", bound.offset.shape, (*batch, queries, keys), query, key)
    return bound


def _has_rows(bias: Any) -> bool:
    return isinstance(bias, Tensor) and bias.ndim > 1 and bias.shape[-2] != 1


def _columns(bias: Tensor, low: int, high: int) -> Tensor:
    return bias if bias.ndim == 0 or bias.shape[-1] == 1 else bias[..., low:high]


def as_score(score: ScoreLike) -> ScoreFunction:
    """A score from what a caller passes: a score, the name of one, or any callable (query, key) -> (..., Q, K).

    >>> as_score("cosine")
    Cosine(scale=1.0)
    """
    return _by_name_or_callable("score", score, scores.NAMED, "(query, key) -> (..., Q, K)")


def as_normalizer(normalizer: NormalizerLike) -> NormalizerFunction:
    """A normalizer from what a caller passes: a normalizer, the name of one, or any callable (scores, allowed) -> weights.

    >>> as_normalizer("entmax")
    Entmax(alpha=1.5)
    """
    return _by_name_or_callable("normalizer", normalizer, normalizers.NAMED, "(scores, allowed) -> weights")


def _by_name_or_callable(kind: str, argument: Any, named: dict[str, Any], signature: str) -> Any:
    if isinstance(argument, str):
        check.one_of(f"the {kind}", argument, named)
        return named[argument]
    if not callable(argument):
        raise KindError(
            f"the {kind} to be callable, {signature}",
            got=check.kind_of(argument),
            fix=f"pass one of overt.{kind}s, a function, or one of the names {', '.join(named)}",
        )
    if isinstance(argument, type):
        raise KindError(
            f"the {kind} to be an object", got=f"the class {argument.__name__}", fix=f"make one: {argument.__name__}()"
        )
    return argument


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    if tensor.ndim < 4 or tensor.shape[-3] == 1 or tensor.shape[-3] == heads:
        return tensor
    return tensor.repeat_interleave(heads // tensor.shape[-3], dim=-3)
