"""What went wrong, in one form: what is expected, what came, the fix."""

__all__ = ["InputError", "KindError", "MissingExtra", "OvertError"]


class OvertError(Exception):
    """The base of every error that overt raises on purpose; the command prints it and exits with 2.

    >>> isinstance(InputError("dropout from 0 to 1"), OvertError)
    True
    """


class InputError(OvertError, ValueError):
    """A value or shape that is not what is expected.

    >>> print(InputError("dropout from 0 to 1", got="1.5", fix="pass a probability"))
    Expected dropout from 0 to 1, got 1.5. Fix: pass a probability.
    """

    def __init__(self, expected: str, got: str = "", fix: str = ""):
        self.expected, self.got, self.fix = expected, got, fix
        super().__init__(_sentence(expected, got, fix))

    def __reduce__(self):
        return type(self), (self.expected, self.got, self.fix)  # so that an error survives the way back from a worker process


class KindError(OvertError, TypeError):
    """A value of the wrong kind: a dtype, a device, a type.

    >>> print(KindError("a bool mask", got="a float tensor", fix="pass it as bias="))
    Expected a bool mask, got a float tensor. Fix: pass it as bias=.
    """

    def __init__(self, expected: str, got: str = "", fix: str = ""):
        self.expected, self.got, self.fix = expected, got, fix
        super().__init__(_sentence(expected, got, fix))

    def __reduce__(self):
        return type(self), (self.expected, self.got, self.fix)  # so that an error survives the way back from a worker process


class MissingExtra(OvertError, ImportError):
    """A part that needs a package which is not installed.

    >>> print(MissingExtra("overt.attend", needs="torch", extra="torch"))
    overt.attend needs torch, which is not installed. Fix: run: pip install "overt[torch]"
    """

    def __init__(self, what: str, needs: str, extra: str):
        self.what, self.needs, self.extra = what, needs, extra
        super().__init__(f'{what} needs {needs}, which is not installed. Fix: run: pip install "overt[{extra}]"')

    def __reduce__(self):
        return type(self), (self.what, self.needs, self.extra)


def _sentence(expected: str, got: str, fix: str) -> str:
    sentence = f"Expected {expected}, got {got}." if got else f"Expected {expected}."
    return f"{sentence} Fix: {fix}." if fix else sentence


def __dir__() -> list[str]:
    return __all__
