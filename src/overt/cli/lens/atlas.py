"""`overt atlas`: every head of a model over a corpus, as one page."""

import os
import re
import webbrowser
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.cli.shared.inputs import model_files
from overt.cli.shared.read_model import ReadModel, read_model
from overt.errors import InputError
from overt.files import PathLike, check_target, is_stream, separate, whole

_SURVEY = ".survey"
_ELSEWHERE = "write elsewhere with --out other.html"
_NAMED = 8  # skipped lines that are named; others are counted


def atlas(
    model: Annotated[
        str, typer.Argument(help="A model's folder, a Hugging Face name, or minilm: all-MiniLM-L6-v2 of its package.")
    ],
    corpus: Annotated[
        list[Path], typer.Argument(help="Files of texts: a text a line, .jsonl, .parquet; or .survey files, which are merged.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("atlas.html"),
    survey: Annotated[
        Path | None,
        typer.Option(help="The survey's file, from which a stopped run resumes. (default: --out, ending in .survey)"),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(help="The .survey of another corpus or model, to compare with this one by statistical tests."),
    ] = None,
    field: Annotated[str, typer.Option(help="The field of JSON lines, or the column of a Parquet file.")] = "text",
    longest: Annotated[int, typer.Option(help="The largest number of tokens that are read of a text.")] = 512,
    shard: Annotated[
        str | None,
        typer.Option(help="This machine's part of the corpus, 0/4 to 3/4; under torchrun each process has a part already."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title. (default: the model and the number of texts)")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Survey every head of a model over a corpus, and write what it does, with intervals and texts, as one page.

    The same command resumes a stopped run.
    """
    require_torch("overt atlas")
    from overt.lens import load_survey

    state = _survey_file(out, survey)
    merging = [file.suffix == _SURVEY for file in corpus]
    if any(merging) and not all(merging):
        raise InputError("texts or surveys as CORPUS", got="both", fix="survey the texts first, then merge the .survey files")
    inputs = {f"CORPUS {file}": file for file in corpus} | {"--beside": beside} | model_files(model)
    _separate(out, survey, state, {name: path for name, path in inputs.items() if path is not None})
    number, count, launched = _shard(shard)
    check_target(out)
    other = None if beside is None else load_survey(beside)
    with busy("reading the model …"):
        loaded = read_model(model)
    lines: list[str] = []
    result = (
        _merged(corpus, state) if all(merging) else _surveyed(loaded, corpus, field, longest, (number, count), state, lines)
    )
    if count > 1 and not launched:
        part = _part(state, number, count)
        _report(
            out, [*lines, f"→ {part}; to write the page when all parts are done: overt atlas {model} *{_SURVEY} --out {out}"]
        )
        return
    if launched:
        result = _gathered(state, number, count)
        if result is None:
            return
    with busy("writing …"), whole(out) as temporary:
        result.page(temporary, beside=other, model=loaded.model, tokenizer=loaded.tokenizer, title=title)
    _report(out, [*lines, *str(result).split("\n")[:1], f"→ {os.fspath(out)}, {out.stat().st_size / 10**6:.1f} MB"])
    if open_page:
        webbrowser.open(out.resolve().as_uri())


def _survey_file(out: Path, survey: Path | None) -> Path:
    """The survey's file; a stopped run reads it again."""
    if survey is None and is_stream(out):
        raise InputError(
            "--survey beside a page that is no file", got=f"--out {out}", fix="name the survey's file: --survey a.survey"
        )
    state = out.with_suffix(_SURVEY) if survey is None else survey
    if is_stream(state):
        raise InputError(
            "--survey as a file, from which a stopped run resumes", got=str(state), fix="name a file with --survey"
        )
    return state


def _separate(out: Path, survey: Path | None, state: Path, inputs: dict[str, PathLike]) -> None:
    """Refuse outputs that are inputs; if no option names the survey, the error suggests --out."""
    try:
        separate({"--out": out, "--survey": state}, inputs)
    except InputError as error:
        if survey is not None or not error.got.startswith("--survey "):
            raise
        raise InputError(error.expected, error.got.removeprefix("--survey "), fix=_ELSEWHERE) from error


def _surveyed(
    loaded: ReadModel, corpus: list[Path], field: str, longest: int, shard: tuple[int, int], state: Path, lines: list[str]
) -> Any:
    from overt.lens import survey
    from overt.lens.analysis.surveys.reading.corpus import Corpus
    from overt.lens.analysis.surveys.running import OtherSurvey

    texts = Corpus(corpus, field)
    file = _part(state, *shard)
    try:
        result = survey(loaded.model, texts, tokenizer=loaded.tokenizer, longest=longest, shard=shard, file=file)
    except OtherSurvey as error:
        raise InputError(error.expected, error.got, fix=f"{_ELSEWHERE}, or remove {file}") from error
    if texts.skipped:
        named = "; ".join(f"{path}, line {line}: {reason}" for path, line, reason in texts.skipped[:_NAMED])
        more = f"; and {len(texts.skipped) - _NAMED:,} more" if len(texts.skipped) > _NAMED else ""
        lines.append(f"skipped {len(texts.skipped):,} of {len(texts) + len(texts.skipped):,} lines: {named}{more}")
    return result


def _merged(files: list[Path], state: Path) -> Any:
    from overt.lens import Survey, load_survey

    result = Survey.merged([load_survey(file) for file in files])
    result.save(state)
    return result


def _report(out: Path, lines: list[str]) -> None:
    say(report_console(out), *lines)


def _part(state: Path, number: int, count: int) -> Path:
    """The file of one part of a survey."""
    return state if count == 1 else state.with_suffix(f".{number}-of-{count}{_SURVEY}")


def _shard(shard: str | None) -> tuple[int, int, bool]:
    """This process's part, the number of parts, and whether torchrun started the processes."""
    if shard is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), True
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard or "0/1")
    if match is None or not int(match[1]) < int(match[2]):
        raise InputError("--shard as number/how many, the number from 0", got=f"--shard {shard}", fix="write --shard 0/4")
    return int(match[1]), int(match[2]), False


def _gathered(state: Path, number: int, count: int) -> Any:
    """The survey of all parts, in torchrun's first process after all are done; None in the others."""
    from torch import distributed

    from overt.lens import Survey, load_survey

    distributed.init_process_group("gloo", timeout=timedelta(days=30))
    distributed.barrier()
    distributed.destroy_process_group()
    if number:
        return None
    result = Survey.merged([load_survey(_part(state, index, count)) for index in range(count)])
    result.save(state)
    return result
