"""The outputs of heads, Stein's estimates of their squared errors, summed over blocks of points, and mixtures by weights of blocks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.normalize import softmax

# BLOCK: points of the blocks of a causal average, which sums completed blocks, and the points of the current block one by one.
BLOCK = 12
# CHUNK: points mixed at a time, so that the weights of all heads stay in a processor's cache.
CHUNK = 2**11


class HeadOutputs(NamedTuple):
    """The outputs y_i of heads, their leverages ∂y_i/∂x_i, and the variances of y_i for fixed weights; all (…, heads, n).

    In the bank the first axis is the series (series, heads, n); this module also takes one series without this axis.
    """

    values: Floats
    leverages: Floats
    variances: Floats

    def part(self, start: int, stop: int) -> "HeadOutputs":
        """Some of the heads."""
        return HeadOutputs(*(column[..., start:stop, :] for column in self))


class Observations(NamedTuple):
    """The data of the risks: x_i, any number if missing, and σ_i, infinite if missing; both (n,).

    `noise` is the unit of the risks, which may differ from the noise's level. `factors` are the noise's variances over the squares of
    this unit; the heads' leverages are multiplied by them first.
    """

    values: Floats
    noise: Floats
    factors: Floats | float = 1.0


class BlockWeights(NamedTuple):
    """The weight of each head at the middle of each block of `step` points (heads, blocks), interpolated linearly between.

    `sensitivity` (…, blocks) is 2κ/T: how strongly a point's own risk changes its weights.
    """

    weights: Floats
    sensitivity: Floats
    step: int

    def at(self, points: Indices) -> tuple[Floats, Floats]:
        """Weights (…, heads, points) and sensitivity (…, points)."""
        blocks = self.sensitivity.shape[-1]
        position = np.clip((points - (self.step - 1) / 2) / self.step, 0, blocks - 1)
        left = position.astype(np.intp)
        right, fraction = np.minimum(left + 1, blocks - 1), position - left
        weights, sensitivity = (table[..., left] * (1 - fraction) + table[..., right] * fraction for table in self[:2])
        return weights, sensitivity


class CausalWeights(NamedTuple):
    """The weight of each head by its risk up to a point: in the completed blocks, and in the current block up to the point."""

    before: Floats  # Σ_j κ_j r_j over the blocks before each (heads, blocks)
    within: Floats  # Σ_j r_j over the block up to each point (heads, n)
    counts: Floats  # Σ_j κ_j and Σ_j κ_j² over the blocks before (2, blocks)
    known: Floats  # points with a value in the block up to each (n,)
    temperature: float

    def at(self, points: Indices) -> tuple[Floats, Floats]:
        """Weights (heads, points) and sensitivity (points,)."""
        sums = self.before[..., points // BLOCK] + self.within[..., points]
        inverse_temperature = self.inverse_temperature(points)
        return softmax(-sums * inverse_temperature, axis=-2), 2 * inverse_temperature

    def inverse_temperature(self, points: Indices) -> Floats:
        """κ/T of a point itself (points,)."""
        total, squares = np.maximum(self.counts[:, points // BLOCK] + self.known[points], np.finfo(float).tiny)
        return total / squares / self.temperature


def risk_sums(
    heads: tuple[Floats, ...], observed: Observations, step: int, premium: float = 0.0, *, running: bool = False
) -> Floats:
    """Sum the risks of heads, from their values and leverages, over blocks of `step` points (heads, blocks).

    If `running`, sum from the beginning of each point's block to the point (heads, n). `mixture.mix` defines risk and premium.

    >>> heads = np.zeros((1, 4)), np.full((1, 4), 0.25)
    >>> risk_sums(heads, Observations(np.ones(4), np.ones(4)), 2)
    array([[1., 1.]])
    """
    if not native.available():
        risks = _risks(heads, observed, premium)
        return running_sums(risks, step) if running else block_sums(risks, step)
    *several, count, points = heads[0].shape
    sums = np.empty((*several, count, points if running else -(-points // step)))
    *outputs, to = as_batch(3, *heads[:2], sums)
    series = as_batch(2, observed.values, 1 / observed.noise)
    native.module().risks(*outputs, *series, premium, step, running, native.threads(), to)
    return sums


def as_batch(dimensions: int, *arrays: Floats) -> list[Floats]:
    """Arrays of several series, as the kernels take them; arrays of one series become contiguous and get a first axis."""
    return [array if array.ndim == dimensions else np.ascontiguousarray(array)[None] for array in arrays]


def _risks(heads: tuple[Floats, ...], observed: Observations, premium: float) -> Floats:
    """Risks in units of σ², with their premium, 0 for missing points (…, heads, n)."""
    values, leverages = heads[:2]
    risks = values - observed.values[..., None, :]
    risks /= observed.noise[..., None, :]
    np.square(risks, out=risks)
    risks += 2 * leverages - 1
    risks += 2 * premium * np.maximum(leverages, 0.0) * np.maximum(1 - 2 * leverages, 0.0)
    return np.where(np.isinf(observed.noise)[..., None, :], 0.0, risks)


def running_sums(rows: Floats, step: int) -> Floats:
    """Sums from the beginning of each point's block to the point (…, n)."""
    *others, length = rows.shape
    padded = np.zeros((*others, length + -length % step))
    padded[..., :length] = rows
    return padded.reshape(*others, -1, step).cumsum(axis=-1).reshape(padded.shape)[..., :length]


def block_sums(rows: Floats, step: int) -> Floats:
    """Sums over blocks of `step` points (…, blocks), of which the last may be shorter."""
    return rows if step == 1 else np.add.reduceat(rows, np.arange(0, rows.shape[-1], step), axis=-1)


def blend(
    heads: tuple[Floats, ...], observed: Observations, head_weights: tuple[BlockWeights | CausalWeights, ...]
) -> tuple[Floats, ...]:
    """Mix the columns of heads (values, leverages and perhaps variances) by each of several sets of weights (sets, n)."""
    if not native.available():
        each = (_blend(heads, observed, weights) for weights in head_weights)
        return tuple(np.stack(columns, axis=-2) for columns in zip(*each, strict=True))
    *several, points = observed.values.shape
    mixed = tuple(np.empty((*several, len(head_weights), points)) for _ in heads)
    sharpness = np.ascontiguousarray(np.sqrt(observed.factors) / observed.noise)
    past = [weights for weights in head_weights if isinstance(weights, CausalWeights)]
    if past:
        inverse_temperatures = [weights.inverse_temperature(np.arange(points)) for weights in past]
        columns, results = _three(_as_rows(*heads)), _three(_as_rows(*mixed))
        options = (
            _as_rows(*(weights.before for weights in past)),
            *_as_rows(past[0].within),
            inverse_temperatures,
            BLOCK,
            native.threads(),
        )
        native.module().blend_past(*columns, sharpness.reshape(-1), *options, *results)
        return mixed
    around = [weights for weights in head_weights if isinstance(weights, BlockWeights)]
    tables, sensitivities, steps = map(list, zip(*around, strict=True))
    columns, results = _three(as_batch(3, *heads)), _three(as_batch(3, *mixed))
    weights = *as_batch(2, sharpness), as_batch(3, *tables), as_batch(2, *sensitivities)
    native.module().blend(*columns, *weights, steps, native.threads(), *results)
    return mixed


def _as_rows(*columns: Floats) -> list[Floats]:
    """The columns of a causal bank, which has one series, as contiguous rows."""
    return [np.ascontiguousarray(column).reshape(-1, column.shape[-1]) for column in columns]


def _three(columns: Sequence[Floats]) -> tuple[Floats | None, ...]:
    """Values, leverages, and variances or None, as the kernels take them."""
    return (*columns, None)[:3]


def _blend(heads: tuple[Floats, ...], observed: Observations, weights_at: BlockWeights | CausalWeights) -> Floats:
    *_, points = observed.values.shape
    mixed = np.empty((len(heads), *observed.values.shape))
    for start in range(0, points, CHUNK):
        part = slice(start, min(start + CHUNK, points))
        weights, sensitivity = weights_at.at(np.arange(part.start, part.stop))
        values, leverages, *variances = (column[..., part] for column in heads)
        noise = (observed.noise / np.sqrt(observed.factors))[..., part]
        mixed[0, ..., part] = (weights * values).sum(axis=-2)
        squares = (values - mixed[0, ..., None, part]) ** 2  # (…, heads, points)
        mixed[1, ..., part] = (weights * leverages).sum(axis=-2) + sensitivity * (weights * squares).sum(axis=-2) / noise**2
        for variance in variances:
            mixed[2, ..., part] = (weights * np.sqrt(variance + squares)).sum(axis=-2) ** 2
    return mixed
