"""Terminal output of the commands: the console, a spinner for long work, and the check that torch is installed."""

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from overt.drawing.letters import Piece
from overt.errors import needed_by
from overt.files import PathLike, is_standard_output


def report_console(*outputs: PathLike | None) -> Console:
    """The console for reports: standard error if one of the output files is standard output, else standard output."""
    return Console(stderr=any(is_standard_output(path) for path in outputs), highlight=False)


def say(console: Console, *sentences: str, style: str = "", lead: str = "") -> None:
    """Print sentences, each broken at the width of the terminal and beginning with `lead`."""
    for sentence in sentences:
        console.print(Piece(lambda ink, sentence=sentence: ink.prose(sentence, style, lead)))


def busy(message: str) -> AbstractContextManager[object]:
    """Show a spinner with a message on a terminal, and nothing in a pipe."""
    console = Console(stderr=True)
    return console.status(message) if console.is_terminal else nullcontext()


def require_torch(what: str, extra: str = "text") -> None:
    """Raise MissingExtra, with what to install, if torch is not installed; `what` needs the whole extra."""
    with needed_by(what, extra):
        import torch  # noqa: F401
