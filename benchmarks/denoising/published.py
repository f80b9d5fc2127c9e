"""The smallest published errors for four of the signals, 1,024 points each, means over 100 seeds."""

# 10⁴·Σ(f̂ − f)²/Σf² by signal and SNR: the raw results (dscr.RData in github stephenslab/smash-paper) of Xing, Carbonetto and
# Stephens, "Flexible signal denoising via flexible empirical Bayes shrinkage", JMLR 22, 2021. TI: translation-invariant.
_METHODS = ("SureShrink", "BlockJS", "NeighBlock", "TI threshold", "EBayesThresh", "SMASH")
_SCORES = {
    ("spikes", 1): (338, 154, 144, 79.2, 70.3, 56.9),
    ("spikes", 3): (39.5, 19.4, 15.3, 10.6, 11.2, 9.5),
    ("bumps", 1): (413, 344, 330, 239, 148, 154),
    ("bumps", 3): (63.0, 59.0, 47.7, 27.5, 24.9, 22.1),
    ("blocks", 1): (290, 199, 188, 151, 93.6, 96.6),
    ("blocks", 3): (53.9, 46.6, 42.7, 30.1, 21.7, 22.4),
    ("doppler", 1): (247, 102, 66.6, 68.0, 57.5, 53.2),
    ("doppler", 3): (38.2, 14.2, 11.0, 10.9, 10.4, 9.1),
}


def best_published(signal: str, snr: int) -> tuple[str, float] | None:
    """The best method and its mean score, or None where nothing is published.

    >>> best_published("blocks", 1)
    ('EBayesThresh', 93.6)
    """
    scores = _SCORES.get((signal, snr))
    return min(zip(_METHODS, scores, strict=True), key=lambda item: item[1]) if scores else None
