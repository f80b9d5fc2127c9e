"""How many pieces a text is cut into: a text in another language than the training data has many."""

import re
from collections.abc import Sequence

# WORD: the mark of a word's beginning in a token; BYTE: a byte of a character without its own piece.
WORD, BYTE = "▁", re.compile("<0x[0-9A-F]{2}>")


def split_share(tokens: Sequence[str]) -> float:
    """The number of cuts inside words divided by the number of their letters, from 0 to 1.

    Byte-pair encoding joins what is frequent in training, so the training language needs few pieces. Words with a capital letter are
    skipped, since names are cut in every language. The share is 0 if fewer than two words remain, as in a greeting, and for tokens without
    marks of words.

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
