"""`overt train`: from a recipe to a finished model, its scores and its curve."""

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from overt.cli.console import require_torch
from overt.drawing.letters import Piece
from overt.errors import InputError, MissingExtra
from overt.files import separate, whole

# The files of a run's folder beside its checkpoints.
_WRITTEN = ("run.json", "log.jsonl", "results.json", "tokenizer.json", "curve.png")
_WRITTEN += tuple(f"model/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json"))


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder. (default: runs/ and the recipe's name)")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder that the recipe's data are in. (default: OVERT_DATA, or the one that one is in)"),
    ] = None,
) -> None:
    """Train a model by a recipe; started again, a run that was stopped goes on by itself.

    On several processes or machines: torchrun --nproc-per-node 2 -m overt train RECIPE.
    """
    require_torch("overt train")
    from overt.learn.config.recipe import read_recipe
    from overt.learn.loop.distributed import Processes
    from overt.learn.loop.training import train as learn
    from overt.learn.run import checkpoint
    from overt.learn.tasks.build import build_task

    if data is not None:
        os.environ["OVERT_DATA"] = str(data)
    read, folder = read_recipe(recipe), out or Path("runs") / recipe.stem
    _separate(recipe, read, folder)
    processes = Processes()
    console = Console(highlight=False) if processes.is_main else Console(quiet=True)
    if not processes.is_main:
        processes.wait()  # the first one learns the tokens, the others read them
    task, model = build_task(read, folder)
    if processes.is_main:
        processes.wait()
    _say(
        console,
        *task.corpus.notes,
        _standing(folder, checkpoint.list_checkpoints(folder / "checkpoints"), read.training.updates),
    )
    held = {name: table for name, table in asdict(read).items() if name not in {"training", "decoding"}}
    result = learn(model, task, read.training, folder, recipe=held, console=console)
    if not processes.is_main:
        return
    found = _results(recipe, read, task, model, result)
    with whole(folder / "results.json") as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _say(console, *told(found), f"→ {', '.join([f'{folder}/model', f'{folder}/results.json', *_curve(folder, task.measure)])}")


def _separate(path: Path, recipe: Any, folder: Path) -> None:
    """Refuse a run's folder in which a file of the run would replace the recipe or its data."""
    from overt.learn.data.corpora import data_paths

    named = [*recipe.data.train, *recipe.data.valid, *recipe.data.test, *filter(None, [recipe.tokens.merges_file])]
    inputs = {"the recipe": path} | {f"{each} of the data": each for each in data_paths(recipe.data, named)}
    separate({f"{name} of --out": folder / name for name in _WRITTEN}, inputs)
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError("--out is a run's folder", got=f"{folder}, which is a file", fix="name a folder, or leave it out")


def told(results: dict[str, Any]) -> list[str]:
    """The scores of a run on its test set, a line each, and what they were made with."""
    from overt.learn.packaging import duration_text, hardware_text

    return [
        *(f"test {line}" for line in score_lines(results["test"] or {})),
        f"{results['updates']:,} updates in {duration_text(results['seconds'])} on {hardware_text(results)}, seed {results['seed']}",
    ]


def score_lines(scores: dict[str, Any]) -> list[str]:
    """Each score with two decimals, and sacrebleu's signature where it has one.

    >>> score_lines({"rows": 10, "bleu": 41.234, "bleu_signature": "nrefs:1|tok:none"})
    ['bleu 41.23   nrefs:1|tok:none']
    """
    signed = {name: scores.get(f"{name}_signature", "") for name, value in scores.items() if isinstance(value, float)}
    return [f"{name} {scores[name]:.2f}   {signature}".rstrip() for name, signature in signed.items()]


def _results(path: Path, recipe: Any, task: Any, model: Any, result: Any) -> dict[str, Any]:
    """Everything that a card or a table says of a run."""
    import torch

    from overt.bench.provenance import provenance
    from overt.learn.loop.distributed import Processes

    processes, corpus = Processes(), task.corpus
    head = provenance()
    on_gpu = processes.device.type == "cuda"
    return {
        "recipe": path.name,
        "recipe_text": path.read_text(encoding="utf-8"),
        "command": shlex.join(["overt", "train", path.name if path.is_absolute() else str(path)]),
        **head,
        "seed": recipe.training.seed,
        "updates": result.state.update,
        "tokens": result.state.tokens,
        "seconds": round(result.state.seconds, 1),
        "stopped_early": result.stopped_early,
        "hardware": torch.cuda.get_device_name() if on_gpu else head["machine"]["processor"],
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "software": {name: head["machine"][name] for name in ("python", "overt", "torch")},
        "parameters": sum(each.numel() for each in model.parameters()),
        "examples": {split: len(getattr(corpus, split)) for split in ("train", "valid", "test")},
        "data": asdict(recipe.data),
        "notes": corpus.notes,
        "decoding": asdict(recipe.decoding),
        "validation": result.measures,
        "test": task.test(model) if corpus.test else None,
    }


def _standing(folder: Path, checkpoints: list[Path], updates: int) -> str:
    done = int(checkpoints[-1].name) if checkpoints else 0
    if done:
        return f"{folder} goes on from its last checkpoint, update {done:,} of {updates:,}"
    return f"{folder} begins: {updates:,} updates; if it is stopped, the same command goes on"


def _curve(folder: Path, measure: str) -> list[str]:
    """Draw the curve where matplotlib is there; the file, or nothing."""
    from overt.learn.run.curve import draw_curve

    try:
        draw_curve(folder / "log.jsonl", folder / "curve.png", measure)
    except MissingExtra:
        return []
    return [f"{folder}/curve.png"]


def _say(console: Console, *sentences: str) -> None:
    for sentence in sentences:
        console.print(Piece(lambda ink, sentence=sentence: ink.prose(sentence, lead="")))
