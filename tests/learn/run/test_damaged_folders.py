"""Whatever is changed in a model's folder, a checkpoint or a recipe, it is refused in a sentence or it can be used."""

import json
import random as draws
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from json_parts import changed, parts
from overt.errors import InputError, OvertError
from overt.learn import Tokenizer, Translator, load_model, save_model
from overt.learn.config.recipe import read_recipe
from overt.learn.data.vocabulary import WordVocabulary
from overt.learn.run.checkpoint import Checkpoint, read, write
from overt.learn.run.log import read_log
from overt.learn.run.run_record import claim_folder
from overt.models import from_config

VALUES = [
    *("x", "", None, True, [], {}, ["a"], [[1]], {"a": 1}, 0, 1, -1, 3, 1.5, 1e300),
    *(10**6, 2**31, 10**9, 10**12, 2**63, 10**23, 10**400),
]
TEXTS = ["low lower lowest", "new newer newest"]


def folder_of(kind, folder):
    if kind == "translator":
        tokenizer = Tokenizer.learn(TEXTS, merges=20)
        sizes = {"source_words": tokenizer.words, "target_words": tokenizer.words}
        small = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 16}
        model = from_config({"kind": "Transformer", **sizes, **small})
    else:
        tokenizer = WordVocabulary(["low", "new"], ["a", "b"])
        model = from_config({"kind": "Tagger", "words": tokenizer.words, "tags": 2, "width": 8})
    save_model(model, folder, tokenizer)
    return folder


def use(folder, kind):
    """Load the model and let it read a text; only overt's own errors may come of that."""
    try:
        if kind == "translator":
            Translator.load(folder).translate(["low newer"], longest=3)
        else:
            model, vocabulary, _ = load_model(folder)
            assert len(vocabulary.labels) == 2
            if not vocabulary.parts:
                model(torch.tensor([vocabulary.encode(["low", "x"])]))
    except OvertError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tagger", "config.json"),
        ("tagger", "tokenizer.json"),
        ("translator", "config.json"),
        pytest.param("translator", "tokenizer.json", marks=pytest.mark.slow),
    ],
)
def test_a_model_folder_with_anything_changed_is_refused_or_can_be_used(kind, name, tmp_path):
    folder = folder_of(kind, tmp_path)
    assert use(folder, kind)
    saved = json.loads((folder / name).read_text())
    drawn = draws.Random(kind + name)
    indices = list(parts(saved))
    for index in indices if len(indices) < 60 else drawn.sample(indices, 60):
        for value in drawn.sample(VALUES, 5):
            (folder / name).write_text(json.dumps(changed(saved, index, value)))
            use(folder, kind)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"5", b"\xff", b"[" * 100_000, b'{"kind": ' + b"1" * 5001 + b"}", b'{"kind": NaN}', b"{}"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_of_something_else_is_refused(name, content, tmp_path):
    folder = folder_of("tagger", tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_in_the_place_of_a_file_is_refused(name, tmp_path):
    folder = folder_of("tagger", tmp_path)
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(InputError, match=rf"{name} to be .*, got Is a directory"):
        load_model(folder)


def test_a_kind_that_is_no_text_is_refused(tmp_path):
    folder = folder_of("tagger", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "kind": []}))
    with pytest.raises(InputError, match=r"kind as one of Transformer, .*, got \[\]"):
        load_model(folder)


def test_weights_of_another_kind_are_refused(tmp_path):
    folder = folder_of("tagger", tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = next(iter(weights))
    for tensor in (weights[name].int(), weights[name].to(torch.complex64), weights[name][:1], weights[name][None]):
        save_file({**weights, name: tensor.clone()}, folder / "model.safetensors")
        with pytest.raises(InputError, match="model.safetensors to hold"):
            load_model(folder)


BOMB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from overt.errors import InputError
from overt.learn import load_model
load_model(sys.argv[1])  # what is imported is not counted
for size in sys.argv[2:]:
    name, number = size.split("=")
    path = sys.argv[1] + "/config.json"
    import json
    held = json.load(open(path))
    held["config"][name] = int(number)
    json.dump(held, open(path + "2", "w"))
    import shutil, os
    shutil.copy(path, path + "1"); shutil.move(path + "2", path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load_model(sys.argv[1])
    except InputError as error:
        print("refused", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < 100)
    shutil.move(path + "1", path)
"""


@pytest.mark.slow
def test_sizes_that_a_folder_only_names_take_no_memory(tmp_path):
    folder = folder_of("translator", tmp_path)
    sizes = [f"{name}={10**power}" for name in ("source_words", "width", "encoder_layers", "feed_forward") for power in (9, 12)]
    result = subprocess.run([sys.executable, "-c", BOMB, folder, *sizes], capture_output=True, text=True, check=True).stdout
    assert result.split("\n") == ["refused True"] * len(sizes) + [""]


@pytest.mark.parametrize("content", [b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"seal": 5}'])
def test_a_state_of_something_else_is_a_damaged_checkpoint(content, tmp_path):
    path = write(tmp_path, 4, Checkpoint({"a": torch.ones(2)}, {}, {"update": 4}))
    (path / "state.json").write_bytes(content)
    with pytest.raises(InputError, match=r"state.json to be undamaged, got .*\. Fix: remove the folder"):
        read(path)


@pytest.mark.parametrize("content", ["5\n", "[]\n", "{}\n", '{"update": "x"}\n', "x\n", "[" * 100_000 + "\n", "\udcff\n"])
def test_a_log_of_something_else_is_refused(content, tmp_path):
    (tmp_path / "log.jsonl").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"log.jsonl to be the log of a run, got .*\. Fix: remove the file"):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize("content", ["5", "[]", "x", "[" * 100_000])
def test_a_run_record_of_something_else_is_refused(content, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run.json to be the record of a run"):
        claim_folder(tmp_path, {})


RECIPE = '[data]\nformat = "pairs"\ntrain = ["a.txt"]\n[model]\nkind = "Transformer"\n[training]\nupdates = 2\n'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "updates = 2",
            f"updates = {10**23}",
            r"updates to be a number of at most 64 bits, got 24 digits \(.*recipe.toml, line 7\)",
        ),
        (
            "updates = 2",
            "updates = " + "1" * 5001,
            r"numbers of at most 64 bits, got a number with too many digits \(.*recipe.toml, line 7\)",
        ),
        ("updates = 2", "learning_rate = nan", r"a number above 0, got nan \(.*recipe.toml, line 7\)"),
        ("updates = 2", "weight_decay = inf", r"weight_decay to be a number of at least 0, got inf \(.*recipe.toml, line 7\)"),
        (
            "updates = 2",
            f"updates = 2\n[tokens]\nmerges = {10**12}",
            r"at most 1,000,000 merges, got 1000000000000 \(.*line 9\)",
        ),
        (
            '"Transformer"',
            f'"Transformer"\nwidth = {10**23}',
            r"width to be a number of at most 64 bits, got .*recipe.toml, line 6\)",
        ),
        (
            '"Transformer"',
            f'"Transformer"\nwidth = {2**40}',
            r"2,147,483,647, got 1099511627776 \(.*recipe.toml, line 6\)",
        ),
        ('"Transformer"', '"Transformer"\nencoder_layers = 1000000000', r"encoder_layers of Transformer .*at most 1,000, got"),
        (
            '"a.txt"',
            f'"{"x/" * 3000}"',
            r"train to name existing files, got x/x/.*, which does not exist \(.*recipe.toml, line 3\)",
        ),
        ('"a.txt"', '"\\u0000"', r"train to name existing files, got \0, .*recipe.toml, line 3\)"),
        ("[data]", "a = " + "[" * 3000 + "]" * 3000 + "\n[data]", r"a recipe in TOML, got content that is nested too deeply"),
        (
            '"Transformer"',
            "[]",
            r"a model of kind 'Transformer' or 'Seq2Seq' for the task 'translate', got \[\] \(.*recipe.toml, line 5\)",
        ),
    ],
    ids=lambda value: None if len(str(value)) > 40 else str(value),
)
def test_a_recipe_that_no_machine_can_follow_is_refused_at_its_line(old, new, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OVERT_DATA", raising=False)
    (tmp_path / "a.txt").write_text("a\tb\n")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    read_recipe(tmp_path / "recipe.toml")
    (tmp_path / "recipe.toml").write_text(RECIPE.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_recipe(tmp_path / "recipe.toml")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "."])
def test_a_recipe_that_is_no_file_is_refused(name, tmp_path):
    with pytest.raises(InputError, match=r"to be a recipe, got .*\. Fix: check its name"):
        read_recipe(tmp_path / name)
