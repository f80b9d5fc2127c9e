"""BLEU and chrF by sacrebleu, with the signature that identifies the computation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from overt.errors import InputError, MissingExtra


class CorpusScore(NamedTuple):
    """A score from 0 to 100, and sacrebleu's signature, to be reported with it."""

    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> CorpusScore:
    """BLEU: the share of n-grams of one to four words in common with the references (Papineni et al. 2002; Post 2018).

    `references` has one or more for each text. `tokenize="none"` splits at spaces, for texts that are already tokenized.

    >>> score = bleu(["the cat sat on the mat"], [["the cat sat on a mat"]], tokenize="none")
    >>> round(score.value, 2), score.signature.partition("|version")[0]
    (53.73, 'nrefs:1|case:mixed|eff:no|tok:none|smooth:exp')
    """
    metric = _sacrebleu().BLEU(tokenize=tokenize, force=tokenize == "none")
    return _corpus_score(metric, texts, references)


def chrf(texts: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
    """chrF2: the share of n-grams of one to six characters in common with the references (Popović 2015).

    >>> chrf(["abc"], [["abc"]]).value
    100.0
    """
    return _corpus_score(_sacrebleu().CHRF(), texts, references)


class LengthScore(NamedTuple):
    """BLEU of the rows whose source length is in a range."""

    shortest: int  # words of the source
    longest: int
    rows: int
    bleu: float


def bleu_by_length(
    lengths: Sequence[int], texts: Sequence[str], references: Sequence[Sequence[str]], *, bins: int = 8, tokenize: str = "13a"
) -> list[LengthScore]:
    """BLEU by the length of the source, in bins with equal numbers of rows.

    >>> short, long = bleu_by_length([4, 9], ["a b c d", "e"], [["a b c d"], ["f"]], bins=2)
    >>> short.longest, round(short.bleu), long.longest, round(long.bleu)
    (4, 100, 9, 0)
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    scores = []
    for number in range(bins):
        part = order[number * len(order) // bins : (number + 1) * len(order) // bins]
        if part:
            score = bleu([texts[index] for index in part], [references[index] for index in part], tokenize=tokenize)
            scores.append(LengthScore(lengths[part[0]], lengths[part[-1]], len(part), score.value))
    return scores


def _corpus_score(metric: Any, texts: Sequence[str], references: Sequence[Sequence[str]]) -> CorpusScore:
    if len(texts) != len(references) or not texts:
        got = f"{len(texts)} texts and {len(references)} groups of references"
        raise InputError("texts, and a group of references for each", got=got)
    count = max(len(group) for group in references)
    # sacrebleu expects a list of first references, a list of second ones, and so on; None if a text has fewer.
    ranks = [[group[rank] if rank < len(group) else None for group in references] for rank in range(count)]
    value = metric.corpus_score(list(texts), ranks).score
    return CorpusScore(value, str(metric.get_signature()))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtra("BLEU and chrF", needs="sacrebleu", extra="train") from error
    return metrics
