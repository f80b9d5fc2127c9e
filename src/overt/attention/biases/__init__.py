"""Biases: numbers added to the scores before normalization. A tensor that broadcasts to (..., Q, K) is also a bias.

The classes here compute a bias from positions or gates, a block at a time, so nothing of size Q × K is built. The distance from
query i to key j is j − (i + offset), with `offset=None` for K − Q, aligned at the end as `Causal` is; a tensor (B,) gives each
batch entry its own offset, as rows of a cache with different lengths need.
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
