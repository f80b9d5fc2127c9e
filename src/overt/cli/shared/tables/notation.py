"""The notation of a file's cells, as far as the caller specifies it, and the spellings of missing values in every file."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from overt.errors import InputError
from overt.reading import is_numeral

# ABSENT: spellings of a missing time or group; other words, such as "-", may name a group.
ABSENT = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>", "nat"})
# MISSING numbers: spellings of pandas and R, of spreadsheets in English and German, and of statistical offices (".", "..", ":").
MISSING = ABSENT | frozenset(
    {
        *("#n/a", "#n/a n/a", "#na", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!", "#spill!", "#calc!"),
        *("#nv", "#wert!", "#bezug!", "#zahl!", "-nan", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "nan(ind)", "-nan(ind)"),
        *(
            [
                "-",
                "--",
                "---",
                "–",
                "—",
                "−",
                "?",
                "??",
                "???",
                ".",
                "..",
                "...",
                "…",
                ":",
                "*",
                "**",
                "***",
                "n.a.",
                "n.a",
                "n/d",
            ]
        ),
        *("nd", "n.d.", "nil", "no data", "nodata", "missing", "unavailable", "not available", "unknown", "k.a.", "k. a."),
    }
)


@dataclass(frozen=True)
class Notation:
    """The notation of a file's cells; None for attributes to be recognised.

    `missing` are further spellings and numbers of missing values. `errors` decides whether an unreadable cell is an error ("ask")
    or counts as missing.
    """

    separator: str | None = None
    decimal: str | None = None  # "." or ","
    date_format: str | None = None  # as in datetime.strptime, or "excel" or "number"
    missing: tuple[str, ...] = ()
    errors: str = "ask"
    spellings: frozenset[str] = field(init=False, repr=False)
    codes: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.separator is not None and len(self.separator) != 1:
            raise InputError("one character between cells", got=repr(self.separator), fix=r"pass one, as ';', or tab")
        if self.decimal not in (None, ".", ","):
            raise InputError("a decimal point or comma", got=repr(self.decimal), fix="pass . or ,")
        if self.errors not in ("ask", "missing"):
            fix = "choose missing to count cells that cannot be read as missing values"
            raise InputError("--errors ask or missing", got=repr(self.errors), fix=fix)
        object.__setattr__(self, "spellings", MISSING | {text.lower() for text in self.missing if not is_numeral(text)})
        object.__setattr__(self, "codes", tuple(float(text) for text in self.missing if is_numeral(text)))


def split_missing(texts: Iterable[str] | None) -> tuple[str, ...]:
    """The spellings in `--missing`, each option a comma-separated list.

    >>> split_missing(["-999, ERR", "#N/A"])
    ('-999', 'ERR', '#N/A')
    """
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())
