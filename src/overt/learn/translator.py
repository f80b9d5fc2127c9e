"""Translating text with a finished model: sentences into batches, batches through the beam, everything back in order."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.learn.data.tokenizer import END, START, Tokenizer
from overt.learn.run.model_folder import load_model
from overt.models.decoding import Hypothesis, beam_search, greedy_search
from overt.models.seq2seq import Seq2Seq
from overt.models.transformer import Transformer


class Translation(NamedTuple):
    """One translation of one text.

    `tokens` and `source_tokens` are what the model wrote and read, as the tokenizer spells them, and `ids` are the numbers of what it
    wrote; `score` is the sum of their log probabilities over the length penalty's denominator. A text without words has none of them.
    """

    text: str
    tokens: list[str]
    score: float
    source_tokens: list[str]
    ids: list[int]


_EMPTY = Translation("", [], 0.0, [], [])


class Translator:
    """A model that translates and the tokenizer that it was trained with.

    >>> translator = Translator.boxed()
    >>> translator.translate(["I am happy to see you."])[0].text
    'Je suis heureux de vous voir.'

    `model` is an `nn.Module` like any other: it runs under `overt.lens.record`, and moves to a GPU by `translator.model.cuda()`.
    """

    def __init__(self, model: Transformer | Seq2Seq, tokenizer: Tokenizer, name: str = "translator"):
        self.model, self.tokenizer, self.name = model, tokenizer, name

    @classmethod
    def load(cls, folder: str | Path) -> "Translator":
        """Read the folder that a training run leaves, or its `model` folder.

        Raises InputError where the folder is none of these, or holds a model of another kind.
        """
        finished = finished_folder(folder)
        if finished is None:
            raise InputError(
                "a model is read from the folder that overt train left, or from the model folder in it",
                got=f"{folder}, which holds no config.json of overt's",
                fix="check the path, or let the run come to its end",
            )
        model, tokenizer, _ = load_model(finished)
        if not isinstance(model, Transformer | Seq2Seq) or tokenizer is None:
            raise InputError(
                "a translator is a Transformer or a Seq2Seq with its tokenizer.json",
                got=f"a {type(model).__name__}{'' if tokenizer else ' without one'} in {folder}",
                fix="pass the folder of a run whose task is translate",
            )
        return cls(model, tokenizer, Path(folder).resolve().name)

    @classmethod
    def boxed(cls) -> "Translator":
        """The English-French translator that comes with the package; no network is needed.

        Raises InputError where this installation has none.
        """
        folder = boxed_folder()
        if folder is None:
            raise InputError(
                "overt's own translator comes with the package, in overt/learn/boxed",
                got="an installation from which it was taken out",
                fix="install overt anew, or name the folder of another model: --model FOLDER (overt train makes one)",
            )
        translator = cls.load(folder)
        translator.name = "overt's English-French translator"
        return translator

    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]:
        """Translate each text; the order is kept, and a text without words has the translation "". The options are those of `found`."""
        return [best for best, *_ in self.candidates(texts, **options)]

    def candidates(self, texts: Sequence[str], **options: Any) -> list[list[Translation]]:
        """The `best` translations of each text, best first. The options are those of `found`."""
        translations: list[list[Translation]] = [[_EMPTY]] * len(texts)
        for place, found in self.found(texts, **options):
            translations[place] = found
        return translations

    def found(
        self,
        texts: Sequence[str],
        *,
        best: int = 1,
        beam: int = 5,
        length_penalty: float = 1.0,
        longest: int | None = None,
        tokens_per_batch: int = 4096,
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Each text's place and the `best` translations that a beam of that size finds, as they are found; a beam of 1 is greedy.

        Texts of like length are read together, at most `tokens_per_batch` tokens at a time, padding and beam counted: the longest
        first, so that a want of memory shows early. Texts without words are passed over.
        """
        _check(best, beam)
        read = {place: self.read(text) for place, text in enumerate(texts) if text.strip()}
        for places in _batches({place: len(ids) for place, ids in read.items()}, max(1, tokens_per_batch // beam)):
            source, lengths = padded([read[place] for place in places], self.device)
            hypotheses = self._search(source, lengths, best, beam, length_penalty, longest)
            for place, found in zip(places, hypotheses, strict=True):
                yield place, [self._translation(read[place], each) for each in found]

    def read(self, text: str) -> list[int]:
        """The numbers of the tokens that the model reads, the end's included."""
        return [*self.tokenizer.encode(text), END]

    def forced(self, text: str, translation: Translation) -> tuple[Tensor, Tensor]:
        """The source (1, S) and target (1, T) with which the model writes this translation again, in one pass.

        Query t of `model(source, target)` writes token t, and the last one the end: T is one more than the translation's tokens.
        """
        source, target = [self.read(text)], [[START, *translation.ids]]
        return torch.tensor(source, device=self.device), torch.tensor(target, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def _search(
        self, source: Tensor, lengths: Tensor, best: int, size: int, penalty: float, longest: int | None
    ) -> list[list[Hypothesis]]:
        common: dict[str, Any] = {"source_lengths": lengths, "start": START, "end": END, "longest": longest}
        if size == 1:
            return [[found] for found in greedy_search(self.model, source, **common)]
        return beam_search(self.model, source, size=size, length_penalty=penalty, best=best, **common)

    def _translation(self, source: list[int], found: Hypothesis) -> Translation:
        spelled = self.tokenizer.tokens
        return Translation(
            self.tokenizer.decode(found.tokens), spelled(found.tokens), found.score, spelled(source), found.tokens
        )


def boxed_folder() -> Path | None:
    """Where the translator is that comes with the package."""
    return finished_folder(Path(__file__).with_name("bundled"))


def finished_folder(folder: str | Path) -> Path | None:
    """The folder of a finished model: this one, or the folder `model` in a run's; None where there is no model of overt's."""
    for place in (Path(folder) / "model", Path(folder)):
        try:
            config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(config, dict) and {"kind", "config"} <= config.keys():
            return place
    return None


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one tensor (B, S), zeros behind the shorter ones, and their lengths (B,)."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # (B, S)
    return tokens.to(device), lengths.to(device)


def _batches(lengths: dict[int, int], tokens: int) -> Iterator[list[int]]:
    """Places in batches of like length, longest first, each of at most so many tokens or of one text."""
    batch: list[int] = []
    for place in sorted(lengths, key=lambda place: -lengths[place]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _check(best: int, size: int) -> None:
    if size < 1:
        raise InputError("a beam keeps at least one translation", got=f"beam={size}", fix="pass 1 for greedy search, or 5")
    if not 1 <= best <= size:
        raise InputError(
            "a beam finds as many translations as it keeps", got=f"best={best} of beam={size}", fix="widen the beam"
        )
