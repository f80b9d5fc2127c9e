"""The id of a word that a caller names: one rule for all tokenizers."""

from overt.errors import InputError
from overt.lens.text.vocabulary import Vocabulary


def token_id(text: str, vocabulary: Vocabulary | None) -> int:
    """The id of the token that equals a text: by the tokenizer's piece ("Ġmodel", "##s"), by encoding, or by decoding.

    " model" is the token with a space before it in every spelling of spaces, and "model" the one without a space if there is one.
    Raises InputError without a tokenizer, and for a text that is several tokens, no token, or the text of several ids.
    """
    if vocabulary is None:
        raise InputError(
            "a tokenizer, to read a target that is text",
            got=f"target={text!r} without one",
            fix="call recording.tokenizer(tokenizer), record with tokenizer=, or pass the token's number",
        )
    if vocabulary.number is not None and (number := vocabulary.number(text)) is not None:
        return number
    pieces = [] if vocabulary.encode is None else vocabulary.encode(text)
    if len(pieces) == 1 and pieces[0] != vocabulary.unknown:
        return pieces[0]
    alike = _by_piece(text, vocabulary) or vocabulary.spelled_as(text)
    if len(alike) == 1:
        return alike[0]
    raise _refused(text, vocabulary, pieces, alike)


def _by_piece(text: str, vocabulary: Vocabulary) -> list[int]:
    """The ids of a piece among the entries of a loaded recording."""
    loaded = vocabulary.number is None
    return [number for number, entry in vocabulary.entries.items() if entry.piece == text] if loaded else []


def _refused(text: str, vocabulary: Vocabulary, pieces: list[int], alike: list[int]) -> InputError:
    if len(alike) > 1:
        item = _listed(alike, vocabulary)
        return InputError("the text of one token", got=f"{text!r}, as which several are read: {item}", fix="pass its number")
    if vocabulary.encode is None:
        return InputError(
            "a tokenizer, for a target that is not among the tokens that the model read",
            got=f"{text!r}, and a file, which has the words of its own text alone",
            fix="call recording.tokenizer(tokenizer), or pass the token's number",
        )
    known = [number for number in pieces if number != vocabulary.unknown]
    if len(pieces) > 1 and len(known) == len(pieces):
        got = f"{text!r}, which is {len(pieces)} tokens: {_listed(pieces, vocabulary)}"
        spaced = [] if text.startswith(" ") else vocabulary.spelled_as(f" {text}")
        fix = (
            f"write {f' {text}'!r}, with the space before it, token {spaced[0]}"
            if len(spaced) == 1
            else (f"name one of them, target={pieces[0]} for the first")
        )
    else:
        got, fix = f"{text!r}, which is not in it", "name a token that the tokenizer has, or pass its number"
    return InputError("a target that is one token of the vocabulary", got=got, fix=fix)


def _listed(numbers: list[int], vocabulary: Vocabulary) -> str:
    first = [f"{vocabulary.text(number)!r} ({number})" for number in numbers[:6]]
    return ", ".join([*first, *(["…"] if len(numbers) > 6 else [])])
