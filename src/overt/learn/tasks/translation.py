"""Translation as a task: pairs of sentences, the loss of the next word, BLEU."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.learn.config.settings import Recipe
from overt.learn.data.batches import Batches
from overt.learn.data.corpora import Corpus, Example, spread
from overt.learn.data.tokenizer import END, PADDING, START, Tokenizer
from overt.learn.loop.loss import cross_entropy
from overt.learn.metrics import bleu, bleu_by_length, chrf
from overt.learn.translator import Translator, padded

# Sentences that are translated at each evaluation while training goes on.
QUICK = 500


class Pairs(NamedTuple):
    """A batch: the decoder reads START y_1 … y_n and is to say y_1 … y_n END."""

    source: Tensor  # (B, S), each row with END behind it
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T)
    target_lengths: Tensor  # (B,)
    labels: Tensor  # (B, T), padding 0


class Translation:
    """Learn to translate a corpus of pairs; what is after is BLEU of greedy translations of validation sentences."""

    measure = "bleu"

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe):
        self.corpus, self.tokenizer, self.recipe = corpus, tokenizer, recipe
        self._train, self._valid = self._encoded(corpus.train), self._encoded(corpus.valid)
        lengths = [(len(source), len(target) + 1) for source, target in self._train]
        self._batches = Batches(lengths, recipe.training.tokens_per_batch, recipe.training.seed)

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of training pairs' indices."""
        return self._batches.epoch(epoch)

    def batch(self, indices: list[int]) -> Pairs:
        """Training pairs as padded tensors."""
        return _pairs([self._train[index] for index in indices])

    def loss(self, model: Any, batch: Pairs) -> tuple[Tensor, int]:
        """−Σ log p(label | source, labels before it) over a batch, labels cross_entropy, and the number of labels."""
        return self._loss(model, batch, self.recipe.training.label_smoothing)

    def evaluate(self, model: Any) -> dict[str, float]:
        """Perplexity of the validation pairs, and BLEU of up to 500 greedy translations."""
        total, count = 0.0, 0
        device = next(model.parameters()).device
        with torch.no_grad():
            for start in range(0, len(self._valid), 64):
                batch = _pairs(self._valid[start : start + 64])
                loss, labels = self._loss(model, Pairs(*(tensor.to(device) for tensor in batch)), 0.0)
                total, count = total + float(loss), count + labels
        rows = spread(self.corpus.valid, QUICK)
        texts = self.translated(model, rows, beam=1)
        found = bleu(texts, self._references(rows), tokenize=self._tokenize)
        return {"bleu": found.value, "perplexity": math.exp(min(total / count, 700))}

    def test(self, model: Any, split: str = "test") -> dict[str, Any]:
        """The finished model's scores on a split, by beam search, with sacrebleu's signatures.

        Each pair is a row with one reference, its own. Where sources have several translations, "bleu_all_references" counts each
        source once, against all of them. "by_length" has BLEU against the words of the source, in eight parts of like many rows.
        """
        rows: list[Example] = getattr(self.corpus, split)
        texts, references = self.translated(model, rows, **self._search), self._references(rows)
        scores = {"bleu": bleu(texts, references, tokenize=self._tokenize), "chrf": chrf(texts, references)}
        lengths = [len(self.tokenizer.prepare([row.given])[0].split()) for row in rows]
        grouped: dict[str, tuple[str, list[str]]] = {}
        for row, text, [reference] in zip(rows, texts, references, strict=True):
            grouped.setdefault(row.given, (text, []))[1].append(reference)
        if len(grouped) < len(rows):
            scores["bleu_all_references"] = bleu(*zip(*grouped.values(), strict=True), tokenize=self._tokenize)
        found: dict[str, Any] = {"rows": len(rows), "sources": len(grouped)}
        for name, score in scores.items():
            found |= {name: score.value, f"{name}_signature": score.signature}
        parts = bleu_by_length(lengths, texts, references, tokenize=self._tokenize)
        return found | {"by_length": [part._asdict() for part in parts]}

    def translated(self, model: Any, rows: list[Example], **search: Any) -> list[str]:
        """The model's translation of each row's source, as scores are counted on it; equal sources are translated once."""
        sources = list(dict.fromkeys(row.given for row in rows))
        found = Translator(model, self.tokenizer).translate(sources, **search)
        texts = {source: self.tokenizer.words_of(each.ids) for source, each in zip(sources, found, strict=True)}
        return [texts[row.given] for row in rows]

    @property
    def _search(self) -> dict[str, Any]:
        decoding = self.recipe.decoding
        return {"beam": decoding.beam, "length_penalty": decoding.length_penalty, "longest": decoding.longest}

    @property
    def _tokenize(self) -> str:
        return "none" if self.tokenizer.moses else "13a"

    def _references(self, rows: list[Example]) -> list[list[str]]:
        return [[text] for text in self.tokenizer.prepare([row.wanted for row in rows], target=True)]

    def _encoded(self, examples: list[Example]) -> list[tuple[list[int], list[int]]]:
        sources = self.tokenizer.encode_all([example.given for example in examples])
        targets = self.tokenizer.encode_all([example.wanted for example in examples], target=True)
        return [([*source, END], target) for source, target in zip(sources, targets, strict=True)]

    def _loss(self, model: Any, batch: Pairs, smoothing: float) -> tuple[Tensor, int]:
        source, source_lengths, target, target_lengths, labels = batch
        states = model.states(source, target, source_lengths=source_lengths, target_lengths=target_lengths)  # (B, T, width)
        real = labels != PADDING
        return cross_entropy(states[real], model.output, labels[real], smoothing), int(real.sum())


def _pairs(rows: list[tuple[list[int], list[int]]]) -> Pairs:
    cpu = torch.device("cpu")
    source, source_lengths = padded([source for source, _ in rows], cpu)
    target, target_lengths = padded([[START, *target] for _, target in rows], cpu)
    labels, _ = padded([[*target, END] for _, target in rows], cpu)
    return Pairs(source, source_lengths, target, target_lengths, labels)
