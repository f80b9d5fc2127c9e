"""Texts that show a head's behaviour: its strongest, and one for each decile of its strongest link, with exact rows of weights."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from overt.lens.analysis.observing import evaluated, observing
from overt.lens.analysis.surveys.reading.encoding import EncodedText, TextReader
from overt.lens.analysis.surveys.totals import SurveyTotals
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.repetition import weight_rows
from overt.lens.text.tokens_of_text import spelled_words

DECILES = tuple(range(0, 101, 10))
# WIDE, NARROW: tokens shown on each side of a link, for up to MANY heads and for more.
WIDE, NARROW, MANY = 40, 12, 500
LARGEST_MAP = 2 * WIDE + 1  # most tokens of a map


class Example(NamedTuple):
    """A link of a head in text number `text`: `decile` 0 to 100 of the sample, or `rank` from 1 among the head's strongest."""

    head: int
    decile: int | None
    rank: int | None
    text: int
    weight: float
    query: int
    key: int


@dataclass(frozen=True, eq=False)
class ShownTokens:
    """The shown tokens of an example, from token `first` on, and the query's exact weight on each; None without the model.

    `map` has the exact weights among the shown tokens of a head's strongest text, a row for each query.
    """

    first: int
    words: list[str]
    weights: np.ndarray | None
    map: np.ndarray | None = None


def examples(survey: SurveyTotals) -> list[Example]:
    """The examples of every head: at each decile of the drawn texts' largest weights, lowest first, and the strongest of all texts.

    Deciles are over the 512 drawn texts. The text of a decile is the drawn text whose weight has that rank.
    """
    samples, result = survey.samples, []
    drawn = [*samples.drawn]
    links = [np.array([getattr(samples.drawn[index], name) for index in drawn]) for name in ("weights", "queries", "keys")]
    for head in range(len(survey.heads)):
        usable = [row for row in range(len(drawn)) if links[0][row, head] >= 0]
        order = sorted(usable, key=lambda row: (links[0][row, head], drawn[row]))
        ranks = [round(decile / 100 * (len(order) - 1)) for decile in DECILES] if order else []
        for decile, rank in zip(DECILES, ranks, strict=False):
            row = order[rank]
            result.append(Example(head, decile, None, drawn[row], *_link(*(link[row, head] for link in links))))
        for rank, index in enumerate(samples.top[head].tolist(), 1):
            if index >= 0:
                link = _link(*(link[head, rank - 1] for link in samples.top_links))
                result.append(Example(head, None, rank, index, *link))
    return result


def _link(weight: Any, query: Any, key: Any) -> tuple[float, int, int]:
    return float(weight), int(query), int(key)


def shown(survey: SurveyTotals, wanted: list[Example], model: nn.Module | None, tokenizer: Any) -> list[ShownTokens | None]:
    """The words around each example's link, with exact rows if the model is passed; None for all without a tokenizer."""
    if tokenizer is None:
        return [None] * len(wanted)
    reader = TextReader(model if model is not None else nn.Identity(), tokenizer, survey.facts.longest)
    reads = {index: EncodedText(index, text, *reader.encode(text)) for index, text in survey.samples.texts.items()}
    around = WIDE if len(survey.heads) <= MANY else NARROW
    windows = [_window(example, len(reads[example.text].ids), around) for example in wanted]
    queries: dict[int, set[tuple[int, int]]] = defaultdict(set)  # the head and query of each shown row, by text
    for example, window in zip(wanted, windows, strict=True):
        mapped = window if _has_map(example, window) else ()
        queries[example.text] |= {(example.head, query) for query in (example.query, *mapped)}
    rows = {} if model is None else _rows(survey, queries, reader, reads)
    return [_cut(example, window, reads[example.text], reader, rows) for example, window in zip(wanted, windows, strict=True)]


def _window(example: Example, tokens: int, around: int) -> range:
    """The shown tokens around an example's link."""
    middle, reach = (example.query + example.key) // 2, abs(example.query - example.key) // 2 + 1
    side = max(around, min(reach + 4, 4 * around))
    return range(max(0, middle - side), min(tokens, middle + side + 1))


def _has_map(example: Example, window: range) -> bool:
    return example.rank == 1 and len(window) <= LARGEST_MAP


def _cut(
    example: Example, window: range, read: EncodedText, reader: TextReader, rows: dict[tuple[int, int, int], np.ndarray]
) -> ShownTokens:
    def row(query: int) -> np.ndarray:
        return rows[example.text, example.head, query][window.start : window.stop]

    words = spelled_words(read.ids[window.start : window.stop], reader.vocabulary)
    if (example.text, example.head, example.query) not in rows:
        return ShownTokens(window.start, words, None)
    mapped = _has_map(example, window) and all((example.text, example.head, query) in rows for query in window)
    return ShownTokens(window.start, words, row(example.query), np.stack([row(query) for query in window]) if mapped else None)


def _rows(
    survey: SurveyTotals, by_text: dict[int, set[tuple[int, int]]], reader: TextReader, reads: dict[int, EncodedText]
) -> dict[tuple[int, int, int], np.ndarray]:
    """Rows of weights by text, head and query; each text is read again."""
    rows: dict[tuple[int, int, int], np.ndarray] = {}
    columns = {head: index for index, head in enumerate(survey.heads)}
    with evaluated(reader.model):
        for batch in reader.batches([reads[index] for index in by_text]):
            texts = reader.texts(batch)

            def measure(captured: CapturedCall | CapturedMixer, batch: list[EncodedText] = batch) -> None:
                heads = {columns.get((captured.layer, captured.call_index, head)): head for head in range(captured.total)}  # type: ignore[call-overload]
                named = [
                    (row, head, query)
                    for row, read in enumerate(batch)
                    for head, query in by_text[read.number]
                    if head in heads
                ]
                runs = [(query, query + 1) for query in sorted({query for _, _, query in named})]
                for first, weights, _ in weight_rows(captured, runs):
                    for row, head, query in named:
                        if first <= query < first + weights.shape[-2]:
                            length = len(batch[row].ids)
                            values = weights[row, heads[head], query - first, :length]
                            rows[batch[row].number, head, query] = values.float().cpu().numpy()

            with observing(reader.model, measure):
                reader.run(texts.ids, **reader.padding(texts))
    return rows
