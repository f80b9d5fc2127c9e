"""The types of arguments: what a score, a mask, a bias and a normalizer may be, so that a type checker refuses everything else."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Never, Protocol, overload, runtime_checkable

from jaxtyping import Float
from torch import Tensor
from typing_extensions import TypeVar

from overt.attention.biases import Bias


@runtime_checkable
class ScoreFunction(Protocol):
    """A score of the caller's own: any callable from query (..., Q, D) and key (..., K, D) to scores (..., Q, K).

    It gets float32 or float64, and half precision only if it has an attribute `takes_half` that is true, or is an nn.Module with parameters
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
    """A mask of the caller's own: an object with `block(rows, keys)`.

    >>> import overt
    >>> isinstance(overt.Causal(), MaskBlocks)
    True
    """

    def block(self, rows: Tensor, keys: Tensor, /) -> Tensor:
        """Which of these rows may attend to which of these keys (1-D index tensors): bool, broadcastable to (..., rows, keys)."""
        ...


@runtime_checkable
class NormalizerFunction(Protocol):
    """A normalizer of the caller's own: any callable from scores and a bool tensor `allowed`, both (..., Q, K), to weights.

    >>> import overt
    >>> isinstance(overt.Sparsemax(), NormalizerFunction)
    True
    """

    def __call__(self, scores: Tensor, allowed: Tensor, /) -> Tensor:
        """The weights of each row: (..., Q, K)."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any library that speaks DLPack: a tensor of torch, an array of NumPy, JAX or CuPy.

    >>> import numpy
    >>> isinstance(numpy.ones(3), SupportsDLPack)
    True
    """

    def __dlpack__(self) -> Any:
        """A capsule that another library reads the memory from."""
        ...

    def __dlpack_device__(self) -> tuple[Any, int]:
        """The kind and the number of the device that holds the memory."""
        ...


Array = TypeVar("Array", bound=SupportsDLPack, default=Tensor)

# A class such as overt.Softmax is none of these: calling it gives an object and no tensor.
ScoreLike = ScoreFunction | Literal["dot", "cosine"]
MaskLike = MaskBlocks | SupportsDLPack | Literal["causal"]
BiasLike = Bias | SupportsDLPack
NormalizerLike = NormalizerFunction | Literal["softmax", "sparsemax", "entmax", "sigmoid", "sum"]

# The type of keywords that no call takes: to a type checker no value has it. Checks of types at run time do not know Never there.
if TYPE_CHECKING:
    Refused = Never
else:
    Refused = Any


class Attend(Protocol):
    """The type of `overt.attend`: with `return_lse` there are two results."""

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
    """The same function, which a type checker takes for an `Attend`."""
    return function


# What layers take besides these: the names of scores that learn matrices, the lengths of padded sequences, a window's size.
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
