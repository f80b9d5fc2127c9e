"""Attention over heads: many smoothers of one series, mixed point by point by their estimated risk nearby.

The error of a head is unknown, but Stein's unbiased estimate of it can be computed. At one point it is noisy; the average over
many neighbours is accurate. The number of neighbours is chosen in the same way: wide averages where one head is best everywhere,
narrow ones where the signal changes.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.local.convolution import directly
from overt.smoothing.heads.normalize import softmax
from overt.smoothing.selection.bank.risk_sums import (
    BLOCK,
    BlockWeights,
    CausalWeights,
    HeadOutputs,
    Observations,
    blend,
    block_sums,
    risk_sums,
    running_sums,
)

# WIDTHS: standard deviations, in points, of the Gaussians that average risks; the last also averages the risks of the widths' mixtures.
WIDTHS = (60, 240, 1920)
# CAUSAL_WIDTHS: the same for averages over the past; 15 reacts to a recent change, known from few points. Over both sides 15 would follow
# heavy tails: without it the error under Laplace noise falls by 15%, under white noise by nothing.
CAUSAL_WIDTHS = (15, *WIDTHS)
# FINENESS: blocks in a width; risks are summed over them before they are averaged, and weights are interpolated linearly between them.
FINENESS = 3
# CUT: the distance, in standard deviations, beyond which a neighbour's risk is ignored.
CUT = 3
# FEW_BLOCKS: averages over at most this many finest blocks are products with a matrix, which series of one length share.
FEW_BLOCKS = 32
# TEMPERATURE: temperature of one point's risk, among heads and widths; a mixture of projections is then nearly as good as the best (Leung
# and Barron 2006, theorem 5). Akaike's 2 is better on most development signals (ablation.py), but costs 5 to 10% with many peaks or jumps.
TEMPERATURE = 4.0
# CAUSAL_WIDTH_TEMPERATURE: temperature among the causal widths, a sharper choice: the narrowest is much better right after a change.
CAUSAL_WIDTH_TEMPERATURE = 2.0


class Mixture(NamedTuple):
    """A mixture of heads: the columns of one head (n,), and the weights that made it."""

    values: Floats
    leverages: Floats
    variances: Floats
    head_weights: tuple[BlockWeights | CausalWeights, ...]  # of the heads, width by width
    width_weights: BlockWeights | CausalWeights  # of the widths

    def weights(self, points: Indices) -> Floats:
        """The weights of the heads at some points (heads, points)."""
        shares = np.moveaxis(self.width_weights.at(points)[0], -2, 0)  # (widths, …, points)
        total = 0.0
        for share, block in zip(shares, self.head_weights, strict=True):
            weights = block.at(points)[0]
            weights *= share[..., None, :]
            total = np.add(total, weights, out=weights)
        return np.asarray(total)


class Pilot(NamedTuple):
    """The mixture that heads of later stages compare: y_i and ∂y_i/∂x_i (n,)."""

    values: Floats
    leverages: Floats


def mix(
    heads: HeadOutputs,
    observed: Observations,
    *,
    causal: bool = False,
    risk_variance: float = 1.0,
    premium: float = 0.0,
    risks: Floats | None = None,
) -> Mixture:
    """Mix heads by estimated risk, averaged over neighbourhoods of several widths; then mix these mixtures in the same way.

    At each point the weights are softmax_k(−r_k / T). r_k is Stein's unbiased estimate of head k's squared error in units of
    σ² (Stein 1981), ((x_i − y_i)/σ_i)² − 1 + 2 ∂y_i/∂x_i, averaged over neighbours. The temperature depends on the average:
    T = 4/N over N points (`TEMPERATURE`). For weights κ_j of the neighbours, N = (Σκ)²/Σκ².

    Attention over heads compares noisy numbers, like attention over values, and its derivative has the same form:

        ∂y_i/∂x_i = Σ_k W_k ∂y_ki/∂x_i + (2κ/T) Var_W(y_ki)/σ_i²,    κ the point's own weight in its average,

    if the residuals of its neighbours are treated as independent of x_i. The variance is by Buckland, Burnham and
    Augustin (1997, equation 9), √v = Σ_k W_k √(v_k + (y_k − y)²), which is large if heads disagree.

    `premium` raises the cost of a degree of freedom, 2∂y_i/∂x_i, by this part. It fades out between leverages of 0 and ½; otherwise a
    head that follows the single points of a spike would lose to one that flattens it.

    `risk_variance` is the factor by which the variance of an average of risks exceeds that for white noise; T grows with it.

    If `observed` has factors, the heads' leverages contain them, and the mixture's leverages are divided by them.

    Missing points enter no average. With `causal`, averages are over the point and its past, whose residuals do not depend on x_i.
    `risks` are the heads' `bank_risks`, if already computed.

    >>> flat, itself = np.zeros(500), np.random.default_rng(0).normal(size=500)
    >>> heads = HeadOutputs(*(np.stack([flat, column]) for column in (itself, flat + 1, flat + 1)))
    >>> mix(heads, Observations(itself, flat + 1)).weights(np.arange(500)).mean(axis=1).round(2)
    array([1., 0.])
    """
    columns, head_weights, width_weights = _mix(
        heads, observed, causal=causal, risk_variance=risk_variance, premium=premium, risks=risks
    )
    values, leverages, variances = columns
    return Mixture(values, leverages / observed.factors, variances, head_weights, width_weights)


def mix_pilot(heads: HeadOutputs, observed: Observations, **options: Any) -> Pilot:
    """The first two columns of `mix`, with its options, without the square roots that variances take."""
    (values, leverages), *_ = _mix(heads[:2], observed, **options)
    return Pilot(values, leverages / observed.factors)


def _mix(
    heads: tuple[Floats, ...],
    observed: Observations,
    *,
    causal: bool = False,
    risk_variance: float = 1.0,
    premium: float = 0.0,
    risks: Floats | None = None,
) -> tuple[tuple[Floats, ...], tuple[BlockWeights | CausalWeights, ...], BlockWeights | CausalWeights]:
    """The mixture's columns, as many as the heads have, and the weights of the heads and of the widths."""
    widths, temperature = (CAUSAL_WIDTHS, CAUSAL_WIDTH_TEMPERATURE) if causal else (WIDTHS, TEMPERATURE)
    risks = bank_risks(heads, observed, causal=causal, premium=premium) if risks is None else risks
    head_weights = _weights(risks, observed, widths, TEMPERATURE * risk_variance, causal)
    candidates = blend(heads, observed, head_weights)
    risks = risk_sums(candidates, observed, BLOCK if causal else _finest(WIDTHS[-1:]), premium, running=causal)
    (width_weights,) = _weights(risks, observed, WIDTHS[-1:], temperature * risk_variance, causal)
    mixed = blend(candidates, observed, (width_weights,))
    return tuple(column[..., 0, :] for column in mixed), head_weights, width_weights


def bank_risks(heads: tuple[Floats, ...], observed: Observations, *, causal: bool = False, premium: float = 0.0) -> Floats:
    """The sums of heads' risks that `mix` averages: over the finest blocks (heads, blocks), or running sums if `causal` (heads, n)."""
    return risk_sums(heads, observed, BLOCK if causal else _finest(WIDTHS), premium, running=causal)


def _finest(widths: tuple[int, ...]) -> int:
    """The points of the finest block: the blocks of all widths are multiples of it."""
    return math.gcd(*(width // FINENESS for width in widths))


def _weights(
    risks: Floats, observed: Observations, widths: tuple[int, ...], temperature: float, causal: bool
) -> tuple[BlockWeights | CausalWeights, ...]:
    known = np.isfinite(observed.noise).astype(np.float64)
    if causal:
        counts = running_sums(known.reshape(1, -1), BLOCK)
        return tuple(_causal_weights(risks, counts, width, temperature) for width in widths)
    finest = _finest(widths)
    counts = block_sums(known, finest)
    return tuple(_gaussian_weights(risks, counts, finest, width, temperature) for width in widths)


def _gaussian_weights(sums: Floats, counts: Floats, finest: int, width: int, temperature: float) -> BlockWeights:
    """Weights by risks averaged with a Gaussian; sums (…, heads, blocks) and counts (…, blocks) are over blocks of `finest` points."""
    first = counts.reshape(-1, counts.shape[-1])[0]
    if first.size <= FEW_BLOCKS and (counts == first).all():  # as of several short series
        matrix, sensitivity, step = _average(first.tobytes(), finest, width, temperature)
        scores, sensitivity = sums @ matrix, np.tile(sensitivity, (*counts.shape[:-1], 1))
    else:
        scores, sensitivity, step = _gaussian_scores(sums, counts, finest, width, temperature)
    return BlockWeights(softmax(scores, axis=-2), sensitivity, step)


@functools.lru_cache(maxsize=64)
def _average(counts: bytes, finest: int, width: int, temperature: float) -> tuple[Floats, Floats, int]:
    """`_gaussian_scores` as a matrix (finest blocks, blocks), from the bytes of the known points in each finest block (blocks,)."""
    known = np.frombuffer(counts)
    return _gaussian_scores(np.eye(known.size), known, finest, width, temperature)


def _gaussian_scores(sums: Floats, counts: Floats, finest: int, width: int, temperature: float) -> tuple[Floats, Floats, int]:
    """−r/T (…, heads, blocks), the sensitivity 2κ/T (…, blocks), and the points in a block."""
    step = width // FINENESS
    sums, counts = block_sums(sums, step // finest), block_sums(counts, step // finest)
    reach = min(CUT * FINENESS, counts.shape[-1] - 1)
    distance = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (distance * (step / width)) ** 2)
    total, squares = _convolve(counts, kernel), _convolve(counts, kernel**2)
    total, squares = np.maximum(total, np.finfo(float).tiny), np.maximum(squares, np.finfo(float).tiny)
    inverse_temperature = total**2 / squares / temperature  # N / temperature = 1 / T
    sensitivity = inverse_temperature / total
    return -_convolve(sums, kernel) * sensitivity[..., None, :], 2 * sensitivity, step


def _causal_weights(within: Floats, known: Floats, width: int, temperature: float) -> CausalWeights:
    """Weights by risks averaged over the point and its past; the weight of a risk decreases by blocks, not by points."""
    ends = np.minimum(np.arange(BLOCK - 1, known.shape[1] + BLOCK - 1, BLOCK), known.shape[1] - 1)
    sums, counts = within[..., ends], known[:, ends]
    reach = min(CUT * width // BLOCK, counts.shape[1] - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * (BLOCK / width)) ** 2)
    kernel[reach:] = 0.0
    before = np.concatenate([_convolve(counts, kernel), _convolve(counts, kernel**2)])
    return CausalWeights(np.ascontiguousarray(_convolve(sums, kernel)), within, before, known[0], temperature)


def _convolve(rows: Floats, kernel: Floats) -> Floats:
    """Σ_d kernel_d · row_{b+d}, with zeros beyond the ends (…, blocks)."""
    reach, length = kernel.size // 2, rows.shape[-1]
    padded = np.zeros((*rows.shape[:-1], length + reach))  # zeros between the concatenated rows
    padded[..., :length] = rows
    return directly(padded.reshape(-1), kernel, reach).reshape(padded.shape)[..., :length]
