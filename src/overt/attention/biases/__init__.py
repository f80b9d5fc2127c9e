"""Biases: numbers added to the scores before they are normalised. A tensor that broadcasts to (..., Q, K) is one.

The classes here compute theirs from positions or gates, a block at a time, so that nothing of size Q × K is built. The distance from
query i to key j is j − (i + offset), with `offset=None` for K − Q, aligned at the end as `Causal` is; a tensor (B,) gives each
batch entry one, as rows of a cache need that differ in length.
"""

from overt.attention.biases.base import Bias, SumOfBiases, TensorBias, as_bias, sum_of  # noqa: F401
from overt.attention.biases.distances import ALiBi, RelativePositionBias, alibi_slopes
from overt.attention.biases.gates import Forget
from overt.attention.biases.lines import LineBias

__all__ = [
    "ALiBi",
    "Bias",
    "Forget",
    "LineBias",
    "RelativePositionBias",
    "alibi_slopes",
]


def __dir__() -> list[str]:
    return __all__
