"""The vocabulary of a tokenizer of any library: each id's piece, its text, and whether it is special."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from overt.errors import InputError, KindError
from overt.lens.text.spelling import Spelling, encoded, spelling_of_decoder, spelling_of_pieces

# A table fits a tokenizer of n ids if it has at least n − _ADDED rows (without rows for added ids that no text uses) and at most
# _SHARE_PADDED · n + _PADDED rows (the rest is padding).
_PADDED, _SHARE_PADDED, _ADDED = 1024, 1.05, 256


class Entry(NamedTuple):
    """One id: the tokenizer's piece, the bytes of text that it represents, and whether it is a special token."""

    piece: str
    text: bytes
    special: bool


@dataclass(eq=False)
class Vocabulary:
    """The entries of a tokenizer, read at first use. `size` is the number of ids, `padding` the id of padding.

    `pad_alone` is true if the id of padding represents nothing else. `mask` and `unknown` are the ids of the mask token and of the
    unknown token. `number` returns the id of a piece, and `encode` the ids of a text without special tokens; both are None in a
    recording loaded from a file, which has no tokenizer.
    """

    size: int
    padding: int | None
    pad_alone: bool
    read: Callable[[int], Entry | None]
    decode: Callable[[list[int]], str] | None = None
    entries: dict[int, Entry] = field(default_factory=dict)
    mask: int | None = None
    unknown: int | None = None
    number: Callable[[str], int | None] | None = None
    encode: Callable[[str], list[int]] | None = None

    def entry(self, number: int) -> Entry:
        """The entry of an id. Raises InputError for an id that the tokenizer does not have."""
        if number not in self.entries:
            entry = self.read(number) if number >= 0 else None
            if entry is None:
                raise InputError(
                    f"token ids of the tokenizer, which has {self.size}",
                    got=f"id {number}, which the model read",
                    fix="pass the tokenizer that made the model's input_ids",
                )
            self.entries[number] = entry
        return self.entries[number]

    def text(self, number: int) -> str:
        """The text of one id, as the tokenizer decodes it. Raises InputError for an id that the tokenizer does not have."""
        entry = self.entry(number)
        return entry.text.decode("utf-8", "replace") if self.decode is None else self.decode([number])

    def words(self) -> list[int]:
        """The ids of all tokens that are not special."""
        return [number for number in range(self.size) if (entry := self.read(number)) is not None and not entry.special]

    def spelled_as(self, text: str) -> list[int]:
        """All ids whose text equals this one, spaces included; in a loaded recording only ids that the model read."""
        read = self.entries.get if self.encode is None else self.read  # `entry` would save the whole vocabulary with a file
        numbers = [*self.entries] if self.encode is None else range(self.size)
        return [number for number in numbers if (entry := read(number)) is not None and entry.text == encoded(text)]

    def check_rows(self, rows: int) -> None:
        """Raise InputError if a table of `rows` rows cannot be this tokenizer's."""
        if rows < self.size - _ADDED or rows > _SHARE_PADDED * self.size + _PADDED:
            raise InputError(
                f"a tokenizer of about {rows} ids, the rows of the model's table of embeddings",
                got=f"one of {self.size}",
                fix="pass the model's own tokenizer, AutoTokenizer.from_pretrained(name)",
            )

    def check_spelling(self, ids: Sequence[int]) -> None:
        """Switch to the tokenizer's own decoder for each id if its pieces do not spell the decoded text."""
        if self.decode is None:
            return
        plain = [number for number in dict.fromkeys(ids) if not self.entry(number).special]
        with suppress(Exception):  # another library's code: if it fails, the pieces keep their spelling
            theirs, ours = self.decode(plain), b"".join(self.entry(number).text for number in plain).decode("utf-8", "replace")
            if _letters(theirs) == _letters(ours):
                if ours.count(" ") > 1 and " " not in theirs.strip():
                    self.entries |= {n: self.entry(n)._replace(text=self.entry(n).text.strip()) for n in plain}
                return
            for number in plain:
                entry = self.entry(number)
                text = self.decode([number])
                self.entries[number] = entry if "\ufffd" in text else entry._replace(text=encoded(text))


def _letters(text: str) -> str:
    return "".join(letter for letter in text if not letter.isspace() and letter not in "\ufffd\0").casefold()


def inner_tokenizer(processor: Any) -> Any:
    """The tokenizer that a processor holds, or the tokenizer itself."""
    holds = hasattr(processor, "tokenizer") and not hasattr(processor, "convert_ids_to_tokens")
    return processor.tokenizer if holds else processor


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a Hugging Face tokenizer, slow or fast, of a processor that holds one, of `tokenizers`, or of overt's own."""
    tokenizer = inner_tokenizer(tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens") and hasattr(tokenizer, "all_special_ids"):
        return _hugging_face_vocabulary(tokenizer)
    if hasattr(tokenizer, "id_to_token") and hasattr(tokenizer, "get_vocab_size"):
        return _tokenizers_vocabulary(tokenizer, (), None)
    inner = getattr(tokenizer, "pieces", None)
    if hasattr(inner, "id_to_token"):  # overt.learn's Tokenizer
        vocabulary = _tokenizers_vocabulary(inner, getattr(tokenizer, "special", ()), 0)
        return replace(vocabulary, encode=lambda text: list(tokenizer.encode(text)))
    image = hasattr(tokenizer, "image_processor_type") or hasattr(tokenizer, "image_mean")
    raise KindError(
        "a tokenizer: of Hugging Face, of the package tokenizers, of overt.learn, or a processor that holds one",
        got=type(tokenizer).__name__,
        fix="leave it out: patches need no tokenizer" if image else "pass AutoTokenizer.from_pretrained(name)",
    )


def _hugging_face_vocabulary(tokenizer: Any) -> Vocabulary:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    spelling = spelling_of_pieces(vocabulary) if backend is None else spelling_of_decoder(backend.decoder)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(number for number, token in added.items() if getattr(token, "special", False))}
    size = max([len(tokenizer) - 1, *vocabulary.values()]) + 1
    return Vocabulary(
        size,
        tokenizer.pad_token_id,
        tokenizer.pad_token_id not in {getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "bos", "unk", "sep")},
        lambda number: _entry(
            tokenizer.convert_ids_to_tokens(number) if number < size else None, spelling, number, special, added
        ),
        lambda ids: tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False),
        mask=getattr(tokenizer, "mask_token_id", None),
        unknown=getattr(tokenizer, "unk_token_id", None),
        number=lambda piece: tokenizer.get_vocab().get(piece),
        encode=lambda text: list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]),
    )


def _tokenizers_vocabulary(pieces: Any, names: Iterable[str], padding: int | None) -> Vocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`; special tokens are the ones added as special, and `names`."""
    added = pieces.get_added_tokens_decoder()
    special = {number for number, token in added.items() if token.special}
    special |= {number for name in names if (number := pieces.token_to_id(name)) is not None}
    size, spelling = pieces.get_vocab_size(), spelling_of_decoder(pieces.decoder)
    if padding is None and pieces.padding is not None:
        padding = pieces.padding["pad_id"]
    return Vocabulary(
        max(size, *(number + 1 for number in added), 0),
        padding,
        True,
        lambda number: _entry(pieces.id_to_token(number), spelling, number, special, added),
        lambda ids: pieces.decode(ids, skip_special_tokens=False),
        mask=_first_id(pieces, "[MASK]", "<mask>"),
        unknown=_first_id(pieces, getattr(pieces.model, "unk_token", None) or "[UNK]", "<unk>"),
        number=pieces.token_to_id,
        encode=lambda text: _unpadded(pieces.encode(text, add_special_tokens=False)),
    )


def _first_id(pieces: Any, *names: str) -> int | None:
    return next((number for name in names if (number := pieces.token_to_id(name)) is not None), None)


def _unpadded(encoding: Any) -> list[int]:
    """The ids of a text without the padding that its tokenizer is set to add."""
    return [number for number, there in zip(encoding.ids, encoding.attention_mask, strict=True) if there]


def _entry(piece: Any, spelling: Spelling, number: int, special: set[int], added: dict[int, Any]) -> Entry | None:
    if isinstance(piece, bytes):  # tiktoken's pieces
        return Entry(piece.decode("utf-8", "backslashreplace"), piece, number in special)
    if not isinstance(piece, str):
        return None
    itself = number in special or (number in added and not spelling.continues)
    return Entry(piece, encoded(piece) if itself else spelling.piece_bytes(piece), number in special)
