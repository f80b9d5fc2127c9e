"""Survey every head of a model over a corpus."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from overt.drawing.progress import progress
from overt.errors import InputError, KindError
from overt.lens.analysis.observing import evaluated, observing
from overt.lens.analysis.surveys.exact_sums import LARGEST
from overt.lens.analysis.surveys.jackknife import group_index
from overt.lens.analysis.surveys.measures import FARTHEST, ROWS, CallMeasurements, measured
from overt.lens.analysis.surveys.reading.encoding import CHUNK, Chunk, EncodedText, TextReader, chunks, longest_text
from overt.lens.analysis.surveys.reading.passes import Pass, Passes
from overt.lens.analysis.surveys.reading.text_module import ENCODER_ONLY
from overt.lens.analysis.surveys.samples import Links
from overt.lens.analysis.surveys.survey import Survey, load_survey
from overt.lens.analysis.surveys.totals import Facts, SurveyedHead, ranges
from overt.lens.capture.recordable import recordable
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer
from overt.lens.text.texts import Texts

_SECONDS_BETWEEN_FILES = 20.0  # least time between two writes of the file to resume from


def survey(
    model: nn.Module,
    texts: Iterable[str],
    *,
    tokenizer: Any,
    longest: int = 512,
    shard: tuple[int, int] = (0, 1),
    file: str | os.PathLike[str] | None = None,
) -> Survey:
    """Measure every head of a model over the texts of a corpus, which are read one after another and not stored.

    Each measure is a mean over queries with a 95 % interval (`Survey.measure`); the pattern that most of a head's weight follows is its
    role. The survey stores 512 texts, drawn at random, with each head's strongest link in them, and each head's eight strongest texts.
    The model runs in evaluation mode and is otherwise unchanged. A text is read up to `longest` tokens, or up to the model's limit. Several
    texts share a row if the model takes `position_ids` or `documents` and a test gave each text the same numbers as alone; a model that
    takes an `attention_mask` or `lengths` reads padded batches, others read batches of texts of one length. In an encoder–decoder, the
    encoder is measured.

    `shard` is (number, how many): every machine passes all texts and its own number, and `Survey.merged` of the parts is the survey of
    the whole. Sums are exact, so the result is the same to the bit for any number of shards, on machines that compute the same bits.
    With a `file`, the survey is written there from time to time and at the end, and a stopped run resumes from it.

    Raises InputError for an empty corpus, a model without attention, a tokenizer of another vocabulary, and a file of another survey.

    >>> import overt
    >>> from overt.learn.data.tokenizer import Tokenizer
    >>> from overt.models import LanguageModel
    >>> texts = ["the cat sat on the mat", "the dog sat on the cat"] * 20
    >>> tokenizer = Tokenizer.learn(texts, merges=20)
    >>> model = LanguageModel(tokenizer.words, width=16, heads=2, layers=2, feed_forward=32)
    >>> overt.lens.survey(model, texts, tokenizer=tokenizer)
    <survey of LanguageModel: 4 heads, 40 texts, 240 tokens>
    """
    model = recordable(model)
    number, count = _checked_shard(shard)
    if isinstance(texts, str):
        raise KindError("texts as a list or an iterator of strings", got="one string", fix="pass [text]")
    Texts.with_tokenizer(tokenizer, model)  # which refuses one of another vocabulary
    reader = TextReader(model, tokenizer, longest_text(model, tokenizer, longest))
    state = _state(reader, file)
    run = _Run(reader, state)
    with evaluated(model):
        last = time.monotonic()
        left = _chunks_left(texts, number, count, state, file)
        for chunk in progress(left, "surveying", _number_left(texts, number, count, state)):
            run.add(chunk)
            if file is not None and time.monotonic() - last > _SECONDS_BETWEEN_FILES:
                state.save(file)
                last = time.monotonic()
    if not state.heads and count == 1:
        raise InputError(
            "a corpus of at least one text with tokens", got=f"{state.facts.empty} empty texts", fix="check the file"
        )
    if file is not None:
        state.save(file)
    return state


class OtherSurvey(InputError):
    """A file to resume from has a survey of other texts, or by another model."""


class _SurveyedCall(NamedTuple):
    """A call of attention by its layer and its number in a pass, and its number of heads."""

    layer: str
    number: int
    total: int


class _Run:
    """Adds chunks of texts to a survey."""

    def __init__(self, reader: TextReader, state: Survey):
        self.reader, self.passes, self.state = reader, Passes(reader), state
        if reader.module is not reader.model:
            self._note("decoder", ENCODER_ONLY)

    def add(self, chunk: Chunk) -> None:
        """Read and measure the texts of a chunk."""
        reads = self.reader.read(chunk)
        for item in self.passes.split(reads):
            self._measure(item)
        facts = self.state.facts
        numbers = np.concatenate([*(np.arange(*chunk) for chunk in facts.chunks), [chunk.number]])
        self.state.facts = facts._replace(
            texts=facts.texts + len(reads),
            tokens=facts.tokens + sum(len(read.ids) for read in reads),
            empty=facts.empty + len(chunk.texts) - len(reads),
            cut=facts.cut + sum(read.cut for read in reads),
            corpus=(facts.corpus + fingerprint(chunk)) % 2**256,
            chunks=ranges(numbers),
        )

    def _measure(self, batch_pass: Pass) -> None:
        calls: list[dict[_SurveyedCall, CallMeasurements]] = [{} for _ in batch_pass.parts]

        def measure(captured: CapturedCall | CapturedMixer) -> None:
            call = _SurveyedCall(captured.layer, captured.call_index, captured.total)
            for part, results in zip(batch_pass.parts, calls, strict=True):
                results[call] = measured(part.select(captured, tuple(batch_pass.ids.shape)), part.texts)

        with observing(self.reader.model, measure) as recorder:
            self.reader.run(batch_pass.ids, **batch_pass.arguments)
        self.state.missing += [absence for absence in recorder.missing if absence not in self.state.missing]
        if not calls[0]:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in recorder.missing)
            got = f"{type(self.reader.model).__name__}, in which none was measured" + (f" ({reasons})" if reasons else "")
            raise InputError("a model with attention", got=got, fix='use attn_implementation="sdpa" for a Hugging Face model')
        for part, results in zip(batch_pass.parts, calls, strict=True):
            self._add(part.reads, results)

    def _add(self, batch: Sequence[EncodedText], calls: dict[_SurveyedCall, CallMeasurements]) -> None:
        state = self.state
        if not state.heads:
            state.start([SurveyedHead(call.layer, call.number, head) for call in calls for head in range(call.total)])
        sums, counts, links = self._arrays(calls, len(batch))
        lost = ~np.isfinite(sums) | (np.abs(sums) > LARGEST)
        state.lost += lost.any(0).sum(0)
        sums, counts = np.where(lost, 0, sums), np.where(lost, 0, counts)
        self._add_profiles(calls, np.any(lost, axis=0))
        for row, text in enumerate(batch):
            state.sums.add((group_index(text.number),), sums[:, row])
            state.counts.add((group_index(text.number),), counts[:, row])
        state.samples.add([text.number for text in batch], [text.text for text in batch], links)

    def _arrays(self, calls: dict[_SurveyedCall, CallMeasurements], batch: int) -> tuple[np.ndarray, np.ndarray, Links]:
        """Sums and counts (ROWS, B, heads), and the links (B, heads); zero, and −1 for weights, for heads without a call in this batch."""
        heads = self.state.heads
        sums, counts = np.zeros((len(ROWS), batch, len(heads))), np.zeros((len(ROWS), batch, len(heads)))
        links = Links(*(np.zeros((batch, len(heads)), kind) for kind in (np.float32, np.int32, np.int32)))
        links.weights[:] = -1
        for call, result in calls.items():
            columns = self._columns(call)
            if columns is None:
                self._note(call.layer, "its calls differ from one batch to another")
                continue
            sums[..., columns], counts[..., columns] = result.sums.cpu().numpy(), result.counts.cpu().numpy()
            for array, tensor in zip(links, result.link, strict=True):
                array[:, columns] = np.nan_to_num(tensor.float().cpu().numpy(), nan=-1)
        return sums, counts, links

    def _columns(self, call: _SurveyedCall) -> slice | None:
        """The columns of a call's heads; None if the call has another number of heads."""
        indices = [index for index, head in enumerate(self.state.heads) if head[:2] == call[:2]]
        return slice(indices[0], indices[-1] + 1) if len(indices) == call.total else None

    def _add_profiles(self, calls: dict[_SurveyedCall, CallMeasurements], lost: Any) -> None:
        """Add the profiles of texts in which all measures of the head are numbers; `lost` (B, heads) marks the others."""
        for call, result in calls.items():
            if (columns := self._columns(call)) is None:
                continue
            reach = result.profile.weights.shape[-1] // 2
            middle = (slice(None), columns, slice(FARTHEST - reach, FARTHEST + reach + 1))
            weights, pairs = (part.cpu().numpy() for part in result.profile)  # (PAIRS, B, H, distances)
            usable = ~lost[:, columns, None]
            self.state.profile.add_at(middle, np.where(usable, weights, 0).swapaxes(0, 1))
            self.state.pairs[middle] += np.where(usable, pairs, 0).sum(1).astype(np.int64)

    def _note(self, layer: str, reason: str) -> None:
        if (layer, reason) not in self.state.missing:
            self.state.missing.append((layer, reason))


def _number_left(texts: Iterable[str], number: int, count: int, state: Survey) -> int | None:
    """The number of chunks of a shard that are not in a survey yet, if the corpus has a length; otherwise None."""
    if not isinstance(texts, Sized):
        return None
    total = len(range(number, -(-len(texts) // CHUNK), count))
    return max(total - sum(len(range(*chunk)) for chunk in state.facts.chunks), 0)


def _chunks_left(
    texts: Iterable[str], number: int, count: int, state: Survey, file: str | os.PathLike[str] | None
) -> Iterator[Chunk]:
    """The chunks of a shard that are not in a survey yet. Raises InputError if the survey's chunks are of other texts."""
    done = {chunk for entry in state.facts.chunks for chunk in range(*entry)}
    wanted, known = state.facts.corpus if done else None, 0
    for chunk in chunks(texts):
        if chunk.number % count != number:
            continue
        if chunk.number in done:
            done.remove(chunk.number)
            known = (known + fingerprint(chunk)) % 2**256
            continue
        if wanted is not None:
            _same_texts(done, known, wanted, file)
            wanted = None
        yield chunk
    if wanted is not None:
        _same_texts(done, known, wanted, file)


def _same_texts(done: set[int], known: int, wanted: int, file: str | os.PathLike[str] | None) -> None:
    if done or known != wanted:
        raise OtherSurvey(
            "a file with a survey of these texts, to resume",
            got=f"{os.fspath(file or '')}, with other texts, or another shard",
            fix="name another file, or remove it",
        )


def fingerprint(chunk: Chunk) -> int:
    """The sum of the fingerprints of a chunk's texts, each with its number: sums of parts are the sum of the whole."""
    digests = (
        sha256(index.to_bytes(8, "little") + text.encode("utf-8", "surrogatepass")).digest() for index, text in chunk.texts
    )
    return sum(int.from_bytes(digest, "little") for digest in digests) % 2**256


def _state(reader: TextReader, file: str | os.PathLike[str] | None) -> Survey:
    """The survey in the file, or an empty one without a file."""
    facts = Facts(type(reader.model).__name__, weights_fingerprint(reader.model), reader.longest)
    if file is None or not Path(file).exists():
        return Survey(facts)
    state = load_survey(file)
    if state.facts[:3] != facts[:3]:
        other = " with other weights" if state.facts.weights != facts.weights else ""
        raise OtherSurvey(
            f"a file with a survey by this model, texts read to {facts.longest} tokens, to resume",
            got=f"{os.fspath(file)}, by {state.facts.model} to {state.facts.longest} tokens" + other,
            fix="name another file, or remove it",
        )
    return state


def weights_fingerprint(model: nn.Module) -> str:
    """A fingerprint of a model's parameters, from their names, shapes, sums and first numbers."""
    digest = sha256()
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
            part = tensor.detach().flatten()[:64].double().cpu().numpy()
            digest.update(f"{name} {tuple(tensor.shape)} {float(tensor.double().sum()):.17g}".encode() + part.tobytes())
    return digest.hexdigest()[:16]


def _checked_shard(shard: Any) -> tuple[int, int]:
    numbers = isinstance(shard, tuple) and len(shard) == 2 and all(type(part) is int for part in shard)
    if not numbers or not 0 <= shard[0] < shard[1]:
        raise InputError("shard as (number, how many), the number from 0", got=f"shard={shard!r}", fix="pass shard=(0, 4)")
    return shard
