"""How finely a text is cut into pieces: a text in another language than the training data's falls into many."""

import re
from collections.abc import Sequence

# The sign of a word's beginning in a token, and a byte of a character that has no piece of its own.
WORD, BYTE = "▁", re.compile("<0x[0-9A-F]{2}>")


def split_share(tokens: Sequence[str]) -> float:
    """The cuts inside words over the letters of these words, from 0 to 1.

    Byte-pair encoding joins what is frequent in training, so that its own language takes few pieces. Words with a capital letter are left
    out, since names are cut in every language; 0 where fewer than two words are left, as of a greeting, and of tokens without signs
    of words.

    >>> split_share(["▁I", "▁am", "▁happy", "."]), split_share(["▁Je", "▁s", "u", "is", "▁l", "à"])
    (0.0, 0.5)
    """
    words: list[list[str]] = []
    for token in tokens:
        if token.startswith(WORD):
            words.append([token.removeprefix(WORD)])
        elif words and (token.isalpha() or BYTE.fullmatch(token)):
            words[-1].append(token)
    pieces = [[piece for piece in word if piece.isalpha() or BYTE.fullmatch(piece)] for word in words]
    small = [word for word in pieces if word and not word[0][0].isupper()]
    if len(small) < 2:
        return 0.0
    letters = sum(1 if BYTE.fullmatch(piece) else len(piece) for word in small for piece in word)
    return sum(len(word) - 1 for word in small) / letters
