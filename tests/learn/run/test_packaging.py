import copy
import json
import re

import pytest
from safetensors.torch import load_file

from overt.cli.train import duration_text, hardware_text
from overt.errors import InputError
from overt.learn.run.model_folder import save_model
from overt.learn.translator import Translator
from recipes import bundle as bundling
from recipes.bundle import bundle, model_card
from translators import ENGLISH, FRENCH, by_heart

RESULTS = {
    "recipe": "small.toml", "recipe_text": "[training]\nupdates = 812\n", "command": "overt train small.toml", "seed": 17,
    "updates": 812, "tokens": 345678, "seconds": 7260.0, "stopped_early": False, "hardware": "A Processor", "processes": 1,
    "threads": 2, "software": {"python": "3.11.1", "overt": "0.1.0", "torch": "2.9.0"}, "parameters": 54321,
    "examples": {"train": 91234, "valid": 1301, "test": 2602},
    "data": {"train": ["pairs.zip"], "held_out": [1001, 2002], "origin": "somewhere"},
    "notes": ["train: 3 of 95137 lines are left out"], "decoding": {"beam": 6},
    "test": {"rows": 2602, "sources": 2002, "bleu": 46.789, "bleu_signature": "nrefs:1|tok:13a", "chrf": 65.432,
             "chrf_signature": "nc:6", "by_length": [{"shortest": 1, "longest": 4, "rows": 700, "bleu": 55.51}]},
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    save_model(by_heart().model, folder / "model", by_heart().tokenizer)
    (folder / "results.json").write_text(json.dumps(RESULTS))
    return folder


def test_a_box_holds_int8_weights_and_translates_the_same(run, tmp_path):
    bundle(run, tmp_path / "box", title="A to B", attribution="From C.", languages=("en", "fr"))
    assert json.loads((tmp_path / "box" / "config.json").read_text())["languages"] == ["en", "fr"]
    assert sorted(path.name for path in (tmp_path / "box").iterdir()) == [
        "CARD.md", "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    tensors = load_file(tmp_path / "box" / "model.safetensors")
    assert {str(each.dtype) for each in tensors.values() if each.ndim == 2} == {"torch.int8"}
    assert [each.text for each in Translator.load(tmp_path / "box").translate(ENGLISH)] == FRENCH


def test_every_number_of_a_card_is_the_runs():
    message = model_card(RESULTS, "A to B", "From C.")
    expected = {"256", "1", "2", "6", "13"}  # SHA-256, and the names that signatures are made of
    known = [*re.findall(r"\d+(?:\.\d+)?", json.dumps(RESULTS)), "46.79", "65.43", "55.5", "2", "1"]
    numbers = re.findall(r"\d+(?:\.\d+)?", message.replace(",", ""))
    assert set(numbers) - set(known) - expected - {"8", "32"} == set()  # int8, float32
    for part in (
        "46.79",
        "65.43",
        "nrefs:1\\|tok:13a",
        "91,234",
        "2 hours 1 minute",
        "A Processor",
        "seed: 17",
        "54,321",
        "updates = 812",
    ):
        assert part in message


def test_a_card_changes_with_the_results():
    other = copy.deepcopy(RESULTS)
    other["test"]["bleu"] = 12.345
    assert "12.35" in model_card(other, "", "") or "12.34" in model_card(other, "", "")
    assert "46.79" not in model_card(other, "", "")


def test_a_run_without_results_is_refused(run, tmp_path):
    (run / "results.json").unlink()
    with pytest.raises(InputError, match=r"results.json to be the scores of a finished run, got No such file"):
        bundle(run, tmp_path / "box", title="", attribution="")


def test_a_run_without_a_test_is_refused(run, tmp_path):
    (run / "results.json").write_text(json.dumps({**RESULTS, "test": None}))
    with pytest.raises(
        InputError, match=r"scores on a test set, got none in .*Fix: name a test set, or hold one out, in \[data\]"
    ):
        bundle(run, tmp_path / "box", title="", attribution="")


def test_a_box_that_is_too_large_is_refused_and_the_one_before_stays(run, tmp_path, monkeypatch):
    bundle(run, tmp_path / "box", title="first", attribution="")
    monkeypatch.setattr(bundling, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="at most 1,000 bytes, got"):
        bundle(run, tmp_path / "box", title="second", attribution="")
    assert (tmp_path / "box" / "CARD.md").read_text().startswith("# first")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 seconds"),
        (59.94, "59.9 seconds"),
        (60, "1 minute"),
        (3660, "1 hour 1 minute"),
        (9060, "2 hours 31 minutes"),
    ],
)
def test_a_duration_is_in_seconds_up_to_a_minute_and_then_in_hours_and_minutes(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("processes", "threads", "text"),
    [(1, 1, "1 process of 1 thread"), (2, 3, "2 processes of 3 threads"), (3, 2, "3 processes of 2 threads")],
)
def test_processes_and_threads_are_counted(processes, threads, text):
    assert hardware_text({"hardware": "A Processor", "processes": processes, "threads": threads}) == f"A Processor, {text}"


def test_the_bounds_of_unusual_texts_goes_into_the_box(run, tmp_path):
    (run / "results.json").write_text(json.dumps({**RESULTS, "score_bound": -0.75, "split_bound": 0.25}))
    bundle(run, tmp_path / "box", title="", attribution="")
    translator = Translator.load(tmp_path / "box")
    assert (translator.score_bound, translator.split_bound) == (-0.75, 0.25)
