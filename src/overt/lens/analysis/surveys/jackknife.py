"""Means over a corpus with intervals: a mean of ratios, whose groups of texts are removed one at a time.

    θ = Σ_g S_g / Σ_g N_g        θ₍g₎: θ without group g        v = (G − 1)/G · Σ_g (θ₍g₎ − mean θ₍g₎)²

The delete-a-group jackknife (Kott 2001, "The delete-a-group jackknife", Journal of Official Statistics 17, section 2), with S the sum over
a group's queries and N their number. Queries of one text are alike, and so are neighbouring texts: they are in one group.
"""

import math
from typing import NamedTuple

import numpy as np

GROUPS, NEIGHBOURS = 64, 8  # GROUPS: groups of texts; NEIGHBOURS: neighbouring texts that are in one group
FEWEST = 5  # groups that an interval needs


def group_index(index: int) -> int:
    """The group of a text by its number in the corpus."""
    return index // NEIGHBOURS % GROUPS


class Means(NamedTuple):
    """Means with the ends of their 95 % intervals; NaN if nothing was measured, or for the ends with fewer than five groups."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray


def means(sums: np.ndarray, counts: np.ndarray) -> Means:
    """The means of sums and counts (groups, …)."""
    value, pseudo = pseudo_values(sums, counts)
    number = (~np.isnan(pseudo)).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.where(np.isnan(pseudo), 0, pseudo - value)
        variance = (deviation**2).sum(0) / (number * (number - 1)) - (deviation.sum(0) / number) ** 2 / (number - 1)
        half = np.vectorize(quantile, otypes=[float])(number - 1) * np.sqrt(variance.clip(min=0))
    half = np.where(number >= FEWEST, half, np.nan)
    return Means(value, value - half, value + half)


def pseudo_values(sums: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means (…) and each group's pseudo-value G θ − (G − 1) θ₍g₎ (groups, …), NaN for groups without queries."""
    total, number, groups = sums.sum(0), counts.sum(0), (counts > 0).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = total / number
        without = (total - sums) / (number - counts)
        pseudo = groups * value - (groups - 1) * without
    return value, np.where(counts > 0, pseudo, np.nan)


def quantile(degrees: int) -> float:
    """The 97.5 % point of Student's t, within 0.01 from four degrees of freedom on (Abramowitz and Stegun 1964, 26.7.5).

    >>> round(quantile(63), 3), round(quantile(4), 2)
    (1.998, 2.78)
    """
    if degrees < 1:
        return math.nan
    z = 1.959963984540054
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
