"""Translate text with a trained model, in batches of sentences of similar length."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from overt.errors import InputError
from overt.learn.data.splits import split_share
from overt.learn.data.tokenizer import END, START, Tokenizer
from overt.learn.processing.prepared import Preparation, PreparedText
from overt.learn.processing.restored import ModelOutput, failures, mean_attention, restore, written_labels
from overt.learn.run.model_folder import load_model
from overt.models.decoding import Hypothesis, beam_search, greedy_search
from overt.models.seq2seq import Seq2Seq
from overt.models.transformer import Transformer
from overt.reading import check_text, parse_json, read_json


class Translation(NamedTuple):
    """One translation of one text.

    `tokens` and `source_tokens` are the tokens that the model wrote and read, and `ids` are the ids of the written tokens; `score` is the
    sum of their log probabilities divided by the length penalty. All are empty for a text without words. `notes` name uncertain
    parts: a protected span placed by attention, a missing number.
    """

    text: str
    tokens: list[str]
    score: float
    source_tokens: list[str]
    ids: list[int]
    notes: tuple[str, ...] = ()


# BOUNDS: statistics of a translator's validation sources, in config.json or results.json.
BOUNDS = ("score_bound", "split_bound")
_EMPTY = Translation("", [], 0.0, [], [])


class Translator:
    """A translation model and its tokenizer.

    >>> translator = Translator.bundled()
    >>> translator.translate(["I am happy to see you."])[0].text
    'Je suis heureux de vous voir.'

    `model` is an `nn.Module` like any other: it runs under `overt.lens.record`, and moves to a GPU by `translator.model.cuda()`.

    Text that is not prose is removed before translation and restored afterwards (`prepare`): addresses, mark-up, code, file names, exact
    numbers and emoji are copied exactly, and capitals and repeated signs as they were. `processing=False` returns the model's own words.
    `languages` are source and target: English gets its apostrophes back ("dont").

    >>> translator.translate(["Read https://example.com/a?b=1 before you start."])[0].text
    'Lis https://example.com/a?b=1 avant de commencer.'
    """

    def __init__(
        self,
        model: Transformer | Seq2Seq,
        tokenizer: Tokenizer,
        name: str = "translator",
        score_bound: float | None = None,
        split_bound: float | None = None,
        *,
        processing: bool = True,
        languages: Sequence[str] = (),
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        # score_bound: the beam-search score that 99 % of the validation sources' translations exceed; None if it was not measured.
        self.score_bound = score_bound
        # split_bound: the share of cuts inside words (`split_share`) that 99 % of the validation sources do not exceed.
        self.split_bound = split_bound
        self._preparation = Preparation(self._pieces, tuple(languages)) if processing else None

    @classmethod
    def load(cls, folder: str | Path) -> "Translator":
        """Read the folder of a training run, or its `model` folder.

        Raises InputError for another folder, and for a model of another kind.
        """
        finished = find_model_folder(folder)
        if finished is None:
            raise InputError(
                "the folder of a training run, or the model folder in it",
                got=f"{folder}, which has no config.json written by overt",
                fix="check the path, or let the run finish",
            )
        model, tokenizer, config = load_model(finished)
        if not isinstance(model, Transformer | Seq2Seq) or tokenizer is None:
            raise InputError(
                "a Transformer or a Seq2Seq with a tokenizer.json",
                got=f"a {type(model).__name__}{'' if tokenizer else ' without tokenizer.json'} in {folder}",
                fix="pass the folder of a run whose task is translate",
            )
        bounds = (_bound(name, finished, config) for name in BOUNDS)
        return cls(model, tokenizer, Path(folder).resolve().name, *bounds, languages=config.get("languages", ()))

    @classmethod
    def bundled(cls) -> "Translator":
        """The English-French translator in the package; it needs no network.

        Raises InputError if this installation lacks it.
        """
        folder = bundled_folder()
        if folder is None:
            raise InputError(
                "the English-French translator in overt/learn/bundled",
                got="an installation without it",
                fix="reinstall overt, or name the folder of another model: --model FOLDER (overt train makes one)",
            )
        translator = cls.load(folder)
        translator.name = "overt's English-French translator"
        return translator

    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]:
        """Translate each text, in order; a text without words has the translation "". The options are `stream`'s."""
        return [best for best, *_ in self.candidates(texts, **options)]

    def candidates(self, texts: Sequence[str], **options: Any) -> list[list[Translation]]:
        """The `best` translations of each text, best first. The options are `stream`'s."""
        candidates: list[list[Translation]] = [[_EMPTY]] * len(texts)
        for index, translations in self.stream(texts, **options):
            candidates[index] = translations
        return candidates

    def stream(
        self,
        texts: Sequence[str],
        *,
        best: int = 1,
        beam: int = 5,
        length_penalty: float = 1.0,
        longest: int | None = None,
        tokens_per_batch: int = 4096,
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Yield the index of a text and its `best` translations by beam search, as soon as they are ready; a beam of 1 is greedy.

        Texts of similar length are translated together, at most `tokens_per_batch` tokens at a time, counting padding and beam. The
        longest come first, so that too little memory is noticed early. Texts without words are skipped.
        """
        _check_beam(beam, best)
        checked = {index: check_text(text, f"text {index}") for index, text in enumerate(texts) if text.strip()}
        prepared = {index: self.prepare(text) for index, text in checked.items()}
        for index in [index for index, line in prepared.items() if line.copied]:
            yield index, [_EMPTY._replace(text=prepared.pop(index).text)]
        encoded = {index: [*self.tokenizer.encode(line.source), END] for index, line in prepared.items()}
        for batch in _batches({index: len(ids) for index, ids in encoded.items()}, max(1, tokens_per_batch // beam)):
            source, lengths = pad_rows([encoded[index] for index in batch], self.device)
            results = self._search(source, lengths, beam, beam, length_penalty, longest)
            for index, hypotheses in zip(batch, results, strict=True):
                yield index, self._translations(prepared[index], encoded[index], hypotheses)[:best]

    @staticmethod
    def joined(parts: Sequence[tuple[str, list[Translation]]], *, beam: int = 5) -> list[Translation]:
        """Join the translations of a line's parts, best first; a part without translations is copied.

        The score is that of one text with all tokens; `beam` is the beam of the translations.

        >>> [best.text for best in Translator.joined([("| ", []), ("a dog", [Translation("un chien", [], -0.1, [], [])]), (" |", [])])]
        ['| un chien |']
        """
        if len(parts) == 1 and (parts[0][1] or not parts[0][0].strip()):
            return parts[0][1]
        count = max([1, *(len(translations) for _, translations in parts)])
        lines = [
            [
                translations[min(rank, len(translations) - 1)] if translations else _EMPTY._replace(text=text)
                for text, translations in parts
            ]
            for rank in range(count)
        ]
        return [_as_one(line, beam) for line in lines]

    def prepare(self, text: str) -> PreparedText:
        """The model's input for a text, with the information to restore its translation.

        >>> Translator.bundled().prepare("I LOVE #Paris 😊").source
        'I love Tom.'
        """
        return self._preparation(text) if self._preparation else PreparedText(text, text, 0, len(text), [], [])

    def encode(self, text: str) -> list[int]:
        """The ids of the tokens that the model reads, with the end."""
        return [*self.tokenizer.encode(self.prepare(text).source), END]

    def labels(self, text: str, translation: Translation) -> tuple[list[str], list[str]]:
        """The tokens read and written, including ends, for display: protected spans replace their placeholders.

        A span that the model reads in several tokens is the label of the first one; the others are "…".

        >>> translator = Translator.bundled()
        >>> [best] = translator.translate(["See https://example.com."])
        >>> translator.labels("See https://example.com.", best)[0]
        ['▁See', '▁https://example.com', '.', '</s>']
        """
        prepared, (read, end) = self.prepare(text), (translation.source_tokens[:-1], translation.source_tokens[-1:])
        wrote = written_labels(prepared, self.tokenizer.decode(translation.ids), translation.tokens)
        return [*prepared.labels(read), *end], [*wrote, *end]

    def is_unusual(self, translation: Translation, *, beam: int = 5) -> bool:
        """Whether a source is probably far from the training data: unusual words, another language, or no sentence.

        This is the case if its translation's mean log probability, the score with a length penalty of 1, is below that of 99 % of the
        validation, or if its words are cut into more pieces for their letters (`split_share`). `beam` is the beam of
        the translation, since greedy search does not divide the score. False if the model's folder has no bounds.
        """
        if not translation.source_tokens:
            return False
        mean = translation.score if beam > 1 else translation.score / (len(translation.ids) + 1)
        unlikely = self.score_bound is not None and mean < self.score_bound
        return unlikely or (self.split_bound is not None and split_share(translation.source_tokens) > self.split_bound)

    def teacher_forced(self, text: str, translation: Translation) -> tuple[Tensor, Tensor]:
        """The source (1, S) and target (1, T) with which `model(source, target)` scores this translation in one pass.

        Query t predicts token t, and the last query the end, so T is one more than the number of tokens in the translation.
        """
        source, target = [self.encode(text)], [[START, *translation.ids]]
        return torch.tensor(source, device=self.device), torch.tensor(target, device=self.device)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def _search(
        self, source: Tensor, lengths: Tensor, best: int, size: int, penalty: float, longest: int | None
    ) -> list[list[Hypothesis]]:
        common: dict[str, Any] = {"source_lengths": lengths, "start": START, "end": END, "longest": longest}
        if size == 1:
            return [[hypothesis] for hypothesis in greedy_search(self.model, source, **common)]
        return beam_search(self.model, source, size=size, length_penalty=penalty, best=best, **common)

    def _translations(self, prepared: PreparedText, source: list[int], hypotheses: list[Hypothesis]) -> list[Translation]:
        """The translations of a text, best first, after those with its numbers and protected spans."""
        texts = {id(hypothesis): self.tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses}
        if self._preparation:
            hypotheses = sorted(hypotheses, key=lambda candidate: len(failures(prepared, texts[id(candidate)])))
        return [self._translation(prepared, source, hypothesis, texts[id(hypothesis)]) for hypothesis in hypotheses]

    def _translation(self, prepared: PreparedText, source: list[int], hypothesis: Hypothesis, text: str) -> Translation:
        read, wrote = self.tokenizer.tokens(source), self.tokenizer.tokens(hypothesis.tokens)
        notes: list[str] = []
        if self._preparation:
            attention = partial(self._attention, source, hypothesis.tokens)
            text, notes = restore(prepared, ModelOutput(text, wrote, read[:-1], attention))
        return Translation(text, wrote, hypothesis.score, read, hypothesis.tokens, tuple(notes))

    @torch.no_grad()
    def _attention(self, source: list[int], written: list[int]) -> Tensor | None:
        """The weights of each written token on each token read, without the end; None if the model has no attention."""
        rows = ([source], [[START, *written]])
        weights = self.model.weights(*(torch.tensor(row, device=self.device) for row in rows)).get("cross")
        return None if weights is None else mean_attention(weights)[:, :-1]

    def _pieces(self, word: str) -> int:
        """The number of a word's pieces in the vocabulary."""
        return len(self.tokenizer.encode(word))


def _as_one(parts: Sequence[Translation], beam: int) -> Translation:
    """Join the translations of a line's parts."""
    tokens, sources, ids, notes = (
        [*chain.from_iterable(column)]
        for column in zip(*((p.tokens, p.source_tokens, p.ids, p.notes) for p in parts), strict=True)
    )
    # Greedy search does not divide the sum of log probabilities.
    lengths = [len(part.ids) + 1 if part.source_tokens else 0 for part in parts]
    totals = [part.score * (length if beam > 1 else 1) for part, length in zip(parts, lengths, strict=True)]
    score = sum(totals) / (max(1, sum(lengths)) if beam > 1 else 1)
    return Translation("".join(part.text for part in parts), tokens, score, sources, ids, tuple(notes))


def bundled_folder() -> Path | None:
    """The folder of the translator in the package; None if it is missing."""
    return find_model_folder(Path(__file__).with_name("bundled"))


def find_model_folder(folder: str | Path) -> Path | None:
    """The folder of a finished model: `folder`/model of a run, or the folder itself; None if neither has a config.json of overt."""
    for path in (Path(folder) / "model", Path(folder)):
        try:
            config = parse_json((path / "config.json").read_bytes(), strict=False)
        except (OSError, ValueError):
            continue
        if isinstance(config, dict) and {"kind", "config"} <= config.keys():
            return path
    return None


def _bound(name: str, finished: Path, config: dict[str, Any]) -> float | None:
    """A bound in config.json, or in the results.json of the run that holds the model; None if neither has one."""
    bound = config.get(name)
    results = finished.parent / "results.json"
    if bound is None and finished.name == "model" and results.exists():
        bound = read_json(results, "the scores of a run", "let overt train finish").get(name)
    return float(bound) if isinstance(bound, int | float) else None


def pad_rows(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one tensor (B, S), padded with zeros at the end, and their lengths (B,)."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    tokens = np.zeros((len(rows), lengths.max(initial=0)), np.int64)  # (B, S)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
    return torch.from_numpy(tokens).to(device), torch.from_numpy(lengths).to(device)


def _batches(lengths: dict[int, int], tokens: int) -> Iterator[list[int]]:
    """Indices in batches of similar length, longest first, each of one text or at most `tokens` tokens."""
    batch: list[int] = []
    for index in sorted(lengths, key=lambda index: -lengths[index]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _check_beam(beam: int, best: int) -> None:
    """Raise InputError for a beam below 1, and for a number of translations outside of 1 to the beam."""
    if beam < 1:
        raise InputError("a beam of at least 1", got=f"beam={beam}", fix="pass 1 for greedy search, or 5")
    if not 1 <= best <= beam:
        raise InputError(
            "from 1 translation up to the size of the beam", got=f"best={best} of beam={beam}", fix="widen the beam"
        )
