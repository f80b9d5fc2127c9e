"""Numbers and tokens as text, equal in terminal, picture and page."""

import math
import unicodedata
from collections.abc import Sequence

MINUS = "−"
INDEX = r"(?<=(?<!\w)[A-Za-z])_(\d+[ij]?|[ij])(?!\w)"  # the index of h_1, a_1j, x_j, and of nothing else
STRONG = 0.5  # weights below it have pale colours, so that a row of even weights does not look focused
_EXPONENTS = str.maketrans("-", MINUS)


def number(value: float, decimals: int = 2) -> str:
    """Write a number with fixed decimals and a real minus sign.

    Beyond a million the format is a power of ten, and a negative number that rounds to zero loses its sign.

    >>> number(-0.196), number(-0.001), number(float("-inf")), number(12345678.0)
    ('−0.20', '0.00', '−∞', '1.23e7')
    """
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) >= 1e6:
        return scientific(value, 2)
    text = f"{value:.{decimals}f}"
    return text.replace("-", "" if float(text) == 0 else MINUS)


def signed(value: float, decimals: int = 2) -> str:
    """Write a number like `number`, with a plus if it is not negative.

    >>> signed(0.196), signed(-0.196)
    ('+0.20', '−0.20')
    """
    text = number(value, decimals)
    return text if text.startswith(MINUS) else f"+{text}"


def scientific(value: float, decimals: int = 1) -> str:
    """Write a number as a power of ten, without padding zeros in the exponent.

    >>> scientific(4.1e-7), scientific(0.0)
    ('4.1e−7', '0')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else number(value)
    digits, power = f"{value:.{decimals}e}".split("e")
    return f"{digits}e{int(power)}".translate(_EXPONENTS)


def decimals_for(values: Sequence[float]) -> int:
    """The number of decimals that shows the largest value with two significant digits, 2 to 4.

    >>> decimals_for([1.5, -20.0]), decimals_for([0.004, 0.01])
    (2, 3)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 2 if largest == 0 else min(4, max(2, 1 - math.floor(math.log10(largest))))


def vector(values: Sequence[float], shown: int = 3, width: int = 0, decimals: int = 2) -> str:
    """Abbreviate a vector to its first entries and its length.

    >>> vector([-0.2, 0.34, 0.13, 1.0, 2.0])
    '[−0.20  0.34  0.13 … 5]'
    >>> vector([1.0, 2.0], width=5)
    '[ 1.00   2.00]'
    """
    whole = len(values) <= shown + 1
    entries = [number(value, decimals).rjust(width) for value in (values if whole else values[:shown])]
    return f"[{'  '.join(entries)}]" if whole else f"[{'  '.join(entries)} … {len(values)}]"


def entry_width(vectors: Sequence[Sequence[float]], shown: int = 3, decimals: int = 2) -> int:
    """The width that aligns the shown entries of several vectors."""
    return max((len(number(value, decimals)) for entries in vectors for value in entries[: shown + 1]), default=0)


def visible(text: str) -> str:
    r"""Make invisible characters visible: control characters become their pictures, lone surrogates and bidi controls a mark.

    So a token can neither colour a terminal nor reverse the text after it.

    >>> visible("a\x00b\x1b[31m\u202e"), visible(" "), visible("")
    ('a␀b␛[31m�', '␣', '∅')
    """
    if not text or text.isspace():
        return "".join("␣" if letter == " " else _visible_letter(letter) for letter in text) or "∅"
    return "".join(map(_visible_letter, text))


def _visible_letter(letter: str) -> str:
    if ord(letter) < 0x20:
        return chr(0x2400 + ord(letter))
    if letter == "\x7f":
        return "␡"
    # Joiners connect emoji and Indic letters; every other format character, surrogate or unassigned letter is marked.
    if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"} and letter not in "\u200c\u200d":
        return "\ufffd"
    return letter


def shorten(text: str, limit: int) -> str:
    """Crop to at most `limit` letters, with an ellipsis in place of the removed ones.

    >>> shorten("electroencephalography", 8), shorten("tired", 8)
    ('electro…', 'tired')
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def labels(tokens: Sequence[str], limit: int = 80) -> list[str]:
    """The tokens with control characters made visible, cropped; repeated ones are numbered.

    >>> labels(["the", "animal", "the"], limit=5)
    ['the:1', 'anim…', 'the:2']
    """
    counts: dict[str, int] = {}
    names = []
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
        name = shorten(visible(token), limit)
        names.append(f"{name}:{counts[token]}" if tokens.count(token) > 1 else name)
    return names


def columns(rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """The lines of a table whose first row names its columns; the cells of those in `right` are aligned right.

    >>> columns([("head", "score"), ("L0H1", "1")], right=["score"])
    ['head  score', 'L0H1      1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shapes = [(width, str.rjust if name in right else str.ljust) for name, width in zip(rows[0], widths, strict=True)]
    return ["  ".join(align(cell, width) for cell, (width, align) in zip(row, shapes, strict=True)).rstrip() for row in rows]


def duration(seconds: float) -> str:
    """Write a time in a suitable unit.

    >>> duration(0.00231), duration(0.000041), duration(2.5)
    ('2.31 ms', '41 µs', '2.50 s')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def in_bytes(count: int) -> str:
    """A number of bytes with its unit.

    >>> in_bytes(3_600)
    '3.6 kB'
    """
    for unit, bytes_in in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_in:
            return f"{count / bytes_in:.1f} {unit}"
    return f"{count} bytes"
