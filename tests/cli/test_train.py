import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from overt.bench import provenance
from overt.cli.main import app
from overt.learn import translator
from overt.learn.run.log import read_log
from overt.learn.run.model_folder import save_model
from translators import ENGLISH, FRENCH, by_heart

RECIPE = """
task = "translate"
[data]
format = "pairs"
train = ["pairs.txt"]
held_out = [1, 2]
origin = "the tests"
[tokens]
merges = 20
[model]
kind = "Transformer"
width = 16
heads = 2
encoder_layers = 1
decoder_layers = 1
feed_forward = 16
[training]
updates = 4
warmup = 2
tokens_per_batch = 200
evaluate_every = 2
checkpoint_every = 2
seed = 3
"""


@pytest.fixture(autouse=True)
def data_folder_stays(monkeypatch):
    monkeypatch.setenv("OVERT_DATA", os.environ.get("OVERT_DATA", ""))  # --data sets it; it is as before after each test


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    (folder / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, FRENCH, strict=True)))
    (folder / "small.toml").write_text(RECIPE)
    (folder / "plain.toml").write_text(RECIPE.replace("[training]", "dropout = 0.0\n[training]"))
    (folder / "en.txt").write_text("\n".join(ENGLISH) + "\n")
    (folder / "fr.txt").write_text("\n".join(FRENCH) + "\n")
    save_model(by_heart().model, folder / "by_heart", by_heart().tokenizer)
    return folder


@pytest.fixture(scope="module")
def trained(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OVERT_DATA", "")
        return run("train", place / "small.toml", "--data", place, "--out", place / "run")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})


def test_a_recipe_becomes_a_model_with_its_scores_and_its_curve(trained, place):
    assert trained.exit_code == 0, trained.stderr
    results = json.loads((place / "run" / "results.json").read_text())
    for told in (
        f"test bleu {results['test']['bleu']:.2f}   nrefs:1|case:mixed",
        f"test chrf {results['test']['chrf']:.2f}   nrefs:1",
        "4 updates in",
        "seed 3",
    ):
        assert told in trained.stdout
    assert (results["updates"], results["seed"], results["examples"]) == (4, 3, {"train": 7, "valid": 1, "test": 2})
    assert (results["commit"], results["threads"]) == (provenance.commit(), torch.get_num_threads())
    assert results["date"].startswith("20")
    assert results["machine"]["processor"]
    assert {"model", "results.json", "log.jsonl", "checkpoints"} <= {path.name for path in (place / "run").iterdir()}


def test_two_fresh_runs_of_one_recipe_end_with_the_same_bytes(place):
    recipe = RECIPE.replace("[model]", "lower = true\nmoses = true\n[model]").replace(
        "origin", 'languages = ["en", "fr"]\norigin'
    )
    (place / "moses.toml").write_text(recipe.replace("[training]", "dropout = 0.3\n[training]"))
    runs = []
    for seed in ("1", "2"):
        asked = [sys.executable, "-m", "overt", "train", place / "moses.toml", "--data", place, "--out", place / f"hash{seed}"]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "ACCELERATE_USE_CPU": "1"}
        runs.append(subprocess.Popen(asked, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for run_of_seed in runs:
        _, told = run_of_seed.communicate()
        assert run_of_seed.returncode == 0, told[-2000:]
    files = [kept_in(place / f"hash{seed}") for seed in (1, 2)]
    assert {"tokenizer.json", "model/model.safetensors", "checkpoints/000004/optimizer.safetensors"} <= files[0].keys()
    assert files[0] == files[1]


def kept_in(folder):
    """A run's files by their names, without those that hold times."""
    timed = {"results.json", "log.jsonl", "curve.png", "state.json"}
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*.*") if each.name not in timed}


@pytest.mark.slow
def test_two_processes_train_from_a_recipe_as_one_does(place):
    for folder, start in (
        ("one", [sys.executable]),
        ("two", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]),
    ):
        asked = [*start, "-m", "overt", "train", place / "plain.toml", "--data", place, "--out", place / folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "COLUMNS": "160"}
        found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr[-2000:]
        assert found.stdout.count("4 updates in") == 1
    one, two = (read_log(place / folder / "log.jsonl") for folder in ("one", "two"))
    losses = [[entry["loss"] for entry in log if "loss" in entry] for log in (one, two)]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    assert json.loads((place / "two" / "results.json").read_text())["processes"] == 2


def test_the_picture_of_the_curve_is_there_where_matplotlib_is(trained, place):
    pytest.importorskip("matplotlib")
    assert (place / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_of_this_machine_is_in_the_results(trained, place):
    assert str(place) not in (place / "run" / "results.json").read_text()


def test_a_run_started_again_goes_on_from_its_last_checkpoint(trained, place):
    found = run("train", place / "small.toml", "--data", place, "--out", place / "run")
    assert found.exit_code == 0, found.stderr
    assert "resuming from the checkpoint of update 4 of 4" in " ".join(found.stdout.split())


def test_an_error_in_a_recipe_is_told_with_its_line(place, tmp_path):
    (tmp_path / "wrong.toml").write_text(RECIPE.replace("warmup", "warmpu"))
    found = run("train", tmp_path / "wrong.toml", "--data", place)
    line = RECIPE.replace("warmup", "warmpu").splitlines().index("warmpu = 2") + 1
    assert found.exit_code == 2
    assert f"line {line}). Fix: write 'warmup'." in found.stderr


def test_evaluate_gives_a_recipes_run_the_scores_that_training_ended_with(trained, place):
    found = run("evaluate", place / "small.toml", "--data", place, "--model", place / "run")
    results = json.loads((place / "run" / "results.json").read_text())
    assert found.exit_code == 0, found.stderr
    assert f"bleu {results['test']['bleu']:.2f}   nrefs:1" in found.stdout


@pytest.fixture
def beams(monkeypatch):
    """The size and the length penalty of every beam search."""
    searched, search = [], translator.beam_search

    def watched(*arguments, **options):
        searched.append((options["size"], options["length_penalty"]))
        return search(*arguments, **options)

    monkeypatch.setattr(translator, "beam_search", watched)
    return searched


@pytest.mark.parametrize(("asked", "searched"), [((), (4, 0.5)), (("--beam", 3), (3, 0.5)), (("--beam", 1), None)])
def test_evaluate_searches_with_the_recipes_beam_or_the_one_that_is_asked_for(trained, place, beams, asked, searched):
    (place / "beam.toml").write_text(RECIPE + "[decoding]\nbeam = 4\nlength_penalty = 0.5\n")
    found = run("evaluate", place / "beam.toml", "--data", place, "--model", place / "run", *asked)
    assert found.exit_code == 0, found.stderr
    assert set(beams) == ({searched} if searched else set())


@pytest.mark.parametrize(("asked", "sizes"), [((), {5}), (("--beam", 3), {3}), (("--beam", 1), set())])
def test_evaluate_searches_two_files_with_the_beam_that_is_asked_for(place, beams, asked, sizes):
    files = ("--source", place / "en.txt", "--reference", place / "fr.txt")
    assert run("evaluate", "--model", place / "by_heart", *files, *asked).exit_code == 0
    assert {size for size, _ in beams} == sizes


def test_evaluate_scores_two_files_and_tells_bleu_by_length(place):
    found = run("evaluate", "--model", place / "by_heart", "--source", place / "en.txt", "--reference", place / "fr.txt")
    assert found.exit_code == 0, found.stderr
    assert "bleu 100.00   nrefs:1|case:mixed" in found.stdout
    assert "chrf 100.00" in found.stdout
    table = found.stdout[found.stdout.index("BLEU by the length of the source") :].splitlines()
    assert table[1].split() == ["words", "rows", "BLEU"]
    counts = [line.split()[-3 if "█" in line else -2] for line in table[2:] if line.strip()]
    assert sum(map(int, counts)) == len(ENGLISH)


def test_files_of_unequal_lengths_are_refused_and_both_are_named(place, tmp_path):
    (tmp_path / "short.txt").write_text("\n".join(FRENCH[:3]) + "\n")
    found = run("evaluate", "--model", place / "by_heart", "--source", place / "en.txt", "--reference", tmp_path / "short.txt")
    assert found.exit_code == 2
    assert f"en.txt with 10 and {tmp_path}/short.txt with 3 lines" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "a model and a test set, got neither. Fix: pass a recipe, or --model FOLDER --source FILE"),
        (["--model", "x", "--source", "y"], "a model and a test set, got --model and --source."),
        (["r.toml", "--source", "y"], "a recipe or two files as the test set, got a recipe and --source."),
    ],
)
def test_half_a_question_is_refused(arguments, told):
    found = run("evaluate", *arguments)
    assert found.exit_code == 2
    assert found.stderr.startswith(f"overt: Expected {told}")


def test_a_run_without_a_model_cannot_be_evaluated(place, tmp_path):
    found = run("evaluate", place / "small.toml", "--data", place, "--model", tmp_path)
    assert found.exit_code == 2
    assert f"a run with a finished model, got none in {tmp_path}. Fix: run: overt train" in found.stderr
