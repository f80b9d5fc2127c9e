"""A benchmark whose options typer reads: an error of overt is a sentence and exit status 2, as in the commands of `overt`."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from overt.errors import OvertError


class RefusingCommand(TyperCommand):
    """Prints an error of overt without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OvertError as error:
            typer.echo(f"overt: {error}", err=True)
            raise typer.Exit(2) from error


def app_of(function: Callable[..., None]) -> typer.Typer:
    """The program of one function."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=RefusingCommand)(function)
    return app
