"""Normalizers: from the scores of one query to its weights.

Each maps scores (..., Q, K), −inf where masked, and `allowed`, a bool tensor of the same shape, to weights (..., Q, K); a row in
which nothing is allowed may come out as anything finite, since the mechanism sets masked weights to zero. Any callable
`(scores, allowed) -> weights` is a normalizer too.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from overt import native
from overt.attention import check
from overt.attention.pieces import number, piece
from overt.errors import KindError

__all__ = ["Entmax", "Sigmoid", "Softmax", "Sparsemax", "Sum"]

Scores = Float[Tensor, "... Q K"]
Allowed = Bool[Tensor, "... Q K"]


class Normalizer:
    """The base class of normalizers: they map scores and allowed pairs to weights.

    >>> class Even(Normalizer):
    ...     def __call__(self, scores, allowed):
    ...         return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
    >>> Even()(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    tensor([[0.5000, 0.5000]])
    """

    trailing: ClassVar[dict[str, int] | None] = None
    """Number of dimensions after batch and heads, by the name of each tensor; None if unknown."""

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """The weights of each row."""
        raise NotImplementedError


@piece
class Softmax(Normalizer):
    """The softmax, exp(s_j / T) / Σ exp(s / T), optionally with a sink: one more exponential in the sum, which belongs to no key.

    `temperature` T is a positive number or a tensor that broadcasts against (..., Q, K), such as (H, 1, 1). `sink` is a
    learned logit, a scalar or (H,), one for each head: a query that matches no key gives its weight to it (Xiao et al. 2024; GPT-OSS).

    >>> everything = torch.ones(1, 2, dtype=torch.bool)
    >>> Softmax()(torch.tensor([[0.0, 0.0]]), everything)
    tensor([[0.5000, 0.5000]])
    >>> Softmax(sink=torch.tensor(0.0))(torch.tensor([[0.0, 0.0]]), everything)
    tensor([[0.3333, 0.3333]])
    """

    temperature: float | Tensor = 1.0
    sink: Tensor | None = None

    trailing: ClassVar[dict[str, int] | None] = {"temperature": 2, "sink": 0}

    def __post_init__(self) -> None:
        number("the temperature of overt.Softmax", self.temperature, above=0)
        if self.sink is None:
            return
        if not isinstance(self.sink, Tensor) or self.sink.ndim > 1:
            raise KindError(
                "the sink of overt.Softmax to be a floating-point tensor, a scalar or (H,)",
                got=check.shapes(sink=self.sink) if isinstance(self.sink, Tensor) else repr(self.sink),
                fix="pass one logit for each head",
            )
        number("the sink of overt.Softmax", self.sink, minus_infinity=True)  # −∞ takes no weight

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """Weights of each row; their sum is 1, or less with a sink."""
        scores = self.divided_by_temperature(scores, allowed)
        if self.sink is None:
            return torch.softmax(scores, dim=-1)
        return torch.softmax(torch.cat([scores, self._sink_column(scores)], dim=-1), dim=-1)[..., :-1]

    def divided_by_temperature(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """The scores divided by the temperature."""
        if isinstance(self.temperature, Tensor):
            # −inf / T would make the temperature's gradient NaN, so masked scores are excluded from the division.
            divided = torch.where(allowed, scores, 0) / self.temperature
            return torch.where(allowed, divided, scores)
        return scores if self.temperature == 1 else scores / self.temperature

    def logsumexp(self, scores: Tensor, allowed: Tensor) -> Tensor:
        """log Σ exp(s / T), the sink included: (..., Q)."""
        scores = self.divided_by_temperature(scores, allowed)
        return torch.logsumexp(scores if self.sink is None else torch.cat([scores, self._sink_column(scores)], dim=-1), dim=-1)

    def _sink_column(self, scores: Tensor) -> Tensor:
        sink = self.sink.to(scores.dtype)  # type: ignore[union-attr]
        return (sink if sink.ndim == 0 else sink[:, None, None]).expand(*scores.shape[:-1], 1)


@piece
class Sparsemax(Normalizer):
    """The projection of the scores onto the probability simplex: weights that are exactly zero except at a few keys.

    p_j = max(s_j − τ, 0) with τ such that Σ p = 1. Martins and Astudillo 2016, algorithm 1; its gradient is equation 13.

    >>> Sparsemax()(torch.tensor([[1.0, 0.5, -1.0]]), torch.ones(1, 3, dtype=torch.bool))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    trailing: ClassVar[dict[str, int] | None] = {}

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """Weights of each row; their sum is 1."""
        scores = _shifted(scores)
        support = _support(scores, 2.0, _sparsemax_threshold)
        return torch.where(support, scores - _sparsemax_threshold(scores, support), 0)


@piece
class Entmax(Normalizer):
    """α-entmax, between softmax (α → 1) and sparsemax (α = 2): p_j = max((α − 1) s_j − τ, 0)^(1/(α − 1)) with Σ p = 1.

    Peters et al. 2019, equations 8 and 13. At α = 1.5 and 2 it is computed in closed form; otherwise τ is bisected to the last
    digit and passed through two Newton steps, which have its exact first and second derivatives, also in α, which may be a tensor
    that broadcasts against (..., Q, K).

    >>> Entmax(1.5)(torch.tensor([[1.0, 1.0, -2.0]]), torch.ones(1, 3, dtype=torch.bool))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    alpha: float | Tensor = 1.5

    trailing: ClassVar[dict[str, int] | None] = {"alpha": 2}

    def __post_init__(self) -> None:
        number("the alpha of overt.Entmax", self.alpha, above=1, fix="use overt.Softmax() for alpha = 1")

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """Weights of each row; their sum is 1."""
        if not isinstance(self.alpha, Tensor) and self.alpha == 2:
            return Sparsemax()(scores, allowed)
        if not isinstance(self.alpha, Tensor) and self.alpha == 1.5:
            half = _shifted(scores) / 2
            support = _support(half, 1.5, _entmax15_threshold)
            return torch.where(support, half - _entmax15_threshold(half, support), 0).square()
        # Masked scores are far below every threshold; as −inf they would make alpha's gradient NaN, as would a row without allowed keys.
        finite = allowed | ~allowed.any(-1, keepdim=True)
        return _entmax(torch.where(finite, _shifted(scores), torch.finfo(scores.dtype).min / 4), self.alpha)


@piece
class Sigmoid(Normalizer):
    """Sigmoid attention, 1 / (1 + exp(−s_j)) for each score: rows do not sum to 1. Ramapuram et al. 2025, section 2.

    The paper adds a bias of −log K, which keeps the output's size: pass `bias=torch.tensor(-math.log(K))`.

    >>> Sigmoid()(torch.tensor([[0.0]]), torch.ones(1, 1, dtype=torch.bool))
    tensor([[0.5000]])
    """

    trailing: ClassVar[dict[str, int] | None] = {}

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """Weights between 0 and 1."""
        return torch.sigmoid(scores)


@piece
class Sum(Normalizer):
    """Divide by the plain sum, s_j / Σ s, as the simplest recipes do. Weights may be negative; they are infinite if the sum is 0.

    >>> Sum()(torch.tensor([[3.0, -1.0]]), torch.ones(1, 2, dtype=torch.bool))
    tensor([[ 1.5000, -0.5000]])
    """

    trailing: ClassVar[dict[str, int] | None] = {}

    def __call__(self, scores: Scores, allowed: Allowed) -> Scores:
        """Weights of each row; their sum is 1."""
        scores = torch.where(allowed, scores, 0)
        total = scores.sum(-1, keepdim=True)
        # A fully masked row has no sum; 1 keeps it, and its gradient, finite.
        return scores / torch.where(allowed.any(-1, keepdim=True), total, 1)


def _shifted(scores: Tensor) -> Tensor:
    """Subtract each row's largest score: sparse normalizers are invariant to it, and huge scores keep their digits."""
    return scores - scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else scores


def _support(scaled: Tensor, alpha: float, threshold) -> Tensor:
    """The keys with a weight above zero; `scaled` are scores times α − 1.

    Without the native core: of the sorted scores the first k form the support, for the largest k whose k-th score exceeds the threshold
    that the first k alone would have. Computed cumulatively this loses digits in long rows, so the support is refined to a fixed point.
    """
    with torch.no_grad():
        first = _native_threshold(scaled, alpha)
        support = scaled > (_cumulative_threshold(scaled, alpha == 1.5) if first is None else first)
        for _ in range(2):
            support = scaled > threshold(scaled, support)
    return support


def _native_threshold(scaled: Tensor, alpha: float | Tensor) -> Tensor | None:
    """τ (..., Q, 1) for scores times α − 1 by the native core, which does not sort; None if it does not support the scores.

    The scores become the bias of attention to keys of zeros; the core saves each row's largest score and its threshold. float64 uses
    the sort, with which the core is compared.
    """
    *batch, rows, keys = scaled.shape
    alphas = torch.as_tensor(alpha, dtype=torch.float64).detach()
    alphas = alphas if alphas.ndim == 0 or alphas.shape[-2:] == (1, 1) else None
    plain = type(scaled) is Tensor and scaled.device.type == "cpu" and scaled.dtype == torch.float32 and scaled.numel() > 0
    if not plain or alphas is None or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None
    if not native.available() or not bool((alphas <= 2).all()):
        return None
    alphas = alphas.expand(*batch, 1, 1).reshape(-1)
    scores = scaled.detach().reshape(-1, rows, keys) / (alphas.float() - 1)[:, None, None]
    zeros, output, sums = (
        scores.new_zeros(1, 1, 1),
        scores.new_empty(len(scores), rows, 1),
        scores.new_empty(len(scores), rows, native.SPARSE_SUMS),
    )
    queries, values = zeros.expand(len(scores), rows, 1), zeros.expand(len(scores), keys, 1)
    native.module().dot(
        *(queries, values, values, 1.0, 0.0, [], [], scores, False, None, None),
        *(native.ENTMAX, 0.0, alphas, 0.0, 0, native.threads(), output, sums),
    )
    return sums[..., :2].sum(-1).view(*batch, rows, 1)


def _cumulative_threshold(scores: Tensor, squared: bool) -> Tensor:
    if not scores.shape[-1]:
        return scores.new_zeros(*scores.shape[:-1], 1)
    ordered = scores.sort(dim=-1, descending=True).values
    count = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    total = ordered.cumsum(-1)
    if squared:
        mean = total / count
        spread = ordered.square().cumsum(-1) - total * mean
        thresholds = mean - ((1 - spread) / count).clamp(min=0).sqrt()
    else:
        thresholds = (total - 1) / count
    size = (ordered > thresholds).sum(-1, keepdim=True).clamp(min=1)
    return thresholds.gather(-1, size - 1)


def _sparsemax_threshold(scores: Tensor, support: Tensor) -> Tensor:
    """τ with Σ_support (s − τ) = 1."""
    return (torch.where(support, scores, 0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True).clamp(min=1)


def _entmax15_threshold(scores: Tensor, support: Tensor) -> Tensor:
    """τ with Σ_support (s − τ)² = 1: the smaller root of the quadratic."""
    count = support.sum(-1, keepdim=True).clamp(min=1)
    mean = torch.where(support, scores, 0).sum(-1, keepdim=True) / count
    spread = torch.where(support, scores - mean, 0).square().sum(-1, keepdim=True)
    return mean - ((1 - spread) / count).clamp(min=0).sqrt()


def _entmax(scores: Tensor, alpha: float | Tensor) -> Tensor:
    scaled = scores * (alpha - 1)
    power = 1 / (alpha - 1)

    def weights(threshold: Tensor) -> Tensor:
        above = scaled > threshold
        return torch.where(above, torch.where(above, scaled - threshold, 1) ** power, 0)

    threshold = _native_threshold(scaled, alpha)
    threshold = _bisected(scaled, weights) if threshold is None else threshold
    for _ in range(2):
        above = scaled > threshold
        gap = torch.where(above, torch.where(above, scaled - threshold, 1), 0)
        slope = torch.where(above, torch.where(above, gap, 1) ** (power - 1), 0).sum(-1, keepdim=True) * power
        threshold = threshold + (weights(threshold).sum(-1, keepdim=True) - 1) / slope
    return weights(threshold)


@torch.no_grad()
def _bisected(scaled: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """The threshold for which the weights of each row sum to 1, to the last digit."""
    high = scaled.amax(-1, keepdim=True) if scaled.shape[-1] else scaled.sum(-1, keepdim=True)
    low = high - 1  # at this threshold the largest weight is already 1
    for _ in range(26 if scaled.dtype == torch.float32 else 56):
        middle = (low + high) / 2
        enough = weights(middle).sum(-1, keepdim=True) >= 1
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low


# NAMED: normalizers without arguments, by the names that `normalizer=` accepts.
NAMED: dict[str, Normalizer] = {
    "softmax": Softmax(),
    "sparsemax": Sparsemax(),
    "entmax": Entmax(),
    "sigmoid": Sigmoid(),
    "sum": Sum(),
}


def __dir__() -> list[str]:
    return __all__
