"""Types of arguments: scores, masks, biases and normalizers, so that a type checker refuses everything else."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Never, Protocol, overload, runtime_checkable

from jaxtyping import Float
from torch import Tensor
from typing_extensions import TypeVar

from overt.attention.biases import Bias


@runtime_checkable
class ScoreFunction(Protocol):
    """A caller's score: any callable from query (..., Q, D) and key (..., K, D) to scores (..., Q, K).

    It gets float32 or float64; it gets half precision only if it has a true attribute `takes_half`, or is an nn.Module with parameters
    in half precision.

    >>> import torch
    >>> isinstance(lambda query, key: -torch.cdist(query, key), ScoreFunction)
    True
    """

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        """The score of each query with each key: (..., Q, K)."""
        ...


@runtime_checkable
class MaskBlocks(Protocol):
    """A caller's mask: an object with `block(rows, keys)`.

    >>> import overt
    >>> isinstance(overt.Causal(), MaskBlocks)
    True
    """

    def block(self, rows: Tensor, keys: Tensor, /) -> Tensor:
        """Whether each of these rows may attend to each of these keys (1-D index tensors): bool, broadcastable to (..., rows, keys)."""
        ...


@runtime_checkable
class NormalizerFunction(Protocol):
    """A caller's normalizer: any callable from scores and a bool tensor `allowed`, both (..., Q, K), to weights.

    >>> import overt
    >>> isinstance(overt.Sparsemax(), NormalizerFunction)
    True
    """

    def __call__(self, scores: Tensor, allowed: Tensor, /) -> Tensor:
        """The weights of each row: (..., Q, K)."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any library that supports DLPack: a tensor of torch, an array of NumPy, JAX or CuPy.

    >>> import numpy
    >>> isinstance(numpy.ones(3), SupportsDLPack)
    True
    """

    def __dlpack__(self) -> Any:
        """A capsule through which another library reads the memory."""
        ...

    def __dlpack_device__(self) -> tuple[Any, int]:
        """The type and index of the device that holds the memory."""
        ...


Array = TypeVar("Array", bound=SupportsDLPack, default=Tensor)

# A class such as overt.Softmax has none of these types: calling it returns an object, not a tensor.
ScoreLike = ScoreFunction | Literal["dot", "cosine"]
MaskLike = MaskBlocks | SupportsDLPack | Literal["causal"]
BiasLike = Bias | SupportsDLPack
NormalizerLike = NormalizerFunction | Literal["softmax", "sparsemax", "entmax", "sigmoid", "sum"]

# Refused: the type of unknown keywords; to a type checker no value has it. Type checks at run time do not support Never there.
if TYPE_CHECKING:
    Refused = Never
else:
    Refused = Any


class Attend(Protocol):
    """The type of `overt.attend`, which returns two results with `return_lse`."""

    @overload
    def __call__(
        self,
        query: Float[Array, "... Q D"],
        key: Float[Array, "... K D"],
        value: Float[Array, "... K E"],
        *,
        score: ScoreLike | None = None,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
        return_lse: Literal[False] = False,
        **unknown: Refused,
    ) -> Float[Array, "... Q E"]: ...

    @overload
    def __call__(
        self,
        query: Float[Array, "... Q D"],
        key: Float[Array, "... K D"],
        value: Float[Array, "... K E"],
        *,
        score: ScoreLike | None = None,
        mask: MaskLike | None = None,
        bias: BiasLike | None = None,
        normalizer: NormalizerLike | None = None,
        dropout: float = 0.0,
        return_lse: Literal[True],
        **unknown: Refused,
    ) -> tuple[Float[Array, "... Q E"], Float[Array, "... Q"]]: ...


def typed(function: Callable[..., Any]) -> Attend:
    """The same function, typed as an `Attend`."""
    return function


# Arguments of layers only: names of scores with learned matrices, the lengths of padded sequences, a window's size.
LearnedScoreLike = ScoreLike | Literal["additive", "concat", "general", "gaussian"]
LengthsLike = Tensor | int | list[int] | tuple[int, ...]
WindowLike = int | tuple[int | None, int | None] | None

__all__ = [
    "Array",
    "BiasLike",
    "LearnedScoreLike",
    "LengthsLike",
    "MaskBlocks",
    "MaskLike",
    "NormalizerFunction",
    "NormalizerLike",
    "Refused",
    "ScoreFunction",
    "ScoreLike",
    "SupportsDLPack",
    "WindowLike",
]


def __dir__() -> list[str]:
    return __all__
