"""`overt translate`: translate a text line by line."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.cli.shared.inputs import model_files, named_input, read_text
from overt.cli.shared.json_output import write_json
from overt.cli.shared.termination import discard_output
from overt.drawing.letters import ROOM_FOR_A_BAR, writable
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
    warnings: Annotated[
        Path | None, typer.Option(help="Write the warnings to a file: line number, kind and subject, between tabs.")
    ] = None,
    attention: Annotated[
        Path | None, typer.Option(help="Write an HTML page with the attention of each word; the page works offline.")
    ] = None,
    show_map: Annotated[bool, typer.Option("--map", help="Show the attention of each word in the terminal.")] = False,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write translations, scores and warnings as JSON.")] = None,
    as_text: Annotated[bool, typer.Option("--text", help="TEXT is the text itself, even if a file has that name.")] = False,
) -> None:
    """Translate a text, or each line of a file: overt translate english.txt > french.txt.

    The order of the lines is kept, and empty lines stay empty. Addresses, mark-up, code, file names, exact numbers and emoji are copied.
    """
    paths = {"--out": out, "--warnings": warnings, "--attention": attention, "--json": json_out}
    separate(paths, named_input(text, as_text) | model_files(model))
    with busy("loading torch …"):
        lines = _lines(text, as_text)
    _check(lines, nbest, beam, attention or show_map)
    with busy("loading the translator …"):
        from overt.learn.processing.lines import LinePart, parts_of_lines
        from overt.learn.translator import Translator

        translator = Translator.bundled() if model is None else Translator.load(model)
    with ExitStack() as files:
        # A read-only file is refused before the work.
        outputs = {name: files.enter_context(whole(path)) for name, path in paths.items() if path is not None}
        # The map and the page show one text, in the model's form.
        parts = [[LinePart(line)] for line in lines] if attention or show_map else [*parts_of_lines(lines)]
        translations = _translate_lines(translator, parts, beam, nbest or 1)
        warned = _warnings(translator, parts, translations, beam)
        errors = Console(stderr=True, highlight=False)
        for warning in warned:
            where = _lines_in_words(list(warning.lines), len(lines))
            say(errors, f"warning: {warning.sentence.format(lines=where)}")
        if warnings is not None:
            outputs["--warnings"].write_text(_rows(warned), encoding="utf-8")
        if json_out is not None:
            write_json(outputs["--json"], "translate", {"lines": _data(lines, translations, warned)})
        content = "".join(f"{line}\n" for line in _output_lines(translations, nbest))
        if out is None:
            _print(content)
        else:
            outputs["--out"].write_text(content, encoding="utf-8")
        if attention or show_map:
            console = report_console(*paths.values()) if show_map else None
            _show(translator, lines[0], translations[0][0], outputs.get("--attention"), console)
    say(errors, *(f"→ {path}" for path in filter(None, paths.values())))


def _data(lines: list[str], translations: list[list[Any]], warned: Sequence["Warned"]) -> list[dict[str, Any]]:
    """Each line with its translations, scores and warnings."""
    return [
        {
            "line": number,
            "text": line,
            "translations": [{"text": candidate.text, "score": candidate.score} for candidate in candidates],
            "warnings": [{"kind": one.kind, "what": one.lines[number]} for one in warned if number in one.lines],
        }
        for number, (line, candidates) in enumerate(zip(lines, translations, strict=True), 1)
    ]


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


def _translate_lines(translator: Any, lines: Sequence[Sequence[Any]], beam: int, best: int) -> list[list[Any]]:
    """The best translations of each line, in the order of the lines; `lines` are their parts."""
    texts = ["" if part.copied else part.text for line in lines for part in line]
    results: list[list[Any]] = [[] for _ in texts]
    with show_progress(sum(bool(text.strip()) for text in texts)) as advance:
        for index, translations in translator.stream(texts, beam=beam, best=best):
            results[index] = translations
            advance()
    parts = iter(results)
    return [translator.joined([(part.text, next(parts)) for part in line], beam=beam) for line in lines]


class Warned(NamedTuple):
    """A kind of warning, its sentence with {lines} in it, and the subject for each line number."""

    kind: str
    sentence: str
    lines: dict[int, str]


def _warnings(translator: Any, lines: Sequence[Sequence[Any]], translations: list[list[Any]], beam: int) -> list[Warned]:
    """Warnings: characters that the model cannot read, texts unlike its training data, lost spans and numbers."""
    first = {number: candidates[0] for number, candidates in enumerate(translations, 1) if candidates}
    warned = [_unknown_characters(translator, lines), _unusual_lines(translator, first, beam)]
    notes = {number: translation.notes for number, translation in first.items() if translation.notes}
    kinds = dict.fromkeys(note.partition(": ")[0] for line_notes in notes.values() for note in line_notes)
    for kind in kinds:
        matched = {
            number: [note.partition(": ")[2] for note in line_notes if note.startswith(kind)]
            for number, line_notes in notes.items()
        }
        there = {number: ", ".join(entries) for number, entries in matched.items() if entries}
        named = f" ({next(iter(there.values()))})" if len(there) == 1 else ""
        warned.append(Warned(kind, f"{kind}{_literal(named)} in {{lines}}", there))
    return [warning for warning in warned if warning.lines]


def _unknown_characters(translator: Any, lines: Sequence[Sequence[Any]]) -> Warned:
    """The lines with characters that the translator cannot read, whose meaning it ignores."""
    tokenizer = translator.tokenizer
    translated = {number: [part.text for part in line if not part.copied] for number, line in enumerate(lines, 1)}
    sources = {number: "".join(translator.prepare(text).source for text in texts) for number, texts in translated.items()}
    unknown = {number: tokenizer.unknown_characters(source) for number, source in sources.items() if source}
    characters = list(dict.fromkeys(character for line in unknown.values() for character in line))
    shown = _literal(" ".join(characters[:10]) + (" …" if len(characters) > 10 else ""))
    what = "reads only the bytes of" if tokenizer.byte_fallback else "cannot read"
    lost = {number: " ".join(symbols) for number, symbols in unknown.items() if symbols}
    sentence = f"the translator {what} {shown} in {{lines}}; its translation may be wrong"
    return Warned(f"the translator {what}", sentence, lost)


def _literal(text: str) -> str:
    """A text escaped for a sentence with {lines} in it."""
    return text.replace("{", "{{").replace("}", "}}")


def _unusual_lines(translator: Any, translations: dict[int, Any], beam: int) -> Warned:
    """The lines that are unlike the model's training data, by their translation or by their words."""
    unusual = [number for number, translation in translations.items() if translator.is_unusual(translation, beam=beam)]
    bounds = [
        f"a mean log probability of the translation above {translator.score_bound:.2f}"
        if translator.score_bound is not None
        else "",
        f"at most {translator.split_bound:.2f} cuts inside words for each letter" if translator.split_bound is not None else "",
    ]
    usual = ", and as many ".join(filter(None, bounds))
    sentence = (
        "{lines} may be unlike the training data, as in another language: 99 % of the validation sentences "
        f"have {usual}; the translation may be wrong"
    )
    return Warned("may be unlike the training data", sentence, dict.fromkeys(unusual, ""))


def _lines_in_words(numbers: Sequence[int], count: int) -> str:
    """A list of line numbers in words; three or more consecutive numbers become a range.

    >>> _lines_in_words([2, 5, 6, 7, 9, 10], 10), _lines_in_words([4], 10), _lines_in_words([1], 1)
    ('lines 2, 5-7, 9 and 10', 'line 4', 'the text')
    """
    if count == 1:
        return "the text"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{'line' if len(numbers) == 1 else 'lines'} {listed}"


def _rows(warned: Sequence[Warned]) -> str:
    """A row for each line of each warning, in line order: line number, kind and subject, separated by tabs."""
    rows = sorted((number, warning.kind, what) for warning in warned for number, what in warning.lines.items())
    return "".join(f"{number}\t{kind}\t{what}\n" for number, kind, what in rows)


def _output_lines(translations: list[list[Any]], nbest: int | None) -> Iterator[str]:
    """One line of output for each line of input, or with `nbest` one for each translation of it."""
    for number, candidates in enumerate(translations, 1):
        if nbest is None:
            yield _on_one_line(candidates[0].text) if candidates else ""
        for candidate in candidates if nbest is not None else ():
            yield f"{number}\t{candidate.score:.4f}\t{_on_one_line(candidate.text)}"


def _on_one_line(text: str) -> str:
    """The text without line ends, which a vocabulary of single characters may contain."""
    return " ".join(text.splitlines())


def _print(content: str) -> None:
    """Write to standard output: UTF-8 to a pipe or file, and to a terminal only characters of its encoding."""
    try:
        if sys.stdout.isatty():
            sys.stdout.write(writable(content, sys.stdout.encoding))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content.encode())
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()  # the reader closed the pipe, which is no error
        raise typer.Exit from None


def _show(translator: Any, text: str, translation: Any, page: Path | None, console: Console | None) -> None:
    """Show the attention of each written word: as a page, and as a map in the terminal."""
    from overt.cli.shared import translator_as_text_model
    from overt.explain.html import write

    with busy("recording the attention …"):
        if page is not None:
            write([translator_as_text_model.explained(translator, text, translation)], page)
        attention_map = translator_as_text_model.cross_attention_map(translator, text, translation) if console else None
    if attention_map is not None and console is not None:
        console.print()
        say(console, attention_map.caption, style="dim")
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
