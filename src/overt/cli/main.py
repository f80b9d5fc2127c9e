"""The command `overt` and its commands, each loaded when it is called, so that `overt smooth` never imports torch."""

import importlib
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

import overt
from overt.drawing.letters import writable
from overt.errors import MissingExtra, OvertError

# A command's function has the name of its file in this folder, with _ for the blank of a command of two words; the sentence is
# what `overt --help` says of it.
COMMANDS = {
    "demo": "Show on one screen what overt is for, and write overt-demo.html and overt-demo.png.",
    "explain": "Show how a word attends to the others of its text, in numbers and pictures.",
    "view": "Show a saved recording as a page: every head from the whole map to single weights.",
    "smooth": "Smooth columns of a CSV or Parquet file by attention to themselves.",
    "train": "Train a model by a recipe; started again, a stopped run goes on.",
    "translate": "Translate a text, or each line of a file, offline.",
    "evaluate": "Score a translator on a test set: BLEU, chrF, and BLEU by length.",
    "bench": "Time overt beside other libraries on this machine, results compared first.",
    "bench smooth": "Compare smoothing with other smoothers: error left, time, real series.",
    "doctor": "Show what is installed, found and able to run here.",
}


class Commands(TyperGroup):
    """Loads a command when it is called, not when it is listed, and prints an overt error in place of a traceback."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command by its name, and put the loaded one in the place of the listed one."""
        if " ".join(args[:2]) in COMMANDS:
            args = [" ".join(args[:2]), *args[2:]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an overt error is its message on stderr, and 2."""
        try:
            return super().invoke(ctx)
        except OvertError as error:
            console = Console(stderr=True, highlight=False)
            console.print(writable(f"overt: {error}", console.encoding), markup=False, soft_wrap=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention computed exactly, with nothing hidden.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"overt {overt.__version__}")
        raise typer.Exit


@app.callback()
def _overt(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _listed(sentence: str) -> Any:
    def stand_in() -> None:
        raise AssertionError("a listed command is replaced before it runs")

    stand_in.__doc__ = sentence
    return stand_in


def _load(name: str) -> Any:
    try:
        file = name.replace(" ", "_")
        function = getattr(importlib.import_module(f"overt.cli.{file}"), file)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("overt"):
            raise
        raise MissingExtra(f"overt {name}", needs=error.name, extra="all") from error
    single = typer.Typer(add_completion=False)
    single.command(name)(function)
    return get_command(single)


for _name, _sentence in COMMANDS.items():
    app.command(_name)(_listed(_sentence))
