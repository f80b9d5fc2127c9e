"""Scores: BLEU and chrF by sacrebleu, with the signature that says how they were counted, and accuracy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from overt.errors import InputError, MissingExtra


class Score(NamedTuple):
    """A score of 0 to 100, and sacrebleu's signature, which is quoted with it."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> Score:
    """How many runs of one to four words the texts share with their references (Papineni et al. 2002; Post 2018 for the count).

    `references` has one or more for each text. `tokenize="none"` counts the words that spaces separate, for texts that are Moses's
    words already.

    >>> score = bleu(["the cat sat on the mat"], [["the cat sat on a mat"]], tokenize="none")
    >>> round(score.value, 2), score.signature.partition("|version")[0]
    (53.73, 'nrefs:1|case:mixed|eff:no|tok:none|smooth:exp')
    """
    metric = _sacrebleu().BLEU(tokenize=tokenize, force=tokenize == "none")
    return _scored(metric, texts, references)


def chrf(texts: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """How many runs of one to six letters the texts share with their references: chrF2 (Popović 2015).

    >>> chrf(["abc"], [["abc"]]).value
    100.0
    """
    return _scored(_sacrebleu().CHRF(), texts, references)


class LengthScore(NamedTuple):
    """BLEU of the sources whose length is in a range."""

    shortest: int  # words of the source
    longest: int
    rows: int
    bleu: float


def bleu_by_length(
    lengths: Sequence[int], texts: Sequence[str], references: Sequence[Sequence[str]], *, bins: int = 8, tokenize: str = "13a"
) -> list[LengthScore]:
    """BLEU against the source's length, in bins of like many sources.

    >>> short, long = bleu_by_length([4, 9], ["a b c d", "e"], [["a b c d"], ["f"]], bins=2)
    >>> short.longest, round(short.bleu), long.longest, round(long.bleu)
    (4, 100, 9, 0)
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    scores = []
    for number in range(bins):
        part = order[number * len(order) // bins : (number + 1) * len(order) // bins]
        if part:
            found = bleu([texts[index] for index in part], [references[index] for index in part], tokenize=tokenize)
            scores.append(LengthScore(lengths[part[0]], lengths[part[-1]], len(part), found.value))
    return scores


def _scored(metric: Any, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    if len(texts) != len(references) or not texts:
        raise InputError("each text has its references", got=f"{len(texts)} texts, {len(references)} of references")
    most = max(len(group) for group in references)
    # sacrebleu wants one list for each rank of reference, None where a text has fewer.
    ranks = [[group[rank] if rank < len(group) else None for group in references] for rank in range(most)]
    value = metric.corpus_score(list(texts), ranks).score
    return Score(value, str(metric.get_signature()))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtra("counting BLEU and chrF", needs="sacrebleu", extra="train") from error
    return metrics
