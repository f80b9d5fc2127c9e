"""Parameter-free self-attention on vectors, as literally as it is written down."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from overt.errors import InputError
from overt.smoothing.data.options import is_number, one_of
from overt.smoothing.data.series import Floats, read_values
from overt.smoothing.heads.normalize import plain_sum, softmax


@dataclass(frozen=True)
class Reweighted:
    """Every intermediate: scores s_ij (n, n), weights W_ij (n, n), output y_i = Σ_j W_ij x_j (n, d).

    >>> found = reweight([[1.0, 0.0], [0.0, 1.0]])
    >>> found.scores.tolist(), found.weights.sum(axis=1).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0])
    """

    scores: Floats
    weights: Floats
    output: Floats


def reweight(
    vectors: ArrayLike,
    *,
    score: str = "dot",
    scale: float = 1.0,
    bandwidth: float | None = None,
    normalizer: str = "softmax",
) -> Reweighted:
    """Re-weight vectors by each other, nothing trained: W_ij = normalize_j(s_ij), y_i = Σ_j W_ij x_j.

    **score** "dot": s_ij = scale·x_i·x_j. "gaussian": s_ij = −|x_i − x_j|²/2·bandwidth², which is the dot product where all
    vectors are equally long: the terms |x_j|² that tell them apart are then the same for all j.
    **normalizer** "softmax", or "sum": W_ij = s_ij / Σ_k s_ik, whose weights may be negative or above 1.

    vectors (n, d), such as the word vectors of a sentence. Order has no influence: permuting the vectors permutes the
    output. This is `overt.attend(x, x, x, score=overt.Dot(scale=1.0))`, and the scores and weights are n×n.

    Raises InputError for vectors that are not (n, d) or not finite, and where a row's plain sum is 0.

    >>> found = reweight([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> found.weights.round(2)
    array([[0.42, 0.42, 0.16],
           [0.42, 0.42, 0.16],
           [0.02, 0.02, 0.96]])
    >>> found.output.round(2)
    array([[0.84, 0.31],
           [0.84, 0.31],
           [0.04, 1.93]])
    """
    one_of("score", score, ("dot", "gaussian"))
    one_of("normalizer", normalizer, ("softmax", "sum"))
    x = _read(vectors)
    scores = _dot(x, scale, bandwidth) if score == "dot" else _gaussian(x, scale, bandwidth, normalizer)
    weights = softmax(scores) if normalizer == "softmax" else plain_sum(scores)
    return Reweighted(scores, weights, weights @ x)


def _read(vectors: ArrayLike) -> Floats:
    x = read_values(vectors)
    if x.ndim != 2:
        fix = "put one vector a row; numbers alone as x[:, None]"
        raise InputError("vectors are (n, d)", got=f"shape {x.shape}", fix=fix)
    if np.isnan(x).any():
        row, feature = np.argwhere(np.isnan(x))[0]
        raise InputError("vectors are finite", got=f"NaN at [{row}, {feature}]", fix="leave that vector out")
    return x


def _dot(x: Floats, scale: float, bandwidth: float | None) -> Floats:
    if bandwidth is not None:
        raise InputError("the dot score has no bandwidth", got=repr(bandwidth), fix="sharpen it with scale")
    if not is_number(scale):
        raise InputError("a scale is a finite number", got=repr(scale), fix="pass one")
    return scale * (x @ x.T)


def _gaussian(x: Floats, scale: float, bandwidth: float | None, normalizer: str) -> Floats:
    if scale != 1.0:
        raise InputError("the Gaussian score has no scale", got=repr(scale), fix="sharpen it with bandwidth")
    if bandwidth is None or not is_number(bandwidth, above=0.0):
        raise InputError("the Gaussian score needs a bandwidth above 0", got=repr(bandwidth), fix="pass one")
    if normalizer == "sum":
        fix = 'pass normalizer="softmax", or score="dot"'
        raise InputError("the plain sum is for the dot score; a Gaussian score is a logarithm", got="gaussian", fix=fix)
    # Differences, not |x_i|² + |x_j|² − 2x_i·x_j, which loses the digits of vectors that are close and long.
    return np.stack([-0.5 * (((x - row) / bandwidth) ** 2).sum(axis=1) for row in x])  # (n, n)
