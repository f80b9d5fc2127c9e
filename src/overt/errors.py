"""What went wrong, in one form: the rule, what came, the cure."""


class OvertError(Exception):
    """The base of every error that overt raises on purpose; the command prints it and exits with 2.

    >>> isinstance(InputError("dropout is a probability"), OvertError)
    True
    """


class InputError(OvertError, ValueError):
    """A value or shape that breaks a rule.

    >>> print(InputError("dropout is a probability", got="1.5", cure="pass a number from 0 to 1"))
    dropout is a probability; got 1.5. To mend it, pass a number from 0 to 1.
    """

    def __init__(self, rule: str, got: str = "", cure: str = ""):
        self.rule, self.got, self.cure = rule, got, cure
        super().__init__(_sentence(rule, got, cure))

    def __reduce__(self):
        return type(self), (self.rule, self.got, self.cure)  # so that an error survives the way back from a worker process


class KindError(OvertError, TypeError):
    """A value of the wrong kind: a dtype, a device, a type.

    >>> print(KindError("a mask is bool", got="a float tensor", cure="pass it as bias="))
    a mask is bool; got a float tensor. To mend it, pass it as bias=.
    """

    def __init__(self, rule: str, got: str = "", cure: str = ""):
        self.rule, self.got, self.cure = rule, got, cure
        super().__init__(_sentence(rule, got, cure))

    def __reduce__(self):
        return type(self), (self.rule, self.got, self.cure)  # so that an error survives the way back from a worker process


class MissingExtra(OvertError, ImportError):
    """A part that needs a package which is not installed.

    >>> print(MissingExtra("overt.attend", needs="torch", extra="torch"))
    overt.attend needs torch, which is not installed. To mend it, run: pip install "overt[torch]"
    """

    def __init__(self, what: str, needs: str, extra: str):
        self.what, self.needs, self.extra = what, needs, extra
        super().__init__(f'{what} needs {needs}, which is not installed. To mend it, run: pip install "overt[{extra}]"')

    def __reduce__(self):
        return type(self), (self.what, self.needs, self.extra)


def _sentence(rule: str, got: str, cure: str) -> str:
    sentence = f"{rule}; got {got}." if got else f"{rule}."
    return f"{sentence} To mend it, {cure}." if cure else sentence
