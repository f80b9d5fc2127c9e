import json
import os
import subprocess
import sys

import pytest
import torch

from overt.bench import provenance
from overt.learn.run.log import read_log
from small_recipe import RECIPE, run


def test_a_recipe_becomes_a_model_with_its_scores_and_its_curve(trained, training_folder):
    assert trained.exit_code == 0, trained.stderr
    results = json.loads((training_folder / "run" / "results.json").read_text())
    for message in (
        f"test bleu {results['test']['bleu']:.2f}   nrefs:1|case:mixed",
        f"test chrf {results['test']['chrf']:.2f}   nrefs:1",
        "4 updates in",
        "seed 3",
    ):
        assert message in trained.stdout
    assert (results["updates"], results["seed"], results["examples"]) == (4, 3, {"train": 7, "valid": 1, "test": 2})
    assert (results["commit"], results["threads"]) == (provenance.commit(), torch.get_num_threads())
    assert results["test"]["rows"] == 2
    assert results["validation"].keys() == {"bleu", "perplexity"}
    assert results["date"].startswith("20")
    assert results["machine"]["processor"]
    assert {"model", "results.json", "log.jsonl", "checkpoints"} <= {path.name for path in (training_folder / "run").iterdir()}


def test_the_held_out_sources_are_written_down(trained, training_folder):
    lines = (training_folder / "run" / "held_out.tsv").read_text().splitlines()
    assert "held_out.tsv" in trained.stdout
    assert len(lines) == len(set(lines)) == 3
    assert [line.partition("\t")[0] for line in lines] == ["test", "test", "valid"]
    pairs = (training_folder / "pairs.txt").read_text().splitlines()
    assert {line.partition("\t")[2] for line in lines} < {line.partition("\t")[0] for line in pairs}


def test_the_picture_of_the_curve_is_there_where_matplotlib_is(trained, training_folder):
    pytest.importorskip("matplotlib")
    assert (training_folder / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_run_ends_without_a_picture(trained, training_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    second = run("train", training_folder / "small.toml", "--data", training_folder, "--out", training_folder / "run")
    assert second.exit_code == 0, second.stderr
    assert "results.json" in second.stdout
    assert "curve.png" not in second.stdout


def test_nothing_of_this_machine_is_in_the_results(trained, training_folder):
    assert str(training_folder) not in (training_folder / "run" / "results.json").read_text()


def test_a_run_started_again_goes_on_from_its_last_checkpoint(trained, training_folder):
    result = run("train", training_folder / "small.toml", "--data", training_folder, "--out", training_folder / "run")
    assert result.exit_code == 0, result.stderr
    assert "resuming from the checkpoint of update 4 of 4" in " ".join(result.stdout.split())


def test_the_folder_of_another_recipes_run_is_refused(trained, training_folder, tmp_path):
    (tmp_path / "other.toml").write_text(RECIPE.replace("the tests", "elsewhere"))
    result = run("train", tmp_path / "other.toml", "--data", training_folder, "--out", training_folder / "run")
    assert result.exit_code == 2
    assert "recipe.data.origin 'the tests' in the folder, 'elsewhere' in this run" in result.stderr


def test_an_error_in_a_recipe_is_told_with_its_line(training_folder, tmp_path):
    (tmp_path / "wrong.toml").write_text(RECIPE.replace("warmup", "warmpu"))
    result = run("train", tmp_path / "wrong.toml", "--data", training_folder)
    line = RECIPE.replace("warmup", "warmpu").splitlines().index("warmpu = 2") + 1
    assert result.exit_code == 2
    assert f"line {line}). Fix: write 'warmup'." in result.stderr


@pytest.mark.slow
def test_two_fresh_runs_of_one_recipe_end_with_the_same_bytes(training_folder):
    recipe = RECIPE.replace("[model]", "lower = true\nmoses = true\n[model]").replace(
        "origin", 'languages = ["en", "fr"]\norigin'
    )
    (training_folder / "moses.toml").write_text(recipe.replace("[training]", "dropout = 0.3\n[training]"))
    runs = []
    for seed in ("1", "2"):
        arguments = [
            sys.executable,
            "-m",
            "overt",
            "train",
            training_folder / "moses.toml",
            "--data",
            training_folder,
            "--out",
            training_folder / f"hash{seed}",
        ]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "ACCELERATE_USE_CPU": "1"}
        runs.append(subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for run_of_seed in runs:
        _, message = run_of_seed.communicate()
        assert run_of_seed.returncode == 0, message[-2000:]
    files = [files_in(training_folder / f"hash{seed}") for seed in (1, 2)]
    assert {"tokenizer.json", "model/model.safetensors", "checkpoints/000004/optimizer.safetensors"} <= files[0].keys()
    assert files[0] == files[1]


def files_in(folder):
    """A run's files by their names, without those that hold times."""
    timed = {"results.json", "log.jsonl", "curve.png", "state.json"}
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*.*") if each.name not in timed}


@pytest.mark.slow
def test_two_processes_train_from_a_recipe_as_one_does(training_folder):
    for folder, start in (
        ("one", [sys.executable]),
        ("two", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]),
    ):
        arguments = [
            *start,
            "-m",
            "overt",
            "train",
            training_folder / "plain.toml",
            "--data",
            training_folder,
            "--out",
            training_folder / folder,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "COLUMNS": "160"}
        result = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        assert result.stdout.count("4 updates in") == result.stdout.count("the same command resumes it") == 1
    one, two = (read_log(training_folder / folder / "log.jsonl") for folder in ("one", "two"))
    losses = [[entry["loss"] for entry in log if "loss" in entry] for log in (one, two)]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    assert json.loads((training_folder / "two" / "results.json").read_text())["processes"] == 2
