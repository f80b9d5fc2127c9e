"""The errors of single weights from rounding query and key to int16: predicted, reduced and measured."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.lens.captured import CapturedCall
from overt.lens.viewer.blocks import plain, rounded
from overt.lens.viewer.terms import HeadTerms, computable

# _MOST: the largest predicted error of a weight for int16; actual errors are a third or less, and the page promises 1e-3.
_MOST = 2.5e-3
_LARGEST = 32767
_ROWS = 2048


def needs_floats(captured: CapturedCall) -> bool:
    """Whether this call's scores are so large that rounding its vectors would be visible in the weights.

    Rounding moves each entry by at most half a step of its vector's largest, uniformly, so a score q·k has a standard deviation of
    scale / (32767 √12) · √((max q · |k|)² + (|q| · max k)²); the largest of millions is five of these. A weight w moves by
    w (1 − w) ≤ ¼ of that, after `corrected_log_sum_exp` has corrected its row's log-sum-exp.
    """
    call = captured.call
    if not computable(captured):
        return False
    if not isinstance(call.score, Dot) or not isinstance(call.normalizer, Softmax):
        return True
    largest = [float(tensor.nan_to_num(0.0).abs().amax()) if tensor.numel() else 0.0 for tensor in (call.query, call.key)]
    longest = [
        float(tensor.float().norm(dim=-1).nan_to_num(0.0).amax()) if tensor.numel() else 0.0
        for tensor in (call.query, call.key)
    ]
    factor, temperature = call.score.factor(call.query), call.normalizer.temperature
    scale = float(torch.as_tensor(factor).abs().max()) / float(torch.as_tensor(temperature).min())
    deviation = scale / (_LARGEST * math.sqrt(12)) * math.hypot(largest[0] * longest[1], longest[0] * largest[1])
    return 5 * deviation / 4 > _MOST


@dataclass(frozen=True)
class CorrectedLogSumExp:
    """The log-sum-exp (Q,) for rounded vectors, and the remaining error of each query's strongest weights."""

    lse: np.ndarray
    off: float


def corrected_log_sum_exp(terms: HeadTerms, batch: int, lse: Tensor, weights: Tensor, keys: Tensor) -> CorrectedLogSumExp:
    """Correct each row's log-sum-exp for the rounding of its strongest keys, `weights` and `keys` (Q, k).

    lse' = lse + log(1 + Σ_top w_j (exp δ_j − 1)),  δ_j the change of the score of key j.
    """
    exact = [plain(part[batch]) for part in (terms.query, terms.key)]
    short = [integers * scale[:, None].astype(np.float64) for integers, scale in map(rounded, exact)]
    known, indices = plain(weights), keys.cpu().numpy()
    known = np.where(indices >= 0, known, 0.0)
    moved = np.zeros(indices.shape)
    for first in range(0, len(indices), _ROWS):
        rows = slice(first, first + _ROWS)
        before, after = (_scores(terms, query[rows], key[indices[rows].clip(0)]) for query, key in (exact, short))
        moved[rows] = np.nan_to_num((after - before) / terms.temperature)
    shift = np.log1p((known * np.expm1(moved)).sum(-1))
    off = np.nan_to_num(known * np.abs(np.expm1(moved - shift[:, None]))).max(initial=0.0)
    return CorrectedLogSumExp((plain(lse) + shift).astype(np.float32), float(off))


def _scores(terms: HeadTerms, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The scores of each query (rows, D) with its own keys (rows, k, D)."""
    scores = np.einsum("rd,rkd->rk", query.astype(np.float64), key.astype(np.float64)) * terms.score["scale"]
    softcap = terms.score["softcap"]
    return scores if softcap is None else softcap * np.tanh(scores / softcap)
