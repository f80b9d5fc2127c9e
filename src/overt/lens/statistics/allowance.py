"""The rounding bound of a call's output, used in every comparison with a model's own output."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.blocked import Block
from overt.attention.kernels.call import Call
from overt.attention.normalizers import Entmax, Sigmoid, Softmax, Sparsemax, Sum
from overt.attention.scores import Dot
from overt.attention.typing import NormalizerFunction
from overt.lens.captured import CapturedCall


class Slopes(NamedTuple):
    """The effect of score errors δ_j on the output after a normalizer: Σ_j slope_j δ_j (v_j − centre)."""

    slope: Tensor  # (..., rows, K)
    centre: Tensor | None  # (..., rows, E); None: 0


def normalizer_slopes(normalizer: NormalizerFunction, masked: Tensor, weights: Tensor, value: Tensor, output: Tensor) -> Slopes:
    """The slopes and centre of a named normalizer, from its derivative; a custom normalizer gets its weights and no centre.

    Softmax: w_j / T, and the output. Sum: 1 / Σ s, and the output. Sigmoid: w_j (1 − w_j), no centre. Sparsemax and entmax:
    u_j = w_j^(2 − α), and Σ u v / Σ u (Correia et al. 2019, equation 11).
    """
    if isinstance(normalizer, Softmax):
        return Slopes(weights / normalizer.temperature, output)
    if isinstance(normalizer, Sigmoid):
        return Slopes(weights * (1 - weights), None)
    if isinstance(normalizer, Sum):
        allowed = masked != -torch.inf
        total = torch.where(allowed, masked, 0).sum(-1, keepdim=True)
        return Slopes(allowed / torch.where(allowed.any(-1, keepdim=True), total, 1), output)
    if isinstance(normalizer, Entmax | Sparsemax):
        alpha = normalizer.alpha if isinstance(normalizer, Entmax) else 2.0
        slope = torch.where(weights > 0, torch.where(weights > 0, weights, 1) ** (2 - alpha), 0)
        total = slope.sum(-1, keepdim=True)
        return Slopes(slope, (slope @ value) / torch.where(total == 0, 1, total))
    return Slopes(weights, None)


class Allowance:
    """The largest difference between two correct computations of a call, for each number of the output.

    A score is a sum of D products with an error of up to ε₃₂ √D |q| |k| · scale. It is rounded to the scores' own dtype, by up to
    half of its ε, before and after the bias is added: together δ_ij. `Slopes` gives its effect on the output. The weights are
    rounded to the output's dtype, by up to half of its ε, which moves the output by Σ_j w_ij ε/2 · v_j. The errors have random signs,
    so their squares add up, and four times the root is a safe bound. The bound also includes the error of a sum over K weights,
    √K · ε₃₂, and the rounding of the output. `recomputed` is the call, or heads of it, from which the blocks come.
    """

    def __init__(self, captured: CapturedCall, recomputed: Call):
        call = captured.call
        self.normalizer: NormalizerFunction = recomputed.normalizer
        self.single: float = torch.finfo(call.dtype).eps
        self.half: float = torch.finfo(captured.score_dtype).eps / 2
        self.last: float = torch.finfo(captured.output.dtype).eps
        scale = call.score.factor(call.query) if isinstance(call.score, Dot) else 1.0
        self.scale: float = float(scale.abs().max()) if isinstance(scale, Tensor) else abs(scale)

    def bound(self, block: Block, scores: Tensor, masked: Tensor, weights: Tensor, output: Tensor) -> Tensor:
        """The rounding bound for the output of a block of rows: (..., rows, E)."""
        slopes = normalizer_slopes(self.normalizer, masked, weights, block.value, output)
        products = block.query.norm(dim=-1)[..., :, None] * block.key.norm(dim=-1)[..., None, :]  # (..., rows, K)
        sizes = torch.where(slopes.slope == 0, 0, scores.abs() + masked.abs())
        error = math.sqrt(block.query.shape[-1]) * self.single * self.scale * products + self.half * sizes
        by_score, by_weight = (slopes.slope * error).square(), (weights * self.last / 2).square()
        squares = (by_score + by_weight) @ block.value.square()  # (..., rows, E)
        if slopes.centre is not None:
            total = by_score.sum(-1, keepdim=True)
            squares = squares - 2 * slopes.centre * (by_score @ block.value) + slopes.centre.square() * total
        summed = math.sqrt(block.key.shape[-2]) * self.single * (weights.abs() @ block.value.abs())
        return 4 * squares.clamp(min=0).sqrt() + summed + self.last * output.abs()
