"""The labelling task: one label for each word, or one for each text; the measure is accuracy."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.learn.config.settings import Recipe
from overt.learn.data.batches import Batches
from overt.learn.data.corpora import CorpusExample, CorpusSplits
from overt.learn.data.vocabulary import WordVocabulary
from overt.learn.loop.loss import cross_entropy


class LabelledBatch(NamedTuple):
    """A batch of texts; labels are (B, n) for words, with -1 at padding, and (B,) for texts."""

    tokens: Tensor  # (B, n), or (B, n, P) for words with their parts
    lengths: Tensor  # (B,)
    labels: Tensor


class LabellingTask:
    """Train a `Tagger` to label words, or a `Classifier` to label texts; the measure is validation accuracy in percent."""

    measure = "accuracy"

    def __init__(self, corpus: CorpusSplits, vocabulary: WordVocabulary, recipe: Recipe):
        self.corpus = corpus
        self.tokenizer = vocabulary
        self.recipe = recipe
        lengths = [len(example.source) for example in corpus.train]
        self._batches = Batches(lengths, recipe.training.tokens_per_batch, recipe.training.seed)

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of training examples' indices."""
        return self._batches.epoch(epoch)

    def batch(self, indices: list[int]) -> LabelledBatch:
        """Training examples as padded tensors."""
        return self._tensors([self.corpus.train[index] for index in indices])

    def loss(self, model: Any, batch: LabelledBatch) -> tuple[Tensor, int]:
        """−Σ log p(label) over a batch, smoothed as in `cross_entropy`, and the number of labels."""
        real = batch.labels >= 0
        states = model.states(batch.tokens, lengths=batch.lengths)  # (B, n, features), or (B, features)
        smoothing = self.recipe.training.label_smoothing
        return cross_entropy(states[real], model.output, batch.labels[real], smoothing), int(real.sum())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy on the validation examples."""
        return {"accuracy": self._accuracy(model, self.corpus.valid)}

    def test(self, model: nn.Module, split: str = "test") -> dict[str, Any]:
        """The finished model's accuracy on a split."""
        examples: list[CorpusExample] = getattr(self.corpus, split)
        return {"rows": len(examples), "accuracy": self._accuracy(model, examples)}

    @torch.no_grad()
    def _accuracy(self, model: nn.Module, examples: list[CorpusExample]) -> float:
        """The percentage of correct labels; a label that does not occur in training counts as wrong."""
        device = next(model.parameters()).device
        correct = count = 0
        for start in range(0, len(examples), 64):
            rows = examples[start : start + 64]
            batch = self._tensors(rows)
            scores = model(batch.tokens.to(device), lengths=batch.lengths.to(device))  # (B, n, labels), or (B, labels)
            correct += int((scores.argmax(-1).cpu() == batch.labels).sum())
            count += sum(1 if isinstance(row.target, str) else len(row.target) for row in rows)
        return 100 * correct / count

    def _tensors(self, rows: list[CorpusExample]) -> LabelledBatch:
        tokens = [torch.tensor(self.tokenizer.encode(row.source)) for row in rows]
        number = self.tokenizer.label_id
        if isinstance(rows[0].target, str):
            labels = torch.tensor([number(row.target) for row in rows])
        else:
            tags = [torch.tensor([number(tag) for tag in row.target]) for row in rows]
            labels = nn.utils.rnn.pad_sequence(tags, batch_first=True, padding_value=-1)  # (B, n)
        lengths = torch.tensor([len(row) for row in tokens])
        return LabelledBatch(nn.utils.rnn.pad_sequence(tokens, batch_first=True), lengths, labels)
