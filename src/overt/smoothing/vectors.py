"""Parameter-free self-attention on vectors, computed as its formula is written."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from overt.errors import InputError
from overt.smoothing.data.frames import read_input
from overt.smoothing.data.options import NormalizerName, ScoreName, check_choice
from overt.smoothing.data.periods import is_number
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.normalize import plain_sum, softmax


@dataclass(frozen=True)
class Reweighted:
    """All intermediate results: scores s_ij (n, n), weights W_ij (n, n), output y_i = Σ_j W_ij x_j (n, d).

    >>> result = reweight([[1.0, 0.0], [0.0, 1.0]])
    >>> result.scores.tolist(), result.weights.sum(axis=1).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0])
    """

    scores: Floats
    weights: Floats
    output: Floats


def reweight(
    vectors: ArrayLike,
    *,
    score: ScoreName = "dot",
    scale: float = 1.0,
    bandwidth: float | None = None,
    normalizer: NormalizerName = "softmax",
) -> Reweighted:
    """Re-weight vectors by each other, without training: W_ij = normalize_j(s_ij), y_i = Σ_j W_ij x_j.

    **score** "dot": s_ij = scale·x_i·x_j. "gaussian": s_ij = −|x_i − x_j|²/2·bandwidth², which ranks like the dot product if all
    vectors have the same length, since the terms |x_j|² are then equal for all j.
    **normalizer** "softmax", or "sum": W_ij = s_ij / Σ_k s_ik, whose weights may be negative or above 1.

    vectors (n, d), such as the word vectors of a sentence. Order has no influence: permuting the vectors permutes the
    output. This is `overt.attend(x, x, x, score=overt.Dot(scale=1.0))`, and the scores and weights are n×n.

    Raises InputError for vectors that are not (n, d) or not finite, and if the plain sum of a row is 0.

    >>> result = reweight([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> result.weights.round(2)
    array([[0.42, 0.42, 0.16],
           [0.42, 0.42, 0.16],
           [0.02, 0.02, 0.96]])
    >>> result.output.round(2)
    array([[0.84, 0.31],
           [0.84, 0.31],
           [0.04, 1.93]])
    """
    check_choice("score", score, get_args(ScoreName))
    check_choice("normalizer", normalizer, get_args(NormalizerName))
    x = _read(vectors)
    scores = _dot(x, scale, bandwidth) if score == "dot" else _gaussian(x, scale, bandwidth, normalizer)
    weights = softmax(scores) if normalizer == "softmax" else plain_sum(scores)
    return Reweighted(scores, weights, weights @ x)


def _read(vectors: ArrayLike) -> Floats:
    x = read_input(vectors).values
    if x.ndim != 2:
        fix = "pass one vector per row; pass single numbers as x[:, None]"
        raise InputError("vectors of shape (n, d)", got=f"shape {x.shape}", fix=fix)
    if np.isnan(x).any():
        row, feature = np.argwhere(np.isnan(x))[0]
        raise InputError("finite vectors", got=f"NaN at [{row}, {feature}]", fix="leave out that vector")
    return x


def _dot(x: Floats, scale: float, bandwidth: float | None) -> Floats:
    if bandwidth is not None:
        raise InputError("no bandwidth with the dot score", got=repr(bandwidth), fix="pass scale instead")
    if not is_number(scale):
        raise InputError("a finite scale", got=repr(scale), fix="pass a finite number")
    return scale * (x @ x.T)


def _gaussian(x: Floats, scale: float, bandwidth: float | None, normalizer: str) -> Floats:
    if scale != 1.0:
        raise InputError("no scale with the Gaussian score", got=repr(scale), fix="pass bandwidth instead")
    if bandwidth is None or not is_number(bandwidth, above=0.0):
        raise InputError("a bandwidth above 0 with the Gaussian score", got=repr(bandwidth), fix="pass a number above 0")
    if normalizer == "sum":
        fix = 'pass normalizer="softmax", or score="dot"'
        raise InputError('score="dot" with normalizer="sum"', got='score="gaussian"', fix=fix)
    # Differences, since |x_i|² + |x_j|² − 2x_i·x_j loses the digits of long vectors that are close.
    return np.stack([-0.5 * (((x - row) / bandwidth) ** 2).sum(axis=1) for row in x])  # (n, n)
