"""What comes from outside is checked at the door: whatever a library raises for a file, a JSON text or a text is one InputError."""

import errno
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overt.errors import InputError, OvertError

_LONGEST = 300  # letters of another library's message
# A file that unpacks to more bytes than this, and to so many times its own, was made to fill the memory: texts shrink 5 to 40 times.
_UNPACKED, _TIMES = 100 * 2**20, 100
_FIXES = {
    errno.EACCES: "change its permissions",
    errno.EPERM: "change its permissions",
    errno.EISDIR: "name a file in it",
    errno.ELOOP: "remove the links that point to each other",
    errno.ENAMETOOLONG: "shorten the name",
    errno.EIO: "copy the file to another disk: this one reports errors",
    errno.EMFILE: "close other files, or raise the limit of open files (ulimit -n)",
    errno.ENOMEM: "free memory",
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.ESTALE), "check its name"),
}
# Errors of Python and of Rust (whose panics are no Exception) that say nothing about a file.
_NOT_OF_FILES = (KeyboardInterrupt, SystemExit, GeneratorExit)

PathLike = str | os.PathLike[str]


@contextmanager
def reading(path: PathLike, what: str, fix: str) -> Iterator[None]:
    """Turn every error that a library raises for a file within the block into one InputError; errors of overt pass as they are.

    `what` says what the file should be, and `fix` what to do if its content is damaged. If the system cannot read the file, the fix is
    that of the system's error.

    >>> try:
    ...     with reading("a.xlsx", "an Excel workbook", "export it again"):
    ...         raise KeyError("xl/workbook.xml")
    ... except InputError as error:
    ...     print(error)
    Expected a.xlsx to be an Excel workbook, got KeyError: 'xl/workbook.xml'. Fix: export it again.
    """
    try:
        yield
    except (OvertError, *_NOT_OF_FILES):
        raise
    except BaseException as error:
        raise unreadable(path, what, error, fix) from error


def unreadable(path: PathLike, what: str, error: BaseException, fix: str) -> InputError:
    """The error for a file that could not be read, with the fix of the system's error, or `fix` if there is none."""
    number = error.errno if isinstance(error, OSError) else errno.ENOMEM if isinstance(error, MemoryError) else None
    return InputError(f"{os.fspath(path)} to be {what}", got=reason(error), fix=_FIXES.get(number or 0, fix))


def check_unpacked(path: PathLike, packed: int, unpacked: int) -> None:
    """Raise InputError for a small file that unpacks to something enormous; both sizes are in bytes."""
    if unpacked > max(_UNPACKED, _TIMES * packed):
        got = f"at least {unpacked:,} bytes in {packed:,}"
        fix = "pass it unpacked, if that is its true content"
        raise InputError(f"{os.fspath(path)} to unpack to at most {_TIMES} times its size", got=got, fix=fix)


def gunzip(path: PathLike, content: bytes) -> bytes:
    """The bytes that gzip packed. Raises InputError for far too many, and what `gzip` raises for damaged ones."""
    most = max(_UNPACKED, _TIMES * len(content))
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        unpacked = file.read(most + 1)
    check_unpacked(path, len(content), len(unpacked))
    return unpacked


def read_json(path: PathLike, what: str, fix: str) -> dict[str, Any]:
    """Read a JSON object from a file; `what` says what the file should be, for the error.

    Raises InputError for a file that does not exist, is not UTF-8 or not JSON, nests too deeply, or holds something else.
    """
    with reading(path, what, fix):
        try:
            content = parse_json(Path(path).read_bytes().decode("utf-8"))
        except (
            FileNotFoundError,
            IsADirectoryError,
            NotADirectoryError,
        ) as error:  # the file of a folder: the caller knows more
            raise InputError(f"{path} to be {what}", got=reason(error), fix=fix) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} to be {what}, a JSON object", got=f"a {type(content).__name__}", fix=fix)
    return content


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text. Raises ValueError for a text that is not JSON or nests too deeply.

    If `strict`, a repeated key, NaN and Infinity are errors too; servers write these in their logs.
    """
    options: dict[str, Any] = {"object_pairs_hook": _unique_keys, "parse_constant": _refuse_constant} if strict else {}
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError(reason(error)) from error


def check_text(text: str, what: str) -> str:
    r"""The text itself. Raises InputError if it is not Unicode: half of a surrogate pair, or a byte that is not UTF-8.

    Python keeps bytes of a command line that are not UTF-8 as halves of pairs, U+DC80 to U+DCFF.

    >>> check_text("café", "the text")
    'café'
    >>> try:
    ...     check_text("caf\udce9", "the text")
    ... except InputError as error:
    ...     print(error)
    Expected the text to be Unicode, got the byte 0xe9 at character 4. Fix: write it in UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code, position = ord(text[error.start]), f"at character {error.start + 1}"
        if 0xDC80 <= code <= 0xDCFF:
            got, fix = f"the byte 0x{code - 0xDC00:02x} {position}", "write it in UTF-8"
        else:
            got, fix = f"half of a surrogate pair, U+{code:04X}, {position}", "write the whole character, or leave it out"
        raise InputError(f"{what} to be Unicode", got=got, fix=fix) from error
    return text


def reason(error: BaseException) -> str:
    """Why a file could not be read or written, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "content that is nested too deeply"
    if isinstance(error, MemoryError):
        return "content that needs more memory than there is"
    message = " ".join("".join(letter if letter.isprintable() else " " for letter in str(error)).split())
    kind = "" if message and isinstance(error, ValueError | OSError) else type(error).__name__
    text = ": ".join(filter(None, (kind, message)))
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…").rstrip(".")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {name!r} is repeated")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def is_numeral(cell: str) -> bool:
    """Whether a text is a number, NaN and infinity counted."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
