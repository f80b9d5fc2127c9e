"""`overt evaluate`: the scores of a trained model on a test set."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from overt.cli.shared.console import busy, report_console, require_torch, say
from overt.cli.shared.inputs import model_files
from overt.cli.shared.json_output import write_json
from overt.cli.train import score_lines
from overt.drawing.letters import Ink, Piece, bar
from overt.errors import InputError
from overt.files import separate

_LONGEST_BAR = 40


def evaluate(
    recipe: Annotated[Path | None, typer.Argument(help="A recipe: its test set and the model of its run are used.")] = None,
    model: Annotated[Path | None, typer.Option(help="The folder of a run. (default: runs/ and the recipe's name)")] = None,
    source: Annotated[
        Path | None, typer.Option(help="A file with one sentence on each line, instead of a recipe's test set.")
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Its reference translation, line by line.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the recipe's data.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy. (default: the recipe's, or 5)")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the scores as JSON; - is standard output.")] = None,
) -> None:
    """Score a trained model: overt evaluate RECIPE, or overt evaluate --model FOLDER --source FILE --reference FILE."""
    inputs = {"RECIPE": recipe, "--source": source, "--reference": reference}
    separate({"--json": json_out}, inputs | model_files(model))
    _check(recipe, model, source, reference)
    require_torch("overt evaluate", "train")
    if data is not None:
        os.environ["OVERT_DATA"] = str(data)
    with busy("reading the model and the test set …"):
        task, network = _recipe_task(recipe, model, beam) if recipe else _files_task(model, source, reference, beam)
    with busy("running the model on the test set …"):
        scores = task.test(network)
    console = report_console("/dev/stdout" if str(json_out) == "-" else json_out)
    say(console, *task.corpus.notes, *score_lines(scores))
    if "by_length" in scores:
        console.print()
        console.print(Piece(lambda ink: _by_length(scores["by_length"], ink)))
    if json_out is not None:
        write_json(json_out, "evaluate", {"scores": scores, "notes": list(task.corpus.notes)})


def _check(recipe: Path | None, model: Path | None, source: Path | None, reference: Path | None) -> None:
    """Raise InputError unless there is a recipe, or a model with two files."""
    files = [name for name, path in (("--source", source), ("--reference", reference)) if path is not None]
    if recipe is not None and files:
        raise InputError("a recipe or two files as the test set", got=f"a recipe and {files[0]}", fix="leave out one of them")
    if recipe is None and (model is None or len(files) < 2):
        raise InputError(
            "a model and a test set",
            got=" and ".join([*(["--model"] if model else []), *files]) or "neither",
            fix="pass a recipe, or --model FOLDER --source FILE --reference FILE",
        )


def _recipe_task(path: Path, folder: Path | None, beam: int | None) -> tuple[Any, Any]:
    """The recipe's task, and its finished model."""
    from overt.learn.config.recipe import read_recipe
    from overt.learn.run.model_folder import load_model
    from overt.learn.tasks.build import build_task
    from overt.learn.translator import find_model_folder

    recipe, folder = read_recipe(path), folder or Path("runs") / path.stem
    finished = find_model_folder(folder)
    if finished is None:
        raise InputError("a run with a finished model", got=f"none in {folder}", fix=f"run: overt train {path}")
    model, _, _ = load_model(finished)
    recipe = replace(recipe, decoding=replace(recipe.decoding, beam=beam)) if beam is not None else recipe
    # With the model's tokenizer: a tokenizer learned again from the data may differ.
    task, _ = build_task(recipe, finished)
    if not task.corpus.test:
        raise InputError("a recipe with a test set", got=f"none in {path}", fix="name one in [data], or hold one out")
    return task, model


def _files_task(folder: Path | None, source: Path | None, reference: Path | None, beam: int | None) -> tuple[Any, Any]:
    """A task whose test set is two files, and the model."""
    from overt.learn.config.settings import Data, Decoding, Recipe
    from overt.learn.data.corpora import read_corpus
    from overt.learn.tasks.translation import TranslationTask
    from overt.learn.translator import Translator

    assert folder is not None
    assert source is not None
    assert reference is not None
    corpus = read_corpus(Data(train=(str(source.resolve()), str(reference.resolve()))))
    translator = Translator.load(folder)
    recipe = Recipe(decoding=Decoding() if beam is None else Decoding(beam=beam))
    return TranslationTask(corpus._replace(test=corpus.train), translator.tokenizer, recipe), translator.model


def _by_length(parts: list[dict[str, Any]], ink: Ink) -> Iterable[Text]:
    """BLEU by the length of the source: a row for each bin of the test set."""
    highest = max((part["bleu"] for part in parts), default=0.0)
    yield ink.line(ink.text("BLEU by the length of the source", "bold"))
    rows = [[ink.text(head, "dim") for head in ("words", "rows", "BLEU", "")]]
    for part in parts:
        words = f"{part['shortest']} to {part['longest']}" if part["shortest"] < part["longest"] else str(part["longest"])
        cells = (
            words,
            str(part["rows"]),
            f"{part['bleu']:.1f}",
            bar(part["bleu"], max(highest, 1.0), min(_LONGEST_BAR, ink.width - 30)),
        )
        rows.append([ink.text(cell) for cell in cells])
    yield from ink.table(rows, [True, True, True, False])
