"""Packaging a trained translator: int8 weights, and a model card that says where it comes from."""

import tempfile
from pathlib import Path
from typing import Any

from overt.cli.train import duration_text, hardware_text
from overt.errors import InputError
from overt.files import make_folder
from overt.learn.run.model_folder import save_model
from overt.learn.translator import BOUNDS, Translator, find_model_folder
from overt.reading import read_json

MAX_BYTES = 25_000_000  # of all files of a packaged model


def bundle(run: str | Path, target: str | Path, *, title: str, attribution: str, languages: tuple[str, ...] = ()) -> None:
    """Write a run's translator to the folder `target`: int8 weights, tokenizer.json, config.json, CARD.md.

    Every number of the card is read from the run's results.json; `attribution` is the notice that the licence of the data requires, and
    `languages` are those of source and target, as ("en", "fr"), by which texts are made ready (`overt.learn.Translator`).
    Raises InputError for a run that is not finished, and for more than `MAX_BYTES` bytes; then `target` is unchanged.

    To make the one in the package, after the commands in recipes/tatoeba-en-fr-large.toml and recipes/tatoeba-en-fr-box.toml:

        from recipes.bundle import bundle
        bundle(
            "runs/tatoeba-en-fr-box", "src/overt/learn/bundled", title="English to French, from Tatoeba",
            attribution="Sentence pairs from tatoeba.org, by way of manythings.org/anki, under CC BY 2.0.",
            languages=("en", "fr"),
        )
    """
    run, target = Path(run), Path(target)
    results, finished = _results(run), find_model_folder(run)
    if finished is None:
        raise InputError("a run with a finished model", got=f"none in {run}", fix="let overt train finish")
    translator = Translator.load(finished)
    make_folder(target)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        folder = Path(temporary)
        extra = {name: bound for name in BOUNDS if (bound := getattr(translator, name)) is not None}
        extra |= {"languages": list(languages)} if languages else {}
        save_model(translator.model, folder, translator.tokenizer, extra or None, small=True)
        (folder / "CARD.md").write_text(model_card(results, title, attribution), encoding="utf-8")
        size = sum(path.stat().st_size for path in folder.iterdir())
        if size > MAX_BYTES:
            raise InputError(f"at most {MAX_BYTES:,} bytes", got=f"{size:,}", fix="train a smaller model, or use fewer merges")
        for path in folder.iterdir():
            path.replace(target / path.name)


def model_card(results: dict[str, Any], title: str, attribution: str) -> str:
    """The card of a run, in Markdown."""
    return "\n\n".join([f"# {title}", *_data(results, attribution), *_training(results), *_scores(results)]) + "\n"


def _data(results: dict[str, Any], attribution: str) -> list[str]:
    data, examples = results["data"], results["examples"]
    valid, test = data["held_out"]
    return [
        "## Data",
        attribution,
        f"Files: {', '.join(data['train'])}, from {data['origin']}. {examples['train']:,} pairs of sentences for training, "
        f"{examples['valid']:,} for validation, {examples['test']:,} for the test.",
        f"The test set: {test:,} source sentences were taken from the file with all their translations, and {valid:,} more for "
        "validation, chosen by the smallest SHA-256 of their letters. A sentence that differs from one of them only in case, "
        "punctuation or spaces was removed from training too, so no source sentence of the test occurs in training.",
        *results["notes"],
    ]


def _training(results: dict[str, Any]) -> list[str]:
    software = ", ".join(f"{name} {version}" for name, version in results["software"].items())
    early = ", stopped early because validation did not improve" if results["stopped_early"] else ""
    return [
        "## Training",
        f"- command: `{results['command']}`\n- seed: {results['seed']}\n- hardware: {hardware_text(results)}\n"
        f"- time: {duration_text(results['seconds'])}, evaluations included\n"
        f"- updates: {results['updates']:,}{early}, {results['tokens']:,} target tokens\n- parameters: {results['parameters']:,}, "
        f"int8 on disk\n- software: {software}",
        f"The recipe, {results['recipe']}:",
        f"```toml\n{results['recipe_text'].strip()}\n```",
    ]


def _scores(results: dict[str, Any]) -> list[str]:
    test = results["test"]
    names = [name for name, value in test.items() if isinstance(value, float)]
    # Escaped, since a bar ends a table cell, even between backticks.
    signatures = {name: test.get(f"{name}_signature", "").replace("|", "\\|") for name in names}
    rows = [f"| {name} | {test[name]:.2f} | `{signatures[name]}` |" for name in names]
    lengths = [
        f"| {part['shortest']}–{part['longest']} | {part['rows']:,} | {part['bleu']:.1f} |"
        for part in test.get("by_length", [])
    ]
    return [
        "## Scores on the test set",
        f"{test['rows']:,} rows, {test['sources']:,} different sources; beam {results['decoding']['beam']}, of the weights in float32.",
        "\n".join(["| score | value | sacrebleu's signature |", "|---|---|---|", *rows]),
        "\n".join(["| words of the source | rows | BLEU |", "|---|---|---|", *lengths]),
    ]


def _results(run: Path) -> dict[str, Any]:
    path = run / "results.json"
    results = read_json(path, "the scores of a finished run", "let overt train finish")
    if not results.get("test"):
        raise InputError("scores on a test set", got=f"none in {path}", fix="name a test set, or hold one out, in [data]")
    return results
