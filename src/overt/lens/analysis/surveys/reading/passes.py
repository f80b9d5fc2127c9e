"""The passes of a model: texts in a padded batch, or several texts in one row if a test gave the same numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention import mechanism
from overt.errors import InputError
from overt.lens.analysis.observing import observing
from overt.lens.analysis.surveys.measures import TextBatch
from overt.lens.analysis.surveys.reading.encoding import BATCH_TOKENS, EncodedText, TextReader
from overt.lens.analysis.surveys.reading.packing import block_diagonal, in_rows, packed, unpacked
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer

# _PACKINGS: ways to tell a model which tokens are of one text, with the arguments that the model must take.
_PACKINGS = {"documents": ("documents",), "position_ids": ("position_ids",), "mask": ("position_ids", "attention_mask")}


class PassPart(NamedTuple):
    """Texts of a pass that are measured together; in a packed pass, `where` has each text's row and first token, by its number."""

    reads: Sequence[EncodedText]
    texts: TextBatch
    where: dict[int, tuple[int, int]] | None = None

    def select(self, captured: CapturedCall | CapturedMixer, size: tuple[int, ...]) -> CapturedCall | CapturedMixer:
        """The call restricted to these texts. Raises InputError if it does not read the tokens of the pass, of size (B, N)."""
        if (captured.batch, captured.queries, captured.keys) != (*size, size[1]):
            got = f"{captured.batch} sequences of {captured.queries} queries and {captured.keys} keys"
            raise InputError("queries and keys that are the tokens of the texts", got=got)
        if self.where is None:
            return captured
        rows, starts = torch.tensor([self.where[read.number] for read in self.reads], device=self.texts.ids.device).unbind(-1)
        return unpacked(captured, rows, starts, self.texts.lengths)


class Pass(NamedTuple):
    """Token ids (B, N), further arguments of the model, and the texts in the ids."""

    ids: Tensor
    arguments: dict[str, Any]
    parts: list[PassPart]


@dataclass(eq=False)
class Passes:
    """Divides texts into passes, in a way that depends only on the texts and the model."""

    reader: TextReader

    def split(self, reads: Sequence[EncodedText]) -> Iterator[Pass]:
        """Divide the texts of a chunk into passes."""
        if reads:
            yield from self._padded(reads) if self.packing is None else self._packed(reads, self.packing)

    @cached_property
    def packing(self) -> str | None:
        """The way to put several texts in one row, if the model then gives the same as for each alone; otherwise None (padding).

        The test uses made-up texts: one of the longest length that is read, and two in one row. It compares the outputs of each call for
        each token, within rounding.
        """
        reader, longest = self.reader, self.reader.longest
        usable = [name for name, needed in _PACKINGS.items() if all(entry in reader.parameters for entry in needed)]
        draws, short = torch.Generator().manual_seed(0), longest // 4 or 1
        ids = [torch.randint(reader.vocabulary.size, (size,), generator=draws) for size in (short, longest - short, longest)]
        reads = [EncodedText(number, "", token.tolist(), False) for number, token in enumerate(ids)]
        alone = _outputs(reader, (item for read in reads for item in self._padded([read]))) if usable else {}
        return next((name for name in usable if alone and _same(alone, _outputs(reader, self._packed(reads, name)))), None)

    def _padded(self, reads: Sequence[EncodedText]) -> Iterator[Pass]:
        for batch in self.reader.batches(reads):
            texts = self.reader.texts(batch)
            yield Pass(texts.ids, self.reader.padding(texts), [PassPart(batch, texts)])

    def _packed(self, reads: Sequence[EncodedText], how: str) -> Iterator[Pass]:
        for width, texts, *starts in packed([len(read.ids) for read in reads], BATCH_TOKENS):
            inside = [reads[index] for index in texts]
            where = dict(zip((entry.number for entry in inside), zip(*starts, strict=True), strict=True))
            yield self._pass(inside, where, width, how)

    def _pass(self, reads: list[EncodedText], where: dict[int, tuple[int, int]], width: int, how: str) -> Pass:
        parts = [PassPart(batch, self.reader.texts(batch), where) for batch in self.reader.batches(reads)]
        rows = in_rows([(read.ids, *where[read.number]) for read in reads], width)
        ids, positions, documents = (row.to(parts[0].texts.ids.device) for row in rows)
        if how == "documents":
            return Pass(ids, {"documents": documents}, parts)
        if how == "position_ids":
            return Pass(ids, {"position_ids": positions}, parts)
        kinds = (parameter.dtype for parameter in self.reader.model.parameters() if parameter.is_floating_point())
        mask = block_diagonal(documents, next(kinds, torch.float32))
        return Pass(ids, {"position_ids": positions, "attention_mask": mask}, parts)


Outputs = dict[tuple[int, str, int], Tensor]


def _outputs(reader: TextReader, passes: Iterable[Pass]) -> Outputs:
    """The outputs of each call of attention for the tokens of each text, by the text's number; empty if the model does not run.

    Outputs are recomputed from the texts' part of the call, so that a mask that does not belong to the texts shows.
    """
    outputs: Outputs = {}
    try:
        for run in passes:

            def measure(captured: CapturedCall | CapturedMixer, run: Pass = run) -> None:
                for part in run.parts:
                    selected = part.select(captured, tuple(run.ids.shape))
                    if not isinstance(selected, CapturedCall):
                        raise InputError("attention", got=selected.layer)
                    with torch._C.DisableTorchFunction(), torch.no_grad():
                        output = mechanism.compute(replace(selected.checked_call(), dropout=0.0))
                    for row, read in enumerate(part.reads):
                        outputs[read.number, captured.layer, captured.call_index] = output[row, ..., : len(read.ids), :].clone()

            with observing(reader.model, measure) as recorder:
                reader.run(run.ids, **run.arguments)
            if recorder.missing:
                return {}
    except Exception:  # raised by a model that does not take these arguments
        return {}
    return outputs


def _same(one: Outputs, other: Outputs) -> bool:
    """Whether all outputs are equal within the rounding of a deep model: 3 √ε of their root mean square, at each token."""

    def close(left: Tensor, right: Tensor) -> bool:
        limit = 3 * torch.finfo(left.dtype).eps ** 0.5 * float(left.double().square().mean().sqrt())
        return left.shape == right.shape and float((left.double() - right.double()).abs().max()) <= limit

    return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
