"""Texts as token ids, in batches that depend only on the texts, not on the machine or on texts that it read before."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from overt.errors import InputError, OvertError
from overt.lens.analysis.surveys.measures import TextBatch
from overt.lens.analysis.surveys.reading.text_module import text_module
from overt.lens.statistics.roles import SEPARATORS
from overt.lens.text.spelling import well_formed
from overt.lens.text.vocabulary import Vocabulary, read_vocabulary

# CHUNK: texts that are batched together; BATCH_TOKENS: most tokens of a batch, including padding.
CHUNK, BATCH_TOKENS = 256, 4096
_LETTERS = 64  # letters for each token of `longest`, the part of a long text that is tokenized first
_LONGER = 1.2  # largest length of a text in a batch over the shortest length, plus two tokens


class EncodedText(NamedTuple):
    """Text number `number` as a model reads it; `cut` if its end is missing."""

    number: int
    text: str
    ids: list[int]
    cut: bool


class Chunk(NamedTuple):
    """Neighbouring texts of a corpus: the number of the chunk, and the texts with their numbers."""

    number: int
    texts: list[tuple[int, str]]


def chunks(texts: Iterable[str]) -> Iterator[Chunk]:
    """Divide the texts of a corpus into chunks of 256."""
    batch: list[tuple[int, str]] = []
    number = 0
    for index, text in enumerate(texts):
        batch.append((index, text))
        if len(batch) == CHUNK:
            yield Chunk(number, batch)
            number, batch = number + 1, []
    if batch:
        yield Chunk(number, batch)


@dataclass(eq=False)
class TextReader:
    """Reads texts with a model's tokenizer and runs `module` on them: the model, or the encoder of an encoder–decoder.

    `longest` is the most tokens that are read of a text.
    """

    model: nn.Module
    tokenizer: Any
    longest: int

    def __post_init__(self) -> None:
        self.module: nn.Module = text_module(self.model)
        self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(self.module.forward).parameters
        self.pads: bool = "attention_mask" in self.parameters or "lengths" in self.parameters

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's entries."""
        return read_vocabulary(self.tokenizer)

    @cached_property
    def encode(self) -> Callable[[str], tuple[list[int], bool]]:
        """A function from a text to its ids, and whether its end was cut."""
        return encoder(self.tokenizer, self.longest)

    def read(self, chunk: Chunk) -> list[EncodedText]:
        """Read the texts of a chunk, without those that have no tokens."""
        results = (EncodedText(index, text, *self.encode(text)) for index, text in chunk.texts if text.strip())
        return [result for result in results if result.ids]

    def batches(self, texts: Sequence[EncodedText]) -> Iterator[list[EncodedText]]:
        """Divide texts into batches of similar lengths, or of equal lengths if the model takes no padding."""
        batch: list[EncodedText] = []
        for text in sorted(texts, key=lambda item: len(item.ids)):
            size, shortest = len(text.ids), len(batch[0].ids) if batch else 0
            limit = _LONGER * shortest + 2 if self.pads else shortest
            if batch and (size > limit or size * (len(batch) + 1) > BATCH_TOKENS):
                yield batch
                batch = []
            batch.append(text)
        if batch:
            yield batch

    def texts(self, batch: Sequence[EncodedText]) -> TextBatch:
        """A batch as tensors, on the model's device."""
        device = next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))
        lengths = torch.tensor([len(text.ids) for text in batch], device=device)
        ids = torch.full((len(batch), int(lengths.max())), -1)
        for row, text in enumerate(batch):
            ids[row, : len(text.ids)] = torch.tensor(text.ids)
        marks = [[self._marks(number, index) for index, number in enumerate(row)] for row in ids.tolist()]
        special, separators = torch.tensor(marks, device=device).unbind(-1)
        return TextBatch(ids.to(device), lengths, special, separators)

    def padding(self, texts: TextBatch) -> dict[str, Any]:
        """The model's arguments that mark the padding."""
        if "attention_mask" in self.parameters:
            return {"attention_mask": (texts.ids >= 0).long()}
        return {"lengths": texts.lengths} if "lengths" in self.parameters else {}

    def run(self, ids: Tensor, **arguments: Any) -> Any:
        """Run the model on ids (B, N), −1 for padding, and further arguments. Raises InputError if it does not run."""
        padding = self.vocabulary.padding
        ids = torch.where(ids < 0, 0 if padding is None else padding, ids)
        if "use_cache" in self.parameters:
            arguments["use_cache"] = False
        named = {"input_ids": ids} if "input_ids" in self.parameters else {}
        try:
            with torch.no_grad():
                return self.module(*([] if named else [ids]), **named, **arguments)
        except OvertError:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            fix = "pass a model that reads token ids alone, and its own tokenizer"
            raise InputError("a model that reads batches of texts", got=got, fix=fix) from error

    def _marks(self, number: int, index: int) -> tuple[bool, bool]:
        """Whether a token is special, and whether it is a separator: punctuation, or a special token except the first."""
        if number < 0:
            return False, False
        entry = self.vocabulary.entry(number)
        word = entry.text.decode("utf-8", "replace").strip()
        return entry.special, (entry.special and index > 0) or word in SEPARATORS


def encoder(tokenizer: Any, longest: int) -> Callable[[str], tuple[list[int], bool]]:
    """A function from a text to its ids, at most `longest` of them, and whether there were more.

    Halves of a surrogate pair, which JSON may have, become U+FFFD. Of a text of megabytes, only enough letters for twice `longest` tokens
    are read: tokens that far from the cut do not depend on it.
    """
    if hasattr(tokenizer, "convert_ids_to_tokens"):

        def encode_ids(text: str, limit: int | None) -> list[int]:
            options = {} if limit is None else {"truncation": True, "max_length": limit}
            return list(tokenizer(text, verbose=False, **options)["input_ids"])

    elif hasattr(tokenizer, "to_str"):
        whole, short = (type(tokenizer).from_str(tokenizer.to_str()) for _ in range(2))
        for part in (whole, short):
            part.no_padding()
            part.no_truncation()
        short.enable_truncation(longest)

        def encode_ids(text: str, limit: int | None) -> list[int]:
            return list((whole if limit is None else short).encode(text).ids)

    else:

        def encode_ids(text: str, limit: int | None) -> list[int]:
            return list(tokenizer.encode(text))[:limit]

    def encode(text: str) -> tuple[list[int], bool]:
        text, letters = well_formed(text), _LETTERS * longest
        while letters < len(text) and len(encode_ids(text[:letters], None)) < 2 * longest:
            letters *= 4
        ids = encode_ids(text[:letters], None)
        return (ids, False) if len(ids) <= longest else (encode_ids(text[:letters], longest), True)

    return encode


def longest_text(model: nn.Module, tokenizer: Any, longest: int) -> int:
    """`longest`, or the limit of the model or its tokenizer if that is lower. Raises InputError for fewer than two tokens."""
    if type(longest) is not int or longest < 2:
        raise InputError("longest as a number of tokens, at least 2", got=f"longest={longest!r}", fix="pass longest=512")
    config = getattr(model, "config", None)
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    limits += [config.get("longest") if isinstance(config, dict) else None, getattr(tokenizer, "model_max_length", None)]
    return min([longest, *(int(limit) for limit in limits if isinstance(limit, int | float) and 1 < limit < 10**9)])
