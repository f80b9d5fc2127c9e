"""`overt replay`: a server's answers, run once more through the same weights."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from overt.cli.shared.console import busy, report_console, require_torch
from overt.cli.shared.inputs import model_files
from overt.cli.shared.json_output import write_json
from overt.cli.shared.read_model import read_model
from overt.drawing.progress import progress
from overt.errors import InputError, OvertError
from overt.files import check_target, separate

_RANGE = re.compile(r"([^=]+)=(\d{1,9}):(\d{1,9})")
_MARKED = '--span "document=<doc>...</doc>", by the markers around it'
_MARKERS = re.compile(r"([^=]+)=(.+?)\.\.\.(.+)", re.DOTALL)


def replay(
    log: Annotated[Path, typer.Argument(help="A server's log: a response, or request and response, as JSON on each line.")],
    model: Annotated[str, typer.Option(help="The folder of the model that the server ran, or its Hugging Face name.")],
    span: Annotated[
        list[str] | None,
        typer.Option(help="A part of the prompt: NAME=0:120 in characters, or NAME=FROM...TO by its first and last words."),
    ] = None,
    bound: Annotated[
        float, typer.Option(help="The mean difference from the server's log probabilities that is allowed, in nats.")
    ] = 0.05,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Explain also the answers that differ from the server's.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write everything as JSON.")] = None,
) -> None:
    """Replay a server's answers: mass and knock-out of each part of the prompt, after a check of the log probabilities.

    The exit status is 0 if all answers were explained, 1 if some were not, or lines were skipped, and 2 for an error.
    """
    require_torch("overt replay")
    from overt.lens import read_log
    from overt.lens import replay as run
    from overt.lens.analysis.replay.result import check_bound

    separate({"--html": html, "--json": json_out}, {"LOG": log, **model_files(model)})
    for target in (html, json_out):
        if target is not None:
            check_target(target)
    check_bound(bound)
    spans = _spans(span) if span else None
    logged = read_log(log)
    with busy("reading the model …"):
        loaded = read_model(model, predicts=True)
    console = report_console(html, json_out)
    results: list[dict[str, Any]] = []
    failed = [*logged.skipped]
    unread = [answer.line for answer in logged.answers]
    try:
        for answer in progress(logged.answers, "replaying"):
            try:
                result = run(loaded.model, answer, tokenizer=loaded.tokenizer, spans=spans, bound=bound, unchecked=unchecked)
            except OvertError as error:
                failed.append((answer.line, str(_in_command(error))))
            else:
                results.append(result.data())
                console.print(f"{result}\n", markup=False, soft_wrap=True)
            unread.pop(0)
    finally:  # an interrupt or an error of the model loses only the remaining answers
        failed.extend((line, "the replay was stopped before it") for line in unread)
        failed.sort()
        if results or not unread:
            _write(results, failed, html, json_out)
    for line, why in failed:
        console.print(f"line {line} was skipped: {why}", markup=False, soft_wrap=True)
    refused = sum(entry["refused"] is not None for entry in results)
    console.print(f"{len(results) - refused} of {len(results)} answers explained, {len(failed)} skipped", soft_wrap=True)
    if refused or failed:
        raise typer.Exit(1)


def _write(results: list[dict[str, Any]], skipped: list[tuple[int, str]], html: Path | None, json_out: Path | None) -> None:
    from overt.lens.analysis.replay.page import page

    if json_out is not None:
        write_json(json_out, "replay", {"answers": results, "skipped": [{"line": line, "why": why} for line, why in skipped]})
    if html is not None:
        page(results, os.fspath(html), skipped=skipped)


def _in_command(error: OvertError) -> OvertError:
    """The same error, with the fix in the syntax of the option for spans."""
    from overt.lens.analysis.replay.spans import FIX

    if isinstance(error, InputError) and error.fix == FIX:
        return InputError(error.expected, error.got, fix=f"write --span NAME=0:120, in characters, or {_MARKED}")
    return error


def _spans(texts: list[str]) -> dict[str, tuple[Any, Any]]:
    spans: dict[str, tuple[Any, Any]] = {}
    for name, ends in map(_span, texts):
        if name in spans:
            raise InputError("spans of different names", got=f"--span {name}=… twice", fix="give each its own name")
        spans[name] = ends
    return spans


def _span(text: str) -> tuple[str, tuple[Any, Any]]:
    """A span's name, and its range or its markers."""
    if (match := _RANGE.fullmatch(text)) is not None:
        return match[1], (int(match[2]), int(match[3]))
    if (match := _MARKERS.fullmatch(text)) is not None:
        return match[1], (match[2], match[3])
    raise InputError("--span as NAME=0:120 or NAME=FROM...TO", got=f"--span {text}", fix=f"write {_MARKED}")
