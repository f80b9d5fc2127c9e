"""A call's normalizer in the native kernels' form: a number for its kind, and entmax's alpha; or why they do not support it."""

from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.attention.normalizers import Entmax, Sigmoid, Softmax, Sparsemax, Sum
from overt.attention.typing import NormalizerFunction
from overt.native import ENTMAX, IDENTITY, SIGMOID, SOFTMAX, SPARSE_SUMS, SUM

SCHEMA = "int normalizer, float alpha, Tensor? alphas"
KINDS = {Softmax: SOFTMAX, Sigmoid: SIGMOID, Sum: SUM, Sparsemax: ENTMAX, Entmax: ENTMAX}
_NAMES = {Softmax: "a softmax", Sigmoid: "a sigmoid", Sum: "a sum", Sparsemax: "sparsemax"}


class NormalizerForm(NamedTuple):
    """The kind, and entmax's alpha: a number, or a tensor (...) that may be learned."""

    normalizer: int = SOFTMAX
    alpha: float = 0.0
    alphas: Tensor | None = None


def as_form(normalizer: NormalizerFunction) -> NormalizerForm:
    """The form of a supported normalizer."""
    kind = KINDS[type(normalizer)]
    if kind != ENTMAX:
        return NormalizerForm(kind)
    alpha = normalizer.alpha if isinstance(normalizer, Entmax) else 2.0
    if not isinstance(alpha, Tensor):
        return NormalizerForm(kind, float(alpha))
    return NormalizerForm(kind, 0.0, alpha.reshape(alpha.shape[:-2]).double())


def sums_shape(kind: int, queries: int) -> tuple[int, int]:
    """The shape of the row sums that the dot-product kernels save for one batch entry."""
    return (queries, SPARSE_SUMS) if kind == ENTMAX else (2, queries)


def build_normalizer(form: NormalizerForm, sink: Tensor | None, dtype: torch.dtype) -> NormalizerFunction:
    """The normalizer of a form, for scores of a dtype that are already divided by the temperature."""
    if form.normalizer == ENTMAX:
        return Entmax(form.alpha if form.alphas is None else form.alphas[..., None, None].to(dtype))
    if form.normalizer == IDENTITY:
        return lambda scores, allowed: scores
    return [Softmax(sink=sink), Sigmoid(), Sum()][form.normalizer]


def is_custom(normalizer: NormalizerFunction) -> bool:
    """Whether the normalizer is the caller's, which may be traced with the score."""
    return type(normalizer) not in KINDS


def refusal(call: Call) -> str | None:
    """Why the native kernels do not support the call's normalizer; None if they do, or if it is the caller's."""
    normalizer = call.normalizer
    if is_custom(normalizer) or not isinstance(normalizer, Entmax):
        return None
    if not isinstance(normalizer.alpha, Tensor):
        return "the alpha is above 2" if normalizer.alpha > 2 else None
    shape, batch = normalizer.alpha.shape, (*call.batch, 1, 1)
    sizes = zip(reversed(shape), reversed(batch), strict=False)
    if len(shape) > len(batch) or any(length not in (1, size) for length, size in sizes):
        return "the alpha differs between queries or keys"
    if not call.inspectable:
        return "the alpha is a tensor, whose values are not inspected here"
    alpha = normalizer.alpha.detach()
    return None if bool(((alpha > 1) & (alpha <= 2)).all()) else "the alpha is not above 1 and at most 2"


def normalizer_name(normalizer: NormalizerFunction) -> str:
    """The name of a supported normalizer in a sentence: "under a softmax"."""
    if is_custom(normalizer):
        return "a normalizer of one's own"
    if isinstance(normalizer, Entmax):
        return "entmax" if isinstance(normalizer.alpha, torch.Tensor) else f"entmax {normalizer.alpha:g}"
    return _NAMES[type(normalizer)]
