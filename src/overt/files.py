"""Output files that are written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from overt.errors import InputError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; it takes the name `path` only when the block ends without an error.

    Raises InputError for a place that takes no file, and for a disk that is full before the end.

    >>> import pathlib, tempfile
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
    >>> with whole(target) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> target.read_text()
    'all of it'
    """
    target = Path(path)
    if target.is_dir():
        raise InputError("an output file needs a file's name", got=f"the folder {target}", cure="name a file in it")
    if not target.parent.is_dir():
        raise InputError("an output file goes into a folder that exists", got=str(target), cure=f"make {target.parent} first")
    try:
        # The ending is kept: some writers choose their format by it.
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written", got=error.strerror or str(error), cure="choose another folder"
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        cure = "make room, or choose another folder"
        raise InputError(f"{target} cannot be written whole", got=error.strerror or str(error), cure=cure) from error
    finally:
        temporary.unlink(missing_ok=True)
