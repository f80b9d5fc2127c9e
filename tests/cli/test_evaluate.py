import json
import re

import pytest

from overt.learn import translator
from small_recipe import RECIPE, run
from translators import ENGLISH, FRENCH


@pytest.mark.few_cases(1)
def test_evaluate_gives_a_recipes_run_the_scores_that_training_ended_with(trained, training_folder):
    result = run("evaluate", training_folder / "small.toml", "--data", training_folder, "--model", training_folder / "run")
    results = json.loads((training_folder / "run" / "results.json").read_text())
    assert result.exit_code == 0, result.stderr
    assert f"bleu {results['test']['bleu']:.2f}   nrefs:1" in result.stdout


def test_evaluate_reads_the_test_set_with_the_models_own_tokens(training_folder):
    result = run("evaluate", training_folder / "small.toml", "--data", training_folder, "--model", training_folder / "by_heart")
    assert result.exit_code == 0, result.stderr
    assert "bleu 100.00" in result.stdout


@pytest.fixture
def beams(monkeypatch):
    """The size and the length penalty of every beam search."""
    searched, search = [], translator.beam_search

    def watched(*arguments, **options):
        searched.append((options["size"], options["length_penalty"]))
        return search(*arguments, **options)

    monkeypatch.setattr(translator, "beam_search", watched)
    return searched


@pytest.mark.parametrize(("arguments", "searched"), [((), (4, 0.5)), (("--beam", 3), (3, 0.5)), (("--beam", 1), None)])
def test_evaluate_searches_with_the_recipes_beam_or_the_one_that_is_asked_for(
    trained, training_folder, beams, arguments, searched
):
    (training_folder / "beam.toml").write_text(RECIPE + "[decoding]\nbeam = 4\nlength_penalty = 0.5\n")
    result = run(
        "evaluate", training_folder / "beam.toml", "--data", training_folder, "--model", training_folder / "run", *arguments
    )
    assert result.exit_code == 0, result.stderr
    assert set(beams) == ({searched} if searched else set())


def evaluated(training_folder, reference, *arguments):
    files = ("--source", training_folder / "en.txt", "--reference", reference)
    return run("evaluate", "--model", training_folder / "by_heart", *files, *arguments)


@pytest.mark.parametrize(("arguments", "sizes"), [((), {5}), (("--beam", 3), {3}), (("--beam", 1), set())])
def test_evaluate_searches_two_files_with_the_beam_that_is_asked_for(training_folder, beams, arguments, sizes):
    assert evaluated(training_folder, training_folder / "fr.txt", *arguments).exit_code == 0
    assert {size for size, _ in beams} == sizes


def test_evaluate_scores_two_files_and_tells_bleu_by_length(training_folder):
    result = evaluated(training_folder, training_folder / "fr.txt")
    assert result.exit_code == 0, result.stderr
    assert "bleu 100.00   nrefs:1|case:mixed" in result.stdout
    assert "chrf 100.00" in result.stdout
    table = result.stdout[result.stdout.index("BLEU by the length of the source") :].splitlines()
    assert table[1].split() == ["words", "rows", "BLEU"]
    counts = [line.split()[-3 if "█" in line else -2] for line in table[2:] if line.strip()]
    assert sum(map(int, counts)) == len(ENGLISH)
    for column, number in (("words", r"\d+"), ("rows", r"\d+"), ("BLEU", r"\d+\.\d")):
        end = table[1].index(column) + len(column)
        assert all(re.search(rf"{number}$", line[:end]) for line in table[2:] if line.strip()), (
            f"{column} is not set to the right"
        )


def test_files_of_unequal_lengths_are_refused_and_both_are_named(training_folder, tmp_path):
    (tmp_path / "short.txt").write_text("\n".join(FRENCH[:3]) + "\n")
    result = evaluated(training_folder, tmp_path / "short.txt")
    assert result.exit_code == 2
    assert f"en.txt with 10 and {tmp_path}/short.txt with 3 lines" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a model and a test set, got neither. Fix: pass a recipe, or --model FOLDER --source FILE"),
        (["--model", "x", "--source", "y"], "a model and a test set, got --model and --source."),
        (["r.toml", "--source", "y"], "a recipe or two files as the test set, got a recipe and --source."),
    ],
)
def test_half_a_question_is_refused(arguments, message):
    result = run("evaluate", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"overt: Expected {message}")


def test_a_run_without_a_model_cannot_be_evaluated(training_folder, tmp_path):
    result = run("evaluate", training_folder / "small.toml", "--data", training_folder, "--model", tmp_path)
    assert result.exit_code == 2
    assert f"a run with a finished model, got none in {tmp_path}. Fix: run: overt train" in result.stderr
