"""Convert text to token ids and back: byte-pair encoding, with one vocabulary for both languages of a translator."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from overt.errors import InputError
from overt.files import whole
from overt.learn.data.moses import Moses
from overt.learn.data.text_lines import read_lines
from overt.reading import read_json

# SPECIAL: the first pieces of every vocabulary, so the padding id is always 0.
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PADDING, START, END, UNKNOWN = range(4)
# BYTES follow with byte fallback: characters without a piece are written as their UTF-8 bytes.
BYTES = [f"<0x{value:02X}>" for value in range(256)]
# RARE: with byte fallback, characters seen less often in training get no piece, so that the model learns bytes from them.
RARE = 20

_WORD_END = "</w>"
_SPACE = "▁"
# _RUNS: a run of letters (with a French elision's apostrophe), of digits, or of other signs, and the space before it: l'|homme| dit|!
_RUNS = r"▁?[\p{L}\p{M}]+['’]?|▁?\p{N}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁"


class Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016, section 3.2): repeatedly, the most frequent pair of neighbours becomes one piece.

    Plain text keeps its letters and its spaces: a piece that begins a word contains the space before it, written ▁, so that
    `decode(encode(text))` is the text. With `moses`, text is first split into the words of the Moses tokenizer, as published scores
    need, and the last piece of a word ends in `</w>`, as in subword-nmt; `decode` detokenizes them, `decode_words` does not.

    Ids 0 to 3 are padding, start, end and unknown. Text never encodes to them: "</s>" in a text is four characters, not the end.
    With `byte_fallback`, 256 pieces follow, one for each byte; a character without a piece is written in bytes, and none is unknown.

    >>> tokenizer = Tokenizer.learn(["low lower lowest", "new newer newest"], merges=20)
    >>> tokenizer.tokens(tokenizer.encode("newer  low"))
    ['▁newer', '▁low']
    >>> tokenizer.decode(tokenizer.encode("newer  low"))
    'newer low'
    """

    def __init__(self, pieces: tokenizers.Tokenizer, moses: Moses | None = None):
        self.pieces = pieces
        self.moses = moses
        # So "</s>" in a text does not end the sentence.
        pieces.encode_special_tokens = True

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        targets: Iterable[str] = (),
        *,
        merges: int,
        lower: bool = False,
        moses: Moses | None = None,
        byte_fallback: bool = False,
    ) -> "Tokenizer":
        """Learn `merges` merges from texts and from `targets`, which are in the target language; each of their letters is also a piece."""
        tokenizer = cls(_spaced() if moses else _plain(lower, byte_fallback), moses)
        tokenizer._train([*tokenizer.prepare(texts), *tokenizer.prepare(targets, target=True)], merges)
        return tokenizer

    @classmethod
    def from_merges(
        cls,
        path: str | os.PathLike[str],
        texts: Iterable[str],
        targets: Iterable[str] = (),
        *,
        lower: bool = False,
        moses: Moses | None = None,
    ) -> "Tokenizer":
        """Use merges learned elsewhere, two pieces on each line, in the order of learning; letters come from the texts.

        With pieces that end in `</w>` (subword-nmt), words are separated by spaces; with pieces that begin with ▁, text is plain.
        """
        merges = _read_merges(Path(path))
        spaced = any(_WORD_END in piece for pair in merges for piece in pair)
        if not spaced and (moses or not any("▁" in piece for pair in merges for piece in pair)):
            fix = "use merges in the format of subword-nmt" + ("" if moses else ", or with ▁ where a word begins")
            raise InputError("merges that mark where words end or begin", got=f"{path}, which does not", fix=fix)
        tokenizer = cls(_spaced(lower and not moses) if spaced else _plain(lower), moses)
        tokenizer._train([*tokenizer.prepare(texts), *tokenizer.prepare(targets, target=True)], 0)
        vocabulary = dict.fromkeys(
            [*tokenizer._initial_pieces(), *(piece for pair in merges for piece in (*pair, "".join(pair)))]
        )
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        tokenizer.pieces.model = BPE(ids, merges, **_options(spaced))
        return tokenizer

    def with_byte_fallback(self, texts: Iterable[str], targets: Iterable[str] = ()) -> "Tokenizer":
        """The same merges, with 256 pieces for bytes; a character that is rare in the texts and part of no merge loses its piece.

        Raises InputError for a tokenizer of Moses words.

        >>> plain = Tokenizer.learn(["low lower lowest", "new newer newest"], merges=20)
        >>> tokenizer = plain.with_byte_fallback(["low lower lowest"])
        >>> tokenizer.tokens(tokenizer.encode("newer 你"))
        ['▁newer', '▁', '<0xE4>', '<0xBD>', '<0xA0>']
        """
        model = json.loads(self.pieces.to_str())["model"]
        if self.moses or model.get("end_of_word_suffix"):
            fix = "leave byte_fallback out, or start from a model whose recipe has neither moses nor merges_file"
            raise InputError("a tokenizer of plain text, for byte fallback", got="one of words that spaces separate", fix=fix)
        merges = [(left, right) for left, right in model["merges"]]
        common = {letter for pair in merges for piece in pair for letter in piece} | self._frequent_letters(
            [*self.prepare(texts), *self.prepare(targets, target=True)]
        )
        lasting = [piece for piece in sorted(model["vocab"], key=model["vocab"].get) if len(piece) > 1 or piece in common]
        vocabulary = dict.fromkeys([*SPECIAL, *BYTES, *lasting])
        pieces = _plain(lower=False, byte_fallback=True)
        pieces.normalizer = self.pieces.normalizer
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        pieces.model = BPE(ids, merges, **_options(spaced=False), byte_fallback=True)
        pieces.add_special_tokens(SPECIAL)
        return Tokenizer(pieces)

    def _train(self, prepared: list[str], merges: int) -> None:
        """Learn the letters and `merges` merges, in an order that depends only on the texts."""
        # A trainer numbers the letters that end words in the order of a hash map, which differs between runs, and merges
        # pairs of equal count in the order of their numbers. So a first trainer, of size 0, only collects the letters, and a
        # second one starts from them, sorted, as special tokens. Only its model is used, not its tokenizer.
        self.pieces.train_from_iterator(prepared, self._trainer(0, SPECIAL))
        initial = self._initial_pieces(prepared)
        trained = tokenizers.Tokenizer.from_str(self.pieces.to_str())
        trained.train_from_iterator(prepared, self._trainer(len(initial) + merges, initial))
        self.pieces.model = trained.model

    def _initial_pieces(self, prepared: Iterable[str] = ()) -> list[str]:
        """The special tokens, with byte fallback the bytes, and the letters; letters that end a word come last."""
        letters = self.pieces.get_vocab().keys() - set(SPECIAL)
        if self.byte_fallback:
            letters &= self._frequent_letters(prepared)
        letters_in_order = sorted(letters, key=lambda letter: (letter.endswith(_WORD_END), letter))
        return [*SPECIAL, *(BYTES if self.byte_fallback else ()), *letters_in_order]

    @staticmethod
    def _frequent_letters(prepared: Iterable[str]) -> set[str]:
        """With byte fallback, the letters with their own piece: frequent ones, and the mark of a space."""
        counts = Counter(letter for text in prepared for letter in text)
        return {_SPACE, *(letter for letter, count in counts.items() if count >= RARE)}

    def _trainer(self, size: int, initial: list[str]) -> BpeTrainer:
        trainer = BpeTrainer(vocab_size=size, special_tokens=initial, show_progress=False)
        if self.byte_fallback and size:
            # Without a limit the trainer creates a piece for each character; the most frequent ones are those in `initial`.
            trainer.limit_alphabet = len(initial) - len(SPECIAL) - len(BYTES)
        if isinstance(self.pieces.pre_tokenizer, pre_tokenizers.WhitespaceSplit):
            trainer.end_of_word_suffix = _WORD_END
        return trainer

    @property
    def special(self) -> tuple[str, ...]:
        """The four special tokens: padding, start, end and unknown."""
        return tuple(SPECIAL)

    @property
    def byte_fallback(self) -> bool:
        """Whether characters without a piece are written in bytes."""
        return bool(self.pieces.model.byte_fallback)

    @property
    def words(self) -> int:
        """The size of the vocabulary, with the four special tokens."""
        return self.pieces.get_vocab_size()

    def prepare(self, texts: Iterable[str], *, target: bool = False) -> list[str]:
        """Texts before the split into pieces: lower-cased and split into Moses words, if the tokenizer is configured so."""
        if self.moses:
            texts = [self.moses.tokenize(text, target=target) for text in texts]
        normalizer = self.pieces.normalizer
        return [normalizer.normalize_str(text) for text in texts]

    def encode(self, text: str, *, target: bool = False) -> list[int]:
        """The ids of a text, without start and end; `target` means that it is in the target language."""
        return self.encode_all([text], target=target)[0]

    def encode_all(self, texts: Sequence[str], *, target: bool = False) -> list[list[int]]:
        """The ids of many texts."""
        prepared = self.prepare(texts, target=target) if self.moses else list(texts)
        return [encoding.ids for encoding in self.pieces.encode_batch_fast(prepared, add_special_tokens=False)]

    def encode_piece(self, piece: str) -> list[int]:
        """The ids of a part of a word by the merges, without the normalization and the space of a whole text."""
        return [token.id for token in self.pieces.model.tokenize(piece)]

    def unknown_characters(self, text: str) -> list[str]:
        """The characters of a text without a piece, each once, in order; with byte fallback, the characters written in bytes.

        >>> Tokenizer.learn(["a cat sat"], merges=0).unknown_characters("a 猫 sat ☃ 猫")
        ['猫', '☃']
        """
        [prepared] = self.prepare([text])
        encoding = self.pieces.encode(prepared, add_special_tokens=False)
        pieces = zip(encoding.ids, encoding.offsets, strict=True)
        without = range(END + 1, UNKNOWN + 1 + (len(BYTES) if self.byte_fallback else 0))
        return list(dict.fromkeys(prepared[start:stop] for number, (start, stop) in pieces if number in without))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids in the target language, without special tokens."""
        words = self.decode_words(ids)
        return self.moses.detokenize(words) if self.moses else words

    def decode_words(self, ids: Sequence[int]) -> str:
        """The text of ids, with Moses words separated by spaces, the form in which scores are computed."""
        return self.pieces.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id."""
        return [self.pieces.id_to_token(number) or SPECIAL[UNKNOWN] for number in ids]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json; without `moses`, the package `tokenizers` can also read it."""
        content = json.loads(self.pieces.to_str())
        if self.moses:
            content["moses"] = self.moses.config()
        with whole(path) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """The tokenizer that `save` wrote."""
        fix = "point to a finished model's folder"
        content = read_json(path, "a tokenizer", fix)
        try:
            moses = content.pop("moses", None)
            tokenizer = cls(tokenizers.Tokenizer.from_str(json.dumps(content)), Moses(**moses) if moses else None)
            tokenizer._check()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `tokenizers` raises a plain Exception for other content, and Rust panics
            raise InputError(f"{path} to be a tokenizer", got=" ".join(str(error).split())[:200], fix=fix) from error
        return tokenizer

    def _check(self) -> None:
        """Check that it encodes and decodes, and that its ids are 0, 1, 2, …, the special tokens first, like the rows of a model."""
        ids = self.pieces.get_vocab()
        if sorted(ids.values()) != list(range(self.words)) or [ids.get(name) for name in SPECIAL] != list(range(len(SPECIAL))):
            raise ValueError("ids that are not 0, 1, 2, … with padding, start, end and unknown first")
        self.decode(self.encode("A b."))


def _options(spaced: bool) -> dict[str, str]:
    return {"unk_token": SPECIAL[UNKNOWN], **({"end_of_word_suffix": _WORD_END} if spaced else {})}


def _cleaned(lower: bool) -> normalizers.Normalizer:
    steps = [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*steps, normalizers.Lowercase()] if lower else steps)


def _plain(lower: bool, byte_fallback: bool = False) -> tokenizers.Tokenizer:
    """A tokenizer for plain text; a piece contains the space before it."""
    pieces = tokenizers.Tokenizer(BPE(**_options(spaced=False), byte_fallback=byte_fallback))
    pieces.normalizer = _cleaned(lower)
    marked = pre_tokenizers.Metaspace(split=False)
    pieces.pre_tokenizer = pre_tokenizers.Sequence([marked, pre_tokenizers.Split(Regex(_RUNS), "isolated")])
    spaces = decoders.Metaspace()
    pieces.decoder = decoders.Sequence([decoders.ByteFallback(), spaces, decoders.Fuse()]) if byte_fallback else spaces
    return pieces


def _spaced(lower: bool = False) -> tokenizers.Tokenizer:
    """A tokenizer for words that are separated by spaces."""
    pieces = tokenizers.Tokenizer(BPE(**_options(spaced=True)))
    pieces.normalizer = _cleaned(lower)
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces.decoder = decoders.BPEDecoder(suffix=_WORD_END)
    return pieces


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read_lines(path), 1):
        if (number == 1 and line.startswith("#version")) or not line.strip():
            continue
        pair = line.split()
        if len(pair) != 2:
            raise InputError("two pieces for a merge", got=f"{line!r} ({path}, line {number})", fix="remove other lines")
        merges.append((pair[0], pair[1]))
    return merges
