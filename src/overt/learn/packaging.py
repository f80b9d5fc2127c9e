"""Putting a finished translator in a box: half its size on disk, and a card that says where it comes from."""

import tempfile
from pathlib import Path
from typing import Any

from overt.errors import InputError
from overt.files import make_folder, read_json
from overt.learn.run.model_folder import save_model
from overt.learn.translator import Translator, finished_folder

LARGEST = 12_000_000  # bytes of a box, all its files together


def box(run: str | Path, target: str | Path, *, title: str, attribution: str) -> None:
    """Write a run's translator to the folder `target`: float16 weights, tokenizer.json, config.json, CARD.md.

    Every number of the card is read from the run's results.json; `attribution` is what the licence of its data asks to be said.
    Raises InputError for a run that has not come to its end, and for a box of more than `LARGEST` bytes, which is not made.

    To make the one in the package, after `overt train recipes/tatoeba-en-fr.toml`:

        overt.learn.packaging.box(
            "runs/tatoeba-en-fr", "src/overt/learn/boxed", title="English to French, from Tatoeba",
            attribution="Sentence pairs from tatoeba.org, by way of manythings.org/anki, under CC BY 2.0.",
        )
    """
    run, target = Path(run), Path(target)
    results, finished = _results(run), finished_folder(run)
    if finished is None:
        raise InputError("a run is boxed when it has a model", got=f"none in {run}", fix="let overt train come to its end")
    translator = Translator.load(finished)
    make_folder(target)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        made = Path(temporary)
        save_model(translator.model, made, translator.tokenizer, half=True)
        (made / "CARD.md").write_text(card(results, title, attribution), encoding="utf-8")
        size = sum(path.stat().st_size for path in made.iterdir())
        if size > LARGEST:
            raise InputError(
                f"a box has at most {LARGEST:,} bytes", got=f"{size:,}", fix="train a smaller model, or fewer merges"
            )
        for path in made.iterdir():
            path.replace(target / path.name)


def card(results: dict[str, Any], title: str, attribution: str) -> str:
    """The card of a run, in Markdown."""
    return "\n\n".join([f"# {title}", *_data(results, attribution), *_training(results), *_scores(results)]) + "\n"


def spent(seconds: float) -> str:
    """A run's time in words.

    >>> spent(6.71), spent(3660), spent(9060)
    ('6.7 seconds', '1 hour 1 minute', '2 hours 31 minutes')
    """
    if seconds < 60:
        return f"{seconds:.1f} seconds"
    parts = zip(divmod(round(seconds / 60), 60), ("hour", "minute"), strict=True)
    return " ".join(f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in parts)


def hardware(results: dict[str, Any]) -> str:
    """What a run had to itself.

    >>> hardware({"hardware": "A Processor", "processes": 2, "threads": 1})
    'A Processor, 2 processes of 1 thread'
    """
    processes, threads = results["processes"], results["threads"]
    told = f"{processes} process{'' if processes == 1 else 'es'} of {threads} thread{'' if threads == 1 else 's'}"
    return f"{results['hardware']}, {told}"


def _data(results: dict[str, Any], attribution: str) -> list[str]:
    data, examples = results["data"], results["examples"]
    valid, test = data["held_out"]
    return [
        "## Data",
        attribution,
        f"Files: {', '.join(data['train'])}, from {data['origin']}. {examples['train']:,} pairs of sentences for training, "
        f"{examples['valid']:,} for validation, {examples['test']:,} for the test.",
        f"The test set: {test:,} source sentences were taken from the file with all their translations, and {valid:,} more for "
        "validation, chosen by the smallest SHA-256 of their letters. A sentence that differs from one of them in case, punctuation "
        "or spaces alone was taken out of training too, so no source sentence of the test occurs in training.",
        *results["notes"],
    ]


def _training(results: dict[str, Any]) -> list[str]:
    software = ", ".join(f"{name} {version}" for name, version in results["software"].items())
    early = ", ended early since validation got no better" if results["stopped_early"] else ""
    return [
        "## Training",
        f"- command: `{results['command']}`\n- seed: {results['seed']}\n- hardware: {hardware(results)}\n"
        f"- time: {spent(results['seconds'])}, evaluations included\n"
        f"- updates: {results['updates']:,}{early}, {results['tokens']:,} target tokens\n- parameters: {results['parameters']:,}, "
        f"float16 on disk\n- software: {software}",
        f"The recipe, {results['recipe']}:",
        f"```toml\n{results['recipe_text'].strip()}\n```",
    ]


def _scores(results: dict[str, Any]) -> list[str]:
    test = results["test"]
    names = [name for name, value in test.items() if isinstance(value, float)]
    # A bar would end a cell of the table, between backticks too.
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
    results = read_json(path, "a file of the run's scores", "let overt train come to its end")
    if not results.get("test"):
        raise InputError("a boxed translator has scores on a test set", got=f"none in {path}", fix="hold one out in [data]")
    return results
