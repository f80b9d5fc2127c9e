"""What went wrong, in one form: what is expected, what came, the fix."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["InputError", "KindError", "MissingExtra", "OvertError"]


class OvertError(Exception):
    """The base of every error that overt raises on purpose; the command prints it and exits with 2.

    >>> isinstance(InputError("dropout from 0 to 1"), OvertError)
    True
    """


class _RefusedError(OvertError):
    def __init__(self, expected: str, got: str = "", fix: str = ""):
        self.expected = expected
        self.got = got
        self.fix = fix
        super().__init__(_sentence(expected, got, fix))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.expected, self.got, self.fix)  # so that an error survives the way back from a worker process


class InputError(_RefusedError, ValueError):
    """A value or shape that is not what is expected.

    >>> print(InputError("dropout from 0 to 1", got="1.5", fix="pass a probability"))
    Expected dropout from 0 to 1, got 1.5. Fix: pass a probability.
    """


class KindError(_RefusedError, TypeError):
    """A value of the wrong kind: a dtype, a device, a type.

    >>> print(KindError("a bool mask", got="a float tensor", fix="pass it as bias="))
    Expected a bool mask, got a float tensor. Fix: pass it as bias=.
    """


class MissingExtra(OvertError, ImportError):
    """A part that needs a package which is not installed, or a later version of it than the one that is.

    >>> error = MissingExtra("overt.attend", needs="torch", extra="torch")
    >>> str(error) == f"overt.attend needs torch, which is not installed. Fix: run: {install_command('torch')}"
    True
    """

    def __init__(self, what: str, needs: str, extra: str, installed: str = ""):
        self.what = what
        self.needs = needs
        self.extra = extra
        self.installed = installed
        problem = f"but {installed} is installed" if installed else "which is not installed"
        super().__init__(f"{what} needs {needs}, {problem}. Fix: run: {install_command(extra)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.needs, self.extra, self.installed)


@contextmanager
def needed_by(what: str, extra: str) -> Iterator[None]:
    """Raise MissingExtra for a package that is imported in the block, and is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(what, needs=(error.name or "").partition(".")[0], extra=extra) from error


def install_command(extra: str) -> str:
    """The command that installs an extra of overt, from where overt was installed: an index, a clone, a wheel.

    pip writes down the origin of what is from no index (PEP 610). A clone that was installed as it is stays so.

    >>> install_command("text").startswith("pip install ")
    True
    """
    clone, url = _origin()
    if clone:
        return f'pip install --editable "{clone}[{extra}]"'
    return f'pip install "overt[{extra}] @ {url}"' if url else f'pip install "overt[{extra}]"'


def compile_command() -> str | None:
    """The command that compiles overt's native core, from where overt was installed; None for a wheel, which holds no sources.

    >>> "pip install" in (compile_command() or "pip install")
    True
    """
    clone, url = _origin()
    if clone:
        return f'pip install --no-deps --editable "{clone}"'
    if url.endswith(".whl"):
        return None
    wanted = f'"overt @ {url}"' if url else "--no-binary overt overt"
    return f"pip install --force-reinstall --no-deps --no-cache-dir {wanted}"


def _origin() -> tuple[str, str]:
    """The folder of a clone that was installed as it is, or else the address that overt was installed from; "" where there is none."""
    import json  # what reads the origin is imported for an error alone: import overt stays quick
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        record = json.loads(distribution("overt").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        record = {}
    url = record.get("url", "")
    if record.get("dir_info", {}).get("editable"):
        return unquote(urlsplit(url).path), ""
    control = record.get("vcs_info")
    return "", f"{control['vcs']}+{url}@{control['commit_id']}" if control else url


def _sentence(expected: str, got: str, fix: str) -> str:
    sentence = f"Expected {expected}, got {got}." if got else f"Expected {expected}."
    return f"{sentence} Fix: {fix}." if fix else sentence


def __dir__() -> list[str]:
    return __all__
