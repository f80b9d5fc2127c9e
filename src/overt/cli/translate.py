"""`overt translate`: translate a text line by line."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from overt.cli.shared.console import busy, report_console, require_torch
from overt.cli.shared.inputs import input_of, model_files, read_text
from overt.drawing.letters import ROOM_FOR_A_BAR, Piece, writable
from overt.errors import InputError
from overt.explain.terminal.weight_map import weight_map
from overt.files import separate, whole


def translate(
    text: Annotated[
        str | None,
        typer.Argument(help="The text, or a file whose lines are translated. Without it, or with -, standard input is read."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The folder of a run of overt train. (default: the built-in English-French model)")
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy.")] = 5,
    nbest: Annotated[
        int | None,
        typer.Option(help="Write this many translations of each line: line number, score and text, separated by tabs."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations to a file.")] = None,
    attention: Annotated[
        Path | None, typer.Option(help="Write an HTML page that shows what each word attended to; it works offline.")
    ] = None,
    show_map: Annotated[bool, typer.Option("--map", help="Show in the terminal what each word attended to.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="TEXT is the text itself, even if a file has that name.")] = False,
) -> None:
    """Translate a text, or each line of a file: overt translate english.txt > french.txt.

    The order of the lines is kept, and empty lines stay empty.
    """
    paths = {"--out": out, "--attention": attention}
    separate(paths, input_of(text, as_text) | model_files(model))
    with busy("loading torch …"):
        lines = _lines(text, as_text)
    _check(lines, nbest, beam, attention or show_map)
    with busy("loading the translator …"):
        from overt.learn.translator import Translator

        translator = Translator.bundled() if model is None else Translator.load(model)
    with ExitStack() as files:
        # A file that cannot be written is refused before the work.
        outputs = {name: files.enter_context(whole(path)) for name, path in paths.items() if path is not None}
        translations = _translate_lines(translator, lines, beam, nbest or 1)
        _warn(_unknown_characters(translator, lines))
        _warn(_unusual_lines(translator, lines, translations, beam))
        content = "".join(f"{line}\n" for line in _output_lines(translations, nbest))
        if out is None:
            _print(content)
        else:
            outputs["--out"].write_text(content, encoding="utf-8")
        if attention or show_map:
            console = report_console(*paths.values()) if show_map else None
            _show(translator, lines[0], translations[0][0], outputs.get("--attention"), console)
    for path in filter(None, paths.values()):
        Console(stderr=True, highlight=False).print(Piece(lambda ink, path=path: ink.prose(f"→ {path}", lead="")))


def _lines(text: str | None, as_text: bool) -> list[str]:
    """The lines of the text, of the file that it names, or of standard input."""
    if text is None and sys.stdin.isatty():
        raise InputError("a text", fix='pass one, overt translate "Hello.", or a file, overt translate FILE')
    require_torch("overt translate")
    return read_text(text, as_text)


def _check(lines: list[str], nbest: int | None, beam: int, show_attention: Any) -> None:
    if beam < 1:
        raise InputError("a beam of at least 1", got=f"--beam {beam}", fix="pass 1 for greedy search, or 5")
    if nbest is not None and not 1 <= nbest <= beam:
        got = f"--nbest {nbest} with --beam {beam}"
        raise InputError("from 1 translation up to the size of the beam", got=got, fix="widen the beam")
    if show_attention and (len(lines) != 1 or not lines[0].strip()):
        got = f"{len(lines)} lines" if len(lines) != 1 else "an empty line"
        raise InputError(
            "one sentence for --attention and --map", got=got, fix='pass it as the text: overt translate "…" --map'
        )


def _translate_lines(translator: Any, lines: list[str], beam: int, best: int) -> list[list[Any]]:
    """The best translations of each line, in the order of the lines."""
    results: list[list[Any]] = [[] for _ in lines]
    with show_progress(sum(bool(line.strip()) for line in lines)) as advance:
        for index, translations in translator.stream(lines, beam=beam, best=best):
            results[index] = translations
            advance()
    return results


def _unknown_characters(translator: Any, lines: list[str]) -> str | None:
    """Which lines have characters that the translator cannot read: it does not see what they mean."""
    tokenizer = translator.tokenizer
    unknown = {number: tokenizer.unknown_characters(line) for number, line in enumerate(lines, 1) if line.strip()}
    unknown = {number: characters for number, characters in unknown.items() if characters}
    if not unknown:
        return None
    characters = list(dict.fromkeys(each for line in unknown.values() for each in line))
    shown = " ".join(characters[:10]) + (" …" if len(characters) > 10 else "")
    what = "reads only the bytes of" if tokenizer.byte_fallback else "cannot read"
    return f"the translator {what} {shown} in {_lines_in_words(list(unknown), lines)}; its translation may be wrong"


def _unusual_lines(translator: Any, lines: list[str], translations: list[list[Any]], beam: int) -> str | None:
    """Which lines are unlike what the model was trained on, by their translation or by their words."""
    unusual = [number for number, each in enumerate(translations, 1) if each and translator.is_unusual(each[0], beam=beam)]
    if not unusual:
        return None
    bounds = [
        f"a mean log probability of the translation above {translator.score_bound:.2f}"
        if translator.score_bound is not None
        else "",
        f"at most {translator.split_bound:.2f} cuts inside words for each letter" if translator.split_bound is not None else "",
    ]
    usual = ", and as many ".join(filter(None, bounds))
    return (
        f"{_lines_in_words(unusual, lines)} may be unlike the training data, as in another language: 99 % of the validation sentences "
        f"have {usual}; the translation may be wrong"
    )


def _lines_in_words(numbers: list[int], lines: list[str]) -> str:
    if len(lines) == 1:
        return "the text"
    return f"line {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} lines, first line {numbers[0]}"


def _warn(sentence: str | None) -> None:
    """Write a warning to standard error."""
    if sentence is not None:
        Console(stderr=True, highlight=False).print(Piece(lambda ink: ink.prose(f"warning: {sentence}", lead="")))


def _output_lines(translations: list[list[Any]], nbest: int | None) -> Iterator[str]:
    """One line of output for each line of input, or with `nbest` one for each translation of it."""
    for number, candidates in enumerate(translations, 1):
        if nbest is None:
            yield _on_one_line(candidates[0].text) if candidates else ""
        for each in candidates if nbest is not None else ():
            yield f"{number}\t{each.score:.4f}\t{_on_one_line(each.text)}"


def _on_one_line(text: str) -> str:
    """The text without line ends, which a vocabulary of single characters may contain."""
    return " ".join(text.splitlines())


def _print(content: str) -> None:
    """Write to standard output: UTF-8 into a pipe or file, and characters that its encoding has to a terminal."""
    try:
        if sys.stdout.isatty():
            sys.stdout.write(writable(content, sys.stdout.encoding))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content.encode())
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe, which is no error; buffered output must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def _show(translator: Any, text: str, translation: Any, page: Path | None, console: Console | None) -> None:
    """Show what each written word attended to: as a page, and as a map in the terminal."""
    from overt.cli.shared import translator_as_text_model
    from overt.explain.html import write

    with busy("recording the attention …"):
        if page is not None:
            write([translator_as_text_model.explained(translator, text, translation)], page)
        attention_map = translator_as_text_model.cross_attention_map(translator, text, translation) if console else None
    if attention_map is not None and console is not None:
        console.print()
        console.print(Piece(lambda ink: ink.prose(attention_map.caption, "dim", "")))
        console.print(weight_map(attention_map.query_tokens, attention_map.key_tokens, attention_map.weights))


@contextmanager
def show_progress(total: int) -> Iterator[Any]:
    """A progress bar, on a terminal and for more than one line."""
    console = Console(stderr=True)
    bars = [BarColumn()] if console.width >= ROOM_FOR_A_BAR else []
    time = [TimeRemainingColumn()] if bars else []
    parts = (TextColumn("translating"), *bars, MofNCompleteColumn(), *time)
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal or total < 2) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
