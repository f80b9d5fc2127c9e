"""The language modelling task: the loss of the next token; the measure is its log probability."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.learn.config.settings import Recipe
from overt.learn.data.batches import Batches
from overt.learn.data.corpora import CorpusExample, CorpusSplits
from overt.learn.data.tokenizer import END, PADDING, START, Tokenizer
from overt.learn.loop.loss import cross_entropy
from overt.learn.translator import pad_rows


class LanguageBatch(NamedTuple):
    """A batch: the input is START y_1 … y_n, and the labels are y_1 … y_n END."""

    tokens: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    labels: Tensor  # (B, T), padding 0


class LanguageModelTask:
    """Train a `LanguageModel` to continue texts; the measure is the mean log probability of a validation token, in nats."""

    measure = "log_probability"

    def __init__(self, corpus: CorpusSplits, tokenizer: Tokenizer, recipe: Recipe):
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.recipe = recipe
        self._train = self._encode(corpus.train)
        lengths = [len(text) + 1 for text in self._train]
        self._batches = Batches(lengths, recipe.training.tokens_per_batch, recipe.training.seed)

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of training texts' indices."""
        return self._batches.epoch(epoch)

    def batch(self, indices: list[int]) -> LanguageBatch:
        """Training texts as padded tensors."""
        return _text_batch([self._train[index] for index in indices])

    def loss(self, model: Any, batch: LanguageBatch) -> tuple[Tensor, int]:
        """−Σ log p(token | tokens before it) over a batch, smoothed as in `cross_entropy`, and the number of tokens, with the ends."""
        return _loss(model, batch, self.recipe.training.label_smoothing)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Mean log probability of a token of the validation texts, and perplexity."""
        return self._measures(model, self.corpus.valid)

    def test(self, model: nn.Module, split: str = "test") -> dict[str, Any]:
        """The finished model's measures on a split."""
        examples: list[CorpusExample] = getattr(self.corpus, split)
        return {"rows": len(examples), **self._measures(model, examples)}

    @torch.no_grad()
    def _measures(self, model: nn.Module, examples: list[CorpusExample]) -> dict[str, float]:
        device = next(model.parameters()).device
        texts, total, count = self._encode(examples), 0.0, 0
        for start in range(0, len(texts), 64):
            batch = _text_batch(texts[start : start + 64])
            loss, tokens = _loss(model, LanguageBatch(*(tensor.to(device) for tensor in batch)), 0.0)
            total, count = total + float(loss), count + tokens
        return {"log_probability": -total / count, "perplexity": math.exp(min(total / count, 700))}

    def _encode(self, examples: list[CorpusExample]) -> list[list[int]]:
        return self.tokenizer.encode_all([example.source for example in examples])


def _text_batch(rows: list[list[int]]) -> LanguageBatch:
    cpu = torch.device("cpu")
    tokens, lengths = pad_rows([[START, *row] for row in rows], cpu)
    labels, _ = pad_rows([[*row, END] for row in rows], cpu)
    return LanguageBatch(tokens, lengths, labels)


def _loss(model: Any, batch: LanguageBatch, smoothing: float) -> tuple[Tensor, int]:
    states = model.states(batch.tokens, lengths=batch.lengths)  # (B, T, width)
    real = batch.labels != PADDING
    return cross_entropy(states[real], model.output, batch.labels[real], smoothing), int(real.sum())
