"""Single words and openings with their translations, from translated sentences alone."""

import re

import numpy as np

from overt.learn.data.corpora import CorpusExample

ROUNDS = 5  # of expectation maximization
SURE = 0.5  # the least probability of a translation, in both directions
SEEN = 5  # times that a word must occur
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_OPENING = re.compile(r"([^,!?.]{1,30}?)\s?[,!] \S")


def word_pairs(examples: list[CorpusExample]) -> list[CorpusExample]:
    """Openings, up to two words before the first comma of both sides, and words that are each other's surest translation.

    The probabilities are those of IBM model 1 (Brown et al. 1993, section 4.1) in both directions: t(f | e) starts equal for all, and
    each round distributes every target word over the source words of its sentence in proportion to t.

    >>> pairs = [("the cat sleeps", "le chat dort"), ("a cat eats", "un chat mord"), ("Yes, I do.", "Oui, moi.")]
    >>> [tuple(pair) for pair in word_pairs([CorpusExample(*pair) for pair in pairs] * 5)][4:7]
    [('Yes', 'Oui'), ('cat', 'chat')]
    """
    openings = [opening for example in examples if (opening := _opening(example))]
    return openings + _translations(*([_WORD.findall(text.lower()) for text in side] for side in zip(*examples, strict=True)))


def _opening(example: CorpusExample) -> CorpusExample | None:
    """The text before the first comma or exclamation mark of each side, if that is at most two words and more follows."""
    parts = [match.group(1) for text in example if (match := _OPENING.match(text))]
    return CorpusExample(*parts) if len(parts) == 2 and max(len(text.split()) for text in parts) <= 2 else None


def _translations(sources: list[list[str]], targets: list[list[str]]) -> list[CorpusExample]:
    """The pairs of words that are sure in both directions, in alphabetical order."""
    left, right = _Numbers(sources), _Numbers(targets)
    pairs = [(a, b) for source, target in zip(left.rows, right.rows, strict=True) for a in source for b in target]
    lefts, rights = np.array(pairs, dtype=np.int64).reshape(-1, 2).T  # one entry for each pair of tokens of one sentence
    codes, links = np.unique(left.kinds[lefts] * len(right.words) + right.kinds[rights], return_inverse=True)
    source_words, target_words = np.divmod(codes, max(1, len(right.words)))
    forward = _probabilities(links, rights, source_words)
    backward = _probabilities(links, lefts, target_words)
    frequent = (left.counts[source_words] >= SEEN) & (right.counts[target_words] >= SEEN)
    sure = np.flatnonzero((forward >= SURE) & (backward >= SURE) & frequent)
    pairs = [CorpusExample(left.words[source_words[pair]], right.words[target_words[pair]]) for pair in sure]
    return sorted(pair for pair in pairs if pair.source != pair.target)  # equal ones are names, which lost their capitals


def _probabilities(links: np.ndarray, tokens: np.ndarray, condition: np.ndarray) -> np.ndarray:
    """t of each pair of words: `links` are the pairs of all tokens, `tokens` the explained ones, `condition` the other word."""
    t = np.ones(len(condition))
    for _ in range(ROUNDS):
        share = t[links] / np.bincount(tokens, t[links])[tokens]
        counts = np.bincount(links, share, len(condition))
        t = counts / np.bincount(condition, counts)[condition]
    return t


class _Numbers:
    """The words of one side, numbered: `rows` are the tokens' numbers of each sentence, `kinds` the word of each token."""

    def __init__(self, sentences: list[list[str]]):
        numbers: dict[str, int] = {}
        kinds = [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence]
        self.words = list(numbers)
        self.kinds: np.ndarray = np.array(kinds, dtype=np.int64)
        self.counts: np.ndarray = np.bincount(self.kinds, minlength=len(numbers))
        self.rows: list[range] = []
        start = 0
        for sentence in sentences:
            self.rows.append(range(start, start + len(sentence)))
            start += len(sentence)
