"""What happens to files: outputs are written whole or not at all, and never over an input; JSON is read or refused in a sentence."""

import errno
import json
import os
import re
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from overt.errors import InputError, OvertError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FIXES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room, or choose another folder"),
    errno.EFBIG: "choose another folder, or raise the limit of a file's size (ulimit -f)",
    errno.EROFS: "choose a folder on a disk that takes new files",
    errno.EACCES: "change its permissions, or choose another folder",
    errno.EPERM: "change its permissions, or choose another folder",
    errno.ENAMETOOLONG: "shorten the name",
    errno.ENOTDIR: "choose a folder: a part of the path is a file",
    errno.EEXIST: "choose another name: a file stands there",
    errno.ELOOP: "remove the links that lead to each other",
    errno.EPIPE: "let the reader run to the end",
}
_LINKS = 40  # as many as Linux follows
_STEM = 20  # characters of the target's name in the temporary's: four bytes each at most, so that it is never too long
_SUFFIX = 16

PathLike = str | os.PathLike[str]
_temporaries: set[Path] = set()


class Target(NamedTuple):
    """Where an output goes: what it was called, the file at the end of its links, and what stands there, None for nothing."""

    path: Path
    real: Path
    status: os.stat_result | None

    @property
    def descriptor(self) -> int | None:
        """The number of this process's own open file, where the path names one, as /dev/stdout does."""
        return _descriptor(self.real)

    @property
    def stream(self) -> bool:
        """Whether bytes are written into what stands there, which is not replaced: a FIFO, a character device, an open file."""
        if self.status is None:
            return False
        special = stat.S_ISFIFO(self.status.st_mode) or stat.S_ISCHR(self.status.st_mode)
        return special or self.descriptor is not None


@contextmanager
def whole(path: PathLike) -> Iterator[Path]:
    """Give a temporary path; what is written there becomes the file `path` only when the block ends without an error.

    A file is replaced whole: the temporary lies beside it, and takes its name, its permissions and, where that is allowed, its
    owner. Links are followed, and the file at their end is replaced; another hard link to it keeps the old content. A FIFO, a
    character device and an open file such as /dev/stdout are not replaced: the finished bytes are written into them. Within the
    block, `whole(temporary)` gives the same temporary again.

    Raises InputError for a directory, a socket, a block device and a place that takes no file, before the block runs, and for a
    disk that is full, after which the old file is as it was.

    >>> import pathlib, tempfile
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
    >>> with whole(target) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> target.read_text()
    'all of it'
    """
    if Path(path) in _temporaries:
        yield Path(path)
        return
    target = _target(path)
    with _sink(target) as sink:
        temporary = _temporary(target)
        try:
            yield temporary
            _finish(target, temporary, sink)
        except OvertError:
            raise
        except Exception as error:
            full = _full_disk(error, temporary)
            if full is None:
                raise
            raise unwritable(path, full) from error
        finally:
            _temporaries.discard(temporary)
            temporary.unlink(missing_ok=True)


def separate(outputs: Mapping[str, PathLike | None], inputs: Mapping[str, PathLike | None] | None = None) -> None:
    """Refuse an output that is an input, or another output, by what file it is: links, hard links and relative paths are seen through.

    Both are named as the caller knows them, such as "--out"; what is None was not asked for. Raises InputError.

    >>> try:
    ...     separate({"--out": "curve.csv"}, {"FILE": "./curve.csv"})
    ... except InputError as error:
    ...     print(error.got)
    --out curve.csv, the same file as FILE
    """
    read = {identity: name for name, path in (inputs or {}).items() if (identity := _identity(path))}
    written: dict[Any, str] = {}
    for name, path in outputs.items():
        identity = _identity(path)
        if identity is None:
            continue
        if identity in read:
            got, fix = f"{name} {path}, the same file as {read[identity]}", f"name another file with {name}"
            raise InputError("an output is written beside the inputs, never over them", got=got, fix=fix)
        if identity in written:
            got = f"{written[identity]} and {name}, both {path}"
            raise InputError("each output is a file of its own", got=got, fix=f"name another file with {name}")
        written[identity] = name


def check_target(path: PathLike) -> None:
    """Refuse, before the work, what `whole` would refuse after it."""
    _target(path)


def is_stream(path: PathLike) -> bool:
    """Whether an output is written into what stands at the path: a FIFO, a character device, an open file such as /dev/stdout."""
    return _target(path).stream


def is_standard_output(path: PathLike | None) -> bool:
    """Whether a path names this process's standard output, as /dev/stdout does."""
    return path is not None and _descriptor(_followed(Path(path))) == 1


def make_folder(path: PathLike) -> Path:
    """Make a folder, and those that it is in, where there is none. Raises InputError where that cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    return Path(path)


def unwritable(path: PathLike, error: OSError | ValueError, fix: str = "") -> InputError:
    """What the system said of a file that was to be written, as a sentence with a fix that fits it."""
    number = error.errno if isinstance(error, OSError) else None
    fix = fix or _FIXES.get(number or 0, "choose another folder")
    return InputError(f"{os.fspath(path)} cannot be written", got=reason(error), fix=fix)


def read_json(path: PathLike, what: str, fix: str) -> dict[str, Any]:
    """A JSON object from a file; `what` says what the file should be, for the error.

    Raises InputError for a file that is not there, is not UTF-8, is no JSON, nests too deeply, or holds something else.
    """
    try:
        content = parse_json(Path(path).read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is {what}", got=reason(error), fix=fix) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is {what}, a JSON object", got=f"a {type(content).__name__}", fix=fix)
    return content


def parse_json(text: str) -> Any:
    """The value of a JSON text; a name that stands twice, NaN and Infinity raise ValueError, as all that is no JSON does."""
    return json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)


def reason(error: BaseException) -> str:
    """Why a file could not be read or written, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "content that is nested too deeply"
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split()).rstrip(".")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{name!r} stands there twice")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _target(path: PathLike) -> Target:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    target = Target(Path(path), _followed(Path(path)), status)
    if status is None:
        if not target.real.parent.is_dir():
            parent = target.path.parent if not target.path.is_symlink() else target.real.parent
            fix = f"make {parent} first"
            raise InputError("an output file goes into a folder that exists", got=str(path), fix=fix)
        return target
    if stat.S_ISDIR(status.st_mode):
        raise InputError("an output file needs a file's name", got=f"the folder {target.path}", fix="name a file in it")
    if not target.stream and not stat.S_ISREG(status.st_mode):
        kind = "socket" if stat.S_ISSOCK(status.st_mode) else "block device"
        raise InputError(
            "an output goes into a file, a pipe or a character device", got=f"the {kind} {path}", fix="name a file"
        )
    if not target.stream and not os.access(target.real, os.W_OK):
        raise unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return target


def _followed(path: Path) -> Path:
    """The file at the end of a path's links, or the first of them that is an open file of this process."""
    for _ in range(_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        try:
            if _descriptor(path) is not None or not path.is_symlink():
                return path
            path = path.parent / os.readlink(path)
        except (OSError, ValueError):
            return path
    return path


def _descriptor(path: Path) -> int | None:
    inside = re.fullmatch(r"/proc/\d+(/task/\d+)?/fd|/dev/fd", str(path.parent))
    own = inside and (str(path.parent) == "/dev/fd" or str(path.parent).startswith(os.path.realpath("/proc/self") + "/"))
    return int(path.name) if own and path.name.isdecimal() else None


@contextmanager
def _sink(target: Target) -> Iterator[IO[bytes] | None]:
    """What the finished bytes are written into, opened before the work as a shell would; None for a file, which is replaced."""
    if not target.stream:
        yield None
        return
    try:
        if target.descriptor is None:
            file = open(target.path, "wb", buffering=0)  # noqa: SIM115
        else:
            os.write(target.descriptor, b"")  # an open file that can only be read says so here
            file = os.fdopen(os.dup(target.descriptor), "wb", buffering=0)
    except OSError as error:
        raise unwritable(target.path, error) from error
    with file:
        yield file


def _temporary(target: Target) -> Path:
    folder = None if target.stream else target.real.parent
    # The ending is kept: some writers choose their format by it.
    suffix = target.path.suffix if len(target.path.suffix) <= _SUFFIX else ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.path.stem[:_STEM]}-", suffix=suffix, dir=folder)
    except OSError as error:
        raise unwritable(target.path, error) from error
    os.close(handle)
    _temporaries.add(Path(name))
    return Path(name)


def _finish(target: Target, temporary: Path, sink: IO[bytes] | None) -> None:
    try:
        if sink is None:
            _take_rights(temporary, target.status)
            temporary.replace(target.real)
            return
        if target.descriptor == 1:
            sys.stdout.flush()  # what was printed before comes before
        with temporary.open("rb") as content:
            while part := content.read(2**20):
                while part:
                    part = part[sink.write(part) :]
    except OSError as error:
        raise unwritable(target.path, error) from error


def _full_disk(error: BaseException | None, temporary: Path) -> OSError | None:
    """The error of a full disk behind an error of the block, which some writers cover with another, if it is about this file."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL and error.filename in (None, str(temporary)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _take_rights(temporary: Path, status: os.stat_result | None) -> None:
    """The permissions and the owner of the file that is replaced, or those of any new file."""
    if status is None:
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        return
    if hasattr(os, "chown"):
        with suppress(OSError):  # only root may give files away
            os.chown(temporary, status.st_uid, status.st_gid)
    temporary.chmod(stat.S_IMODE(status.st_mode))


def _identity(path: PathLike | None) -> Any:
    """What makes two paths the same file; None for a character device, which many may read and write at once."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return str(_followed(Path(path)))
    return None if stat.S_ISCHR(status.st_mode) else (status.st_dev, status.st_ino)
