"""Where a command says what it did: on standard output, or on standard error where an output is written to standard output."""

from rich.console import Console

from overt.files import PathLike, is_standard_output


def report(*outputs: PathLike | None) -> Console:
    """The console of a command that writes these files: what it says is not to be mixed into one of them."""
    return Console(stderr=any(is_standard_output(path) for path in outputs), highlight=False)
