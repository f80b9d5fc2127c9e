"""How a tokenizer spells text: the bytes of the text that each of its pieces represents."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SURROGATE = re.compile("[\ud800-\udfff]")
NO_SPACE = b"\0"  # a mark that removes the space after it, because pieces between spaces spell "didn ' t"
_NO_SPACE_BEFORE = frozenset(".,?!")


def well_formed(text: str) -> str:
    """A text that UTF-8 can encode: surrogate pairs, as JSON escapes them, are joined, and lone surrogates become U+FFFD.

    >>> well_formed("a\\ud83d\\ude00b"), well_formed("\\ud83d!")
    ('a😀b', '�!')
    """
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Spelling:
    """The marks of a vocabulary's pieces. Without marks, pieces are words between spaces.

    `byte_level` pieces are written in GPT-2's alphabet of bytes; `space` represents a space inside a piece ("▁"); a piece that
    begins with `continues` ("##") continues the word; `ends` ("</w>") ends a word, and `joins` ("@@") does not. `spelled` pieces
    are the text itself, and `latin` pieces are letters of Latin-1, one for each byte (ByT5).
    """

    byte_level: bool = False
    space: str = ""
    continues: str = ""
    ends: str = ""
    joins: str = ""
    spelled: bool = False
    latin: bool = False

    def piece_bytes(self, piece: str) -> bytes:
        """The bytes of text that a piece represents, including a space before or after it.

        >>> Spelling(byte_level=True).piece_bytes("Ġanimal"), Spelling(continues="##").piece_bytes("##s")
        (b' animal', b's')
        >>> Spelling(space="▁").piece_bytes("▁the"), Spelling(space="▁").piece_bytes("<0xE2>")
        (b' the', b'\\xe2')
        """
        if self.byte_level and all(letter in byte_of_letter() for letter in piece):
            return bytes(byte_of_letter()[letter] for letter in piece)
        if self.latin and len(piece) == 1 and ord(piece) < 256:
            return piece.encode("latin-1")
        if (fallback := _FALLBACK.fullmatch(piece)) is not None:
            return bytes.fromhex(fallback[1])
        if self.byte_level or self.spelled or self.latin:  # a token added to the vocabulary represents itself
            return encoded(piece)
        if self.space:
            return encoded(piece.replace(self.space, " "))
        if self.continues:
            goes_on = piece.startswith(self.continues) and piece != self.continues
            return encoded(piece.removeprefix(self.continues)) if goes_on else _with_space_before(piece)
        if self.ends:
            return encoded(piece.removesuffix(self.ends) + (" " if piece.endswith(self.ends) else ""))
        if self.joins:
            return encoded(piece.removesuffix(self.joins) + ("" if piece.endswith(self.joins) else " "))
        return _with_space_before(piece)


def _with_space_before(piece: str) -> bytes:
    if piece == "'":
        return piece.encode() + NO_SPACE
    return encoded(piece if piece in _NO_SPACE_BEFORE else f" {piece}")


def encoded(text: str) -> bytes:
    """A text in UTF-8; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


@cache
def byte_of_letter() -> dict[str, int]:
    """The byte that each letter of byte-level pieces represents (Radford et al. 2019, section 2.2, and GPT-2's encoder.py).

    Printable bytes of Latin-1 are written as themselves, the other bytes, in order, as the letters from U+0100 on.

    >>> byte_of_letter()["A"], byte_of_letter()["Ġ"], len(byte_of_letter())
    (65, 32, 256)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def spelling_of_decoder(decoder: Any) -> Spelling:
    """The spelling that a decoder of the package `tokenizers` undoes."""
    if decoder is None:
        return Spelling()
    steps = list(_steps(json.loads(decoder.__getstate__())))
    kinds = {step["type"]: step for step in steps}
    if "ByteLevel" in kinds:
        return Spelling(byte_level=True)
    if "WordPiece" in kinds:
        return Spelling(continues=kinds["WordPiece"].get("prefix", "##"))
    if "BPEDecoder" in kinds:
        return Spelling(ends=kinds["BPEDecoder"].get("suffix", "</w>"))
    if "CTC" in kinds:
        return Spelling(space=kinds["CTC"].get("word_delimiter_token", "|"))
    if "Metaspace" in kinds:
        return Spelling(space=kinds["Metaspace"].get("replacement", "▁"))
    spaces = [step["pattern"].get("String") for step in steps if step["type"] == "Replace" and step.get("content") == " "]
    return Spelling(space=spaces[0]) if spaces and spaces[0] else Spelling(spelled=bool(steps))


def _steps(decoder: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if decoder.get("type") == "Sequence":
        for item in decoder["decoders"]:
            yield from _steps(item)
    else:
        yield decoder


def spelling_of_pieces(pieces: Iterable[str]) -> Spelling:
    """The spelling of a vocabulary, recognised by the marks of its pieces, if its decoder is code.

    >>> spelling_of_pieces(["the", "##s", "[CLS]"]).continues
    '##'
    """
    pieces = set(pieces)
    if all(chr(byte) in pieces for byte in range(256)):
        return Spelling(latin=True)
    if any(piece.startswith("Ġ") for piece in pieces):
        return Spelling(byte_level=True)
    if any(piece.startswith("▁") for piece in pieces):
        return Spelling(space="▁")
    if any(piece.startswith("##") and len(piece) > 2 for piece in pieces):
        return Spelling(continues="##")
    if any(piece.endswith("</w>") and len(piece) > 4 for piece in pieces):
        return Spelling(ends="</w>")
    if any(piece.endswith("@@") and len(piece) > 2 for piece in pieces):
        return Spelling(joins="@@")
    return Spelling()
