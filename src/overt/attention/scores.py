"""Scores f(query, key): how well each key matches each query. The formula is the code.

Every score maps query (..., Q, D) and key (..., K, D) to (..., Q, K) and is differentiable in its inputs and its
tensors. Any other callable of the same signature is a score too.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from overt.attention import check
from overt.attention.pieces import inherit_only_with, narrowed, number, piece
from overt.errors import InputError

__all__ = ["ACTIVATIONS", "Additive", "Bilinear", "Cosine", "Dot", "Gaussian", "Score"]

LEAK = 0.2  # the slope of leaky_relu below 0
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": lambda x: functional.leaky_relu(x, LEAK),
}


class AdditiveForm(NamedTuple):
    """Σ_d weight_d · act(q_d + k_d), the form of the additive attention kernels."""

    weight: Tensor
    activation: str


class DotForm(NamedTuple):
    """softcap · tanh(scale · (q · k) / softcap), the form of the dot-product kernels, with vectors from `project`.

    `scale=None` is 1/√D; `softcap=None` is no cap, and `project=None` leaves query and key unchanged. `parameters` are the tensors
    in `project`, matrices (..., D, D'). `linear` says whether `project` is linear: if not, a masked non-finite key would have an effect.
    """

    scale: float | Tensor | None = 1.0
    softcap: float | Tensor | None = None
    project: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    parameters: tuple[Tensor, ...] = ()
    linear: bool = True


class DistanceForm(NamedTuple):
    """−|q − k|² / (2 · bandwidth²), which the dot-product kernels compute if queries and keys are near each other."""

    bandwidth: float | Tensor


# KernelForm: kernels choose by the form, never by the class, so any subclass of `Score` with a `kernel_form` runs on them.
KernelForm = AdditiveForm | DotForm | DistanceForm


class Score:
    """The base class of scores: they check their inputs, and score each pair independently.

    >>> class Nearness(Score):
    ...     def __call__(self, query, key):
    ...         return -torch.cdist(query, key)
    >>> Nearness()(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[-5.]])
    """

    pairwise: ClassVar[bool] = True  # f(query_i, key_j) depends on no other query or key, so any block can be computed

    by_pair: ClassVar[tuple[str, ...]] = ()
    """The fields that may be tensors with numbers for each query or key: they broadcast against (..., Q, K)."""

    trailing: ClassVar[dict[str, int] | None] = None
    """Number of dimensions after batch and heads, by the name of each tensor; None if unknown."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_only_with("__call__", cls, Score, ("as_dot", "kernel_form"))

    def __call__(self, query: Float[Tensor, "... Q D"], key: Float[Tensor, "... K D2"]) -> Float[Tensor, "... Q K"]:
        """The score of each query with each key."""
        raise NotImplementedError

    def check(self, query: Tensor, key: Tensor) -> None:
        """Refuse queries and keys that this score cannot compare."""
        who = f"overt.{type(self).__name__}"
        if query.shape[-1] != key.shape[-1]:
            raise InputError(
                f"query and key to have the same last dimension D, since {who} compares them feature by feature",
                got=check.shapes(query=query, key=key),
                fix="project one of them, or use overt.Bilinear(weight) with a (D_query, D_key) weight",
            )
        for name, tensor in self._tensors_by_pair():
            check.broadcasts(f"{name} of {who}", tensor, query.shape[-2], key.shape[-2])

    def of_block(self, rows: slice, keys: slice) -> "Score":
        """The score of only these rows and keys, with its tensors restricted to them.

        >>> Dot(torch.tensor([[1.0], [2.0], [3.0]])).of_block(slice(1, 3), slice(0, 9)).scale
        tensor([[2.],
                [3.]])
        """
        parts = {name: narrowed(tensor, rows, keys) for name, tensor in self._tensors_by_pair()}
        return replace(self, **parts) if parts else self  # type: ignore[type-var]

    def _tensors_by_pair(self) -> list[tuple[str, Tensor]]:
        fields = [(name, getattr(self, name)) for name in self.by_pair]
        return [(name, field) for name, field in fields if isinstance(field, Tensor) and field.ndim]

    def width(self, features: int) -> int:
        """The number of values in memory for one pair of query and key while it is scored."""
        return 1

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Query, key and scale whose scaled dot product is this score; None if there are none."""
        return None

    def kernel_form(self) -> KernelForm | None:
        """The score's form for the fused kernels; None if they do not support it."""
        return None


@piece
class Dot(Score):
    """The scaled dot product, f(q, k) = softcap · tanh(scale · (q · k) / softcap), or scale · (q · k) without a softcap.

    `scale=None` is 1/√D, under which the scores of independent unit-variance features have variance 1 (Vaswani et al. 2017,
    section 3.2.1); `scale=1.0` is the plain dot product. `softcap` bounds the scores smoothly (Gemma 2, section 2). Both may
    be tensors that broadcast against (..., Q, K).

    >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> Dot(scale=1.0)(query, key)
    tensor([[3., 4.]])
    """

    scale: float | Tensor | None = None
    softcap: float | Tensor | None = None

    by_pair: ClassVar[tuple[str, ...]] = ("scale", "softcap")
    trailing: ClassVar[dict[str, int] | None] = {"scale": 2, "softcap": 2}

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        scores = query @ key.mT * self.factor(query)  # (..., Q, K)
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def check(self, query: Tensor, key: Tensor) -> None:
        """Check that the scale is finite, and the softcap above 0."""
        super().check(query, key)
        if self.scale is not None:
            number("the scale of overt.Dot", self.scale)
        if self.softcap is not None:
            number("the softcap of overt.Dot", self.softcap, above=0, fix="pass a number above 0, or None for no softcap")

    def factor(self, query: Tensor) -> float | Tensor:
        """The scale; 1/√D if it is None."""
        if self.scale is not None:
            return self.scale
        return 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Itself, if the scale is a number and there is no softcap."""
        factor = self.factor(query)
        return None if self.softcap is not None or isinstance(factor, Tensor) else (query, key, float(factor))

    def kernel_form(self) -> KernelForm | None:
        """Itself."""
        return DotForm(self.scale, self.softcap)


@piece
class Bilinear(Score):
    """The bilinear score f(q, k) = q · W k, with a learned W of shape (D_query, D_key), or one for each head, (H, D_query, D_key).

    Luong et al. 2015, section 3.1, "general".

    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> Bilinear(swap)(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[4.]])
    """

    weight: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"weight": 2}

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query (..., Q, D_query) against each key (..., K, D_key): (..., Q, K)."""
        return query @ self.weight.to(query.dtype) @ key.mT

    def check(self, query: Tensor, key: Tensor) -> None:
        """Check that the weight is a matrix from the key's features to the query's."""
        check.float_tensor("the weight of overt.Bilinear", self.weight)
        if tuple(self.weight.shape[-2:]) != (query.shape[-1], key.shape[-1]):
            raise InputError(
                "a weight of shape (D_query, D_key) or (H, D_query, D_key) in overt.Bilinear",
                got=check.shapes(weight=self.weight, query=query, key=key),
                fix=f"pass a weight of shape ({query.shape[-1]}, {key.shape[-1]})",
            )

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """The projected query and the key, for the plain dot product."""
        return query @ self.weight.to(query.dtype), key, 1.0

    def kernel_form(self) -> KernelForm | None:
        """The dot product of the projected query and the key."""
        return DotForm(project=lambda query, key: (query @ self.weight.to(query.dtype), key), parameters=(self.weight,))


@piece
class Additive(Score):
    """Additive attention, f(q, k) = Σ_d w_d · act(q_d + k_d), with q and k already projected.

    Bahdanau et al. 2015, appendix A.1.2; Luong's "concat" is the same with one matrix cut in two; `activation="leaky_relu"`
    (slope 0.2) is GATv2 (Brody et al. 2022, equation 7). The weight is (D,), or (H, D) with one for each head.

    This is the plain formula, with (..., Q, K, D) numbers in memory. `overt.attend` evaluates it in blocks, with less memory.

    >>> Additive(torch.tensor([1.0, 1.0]), activation="relu")(torch.tensor([[1.0, -5.0]]), torch.tensor([[2.0, 3.0]]))
    tensor([[3.]])
    """

    weight: Tensor
    activation: str = "tanh"

    trailing: ClassVar[dict[str, int] | None] = {"weight": 1}

    def __post_init__(self) -> None:
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise InputError(
                "the activation of overt.Additive to be one of " + ", ".join(ACTIVATIONS),
                got=repr(self.activation),
                fix="choose one of them, or pass any callable (query, key) -> (..., Q, K) as the score",
            )

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        features = ACTIVATIONS[self.activation](query[..., :, None, :] + key[..., None, :, :])  # (..., Q, K, D)
        return (features * self.weight.to(query.dtype)[..., None, None, :]).sum(-1)

    def check(self, query: Tensor, key: Tensor) -> None:
        """Check that there is one weight for each feature."""
        super().check(query, key)
        check.float_tensor("the weight of overt.Additive", self.weight)
        if self.weight.ndim < 1 or self.weight.shape[-1] != query.shape[-1]:
            raise InputError(
                "one weight for each feature, (D,) or (H, D), in overt.Additive",
                got=check.shapes(weight=self.weight, query=query, key=key),
                fix=f"pass a weight of shape ({query.shape[-1]},)",
            )

    def width(self, features: int) -> int:
        """All features of a pair, which are in memory at once."""
        return max(features, 1)

    def kernel_form(self) -> KernelForm | None:
        """Itself."""
        return AdditiveForm(self.weight, self.activation)


@piece
class Cosine(Score):
    """The cosine of the angle between query and key, f(q, k) = scale · (q · k) / (|q| |k|); a zero vector scores 0.

    Graves et al. 2014 (Neural Turing Machines), section 3.3.1, where the scale is the key strength β. The scale may be a
    tensor that broadcasts against (..., Q, K).

    >>> Cosine(scale=2.0)(torch.tensor([[5.0, 0.0]]), torch.tensor([[0.1, 0.0], [0.0, 7.0]]))
    tensor([[2., 0.]])
    """

    scale: float | Tensor = 1.0

    by_pair: ClassVar[tuple[str, ...]] = ("scale",)
    trailing: ClassVar[dict[str, int] | None] = {"scale": 2}

    def __post_init__(self) -> None:
        number("the scale of overt.Cosine", self.scale)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        return _unit(query) @ _unit(key).mT * self.scale

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Query and key as unit vectors, for the dot product."""
        if isinstance(self.scale, Tensor):
            return None
        return _unit(query), _unit(key), float(self.scale)

    def kernel_form(self) -> KernelForm | None:
        """The dot product of unit vectors."""
        return DotForm(self.scale, project=lambda query, key: (_unit(query), _unit(key)), linear=False)


@piece
class Gaussian(Score):
    """The Gaussian score f(q, k) = −|q − k|² / (2 · bandwidth²); under a softmax, attention is Nadaraya–Watson regression.

    Tsai et al. 2019 (Transformer Dissection), section 3. Differences are taken before squaring, feature by feature, so vectors
    that are close and far from the origin lose no digits. The bandwidth, in the units of query and key, may be a tensor that
    broadcasts against (..., Q, K).

    >>> Gaussian(bandwidth=1.0)(torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0]]))
    tensor([[-0., -2.]])
    """

    bandwidth: float | Tensor

    by_pair: ClassVar[tuple[str, ...]] = ("bandwidth",)
    trailing: ClassVar[dict[str, int] | None] = {"bandwidth": 2}

    def __post_init__(self) -> None:
        number("the bandwidth of overt.Gaussian", self.bandwidth, above=0)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        squared = (query[..., :, None, :] - key[..., None, :, :]).square().sum(-1)  # (..., Q, K)
        return squared / (-2 * self.bandwidth**2)

    def width(self, features: int) -> int:
        """All differences of a pair, which are in memory at once."""
        return max(features, 1)

    def kernel_form(self) -> KernelForm | None:
        """Itself."""
        return DistanceForm(self.bandwidth)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors scaled to length 1; zero vectors stay. First divided by their largest entry, so that no square over- or underflows."""
    if not vectors.shape[-1]:
        return vectors
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    vectors = vectors / torch.where(largest == 0, 1, largest)
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(largest == 0, 1, length)


# NAMED: scores without arguments, by the names that `score=` accepts.
NAMED: dict[str, Score] = {"dot": Dot(), "cosine": Cosine()}


def __dir__() -> list[str]:
    return __all__


def takes_half(score: Any) -> bool:
    """Whether a score declares that it computes in half precision: by an attribute `takes_half`, or by parameters in half precision.

    Other scores get float32, so that their result depends neither on autocast nor on torch's support of half precision.

    >>> takes_half(torch.cdist), takes_half(torch.nn.Bilinear(2, 2, 1).half())
    (False, True)
    """
    says = getattr(score, "takes_half", None)
    if says is None and isinstance(score, torch.nn.Module):
        return any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in score.parameters())
    return bool(says)
