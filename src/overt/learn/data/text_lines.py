"""Read the lines of text files, plain, gzip or zip; an error names the position of bytes that are not text."""

import io
import zipfile
from pathlib import Path

from overt.errors import InputError
from overt.reading import check_unpacked, gunzip, reading


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    r"""The lines of a file, without their ends; of a .gz, or of the only text in a .zip (names that begin with _ are ignored).

    Only a newline ends a line, so that two files stay aligned whatever other separators their sentences contain. Raises InputError
    for a file that does not exist, is truncated, or is not text of that encoding, with the byte and its line.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.txt"
    >>> _ = path.write_bytes("un\r\ndeux\u2028trois".encode())
    >>> read_lines(path)
    ['un', 'deux\u2028trois']
    """
    return decode_lines(path, _content(Path(path)), encoding)


def decode_lines(name: str | Path, content: bytes, encoding: str = "utf-8") -> list[str]:
    r"""The lines of bytes; `name` is their source in error messages.

    >>> decode_lines("the input", b"un\n\ndeux\n")
    ['un', '', 'deux']
    """
    text = _decoded(name, content, encoding)
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]


def _content(path: Path) -> bytes:
    with reading(path, "a readable file", "check its name"):
        content = path.read_bytes()
    with reading(path, f"a complete {path.suffix} file", "download it again"):
        if path.suffix == ".gz":
            return gunzip(path, content)
        return _zipped(path, content) if path.suffix == ".zip" else content


def _zipped(path: Path, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        texts = [name for name in archive.namelist() if not Path(name).name.startswith("_") and not name.endswith("/")]
        if len(texts) != 1:
            raise InputError(f"{path} to hold one text file", got=", ".join(texts) or "none", fix="unpack it and name the file")
        check_unpacked(path, len(content), archive.getinfo(texts[0]).file_size)
        return archive.read(texts[0])


def _decoded(path: str | Path, content: bytes, encoding: str) -> str:
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode(encoding)
    except LookupError as error:
        raise InputError("an encoding that Python knows", got=repr(encoding), fix='write "utf-8" or "latin-1"') from error
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
        raise InputError(
            f"{path} to be {encoding.upper()} text",
            got=f"the byte 0x{content[error.start]:02x} on line {line}, byte {column} of the line",
            fix='convert it, or name its encoding: encoding = "latin-1"',
        ) from error
    except ValueError as error:  # a name with NUL, or an encoding that is not a text encoding
        raise InputError(f"{path} to be {encoding!r} text", got=str(error), fix='write "utf-8" or "latin-1"') from error
