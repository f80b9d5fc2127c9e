"""The recorded calls of a model's attention: indexed by layer and head, compared with the model, and printed as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from overt.drawing.numbers import columns, in_bytes
from overt.drawing.progress import progress
from overt.errors import InputError, KindError
from overt.lens.capture.ranges import MaskReader
from overt.lens.capture.recordable import is_flex
from overt.lens.capture.recorder import is_in
from overt.lens.capture.sink import CAUGHT
from overt.lens.captured import Captured, CapturedCall, RowsRead
from overt.lens.head import Head
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.head import MixerHead
from overt.lens.linear.summarized import mixer_shares
from overt.lens.linear.verified import recompute_mixer
from overt.lens.statistics.repetition import repetition
from overt.lens.statistics.role_shares import measured_shares
from overt.lens.statistics.roles import Repetitions, Roles, Shares, roles
from overt.lens.statistics.summarized import CapturedSummary, SummaryHead
from overt.lens.statistics.verified import Comparison, Coverage, Verified, recompute
from overt.lens.tokens import Strings, Tokens


@dataclass(eq=False, repr=False)
class RecordedCalls:
    """Recorded calls of attention, indexed by layer and head."""

    model: str
    calls: Sequence[Captured] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    strings: Tokens = field(default_factory=Tokens)
    pass_count: int = 0
    in_pass: int | None = None
    mixing: list[str] = field(default_factory=list)
    file: Path | None = None  # the file that the recording was loaded from
    # The measurements behind the roles, by (number, queries, keys) of a call, each with the fingerprint of its text.
    measured: dict[tuple[int, int, int], tuple[str, tuple[Shares, Repetitions]]] = field(default_factory=dict)
    refusal: InputError | None = None  # why no call of a model that attended was recorded: an option of `record`, or an error

    @property
    def tokens(self) -> Strings | None:
        """The strings of the keys' tokens, or a list of them for each batch element; setting them sets the queries' too."""
        first = self.calls[0] if self.calls else None
        words = self.strings.keys if first is None or self.strings.keys is not None else self.strings.key_words(first)
        return words[0] if words is not None and len(words) == 1 else words

    @tokens.setter
    def tokens(self, tokens: Strings | None) -> None:
        self.strings = Tokens.from_strings(tokens, tokens, self.strings.texts)

    def tokenizer(self, tokenizer: Any) -> None:
        """Decode the token ids that the model read, as `record(model, tokenizer=…)` does.

        Raises InputError for a tokenizer of another vocabulary, if the model read no token ids, and if tokens are already set.
        """
        if self.strings.queries is not None or self.strings.keys is not None:
            fix = "leave the tokenizer out, or remove the tokens first: recording.tokens = None"
            raise InputError("tokens or a tokenizer", got="a tokenizer for a recording that has tokens", fix=fix)
        self.strings.texts.use(tokenizer)

    @property
    def texts(self) -> list[str]:
        """The text of each sequence of the first pass, without special tokens; empty without a tokenizer."""
        return self.strings.texts.texts()

    def token_ids(self, layer: int | str = 0) -> Tensor:
        """The token ids (B, Q) of the queries of a layer's call; in generation, of all passes in order.

        The last generated token is missing, because no pass read it. Raises InputError if a pass looked up no ids, or others.
        """
        captured = self.call_of(layer).opened()
        alone = RowsRead(captured.pass_index, None, captured.queries, captured.queries)
        ids = self.strings.texts.ids_of_passes(captured.layer, getattr(captured, "read", (alone,)), captured.batch)
        if ids is None:
            raise InputError(
                f"token ids that the model looked up, one for each query of {captured.layer}",
                got="none, or another number of them",
                fix="pass the model its input_ids, or choose a layer of the decoder",
            )
        return ids[:, ids.shape[1] - captured.queries :]

    def sequence_of(self, ids: Tensor | Sequence[int], layer: int | str = -1) -> int:
        """The index in the batch of the sequence with these token ids, in a layer's call.

        For a text that a model generated, by beams or by sampling: `recording.sequence_of(output.sequences[0])`. The last token of the
        text, which no pass read, is optional. Raises InputError if no sequence has these ids: a beam that ended earlier, or was dropped,
        is in `recording.passes`, and so is each step of linear token mixers if only summaries were recorded.
        """
        try:
            wanted = torch.as_tensor(ids).flatten().cpu()
        except (TypeError, ValueError) as error:
            fix = "pass output.sequences[0], or a list of numbers"
            raise KindError("token ids, a tensor or a list of numbers", got=type(ids).__name__, fix=fix) from error
        read = self.token_ids(layer).cpu()
        length = read.shape[1]
        same = [number for number, item in enumerate(read) if torch.equal(item, wanted[:length])]
        if not same or len(wanted) - length > 1:
            raise InputError(
                f"the ids of a text that {self.call_of(layer).layer} read as one of {len(read)} sequences, {length} or {length + 1} ids",
                got=f"{len(wanted)} ids" + ("" if same else ", with which none of these sequences begins"),
                fix="pass output.sequences[0] of this generation; a beam that ended earlier is in recording.passes",
            )
        return same[0]

    @property
    def bytes(self) -> int:
        """The bytes of all recorded calls, in memory and in files, without masks that are the model's own tensors."""
        return sum(captured.bytes for captured in self.calls)

    @property
    def layers(self) -> list[str]:
        """The name of the module that made each recorded call, in call order; a module called twice is listed twice."""
        return [captured.layer for captured in self.nonempty_calls()]

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, layer_and_head: tuple[int | str, int]) -> Head:
        """One head of one call, by number (`recording[5, 11]`) or by module (`recording["encoder.layer.5", 11]`)."""
        if not isinstance(layer_and_head, tuple) or len(layer_and_head) != 2:
            raise KindError("a layer and a head, recording[layer, head]", got=repr(layer_and_head), fix="pass both")
        layer, head = layer_and_head
        captured = self.call_of(layer)
        if head not in captured.heads:
            there = f"0 to {captured.total - 1}" if len(captured.heads) == captured.total else str(list(captured.heads))
            raise InputError(f"a recorded head of {captured.layer}, {there}", got=repr(head), fix="choose one of them")
        return self.head_of(captured.opened(), head)

    def heads(self) -> Iterator[Head]:
        """Every recorded head, call by call."""
        opened = (captured.opened() for captured in self.nonempty_calls())
        return (self.head_of(captured, head) for captured in opened for head in captured.heads)

    def verify(self) -> Verified:
        """Recompute every call from its query, key and value, and compare with the model's own attention output.

        A call of more than 16 queries is recomputed by a kernel that no model uses; up to 16 of its queries, evenly spaced ones and
        the ones whose outputs differ most are also recomputed by the plain formula in float64, other calls only by this formula.

        Calls recorded as summaries were compared when they were summarised. The printed result also reports how many of the model's
        token-mixing layers were recorded, and why an empty recording is empty.
        """
        if not self.calls:
            return Verified((), self._coverage(), f"nothing was recorded, so nothing is verified: {self._why_empty()}")
        calls = progress(self.calls, "verifying")
        return Verified(tuple(_compared(captured.opened()) for captured in calls), self._coverage())

    def roles(self) -> Roles:
        """The role of each head in this recording, and its score; some roles need `tokens`.

        A list of `Role`, which prints as a table. The measurements are cached until the tokens change.
        """
        masks, calls = MaskReader(), progress(self.nonempty_calls(), "measuring roles")
        return Roles(role for captured in calls for role in roles(captured, *self._measured(captured, masks)))

    def __repr__(self) -> str:
        return f"<recording of {self.model}: {_many(len(self.calls), 'call')} of attention, {_many(self.pass_count, 'pass')}>"

    def __str__(self) -> str:
        return _table(self) if self.calls else f"nothing recorded: {self._why_empty()}"

    def head_of(self, captured: Captured, head: int) -> Head:
        """One head of one of these calls."""
        if isinstance(captured, CapturedMixer):
            return MixerHead(captured, head, self.strings)
        return (SummaryHead if isinstance(captured, CapturedSummary) else Head)(captured, head, self.strings)

    def number_of(self, captured: Captured) -> int:
        """The number that selects a call: its number within the pass if these are the calls of one pass."""
        return captured.number if self.in_pass is None else captured.call_index

    def call_of(self, layer: int | str) -> Captured:
        """The call with this number, or the call of the module with this name."""
        calls = self.nonempty_calls()
        if isinstance(layer, int) and -len(calls) <= layer < 0:
            return calls[layer]
        if isinstance(layer, int):
            matches = [captured for captured in calls if self.number_of(captured) == layer]
        else:
            matches = [captured for captured in calls if is_in(captured.layer, layer)]
        if len(matches) == 1 or (matches and isinstance(layer, int)):
            return matches[0]
        numbers = ", ".join(str(self.number_of(captured)) for captured in matches or calls)
        if matches:
            raise InputError(
                "the name of a module that made one call of attention",
                got=f"{layer!r}, which made the calls {numbers}",
                fix="name the call by its number, or choose one pass: recording.passes[0][name, head]",
            )
        if isinstance(layer, int):
            fix = "see recording.layers for their names"
            raise InputError(f"one of the recorded calls, {numbers}", got=f"layer {layer}", fix=fix)
        names = ", ".join(dict.fromkeys(self.layers))
        raise InputError("the name of a module that computes attention", got=repr(layer), fix=f"choose one of: {names}")

    def nonempty_calls(self) -> Sequence[Captured]:
        """All calls. Raises InputError with the reason if there are none."""
        if not self.calls:
            raise self._why_empty()
        return self.calls

    def _why_empty(self) -> InputError:
        if not self.pass_count and not self.missing:
            return InputError(
                "a model that runs inside the block",
                got="one that did not run in it",
                fix="run it there: with overt.lens.record(model) as recording: model(x)",
            )
        if self.refusal is not None:
            return self.refusal
        reasons = _shortened(list(dict.fromkeys(f"{name}: {reason}" for name, reason in self.missing)), "; ")
        if layers := [name for name, reason in self.missing if is_flex(reason)]:
            registry = any("registry" in reason for _, reason in self.missing)
            return InputError(
                "attention that is computed where torch's functions can be observed",
                got=f"{self.model}, whose {_shortened(layers)} ran flex_attention",
                fix='load the model with attn_implementation="sdpa"'
                if registry
                else "let it call scaled_dot_product_attention",
            )
        return InputError(
            f"a model that computes attention by {CAUGHT}",
            got=f"{self.model}, " + (f"of which no call was recorded ({reasons})" if reasons else "which called none of them"),
            fix='record a model with attention (a Hugging Face model with attn_implementation="sdpa")',
        )

    def _measured(self, captured: Captured, masks: MaskReader) -> tuple[Shares, Repetitions]:
        """The measurements behind a call's roles, made once per text."""
        fingerprint = self.strings.fingerprint(captured)
        which = captured.number, captured.queries, captured.keys  # a call of a pass has the number of its whole sequence
        measured_on, result = self.measured.get(which, ("", None))
        if result is None or measured_on != fingerprint:
            result = _measured(captured.opened(), self.strings, masks)
            self.measured[which] = fingerprint, result
        return result

    def _coverage(self) -> Coverage | None:
        """The counts of the model's recorded, missing and all token-mixing layers; None if the recorder noticed none."""
        recorded = {captured.layer for captured in self.calls}
        others = {*self.mixing} - recorded
        listed = others & {name for name, _ in self.missing}
        return Coverage(len(recorded), len(listed), len(recorded | others)) if self.mixing else None


def _compared(captured: Captured) -> Comparison:
    if isinstance(captured, CapturedSummary):
        return captured.comparison
    if isinstance(captured, CapturedMixer):
        return recompute_mixer(captured)
    assert isinstance(captured, CapturedCall)
    return recompute(captured)


def _measured(captured: Captured, tokens: Tokens, masks: MaskReader) -> tuple[Shares, Repetitions]:
    if isinstance(captured, CapturedSummary):
        return captured.shares_with(tokens), captured.repetition
    if isinstance(captured, CapturedMixer):
        return mixer_shares(captured, tokens), repetition(captured, tokens)
    assert isinstance(captured, CapturedCall)
    return measured_shares(captured, tokens, masks), repetition(captured, tokens, masks)


def _table(calls: RecordedCalls) -> str:
    rows = [("call", "layer", "heads", "queries", "keys", "caught at")]
    for captured in calls.calls:
        heads = str(captured.total) if len(captured.heads) == captured.total else f"{len(captured.heads)} of {captured.total}"
        lengths = str(captured.queries), str(captured.keys)
        rows.append((str(calls.number_of(captured)), captured.layer, heads, *lengths, captured.source))
    header = f"{calls.model}: {_many(len(calls.calls), 'call')} of attention in {_many(calls.pass_count, 'pass')}"
    missed = [f"not recorded: {names}: {reason}" for reason, names in _reasons(calls).items()]
    return "\n".join([header, *columns(rows), f"{in_bytes(calls.bytes)} are recorded", *_notes(calls), *missed])


def _notes(calls: RecordedCalls) -> list[str]:
    """Each note once, with the numbers of its calls."""
    about: dict[str, list[str]] = {}
    for captured in calls.calls:
        for note in (*_mixing(captured), *captured.notes):
            about.setdefault(note, []).append(str(calls.number_of(captured)))
    return [f"call {', '.join(numbers)}: {note}" for note, numbers in about.items()]


def _mixing(captured: Captured) -> list[str]:
    """The notes for a reader of a linear mixer's weights; empty for attention."""
    kind = captured.recurrence.kind if isinstance(captured, CapturedMixer) else getattr(captured, "mixer", "")
    around = getattr(captured, "around", ())
    return ["; ".join([f"{kind}: weights are signed and do not sum to one", *around])] if kind else []


def _reasons(calls: RecordedCalls) -> dict[str, str]:
    """Each reason once, with its layers."""
    about: dict[str, list[str]] = {}
    for name, reason in calls.missing:
        about.setdefault(reason, []).append(name)
    return {reason: _shortened(names) for reason, names in about.items()}


def _shortened(names: list[str], mark: str = ", ") -> str:
    return mark.join(names if len(names) < 4 else [*names[:2], f"… {names[-1]} ({len(names)} layers)"])


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"
