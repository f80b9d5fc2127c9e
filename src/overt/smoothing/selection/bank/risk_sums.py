"""The outputs of heads, and Stein's estimates of their squared errors, summed over blocks of points."""

from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats


class HeadOutputs(NamedTuple):
    """The outputs y_i of heads, their leverages ∂y_i/∂x_i, and the variances of y_i for fixed weights; all (…, heads, n).

    The arrays of the bank have the series on their first axis: (series, heads, n). One may be left out in this module.
    """

    values: Floats
    leverages: Floats
    variances: Floats

    def part(self, start: int, stop: int) -> "HeadOutputs":
        """Some of the heads."""
        return HeadOutputs(*(column[..., start:stop, :] for column in self))


class Observations(NamedTuple):
    """The data of the risks: x_i, any number where it is missing, and σ_i, infinite there; both (n,).

    `noise` may be another level than the noise's own, in whose units the risks are then. `factors` are the noise's variances over its
    squares, and heads' leverages are multiplied by them before.
    """

    values: Floats
    noise: Floats
    factors: Floats | float = 1.0


def risk_sums(
    heads: tuple[Floats, ...], observed: Observations, step: int, premium: float = 0.0, *, running: bool = False
) -> Floats:
    """Risks of heads, of which values and leverages are read, summed over blocks of `step` points (heads, blocks).

    With `running` they are summed from the beginning of each point's block to the point (heads, n). The risk and its premium are those
    of `mixture.mix`.

    >>> heads = np.zeros((1, 4)), np.full((1, 4), 0.25)
    >>> risk_sums(heads, Observations(np.ones(4), np.ones(4)), 2)
    array([[1., 1.]])
    """
    if not native.available():
        risks = _risks(heads, observed, premium)
        return running_sums(risks, step) if running else block_sums(risks, step)
    *several, count, points = heads[0].shape
    sums = np.empty((*several, count, points if running else -(-points // step)))
    outputs = [of_several(column, 3) for column in heads[:2]]
    series = [of_several(column, 2) for column in (observed.values, 1 / observed.noise)]
    native.module().risks(*outputs, *series, premium, step, running, native.threads(), of_several(sums, 3))
    return sums


def of_several(array: Floats, dimensions: int) -> Floats:
    """The array as the kernels take it, of several series: that of one gets an axis more, and is contiguous."""
    return array if array.ndim == dimensions else np.ascontiguousarray(array)[None]


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
