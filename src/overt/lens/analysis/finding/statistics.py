"""Intervals over texts, and tests for many heads at once."""

import numpy as np

RESAMPLED = 2000  # random draws of texts, or of signs, for an interval or a p-value


def by_text(values: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of values (pairs, …) over the pairs of each text (texts, …), and the number of pairs of each text."""
    count = int(texts.max()) + 1
    sums = np.zeros((count, *values.shape[1:]))
    np.add.at(sums, texts, values)
    return sums, np.bincount(texts, minlength=count).astype(float)


def intervals(values: np.ndarray, texts: np.ndarray, seed: int) -> np.ndarray:
    """The middle 95 % of the mean of each column (pairs, columns) over texts resampled with replacement: (2, columns).

    Efron 1979; texts are resampled, not pairs, because pairs of one text are not independent.
    """
    sums, counts = by_text(values, texts)
    draws = np.random.default_rng(seed).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), RESAMPLED)
    return np.percentile((draws @ sums) / np.maximum(draws @ counts, 1)[:, None], [2.5, 97.5], axis=0)


def adjusted_p_values(differences: np.ndarray, texts: np.ndarray, seed: int) -> np.ndarray:
    """One-sided p-values of the mean of each column being above 0, adjusted for all columns together.

    Signs of whole texts are flipped at random; a column's p-value is the share of draws in which the largest statistic of all columns is at
    least its own (Westfall and Young 1993, single-step max-T). So 0.05 bounds the probability that any head is named by accident.
    """
    sums, _ = by_text(differences, texts)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (RESAMPLED, len(sums)))
    root = np.sqrt((sums**2).sum(0))  # the same under every flip of signs
    root = np.where(root == 0, 1.0, root)
    largest = ((signs @ sums) / root).max(-1)
    observed = sums.sum(0) / root
    return (1 + (largest[:, None] >= observed[None] - 1e-12).sum(0)) / (1 + RESAMPLED)
