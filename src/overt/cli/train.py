"""`overt train`: train a model from a recipe, and write its scores and its training curve."""

import json
import os
import shlex
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from overt.cli.shared.console import require_torch, say
from overt.errors import InputError, MissingExtra
from overt.files import exclusive, separate, whole

# _RUN_FILES: the files that a run writes, without its checkpoints.
_RUN_FILES = ("run.json", "log.jsonl", "results.json", "tokenizer.json", "curve.png", "held_out.tsv")
_RUN_FILES += tuple(f"model/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json"))


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder. (default: runs/ and the recipe's name)")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of the recipe's data. (default: OVERT_DATA, or this folder)"),
    ] = None,
) -> None:
    """Train a model from a recipe. The same command resumes a run that was stopped.

    On several processes or machines: torchrun --nproc-per-node 2 -m overt train RECIPE.
    """
    require_torch("overt train", "train")
    from overt.learn.config.recipe import read_recipe
    from overt.learn.loop.distributed import Processes

    if data is not None:
        os.environ["OVERT_DATA"] = str(data)
    settings, folder = read_recipe(recipe), out or Path("runs") / recipe.stem
    _check_outputs(recipe, settings, folder)
    processes = Processes()
    with exclusive(folder) if processes.is_main else nullcontext():
        _run(recipe, settings, folder, processes)


def _run(recipe: Path, settings: Any, folder: Path, processes: Any) -> None:
    """Train the recipe's model in this folder; the main process writes the results."""
    from overt.learn.loop.training import train as run_training
    from overt.learn.run import checkpoint
    from overt.learn.tasks.build import build_task

    console = Console(highlight=False) if processes.is_main else Console(quiet=True)
    if not processes.is_main:
        processes.wait()  # the main process learns the tokenizer, the others wait and read it
    task, model = build_task(settings, folder)
    if processes.is_main:
        processes.wait()
    checkpoints = checkpoint.list_checkpoints(folder / "checkpoints")
    say(console, *task.corpus.notes, _start_message(folder, checkpoints, settings.training.updates))
    tables = {name: table for name, table in asdict(settings).items() if name not in {"training", "decoding"}}
    result = run_training(model, task, settings.training, folder, recipe=tables, console=console)
    if not processes.is_main:
        return
    results = run_results(recipe, settings, task, model, result)
    with whole(folder / "results.json") as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    outputs = [f"{folder}/model", f"{folder}/results.json", *_write_split(folder, task.corpus), *_curve(folder, task.measure)]
    say(console, *summary_lines(results), f"→ {', '.join(outputs)}")


def _check_outputs(path: Path, recipe: Any, folder: Path) -> None:
    """Raise InputError for a run's folder in which files would overwrite the recipe or its data."""
    from overt.learn.data.corpora import data_paths

    named = [*recipe.data.train, *recipe.data.valid, *recipe.data.test, *filter(None, [recipe.tokens.merges_file])]
    files = [*data_paths(recipe.data, named), *map(Path, recipe.data.added)]
    inputs = {"the recipe": path} | {f"{file} of the data": file for file in files}
    separate({f"{name} of --out": folder / name for name in _RUN_FILES}, inputs)
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError("--out to be a folder", got=f"the file {folder}", fix="name a folder, or leave --out out")


def summary_lines(results: dict[str, Any]) -> list[str]:
    """The test scores of a run, one on each line, and its updates, time, hardware and seed."""
    return [
        *(f"test {line}" for line in score_lines(results["test"] or {})),
        f"{results['updates']:,} updates in {duration_text(results['seconds'])} on {hardware_text(results)}, seed {results['seed']}",
    ]


def duration_text(seconds: float) -> str:
    """A duration in words.

    >>> duration_text(6.71), duration_text(60), duration_text(3660), duration_text(9000)
    ('6.7 seconds', '1 minute', '1 hour 1 minute', '2 hours 30 minutes')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} seconds"
    parts = zip(divmod(round(seconds / 60), 60), ("hour", "minute"), strict=True)
    return " ".join(f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in parts if number)


def hardware_text(results: dict[str, Any]) -> str:
    """The hardware of a run, with its processes and threads.

    >>> hardware_text({"hardware": "A Processor", "processes": 2, "threads": 1})
    'A Processor, 2 processes of 1 thread'
    """
    processes, threads = results["processes"], results["threads"]
    parallel = f"{processes} process{'' if processes == 1 else 'es'} of {threads} thread{'' if threads == 1 else 's'}"
    return f"{results['hardware']}, {parallel}"


def score_lines(scores: dict[str, Any]) -> list[str]:
    """Each score with two decimals, and sacrebleu's signature if it has one.

    >>> score_lines({"rows": 10, "bleu": 41.234, "bleu_signature": "nrefs:1|tok:none"})
    ['bleu 41.23   nrefs:1|tok:none']
    """
    signatures = {name: scores.get(f"{name}_signature", "") for name, value in scores.items() if isinstance(value, float)}
    return [f"{name} {scores[name]:.2f}   {signature}".rstrip() for name, signature in signatures.items()]


def run_results(path: Path, recipe: Any, task: Any, model: Any, result: Any) -> dict[str, Any]:
    """The content of results.json: everything that a model card or a table reports about a run."""
    import torch

    from overt.bench.provenance import provenance
    from overt.learn.loop.distributed import Processes

    processes, corpus = Processes(), task.corpus
    environment = provenance()
    on_gpu = processes.device.type == "cuda"
    return {
        "recipe": path.name,
        "recipe_text": path.read_text(encoding="utf-8"),
        "command": shlex.join(["overt", "train", path.name if path.is_absolute() else str(path)]),
        **environment,
        "seed": recipe.training.seed,
        "updates": result.state.update,
        "tokens": result.state.tokens,
        "seconds": round(result.state.seconds, 1),
        "stopped_early": result.stopped_early,
        "hardware": torch.cuda.get_device_name() if on_gpu else environment["machine"]["processor"],
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "software": {name: environment["machine"][name] for name in ("python", "overt", "torch")},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "examples": {split: len(getattr(corpus, split)) for split in ("train", "valid", "test")},
        "data": asdict(recipe.data),
        "notes": corpus.notes,
        "decoding": asdict(recipe.decoding),
        "validation": result.measures,
        "test": task.test(model) if corpus.test else None,
        **(task.bounds(model) if recipe.task == "translate" else {}),
    }


def _write_split(folder: Path, corpus: Any) -> list[str]:
    """Write the sources of validation and test, one a line after their split's name, if they were taken from training."""
    if not corpus.held_out:
        return []
    rows = {(split, row.source): None for split in ("valid", "test") for row in getattr(corpus, split)}
    with whole(folder / "held_out.tsv") as temporary:
        temporary.write_text("".join(f"{split}\t{source}\n" for split, source in sorted(rows)), encoding="utf-8")
    return [f"{folder}/held_out.tsv"]


def _start_message(folder: Path, checkpoints: list[Path], updates: int) -> str:
    done = int(checkpoints[-1].name) if checkpoints else 0
    if done:
        return f"{folder}: resuming from the checkpoint of update {done:,} of {updates:,}"
    return f"{folder}: {updates:,} updates; if the run is stopped, the same command resumes it"


def _curve(folder: Path, measure: str) -> list[str]:
    """Draw the training curve if matplotlib is installed; returns its file, or nothing."""
    from overt.learn.run.curve import draw_curve

    try:
        draw_curve(folder / "log.jsonl", folder / "curve.png", measure)
    except MissingExtra:
        return []
    return [f"{folder}/curve.png"]
