"""The texts that a model read: its token ids by pass, matched with its calls and decoded."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.captured import RowsRead, select_entries
from overt.lens.text.positions import Cuts, check_sound, inside, read_rate
from overt.lens.text.tokens_of_text import DecodedText, Token, decoded
from overt.lens.text.vocabulary import Vocabulary, read_vocabulary

_TELLING = 4  # the fewest ids in a row whose pattern shows a table of positions (they count up) or kinds (all equal)
_SMALLER = 4  # a table holds kinds if another table, read with ids of the same shape, has more than 4 times its rows


@dataclass(frozen=True, eq=False)
class Lookup:
    """Token ids (B, N) that the module `owner` of a model, or a module inside it, looked up in a table of `rows` rows.

    `owner` is "" for the model itself. `order` counts the lookups of one owner in the pass `pass_index`, from 0: a model that reads
    two texts makes two lookups.
    """

    pass_index: int
    owner: str
    order: int
    rows: int
    ids: Tensor

    @property
    def length(self) -> int:
        """N."""
        return self.ids.shape[-1]


@dataclass(eq=False)
class Texts:
    """All lookups of a recording, the vocabulary that decodes them, if any, and the names of patches and seconds.

    `reordered` maps a pass whose sequences changed order, as in beam search, to the sequences of the previous pass that they continue.
    """

    lookups: list[Lookup] = field(default_factory=list)
    vocabulary: Vocabulary | None = None
    reordered: dict[int, tuple[int, ...]] = field(default_factory=dict)
    cuts: Cuts = field(default_factory=Cuts)
    _words: dict[tuple[int, int], list[DecodedText]] = field(default_factory=dict, repr=False)

    @classmethod
    def with_tokenizer(cls, tokenizer: Any, model: nn.Module) -> "Texts":
        """Empty texts with the vocabulary of a tokenizer. Raises InputError if it does not fit the model's tables."""
        if tokenizer is None:
            return cls()
        texts = cls()
        texts.hear(tokenizer)
        vocabulary = texts.vocabulary = None if texts.only_sound(tokenizer) else read_vocabulary(tokenizer)
        for table in input_tables(model):
            if isinstance(table, nn.Embedding) and vocabulary is not None:
                vocabulary.check_rows(table.num_embeddings)
        return texts

    def use(self, tokenizer: Any) -> None:
        """Name positions by a tokenizer, a processor or a feature extractor, with the checks of `with_tokenizer` and `check`."""
        self.hear(tokenizer)
        if not self.only_sound(tokenizer):
            self.attach(read_vocabulary(tokenizer))
        self.check()

    def hear(self, tokenizer: Any) -> None:
        """Read the rate of sound from a processor or a feature extractor, if it has one."""
        if (rate := read_rate(tokenizer)) is not None:
            self.cuts.sample, self.cuts.frame = rate

    def only_sound(self, tokenizer: Any) -> bool:
        """Whether the tokenizer is a feature extractor of sound without words."""
        return read_rate(tokenizer) is not None and not hasattr(tokenizer, "tokenizer")

    @property
    def known(self) -> bool:
        """Whether positions have names, from a vocabulary or from the cuts of a picture or sound."""
        return self.vocabulary is not None or self.cuts.known

    def check(self) -> None:
        """Raise InputError if the ids are not the vocabulary's, or if the model read neither ids nor sound."""
        if self.vocabulary is None:
            return check_sound(self.cuts)
        if not self.lookups and self.cuts.sample is not None and self.cuts.known:
            return None
        if not self.lookups:
            raise InputError(
                "a model that read token ids, for a tokenizer",
                got="one that looked up none: it got embeddings (inputs_embeds), an image or sound, or ran as compiled code",
                fix="pass the model its input_ids, or leave the tokenizer out and name positions with key_tokens=[…]",
            )
        return self.attach(self.vocabulary)

    def attach(self, vocabulary: Vocabulary) -> None:
        """Use this vocabulary for decoding. Raises InputError if it lacks one of the ids."""
        rows = [ids for lookup in self.lookups for ids in lookup.ids.tolist()]
        for lookup in self.lookups:
            vocabulary.check_rows(lookup.rows)
        if self.lookups:
            vocabulary.check_spelling([number for ids in rows for number in ids])
        for number in {number for ids in rows for number in ids}:
            vocabulary.entry(number)
        self.vocabulary, self._words = vocabulary, {}

    def read_with(self, tokenizer: Any) -> Vocabulary | None:
        """The vocabulary of a tokenizer, checked against the ids, or for None the texts' own; the texts keep their own."""
        if tokenizer is None:
            return self.vocabulary
        vocabulary = read_vocabulary(tokenizer)
        Texts(self.lookups).attach(vocabulary)
        return vocabulary

    def tokens_of_call(self, layer: str, pass_index: int, batch: int, length: int, other: bool) -> list[list[Token]] | None:
        """The tokens of a call's queries or keys, one list for each sequence of its batch; None if no text fits.

        The keys of cross-attention come from an `other` text than the queries.
        """
        near = self._near(layer, pass_index)
        if other:
            near = [stream for stream in self._streams(pass_index) if stream not in near or len(near) > 1]
        words = self._matching(near, pass_index, batch, length)
        return self.cuts.names(layer, pass_index, length, other) if words is None else words

    def tokens_of_passes(self, layer: str, read: Sequence[RowsRead], batch: int) -> list[list[Token]] | None:
        """The tokens of passes that continue each other, one list for each sequence; None if a pass read other texts."""
        ids = None if self.vocabulary is None else self.ids_of_passes(layer, read, batch)
        return None if ids is None else [item.tokens for item in self._decoded(ids)]

    def ids_of_passes(self, layer: str, read: Sequence[RowsRead], batch: int) -> Tensor | None:
        """The ids (batch, N) that passes read around a layer, in order; None if a pass read other texts, or no ids."""
        parts = []
        for rows in read:
            near = self._near(layer, rows.pass_index)
            pass_lookups = [
                lookup
                for lookup in self.lookups
                if lookup.pass_index == rows.pass_index and (lookup.owner, lookup.order) in near
            ]
            ids = next((item.ids for item in pass_lookups if item.length == rows.length), None)
            if ids is None:
                return None
            ids = select_entries(ids, rows.rows, 1)[:, : rows.queries]
            if len(ids) not in (1, batch):
                return None
            parts.append(ids.expand(batch, -1))
        return torch.cat(parts, dim=-1)

    def texts(self) -> list[str]:
        """The text of each sequence of the first pass, without special tokens."""
        streams = self._streams(self.lookups[0].pass_index) if self.lookups and self.vocabulary else []
        ids = self._ids(streams[0], self.lookups[0].pass_index, self.lookups[0].length) if streams else None
        return [] if ids is None else [item.text for item in self._decoded(ids)]

    def _streams(self, pass_index: int) -> list[tuple[str, int]]:
        """The texts (owner, order) that this pass read, in order of first reading."""
        return list(dict.fromkeys((lookup.owner, lookup.order) for lookup in self.lookups if lookup.pass_index <= pass_index))

    def _near(self, layer: str, pass_index: int) -> list[tuple[str, int]]:
        """The texts that the innermost module around a layer read."""
        around = [stream for stream in self._streams(pass_index) if inside(layer, stream[0])]
        longest = max((len(owner) for owner, _ in around), default=0)
        return _in_order([item for item in around if len(item[0]) == longest], layer)

    def _matching(
        self, streams: Iterable[tuple[str, int]], pass_index: int, batch: int, length: int
    ) -> list[list[Token]] | None:
        for stream in streams if self.vocabulary is not None else ():
            ids = self._ids(stream, pass_index, length)
            if ids is not None and batch % len(ids) == 0:
                tokens = [item.tokens[len(item.tokens) - length :] for item in self._decoded(ids)]
                # An encoder reads its text once for all beams of its decoder, which are neighbours in the batch.
                return tokens if len(ids) in (1, batch) else [token for token in tokens for _ in range(batch // len(ids))]
        return None

    def _ids(self, stream: tuple[str, int], pass_index: int, length: int) -> Tensor | None:
        """The last ids (B, N) of a text up to a pass, N ≥ `length` if a window dropped keys; None if they do not fit."""
        mine = [lookup for lookup in self.lookups if (lookup.owner, lookup.order) == stream]
        parts: list[Tensor] = []
        rows: Tensor | None = None  # the sequences of an earlier pass that this pass's sequences continue
        for item in reversed(mine):
            if item.pass_index > pass_index or (parts and rows is None and len(item.ids) != len(parts[0])):
                continue
            if rows is not None and int(rows.max()) >= len(item.ids):
                return None
            parts.insert(0, item.ids if rows is None else item.ids[rows])
            if (before := self.reordered.get(item.pass_index)) is not None:
                order = torch.tensor(before, device=item.ids.device)
                rows = order if rows is None else order[rows]
            total = sum(part.shape[-1] for part in parts)
            if total == length or (total > length and len(parts) > 1 and parts[-1].shape[-1] == 1):
                return torch.cat(parts, dim=-1)
            if total > length:
                return None
        return None

    def _decoded(self, ids: Tensor) -> list[DecodedText]:
        assert self.vocabulary is not None
        key = hash(ids.numpy(force=True).tobytes()), ids.shape[-1]
        if key not in self._words:
            self._words = dict([*self._words.items()][-7:])
            self._words[key] = [decoded(token, self.vocabulary) for token in ids.tolist()]
        return self._words[key]


def _in_order(streams: list[tuple[str, int]], layer: str) -> list[tuple[str, int]]:
    """The texts in the order in which a layer probably reads them: a decoder begins with the last one."""
    return streams[::-1] if "decoder" in layer.lower() and "encoder" not in layer.lower() else streams


def input_tables(model: nn.Module) -> list[nn.Module]:
    """The tables that the parts of a Hugging Face model name as their input embeddings."""
    tables = []
    for module in model.modules():
        embeddings = getattr(module, "get_input_embeddings", None)
        with suppress(Exception):  # models without token ids raise errors of their own
            table = embeddings() if callable(embeddings) else None
            if isinstance(table, nn.Module):
                tables.append(table)
    return tables


@dataclass(eq=False)
class LookupRecorder:
    """Records the token ids that a model looks up in its input embeddings while it runs.

    Models of transformers name these tables. In other models all lookups count except positions (ids that count up), kinds (all ids
    equal), and lookups in a table much smaller than the table of other ids of the same shape.
    """

    model: nn.Module
    texts: Texts
    tables: set[int] = field(default_factory=set)
    other_tables: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tables = {id(table) for table in input_tables(self.model)}

    def lookup(self, ids: Tensor, rows: int, running: list[tuple[str, nn.Module]], pass_index: int) -> None:
        """Record the ids of a lookup in a table of `rows` rows by the `running` modules, if they are token ids."""
        if ids.is_floating_point() or ids.ndim not in (1, 2) or not ids.numel() or ids.is_meta:
            return
        ids, owner = ids.detach().reshape(-1, ids.shape[-1]).long(), _owner(running)
        pass_lookups = [lookup for lookup in self.texts.lookups if lookup.pass_index == pass_index and lookup.owner == owner]
        if any(item.rows == rows and torch.equal(item.ids, ids) for item in pass_lookups):
            return  # the second table of the same text
        if self.tables:
            if not any(id(module) in self.tables for _, module in running):
                return
        elif self._other(ids, running[-1][1]):
            return
        else:
            alike = [item for item in pass_lookups if item.ids.shape == ids.shape]
            if any(rows * _SMALLER < member.rows for member in alike):
                return
            smaller = [member for member in alike if member.rows * _SMALLER < rows]
            self.texts.lookups = [lookup for lookup in self.texts.lookups if lookup not in smaller]
            pass_lookups = [item for item in pass_lookups if item not in smaller]
        self.texts.lookups.append(Lookup(pass_index, owner, len(pass_lookups), rows, ids.clone()))

    def _other(self, ids: Tensor, table: nn.Module) -> bool:
        """Whether a table holds positions or kinds, judged by its ids if there are at least `_TELLING`."""
        if ids.shape[-1] >= _TELLING:
            steps = ids.diff(dim=-1)
            if bool((ids == ids[:1]).all()) and bool((steps == 0).all() | (steps == 1).all()):
                self.other_tables.add(id(table))
        return id(table) in self.other_tables


def _owner(running: list[tuple[str, nn.Module]]) -> str:
    """The name of the innermost running module that does more than embed: one of its children has children."""
    for name, module in reversed(running[1:]):
        if any(True for child in module.children() for _ in child.children()):
            return name
    return ""
