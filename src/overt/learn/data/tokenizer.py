"""Text to token ids and back: byte-pair encoding, one vocabulary for both languages of a translator."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from overt.errors import InputError
from overt.files import read_json, whole
from overt.learn.data.moses import Moses
from overt.learn.data.text_lines import read_lines

# Every vocabulary of overt begins with these, so padding is 0 wherever ids are padded.
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PADDING, START, END, UNKNOWN = range(4)

_WORD_END = "</w>"
# With the space before it, a run of letters (and a French elision's apostrophe), of digits, or of signs: l'|homme| dit|!
_RUNS = r"▁?[\p{L}\p{M}]+['’]?|▁?\p{N}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁"


class Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016, section 3.2): the most frequent pair of neighbours becomes one piece, again and again.

    Plain text keeps its letters and its spaces: a piece that begins a word has the space before it, written ▁, so that
    `decode(encode(text))` is the text. With `moses`, text is first split into Moses's words, as published scores want it, and the
    piece that ends a word ends in `</w>`, as subword-nmt has it; `decode` puts the words together again, `words_of` leaves them apart.

    Ids 0 to 3 are padding, start, end and unknown. Text cannot spell them: "</s>" in a text is four signs, not the end.

    >>> tokenizer = Tokenizer.learn(["low lower lowest", "new newer newest"], merges=20)
    >>> tokenizer.tokens(tokenizer.encode("newer  low"))
    ['▁newer', '▁low']
    >>> tokenizer.decode(tokenizer.encode("newer  low"))
    'newer low'
    """

    def __init__(self, pieces: tokenizers.Tokenizer, moses: Moses | None = None):
        self.pieces, self.moses = pieces, moses
        # Otherwise "</s>" in a text would end the sentence.
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
    ) -> "Tokenizer":
        """Learn `merges` merges from texts, and from those of the target's language; every letter in them is a piece too."""
        tokenizer = cls(_spaced() if moses else _plain(lower), moses)
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
        """Use merges learned elsewhere, two pieces a line, the earliest first; the letters are those of the texts.

        Where pieces end in `</w>` (subword-nmt), words are what spaces separate; where they begin with ▁, text is plain.
        """
        merges = _read_merges(Path(path))
        spaced = any(_WORD_END in piece for pair in merges for piece in pair)
        if not spaced and (moses or not any("▁" in piece for pair in merges for piece in pair)):
            fix = "use merges as subword-nmt writes them" + ("" if moses else ", or with ▁ where a word begins")
            raise InputError("merges mark where words end or begin", got=f"{path}, which does not", fix=fix)
        tokenizer = cls(_spaced(lower and not moses) if spaced else _plain(lower), moses)
        tokenizer._train([*tokenizer.prepare(texts), *tokenizer.prepare(targets, target=True)], 0)
        known = dict.fromkeys([*tokenizer._first(), *(piece for pair in merges for piece in (*pair, "".join(pair)))])
        ids = {piece: number for number, piece in enumerate(known)}
        tokenizer.pieces.model = BPE(ids, merges, **_options(spaced))
        return tokenizer

    def _train(self, prepared: list[str], merges: int) -> None:
        """Learn the letters, and `merges` merges of them, in an order that follows from the texts alone."""
        # A trainer numbers the letters that end words in the order of a hash map, which every run has anew, and takes
        # pairs of equal count in the order of their numbers. So a first one, of size 0, only finds the letters, and the
        # second begins with them, sorted. It counts them as special tokens: its model is kept, and its tokenizer is not.
        self.pieces.train_from_iterator(prepared, self._trainer(0, SPECIAL))
        first = self._first()
        trained = tokenizers.Tokenizer.from_str(self.pieces.to_str())
        trained.train_from_iterator(prepared, self._trainer(len(first) + merges, first))
        self.pieces.model = trained.model

    def _first(self) -> list[str]:
        """The special tokens and the letters, those that end a word last."""
        letters = self.pieces.get_vocab().keys() - set(SPECIAL)
        return [*SPECIAL, *sorted(letters, key=lambda letter: (letter.endswith(_WORD_END), letter))]

    def _trainer(self, size: int, first: list[str]) -> BpeTrainer:
        trainer = BpeTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        if isinstance(self.pieces.pre_tokenizer, pre_tokenizers.WhitespaceSplit):
            trainer.end_of_word_suffix = _WORD_END
        return trainer

    @property
    def words(self) -> int:
        """How many tokens the vocabulary has, the special four included."""
        return self.pieces.get_vocab_size()

    def prepare(self, texts: Iterable[str], *, target: bool = False) -> list[str]:
        """Texts as they are before they are cut into pieces: lower-cased, split into words, where the tokenizer does that."""
        if self.moses:
            texts = [self.moses.words(text, target=target) for text in texts]
        normalizer = self.pieces.normalizer
        return [normalizer.normalize_str(text) for text in texts]

    def encode(self, text: str, *, target: bool = False) -> list[int]:
        """A text's ids, without start and end; `target` says that it is in the target's language."""
        return self.encode_all([text], target=target)[0]

    def encode_all(self, texts: Sequence[str], *, target: bool = False) -> list[list[int]]:
        """The ids of many texts."""
        prepared = self.prepare(texts, target=target) if self.moses else list(texts)
        return [found.ids for found in self.pieces.encode_batch_fast(prepared, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text in the target's language that ids spell; special tokens are left out."""
        words = self.words_of(ids)
        return self.moses.text(words) if self.moses else words

    def words_of(self, ids: Sequence[int]) -> str:
        """What ids spell with Moses's words left apart, as scores are counted; the text itself where there are none."""
        return self.pieces.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id."""
        return [self.pieces.id_to_token(number) or SPECIAL[UNKNOWN] for number in ids]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokenizer.json; without Moses's words the package `tokenizers` reads it too."""
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
            tokenizer._try()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `tokenizers` raises a plain Exception for what is not its own, and panics beside it
            raise InputError(f"{path} is a tokenizer", got=" ".join(str(error).split())[:200], fix=fix) from error
        return tokenizer

    def _try(self) -> None:
        """See that it encodes and decodes, and that its ids are 0, 1, 2 … from the special four on, as a model's rows are."""
        ids = self.pieces.get_vocab()
        if sorted(ids.values()) != list(range(self.words)) or [ids.get(name) for name in SPECIAL] != list(range(len(SPECIAL))):
            raise ValueError("its ids are not 0, 1, 2 … from padding, start, end and unknown on")
        self.decode(self.encode("A b."))


def _options(spaced: bool) -> dict[str, str]:
    return {"unk_token": SPECIAL[UNKNOWN], **({"end_of_word_suffix": _WORD_END} if spaced else {})}


def _cleaned(lower: bool) -> normalizers.Normalizer:
    steps = [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*steps, normalizers.Lowercase()] if lower else steps)


def _plain(lower: bool) -> tokenizers.Tokenizer:
    """Pieces of text as it is, each with the space before it."""
    pieces = tokenizers.Tokenizer(BPE(**_options(spaced=False)))
    pieces.normalizer = _cleaned(lower)
    marked = pre_tokenizers.Metaspace(split=False)
    pieces.pre_tokenizer = pre_tokenizers.Sequence([marked, pre_tokenizers.Split(Regex(_RUNS), "isolated")])
    pieces.decoder = decoders.Metaspace()
    return pieces


def _spaced(lower: bool = False) -> tokenizers.Tokenizer:
    """Pieces of words that spaces separate."""
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
            raise InputError(f"{path}, line {number}: a merge is two pieces", got=repr(line), fix="leave other lines out")
        merges.append((pair[0], pair[1]))
    return merges
