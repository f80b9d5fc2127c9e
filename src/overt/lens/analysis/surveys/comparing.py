"""Differences of heads between two corpora or two models, tested for all heads of a measure together."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from overt.errors import InputError, needed_by
from overt.lens.analysis.surveys.jackknife import FEWEST, Means, pseudo_values, quantile
from overt.lens.analysis.surveys.measures import NAMES, ROWS
from overt.lens.analysis.surveys.totals import SurveyedHead, SurveyTotals
from overt.lens.head import head_name

RESAMPLED = 4999


@dataclass(frozen=True, eq=False)
class SurveyDifferences:
    """The differences of heads between two surveys: the second's mean minus the first's, with its 95 % interval, by measure.

    `p` (heads,) of a measure is the probability that only chance makes any of the heads differ as clearly: the share of resamplings
    in which the largest |t| of all heads is at least as large as this head's (Westfall and Young 1993, section 2.3; single step). If heads
    with p ≤ 0.05 are called different, the probability of a single false alarm among the heads is 5 %. Each measure is a family of its own.
    Two models on one corpus are `paired`: the signs of the groups' differences are drawn at random; otherwise groups are exchanged between
    the corpora, and t is Welch's.
    """

    heads: list[SurveyedHead]
    paired: bool
    first: dict[str, np.ndarray]
    second: dict[str, np.ndarray]
    differences: dict[str, Means]
    p: dict[str, np.ndarray]

    def table(self) -> Any:
        """A pandas DataFrame with a row for each head and measure, the clearest differences first."""
        with needed_by("SurveyDifferences.table", "smooth"):
            import pandas
        columns = {"layer": "layer", "number": "number", "head": "head"}
        parts = [
            pandas.DataFrame({
                "name": [head_name(head.number, head.head) for head in self.heads],
                **{name: [getattr(head, name) for head in self.heads] for name in columns},
                "measure": measure,
                "first": self.first[measure],
                "second": self.second[measure],
                "difference": self.differences[measure].values,
                "low": self.differences[measure].low,
                "high": self.differences[measure].high,
                "p": self.p[measure],
            })
            for measure in NAMES
        ]  # fmt: skip
        table = pandas.concat(parts, ignore_index=True)
        return table.sort_values("p", kind="stable", ignore_index=True)


def differences(one: SurveyTotals, other: SurveyTotals) -> SurveyDifferences:
    """Compare two surveys with the same number of heads, paired by their order. Raises InputError for other surveys."""
    if [head[1:] for head in one.heads] != [head[1:] for head in other.heads]:
        raise InputError(
            "two surveys of models with the same number of layers and heads, which are paired by their numbers",
            got=f"{len(one.heads)} heads and {len(other.heads)}",
            fix="survey both corpora with one model, or two models of one shape",
        )
    paired = one.facts.corpus == other.facts.corpus
    first, second, means, p = {}, {}, {}, {}
    for name in NAMES:
        row = ROWS.index(name)
        (first[name], left), (second[name], right) = (
            pseudo_values(part.sums.values()[:, row], part.counts.values()[:, row]) for part in (one, other)
        )
        test = _paired if paired else _unpaired
        half, p[name] = test(left, right)
        difference = second[name] - first[name]
        means[name] = Means(difference, difference - half, difference + half)
    return SurveyDifferences(one.heads, paired, first, second, means, p)


def _paired(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half the interval's width and the adjusted p of each head, from pseudo-values (groups, heads) of one corpus."""
    measured = (~np.isnan(left) & ~np.isnan(right)).sum(0) >= FEWEST
    both = np.where(measured, right - left, 0.0)
    both = both[~np.isnan(both).any(1)]
    groups = len(both)
    half, p = np.full((2, both.shape[1]), np.nan)
    if groups < FEWEST or not measured.any():
        return half, p
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (RESAMPLED, groups))
    squares = (both**2).mean(0)

    def statistic(mean: np.ndarray) -> np.ndarray:
        return _ratio(mean, np.sqrt((squares - mean**2).clip(min=0) / (groups - 1)))

    error = both.std(0, ddof=1) / np.sqrt(groups)
    half[measured] = (quantile(groups - 1) * error)[measured]
    p[measured] = _adjusted(statistic(both.mean(0)), statistic(signs @ both / groups))[measured]
    return half, p


def _unpaired(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half the interval's width and the adjusted p of each head, from pseudo-values (groups, heads) of two corpora."""
    measured = ((~np.isnan(left)).sum(0) >= FEWEST) & ((~np.isnan(right)).sum(0) >= FEWEST)
    half, p = np.full((2, left.shape[1]), np.nan)
    left, right = (np.where(measured, part, 0.0) for part in (left, right))
    left, right = (part[~np.isnan(part).any(1)] for part in (left, right))
    sizes = len(left), len(right)
    if min(sizes) < FEWEST or not measured.any():
        return half, p
    # Groups are exchangeable if the means are equal, so each corpus is centred at its mean before groups are exchanged.
    pooled = np.concatenate([left - left.mean(0), right - right.mean(0)])
    draws = np.random.default_rng(0)
    chosen = np.argsort(draws.random((RESAMPLED, sum(sizes))), axis=1) < sizes[0]
    parts = [_moments(part.astype(float), pooled) for part in (chosen, ~chosen)]
    by_chance = _ratio(parts[1][0] - parts[0][0], np.sqrt(parts[0][1] + parts[1][1]))
    variances = [part.var(0, ddof=1) / len(part) for part in (left, right)]
    error = np.sqrt(variances[0] + variances[1])
    half[measured] = (quantile(min(sizes) - 1) * error)[measured]
    p[measured] = _adjusted(_ratio(right.mean(0) - left.mean(0), error), by_chance)[measured]
    return half, p


def _moments(chosen: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the chosen values of each resampling, and the variance of the mean: each (resamplings, heads)."""
    number = chosen.sum(1, keepdims=True)
    mean = chosen @ values / number
    return mean, ((chosen @ values**2) / number - mean**2).clip(min=0) / (number - 1)


def _ratio(difference: np.ndarray, error: np.ndarray) -> np.ndarray:
    """t; 0 if the difference is zero or only rounding, infinite if groups do not vary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(difference) / error
    return np.where(np.abs(difference) < 1e-12, 0.0, t)


def _adjusted(t: np.ndarray, by_chance: np.ndarray) -> np.ndarray:
    largest = np.sort(by_chance.max(1))
    at_least = len(largest) - np.searchsorted(largest, t * (1 - 1e-9))
    return (1 + at_least) / (1 + len(largest))
