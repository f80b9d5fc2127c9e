"""From scores to weights: softmax, or the plain sum of the simplest recipes."""

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.series import Floats


def softmax(scores: Floats, axis: int = -1) -> Floats:
    """exp(s_ij) / Σ_k exp(s_ik) along an axis; a row that is −∞ everywhere becomes zeros.

    >>> softmax(np.array([[0.0, 0.0, -np.inf], [-np.inf, -np.inf, -np.inf]]))
    array([[0.5, 0.5, 0. ],
           [0. , 0. , 0. ]])
    """
    # Subtracting the row's maximum changes no weight and prevents overflow.
    peak = scores.max(axis=axis, keepdims=True, initial=-np.inf)
    weights = scores - np.where(np.isneginf(peak), 0.0, peak)
    np.exp(weights, out=weights)
    total = weights.sum(axis=axis, keepdims=True)
    weights /= np.where(total == 0, 1.0, total)
    return weights


def plain_sum(scores: Floats) -> Floats:
    """s_ij / Σ_k s_ik along the last axis; weights may be negative or above 1.

    InputError if the scores of a row sum to 0: this row has no weights.

    >>> plain_sum(np.array([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    total = scores.sum(axis=-1, keepdims=True)
    # A sum that is only the rounding error of its terms counts as 0.
    zero = np.abs(total) <= 1e-15 * np.abs(scores).sum(axis=-1, keepdims=True)
    if zero.any():
        fix = 'use normalizer="softmax", whose sum cannot be 0'
        raise InputError("scores of a nonzero sum in each row, to divide by", got="a row whose sum is 0", fix=fix)
    return scores / total
