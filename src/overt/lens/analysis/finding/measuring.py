"""The weight of each head from the query's tokens to the key's in each pair, and whether it exceeds the competitors' weight."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.by_block import WeightsByBlock
from overt.lens.analysis.finding.pairs import LabelledPair, LocatedPair, located
from overt.lens.analysis.observing import observing
from overt.lens.analysis.surveys.reading.encoding import EncodedText, TextReader
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer
from overt.lens.text.tokens_of_text import DecodedText, decoded


class PairTask(NamedTuple):
    """A pair with the ids and positions of its tokens, and their letters without spaces and case."""

    pair: LabelledPair
    ids: list[int]
    read: DecodedText
    tokens: LocatedPair
    letters: list[str]


class PairMeasurements(NamedTuple):
    """The measures of each head in each pair, (pairs, heads), the heads by (call, head) and layer, and the calls that are missing.

    `mass` is the weight on the key, a mean over the query's tokens; `right` is 1 if no competitor has as much, ½ for equal weights; `area`
    is the share of competitors with less, the area under the ROC curve. `choices` (pairs,) counts key and competitors.
    """

    heads: list[tuple[int, int, str]]
    mass: np.ndarray
    right: np.ndarray
    area: np.ndarray
    choices: np.ndarray
    missing: tuple[str, ...]


def pair_tasks(reader: TextReader, pairs: Sequence[LabelledPair]) -> list[PairTask]:
    """The pairs as tokens. Raises InputError for words that are not in the text."""
    tasks = []
    for number, pair in enumerate(pairs, 1):
        ids, cut = reader.encode(pair.text)
        read = decoded(ids, reader.vocabulary)
        letters = [str(token).strip().casefold() or str(token) for token in read.tokens]
        tasks.append(PairTask(pair, ids, read, located(number, pair, read, cut), letters))
    return tasks


def measure(reader: TextReader, tasks: Sequence[PairTask], what: str = "reading pairs") -> PairMeasurements:
    """Run the model on every text, and measure every head of self-attention."""
    run = _PairRun(tasks)
    reads = [EncodedText(number, task.pair.text, task.ids, False) for number, task in enumerate(tasks)]
    for batch in progress(list(reader.batches(reads)), what):
        texts = reader.texts(batch)
        with observing(reader.model, partial(run.add, batch)) as recorder:
            reader.run(texts.ids, **reader.padding(texts))
        run.missing |= dict.fromkeys(f"{name}: {reason}" for name, reason in recorder.missing)
    return run.measured()


class _PairRun:
    """The measures of the heads in the texts read so far."""

    def __init__(self, tasks: Sequence[PairTask]):
        self.tasks = tasks
        self.rows: list[dict[tuple[int, int, str], tuple[float, float, float]]] = [{} for _ in tasks]
        self.choices: np.ndarray = np.ones(len(tasks))
        self.missing: dict[str, None] = {}

    def add(self, batch: Sequence[EncodedText], captured: CapturedCall | CapturedMixer) -> None:
        """Measure a call in the texts of a batch."""
        size = max(len(read.ids) for read in batch)
        if isinstance(captured, CapturedMixer):
            self.missing[f"{captured.layer}: a linear token mixer, whose weights are signed"] = None
        elif (captured.batch, captured.queries, captured.keys) != (len(batch), size, size):
            self.missing[f"{captured.layer}: its queries and keys are not the tokens of the texts"] = None
        else:
            weights = WeightsByBlock(captured)
            rows: dict[int, list[Tensor]] = {read.number: [] for read in batch}
            for first, stop, block in weights.blocks():
                for index, read in enumerate(batch):
                    inside = [row - first for row in self.tasks[read.number].tokens.query if first <= row < stop]
                    rows[read.number] += [block[index][:, inside]] if inside else []
            for read in batch:
                self._measure_text(captured, read, torch.cat(rows[read.number], dim=1))

    @torch.no_grad()
    def _measure_text(self, captured: CapturedCall, read: EncodedText, weights: Tensor) -> None:
        """Measure a call's heads in one text from the weights (H, query tokens, K) of its query."""
        task = self.tasks[read.number]
        mean = weights.double().mean(1)[:, : len(read.ids)].cpu()  # (H, K)
        key, others = mean[:, list(task.tokens.key)].sum(-1), competitors(task, mean)
        right = area = torch.ones_like(key)
        if others:
            competing = torch.stack([mean[:, list(tokens)].sum(-1) for tokens in others], dim=-1)  # (H, competitors)
            largest = competing.amax(-1)
            right = (key > largest).double() + 0.5 * (key == largest)
            area = ((key[:, None] > competing).double() + 0.5 * (key[:, None] == competing)).mean(-1)
        self.choices[read.number] = max(self.choices[read.number], 1 + len(others))
        for index, head in enumerate(captured.heads):
            measures = float(key[index]), float(right[index]), float(area[index])
            self.rows[read.number][captured.call_index, head, captured.layer] = measures

    def measured(self) -> PairMeasurements:
        """All pairs and heads as tables. Raises InputError if no head was measured in all texts."""
        heads = [head for head in self.rows[0] if all(head in row for row in self.rows)]
        if not heads:
            reason = next(iter(self.missing), "it made no call of attention")
            raise InputError("a model with attention between the tokens of a text", got=f"none in all texts: {reason}")
        mass, right, area = np.moveaxis(np.array([[row[head] for head in heads] for row in self.rows]), -1, 0)
        return PairMeasurements(heads, mass, right, area, self.choices, tuple(self.missing))


def competitors(task: PairTask, mean: Tensor | None = None) -> list[tuple[int, ...]]:
    """The competitors of a key: the distractors, or each other token of the text that some head gives weight to."""
    if task.tokens.distractors:
        return list(task.tokens.distractors)
    taken = {*task.tokens.query, *task.tokens.key}
    visible = torch.ones(len(task.ids), dtype=torch.bool) if mean is None else (mean > 0).any(0)
    return [
        (index,)
        for index, token in enumerate(task.read.tokens)
        if not token.special and index not in taken and bool(visible[index])
    ]


def randomized(model: nn.Module, seed: int) -> nn.Module:
    """A copy of the model whose matrices are normal numbers of the same standard deviation; norms and biases do not change."""
    other: Any = copy.deepcopy(model)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.ndim > 1 and parameter.is_floating_point():
                spread = float(parameter.float().std()) if parameter.numel() > 1 else 0.0
                parameter.copy_(torch.randn(parameter.shape, generator=draws) * spread)
    return other
