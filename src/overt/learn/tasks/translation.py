"""The translation task: pairs of sentences, the loss of the next token; the measure is BLEU."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from overt.learn.config.settings import Recipe
from overt.learn.data.batches import Batches
from overt.learn.data.corpora import CorpusExample, CorpusSplits, spread_sample
from overt.learn.data.splits import split_share
from overt.learn.data.subword_dropout import SubwordSampler
from overt.learn.data.tokenizer import END, PADDING, START, Tokenizer
from overt.learn.loop.loss import cross_entropy
from overt.learn.loop.r_drop import disagreement
from overt.learn.metrics import bleu, bleu_by_length, chrf
from overt.learn.translator import Translator, pad_rows

# QUICK: validation sentences translated at each evaluation during training.
QUICK = 500
# UNUSUAL: share of validation sources beyond each bound of unusual ones.
UNUSUAL = 0.01


class TranslationBatch(NamedTuple):
    """A batch: the decoder's input is START y_1 … y_n, and the labels are y_1 … y_n END."""

    source: Tensor  # (B, S), each row ends in END
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T)
    target_lengths: Tensor  # (B,)
    labels: Tensor  # (B, T), padding 0


class TranslationTask:
    """Train a translator on pairs of texts; the measure is BLEU of greedy translations of validation sentences."""

    measure = "bleu"

    def __init__(self, corpus: CorpusSplits, tokenizer: Tokenizer, recipe: Recipe):
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.recipe = recipe
        self._valid = self._encode(corpus.valid)
        seed = recipe.training.seed
        train = [*corpus.train, *corpus.added]
        self._samplers: list[SubwordSampler] = [
            SubwordSampler(tokenizer, side, dropout=recipe.tokens.dropout, seed=seed + number)
            for number, side in enumerate(zip(*train, strict=True) if recipe.tokens.dropout else ())
        ]
        self._train = [] if self._samplers else self._encode(train)

    @property
    def training_pairs(self) -> list[tuple[list[int], list[int]]]:
        """The tokens of each training pair: the source with its end, the target without; with BPE-dropout the last epoch's."""
        return self._train

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of training pairs' indices; with BPE-dropout, `batch` cuts words as in this epoch."""
        if self._samplers:
            sides = zip(*(sampler.epoch(epoch) for sampler in self._samplers), strict=True)
            self._train = [([*source, END], target) for source, target in sides]
        lengths = [(len(source), len(target) + 1) for source, target in self._train]
        return Batches(lengths, self.recipe.training.tokens_per_batch, self.recipe.training.seed).epoch(epoch)

    def batch(self, indices: list[int]) -> TranslationBatch:
        """Training pairs as padded tensors."""
        return _translation_batch([self._train[index] for index in indices])

    def loss(self, model: Any, batch: TranslationBatch) -> tuple[Tensor, int]:
        """−Σ log p(label | source, labels before it) over a batch, smoothed as in `cross_entropy`, and the number of labels.

        With `r_drop` the mean of two passes, plus that share of half their disagreement (Liang et al. 2021, equation 4, halved).
        """
        training = self.recipe.training
        if not training.r_drop:
            return self._loss(model, batch, training.label_smoothing)
        states, labels = _predict(model, TranslationBatch(*(torch.cat([tensor, tensor]) for tensor in batch)))
        loss = cross_entropy(states, model.output, labels, training.label_smoothing)
        return (loss + training.r_drop * disagreement(states, model.output)) / 2, len(labels) // 2

    def evaluate(self, model: Any) -> dict[str, float]:
        """Perplexity of the validation pairs, and BLEU of up to 500 greedy translations."""
        total, count = 0.0, 0
        device = next(model.parameters()).device
        with torch.no_grad():
            for start in range(0, len(self._valid), 64):
                batch = _translation_batch(self._valid[start : start + 64])
                loss, labels = self._loss(model, TranslationBatch(*(tensor.to(device) for tensor in batch)), 0.0)
                total, count = total + float(loss), count + labels
        rows = spread_sample(self.corpus.valid, QUICK)
        texts = self.translate(model, rows, beam=1)
        score = bleu(texts, self._references(rows), tokenize=self._tokenize)
        return {"bleu": score.value, "perplexity": math.exp(min(total / count, 700))}

    def test(self, model: Any, split: str = "test") -> dict[str, Any]:
        """The finished model's scores on a split, by beam search, with sacrebleu's signatures.

        Each pair is a row with one reference. Where sources have several translations, "bleu_all_references" counts each source once,
        with all of them as references. "by_length" has BLEU by the number of words in the source, in eight bins of equal size.
        """
        rows: list[CorpusExample] = getattr(self.corpus, split)
        decoding, references = self.recipe.decoding, self._references(rows)
        search = {"beam": decoding.beam, "length_penalty": decoding.length_penalty, "longest": decoding.longest}
        texts = self.translate(model, rows, **search)
        scores = {"bleu": bleu(texts, references, tokenize=self._tokenize), "chrf": chrf(texts, references)}
        lengths = [len(self.tokenizer.prepare([row.source])[0].split()) for row in rows]
        grouped: dict[str, tuple[str, list[str]]] = {}
        for row, text, [reference] in zip(rows, texts, references, strict=True):
            grouped.setdefault(row.source, (text, []))[1].append(reference)
        if len(grouped) < len(rows):
            scores["bleu_all_references"] = bleu(*zip(*grouped.values(), strict=True), tokenize=self._tokenize)
        result: dict[str, Any] = {"rows": len(rows), "sources": len(grouped)}
        for name, score in scores.items():
            result |= {name: score.value, f"{name}_signature": score.signature}
        parts = bleu_by_length(lengths, texts, references, tokenize=self._tokenize)
        return result | {"by_length": [part._asdict() for part in parts]}

    def bounds(self, model: Any) -> dict[str, float]:
        """Bounds that 1 % of the validation sources exceed, each alone: a low "score_bound", a high "split_bound" (see `Translator`)."""
        sources = list(dict.fromkeys(row.source for row in self.corpus.valid))
        translations = Translator(model, self.tokenizer, processing=False).translate(sources)
        scores, shares = zip(
            *((translation.score, split_share(translation.source_tokens)) for translation in translations), strict=True
        )
        return {
            "score_bound": float(np.quantile(scores, UNUSUAL)),
            "split_bound": float(np.quantile(shares, 1 - UNUSUAL)),
        }

    def translate(self, model: Any, rows: list[CorpusExample], **search: Any) -> list[str]:
        """The model's translation of each row's source, tokenized for scores; equal sources are translated once."""
        sources = list(dict.fromkeys(row.source for row in rows))
        translations = Translator(model, self.tokenizer, processing=False).translate(sources, **search)
        texts = {
            source: self.tokenizer.decode_words(translation.ids)
            for source, translation in zip(sources, translations, strict=True)
        }
        return [texts[row.source] for row in rows]

    @property
    def _tokenize(self) -> str:
        return "none" if self.tokenizer.moses else "13a"

    def _references(self, rows: list[CorpusExample]) -> list[list[str]]:
        return [[text] for text in self.tokenizer.prepare([row.target for row in rows], target=True)]

    def _encode(self, examples: list[CorpusExample]) -> list[tuple[list[int], list[int]]]:
        sources = self.tokenizer.encode_all([example.source for example in examples])
        targets = self.tokenizer.encode_all([example.target for example in examples], target=True)
        return [([*source, END], target) for source, target in zip(sources, targets, strict=True)]

    def _loss(self, model: Any, batch: TranslationBatch, smoothing: float) -> tuple[Tensor, int]:
        states, labels = _predict(model, batch)
        return cross_entropy(states, model.output, labels, smoothing), len(labels)


def _predict(model: Any, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
    """The states (N, width) from which a batch's labels are scored, and the labels (N,), without padding."""
    source, source_lengths, target, target_lengths, labels = batch
    states = model.states(source, target, source_lengths=source_lengths, target_lengths=target_lengths)  # (B, T, width)
    real = labels != PADDING
    return states[real], labels[real]


def _translation_batch(rows: list[tuple[list[int], list[int]]]) -> TranslationBatch:
    cpu = torch.device("cpu")
    source, source_lengths = pad_rows([source for source, _ in rows], cpu)
    target, target_lengths = pad_rows([[START, *target] for _, target in rows], cpu)
    labels, _ = pad_rows([[*target, END] for _, target in rows], cpu)
    return TranslationBatch(source, source_lengths, target, target_lengths, labels)
