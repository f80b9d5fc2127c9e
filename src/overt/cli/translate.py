"""`overt translate`: text in one language in, the same text in the other language out, line by line."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from overt.cli.console import busy, report_console, require_torch
from overt.cli.inputs import input_of, model_files, read_text
from overt.drawing.letters import ROOM_FOR_A_BAR, Piece, writable
from overt.errors import InputError
from overt.explain.terminal.weight_map import weight_map
from overt.files import separate, whole


def translate(
    text: Annotated[
        str | None,
        typer.Argument(help="The text, or a file whose lines are texts; without one, or as -, standard input is read."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The folder that overt train left. (default: the English-French one in the box)")
    ] = None,
    beam: Annotated[int, typer.Option(help="How many translations are kept while searching; 1 is greedy.")] = 5,
    nbest: Annotated[
        int | None,
        typer.Option(help="Write this many translations of each line: its number, score and text, with tabs between."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations to a file.")] = None,
    attention: Annotated[
        Path | None, typer.Option(help="Write a page of what each word attended to; it works offline.")
    ] = None,
    heat_map: Annotated[bool, typer.Option("--map", help="Show what each word attended to as a map in the terminal.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="TEXT is the text itself, though a file has that name.")] = False,
) -> None:
    """Translate a text, or each line of a file: overt translate english.txt > french.txt.

    Lines keep their order, and empty ones stay empty.
    """
    paths = {"--out": out, "--attention": attention}
    separate(paths, input_of(text, as_text) | model_files(model))
    with busy("loading torch …"):
        lines = _lines(text, as_text)
    _check(lines, nbest, beam, attention or heat_map)
    with busy("loading the translator …"):
        translator = _translator(model)
    with ExitStack() as files:
        # A file that cannot be written is refused before the work.
        places = {name: files.enter_context(whole(path)) for name, path in paths.items() if path is not None}
        found = _translated(translator, lines, beam, nbest or 1)
        told = "".join(f"{line}\n" for line in _written(found, nbest))
        if out is None:
            _print(told)
        else:
            places["--out"].write_text(told, encoding="utf-8")
        if attention or heat_map:
            _show(
                translator,
                lines[0],
                found[0][0],
                places.get("--attention"),
                report_console(*paths.values()) if heat_map else None,
            )
    for path in filter(None, paths.values()):
        Console(stderr=True, highlight=False).print(Piece(lambda ink, path=path: ink.prose(f"→ {path}", lead="")))


def _lines(text: str | None, as_text: bool) -> list[str]:
    """The lines of the text, of the file that it names, or of standard input."""
    if text is None and sys.stdin.isatty():
        raise InputError("translate needs a text", fix='pass one, overt translate "Hello.", or a file, overt translate FILE')
    require_torch("overt translate")
    return read_text(text, as_text)


def _check(lines: list[str], nbest: int | None, beam: int, shown: Any) -> None:
    if beam < 1:
        raise InputError("a beam keeps at least one translation", got=f"--beam {beam}", fix="pass 1 for greedy search, or 5")
    if nbest is not None and not 1 <= nbest <= beam:
        got = f"--nbest {nbest} with --beam {beam}"
        raise InputError("a beam finds at most as many translations as it keeps", got=got, fix="widen the beam")
    if shown and (len(lines) != 1 or not lines[0].strip()):
        got = f"{len(lines)} lines" if len(lines) != 1 else "an empty one"
        raise InputError(
            "--attention and --map show one sentence", got=got, fix='pass it as the text: overt translate "…" --map'
        )


def _translator(folder: Path | None) -> Any:
    from overt.learn.translator import Translator

    return Translator.bundled() if folder is None else Translator.load(folder)


def _translated(translator: Any, lines: list[str], beam: int, best: int) -> list[list[Any]]:
    """The best translations of each line, in the order of the lines."""
    found: list[list[Any]] = [[] for _ in lines]
    with _progress(sum(bool(line.strip()) for line in lines)) as advance:
        for place, translations in translator.stream(lines, beam=beam, best=best):
            found[place] = translations
            advance()
    return found


def _written(found: list[list[Any]], nbest: int | None) -> Iterator[str]:
    """One line of output for each line of input, or with `nbest` one for each translation of it."""
    for number, translations in enumerate(found, 1):
        if nbest is None:
            yield _on_one_line(translations[0].text) if translations else ""
        for each in translations if nbest is not None else ():
            yield f"{number}\t{each.score:.4f}\t{_on_one_line(each.text)}"


def _on_one_line(text: str) -> str:
    """A vocabulary of single letters may hold a line's end; a translation keeps to its line."""
    return " ".join(text.splitlines())


def _print(told: str) -> None:
    """Write to standard output: UTF-8 into a pipe or file, what the terminal has letters for on a terminal."""
    try:
        if sys.stdout.isatty():
            sys.stdout.write(writable(told, sys.stdout.encoding))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(told.encode())
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left, which is no fault; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def _show(translator: Any, text: str, translation: Any, page: Path | None, console: Console | None) -> None:
    """What each written word attended to: as a page, and as a map of the head that reaches the source best."""
    from overt.cli import translator_as_text_model
    from overt.explain.page import html

    with busy("looking at its attention …"):
        if page is not None:
            page.write_text(html(translator_as_text_model.explained(translator, text, translation)), encoding="utf-8")
        looked = translator_as_text_model.looked(translator, text, translation) if console is not None else None
    if looked is not None and console is not None:
        console.print()
        console.print(Piece(lambda ink: ink.prose(looked.told, "dim", "")))
        console.print(weight_map(looked.asking, looked.asked, looked.weights))


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, where there is more than one line."""
    console = Console(stderr=True)
    bars = [BarColumn()] if console.width >= ROOM_FOR_A_BAR else []
    time = [TimeRemainingColumn()] if bars else []
    parts = (TextColumn("translating"), *bars, MofNCompleteColumn(), *time)
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal or total < 2) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
