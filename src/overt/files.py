"""Writing files: an output is written whole or not at all, and never over an input; a run has its folder to itself."""

import errno
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from overt.errors import InputError, OvertError
from overt.reading import PathLike, reason

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What to do where the file is to be written; another folder would do too.
_REMEDIES = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space of your quota",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EROFS: "make its disk writable, which is read-only",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its permissions"),
    **dict.fromkeys((errno.ENOENT, errno.ESTALE), "create its folder"),
    **dict.fromkeys((errno.EIO, errno.ENXIO, errno.ENODEV), "check its disk, which reports an error"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close other files, or raise the limit of open files (ulimit -n)"),
    **dict.fromkeys((errno.EBUSY, errno.ETXTBSY), "end the program that uses it"),
    errno.ENOTEMPTY: "end the other program that writes there",
}
# Errors that the path itself causes.
_FIXES = {
    errno.ENAMETOOLONG: "shorten the name",
    errno.ENOTDIR: "choose a folder: a part of the path is a file",
    errno.EISDIR: "name a file in it",
    errno.EEXIST: "choose another name: a file of this name exists",
    errno.ELOOP: "remove the links that point to each other",
    errno.EPIPE: "let the reader of the pipe read all of the output",
}
_LINKS = 40  # as many as Linux follows
_STEM = 20  # characters of the target's name in the temporary's: four bytes each at most, so that it is never too long
_SUFFIX = 16

_temporaries: set[Path] = set()
_owners: set[tuple[str, int]] = set()  # locked folders, each with the thread that locked it


class OutputFile(NamedTuple):
    """An output path: as the caller wrote it, the file at the end of its links, and the status of what exists there (None: nothing)."""

    path: Path
    real: Path
    status: os.stat_result | None

    @property
    def descriptor(self) -> int | None:
        """The file descriptor of this process that the path names, as /dev/stdout does; None for other paths."""
        return _descriptor(self.real)

    @property
    def stream(self) -> bool:
        """Whether bytes are written into what exists there, without replacing it: a FIFO, a character device, an open file."""
        if self.status is None:
            return False
        special = stat.S_ISFIFO(self.status.st_mode) or stat.S_ISCHR(self.status.st_mode)
        return special or self.descriptor is not None


@contextmanager
def whole(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path; what is written there becomes the file `path` only when the block ends without an error.

    A file is replaced whole: the temporary lies beside it, and takes its name, its permissions and, where that is allowed, its
    owner. Links are followed, and the file at their end is replaced; another hard link to it keeps the old content. A FIFO, a
    character device and an open file such as /dev/stdout are not replaced: the finished bytes are written into them. Within the
    block, `whole(temporary)` returns the same temporary path.

    Raises InputError for a directory, a socket, a block device and a folder that cannot be written, before the block runs. Raises it
    for a full disk too; the old file is then unchanged.

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
            refused = _refused(error, temporary)
            if refused is None:
                raise
            raise unwritable(path, refused) from error
        finally:
            _temporaries.discard(temporary)
            temporary.unlink(missing_ok=True)


def separate(outputs: Mapping[str, PathLike | None], inputs: Mapping[str, PathLike | None] | None = None) -> None:
    """Raise InputError for an output that is the same file as an input or another output, whatever links or relative paths name it.

    The keys are the names that the caller knows, such as "--out"; a path that is None is skipped.

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
            raise InputError("an output file that is not an input file", got=got, fix=fix)
        if identity in written:
            got = f"{written[identity]} and {name}, both {path}"
            raise InputError("a different file for each output", got=got, fix=f"name another file with {name}")
        written[identity] = name


def check_target(path: PathLike) -> None:
    """Raise now what `whole` would raise for this path, so that long work is not lost."""
    _target(path)


def is_stream(path: PathLike) -> bool:
    """Whether an output is written into what exists at the path: a FIFO, a character device, an open file such as /dev/stdout."""
    return _target(path).stream


def is_standard_output(path: PathLike | None) -> bool:
    """Whether a path names this process's standard output, as /dev/stdout does."""
    return path is not None and _descriptor(_resolve_links(Path(path))) == 1


def make_folder(path: PathLike) -> Path:
    """Make a folder and its parents, unless they exist. Raises InputError where that fails."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    return Path(path)


def unwritable(path: PathLike, error: OSError | ValueError, fix: str = "") -> InputError:
    """The error for a file that the system could not write, with a fix for its reason."""
    return InputError(f"{os.fspath(path)} to be writable", got=reason(error), fix=fix or remedy(error, "choose another folder"))


def remedy(error: OSError | ValueError, otherwise: str = "") -> str:
    """What to do about an error of writing, by its number; `otherwise` is another way out, if there is one.

    >>> remedy(OSError(errno.ENOSPC, "No space left on device"), "record fewer layers")
    'free disk space, or record fewer layers'
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in _FIXES:
        return _FIXES[number]
    return ", or ".join(filter(None, (_REMEDIES.get(number or 0), otherwise))) or "check the folder"


@contextmanager
def exclusive(folder: PathLike) -> Iterator[None]:
    """Make a folder and lock it for the block, so that two programs do not write a run into it at once.

    The lock is the system's and ends with the process, even if the process is killed. The same thread may lock a folder again within the
    block. On a disk without locks, the block runs without one. Raises InputError if another program has the lock.

    >>> import tempfile
    >>> with exclusive(folder := tempfile.mkdtemp()), exclusive(folder):
    ...     print(os.listdir(folder))
    ['run.lock']
    """
    owner = (os.path.realpath(folder), threading.get_ident())
    if owner in _owners:
        yield
        return
    created = not os.path.lexists(folder)
    path = make_folder(folder) / "run.lock"
    lock = _lock(path)
    _owners.add(owner)
    try:
        yield
    finally:
        _owners.discard(owner)
        with suppress(OSError):
            path.unlink()  # before it is unlocked: another program that opened it finds that it is gone
        lock.close()
        if created:
            with suppress(OSError):  # it has files
                Path(folder).rmdir()


def _lock(path: Path) -> IO[bytes]:
    """The open lock file, locked."""
    while True:
        try:
            file = path.open("a+b")
        except OSError as error:
            raise unwritable(path.parent, error) from error
        try:
            _lock_file(file)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:  # the program that had it ended
            pass
        except (BlockingIOError, PermissionError) as error:
            file.close()
            fix = "wait until it ends, or choose another folder"
            raise InputError(f"{path.parent} to be written by one run", got="another run that writes there", fix=fix) from error
        except OSError:  # a disk without locks
            return file
        file.close()


def _lock_file(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _target(path: PathLike) -> OutputFile:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    target = OutputFile(Path(path), _resolve_links(Path(path)), status)
    if status is None:
        if not target.real.parent.is_dir():
            parent = target.path.parent if not target.path.is_symlink() else target.real.parent
            fix = f"create {parent} first"
            raise InputError("an output path in an existing folder", got=str(path), fix=fix)
        return target
    if stat.S_ISDIR(status.st_mode):
        raise InputError("the path of an output file", got=f"the folder {target.path}", fix="name a file in it")
    if not target.stream and not stat.S_ISREG(status.st_mode):
        kind = "socket" if stat.S_ISSOCK(status.st_mode) else "block device"
        raise InputError(
            "an output path that is a file, a pipe or a character device", got=f"the {kind} {path}", fix="name a file"
        )
    if not target.stream and not os.access(target.real, os.W_OK):
        raise unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return target


def _resolve_links(path: Path) -> Path:
    """The file at the end of a path's links, or the first link that names an open file of this process."""
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
    this_process = inside and (
        str(path.parent) == "/dev/fd" or str(path.parent).startswith(os.path.realpath("/proc/self") + "/")
    )
    return int(path.name) if this_process and path.name.isdecimal() else None


@contextmanager
def _sink(target: OutputFile) -> Iterator[IO[bytes] | None]:
    """The stream that takes the finished bytes, opened before the work as a shell would; None for a file, which is replaced."""
    if not target.stream:
        yield None
        return
    try:
        if target.descriptor is None:
            file = open(target.path, "wb", buffering=0)  # noqa: SIM115
        else:
            os.write(target.descriptor, b"")  # raises here where the open file is read-only
            file = os.fdopen(os.dup(target.descriptor), "wb", buffering=0)
    except OSError as error:
        raise unwritable(target.path, error) from error
    with file:
        yield file


def _temporary(target: OutputFile) -> Path:
    folder = None if target.stream else target.real.parent
    # Keep the suffix: some writers choose their format by it.
    suffix = target.path.suffix if len(target.path.suffix) <= _SUFFIX else ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.path.stem[:_STEM]}-", suffix=suffix, dir=folder)
    except OSError as error:
        raise unwritable(target.path, error) from error
    os.close(handle)
    _temporaries.add(Path(name))
    return Path(name)


def _finish(target: OutputFile, temporary: Path, sink: IO[bytes] | None) -> None:
    try:
        if sink is None:
            _copy_permissions(temporary, target.status)
            temporary.replace(target.real)
            return
        if target.descriptor == 1:
            sys.stdout.flush()  # printed text comes first
        with temporary.open("rb") as content:
            while part := content.read(2**20):
                while part:
                    part = part[sink.write(part) :]
    except OSError as error:
        raise unwritable(target.path, error) from error


def _refused(error: BaseException | None, temporary: Path) -> OSError | None:
    """The system's error about this file in the chain of an error; some writers wrap it in another exception, without a name."""
    while error is not None:
        if isinstance(error, OSError) and (error.filename == str(temporary) or (error.errno in FULL and not error.filename)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _copy_permissions(temporary: Path, status: os.stat_result | None) -> None:
    """Give the new file the permissions and the owner of the replaced one, or the default permissions."""
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
    """A value that is equal for two paths to the same file; None for a character device, which may be shared."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return str(_resolve_links(Path(path)))
    return None if stat.S_ISCHR(status.st_mode) else (status.st_dev, status.st_ino)
