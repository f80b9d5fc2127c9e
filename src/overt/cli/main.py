"""The command `overt` and its subcommands, each imported when it is called, so that `overt smooth` never imports torch."""

import errno
import importlib
import shutil
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import overt
from overt.cli.shared.termination import discard_output, exit_on_sigterm
from overt.drawing.letters import writable
from overt.errors import MissingExtra, OvertError
from overt.files import unwritable
from overt.reading import check_text

# COMMANDS: a command's function has the name of its file, see `command_module`. The sentence is shown by `overt --help`.
COMMANDS = {
    "demo": "Demonstrate overt on one screen, and write overt-demo.html and overt-demo.png.",
    "explain": "Show how a word attends to the other words of its text, in numbers and pictures.",
    "play": "Write a page in which a model runs: edit the sentence, and all pictures follow.",
    "view": "Write a saved recording as a page, from the map of every head down to single weights.",
    "atlas": "Survey every head of a model over a corpus, and write what it does as a page.",
    "heads": "Find the heads that look from one word of your sentences to another.",
    "replay": "Replay a server's answers: which parts of the prompt the model read, and which it needed.",
    "smooth": "Smooth columns of a CSV or Parquet file by self-attention.",
    "train": "Train a model from a recipe; the same command resumes a stopped run.",
    "translate": "Translate a text, or each line of a file, offline.",
    "evaluate": "Score a trained model on its test set, such as BLEU and chrF.",
    "bench": "Time overt and other libraries on this machine; results are compared first.",
    "doctor": "Show the installed packages and the kernels that this machine can run.",
}


NARROW = 60  # NARROW, in columns: in narrower terminals, frames and tables would cut the names of options


class Commands(TyperGroup):
    """Imports a command when it is called, and prints an error of overt without a traceback."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in a frame, or as plain lines on a narrow terminal."""
        self.rich_markup_mode = _markup(formatter)
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command by its name, and replace the placeholder by the imported command."""
        name, command, arguments = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, arguments

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an OvertError prints its message on stderr and exits with 2, SIGTERM exits with 143."""
        try:
            with exit_on_sigterm():
                return super().invoke(ctx)
        except OvertError as error:
            _print_error(error)
            raise typer.Exit(2) from error

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program; an error of the system, also in the text of `--help`, prints a sentence and exits with 2."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of standard output has closed it, like `head`
                raise
            _print_error(unwritable(error.filename or "the output", error))
            discard_output()
            sys.exit(2)


class CheckedCommand(TyperCommand):
    """Refuses arguments that are not Unicode before it runs; file names may be any bytes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help like `Commands`."""
        self.rich_markup_mode = _markup(formatter)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Check each text, then run the command."""
        for name, value in ctx.params.items():
            for text in value if isinstance(value, list | tuple) else [value]:
                if isinstance(text, str):
                    check_text(text, f"the argument {name.upper()}")
        return super().invoke(ctx)


def _markup(formatter: Any) -> Any:
    """Set the width of help and choose its markup: "markdown" joins the lines of a paragraph (unlike "rich"); None if it is narrow."""
    columns = shutil.get_terminal_size().columns
    formatter.width = columns - 2
    return "markdown" if columns >= NARROW else None


def _print_error(error: OvertError) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(writable(f"overt: {error}", console.encoding), markup=False, soft_wrap=True)


app: typer.Typer = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention computed exactly, with nothing hidden.",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"overt {overt.__version__}")
        raise typer.Exit


@app.callback()
def _overt(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _placeholder(sentence: str) -> Any:
    def command() -> None:
        raise AssertionError("a placeholder is replaced before it runs")

    command.__doc__ = sentence
    return command


def command_module(name: str) -> str:
    """The module of a command: a file in this folder or in `lens`.

    >>> command_module("view"), command_module("heads")
    ('overt.cli.view', 'overt.cli.lens.heads')
    """
    return f"overt.cli.{'lens.' if name in ('atlas', 'heads') else ''}{name}"


def _load(name: str) -> Any:
    try:
        function = getattr(importlib.import_module(command_module(name)), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("overt"):
            raise
        raise MissingExtra(f"overt {name}", needs=error.name, extra="all") from error
    single = typer.Typer(add_completion=False)
    single.command(name, cls=CheckedCommand)(function)
    return get_command(single)


for _name, _sentence in COMMANDS.items():
    app.command(_name, short_help=_sentence)(_placeholder(_sentence))
