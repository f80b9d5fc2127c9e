"""A recipe's errors name the file, the line, and what to write instead."""

from pathlib import Path

import pytest

from overt.errors import InputError
from overt.learn.config.recipe import read_recipe
from overt.learn.config.settings import Data, Decoding, Recipe, Tokens, Training

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))
SMALL = """
task = "translate"
[data]
train = ["a", "b"]
[model]
kind = "Transformer"
width = 32
heads = 4
[training]
updates = 10
betas = [0.9, 0.99]
clip = "none"
"""


@pytest.fixture
def write(tmp_path):
    def written(text: str) -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        return path

    return written


def error_of(path, **options) -> str:
    with pytest.raises(InputError) as found:
        read_recipe(path, **options)
    return str(found.value).replace(str(path.parent) + "/", "")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_repository_can_be_read(path):
    assert isinstance(read_recipe(path, files=False), Recipe)


def test_what_a_recipe_says_is_taken_and_the_rest_has_its_default(write):
    assert read_recipe(write(SMALL), files=False) == Recipe(
        task="translate",
        data=Data(train=("a", "b")),
        tokens=Tokens(),
        model={"kind": "Transformer", "width": 32, "heads": 4},
        training=Training(updates=10, betas=(0.9, 0.99), clip=None),
        decoding=Decoding(),
    )


def test_none_is_written_as_a_text_where_none_is_a_choice(write):
    recipe = read_recipe(write('[model]\nkind = "Seq2Seq"\nattention = "none"\n'), files=False)
    assert recipe.model["attention"] is None


def test_keys_that_fit_each_other_but_not_the_defaults_are_taken(write):
    training = read_recipe(write("[training]\naverage = 20\nkeep = 30"), files=False).training
    assert (training.average, training.keep) == (20, 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[training]\nupdates = 5\nwarmpu = 3",
            "recipe.toml, line 3: [training] has no key 'warmpu'. Fix: write 'warmup'.",
        ),
        ("\n[trainig]\nupdates = 5", "recipe.toml, line 2: a recipe has no key 'trainig'. Fix: write 'training'."),
        (
            '[model]\nkind = "Transformer"\nheadz = 4',
            "recipe.toml, line 3: [model] has no key 'headz'. Fix: write 'heads'.",
        ),
        ("[model]\nsource_words = 9", "recipe.toml, line 2: [model] has no key 'source_words'."),
        (
            '[training]\nupdates = "many"',
            "recipe.toml, line 2: updates is a whole number, got 'many'. Fix: write digits alone, as in 12.",
        ),
        ("[training]\nupdates = true", "recipe.toml, line 2: updates is a whole number, got True."),
        ("[training]\nbetas = [0.9]", "recipe.toml, line 2: betas is a list of 2 numbers, got [0.9]."),
        ("[data]\ntrain = [1]", "recipe.toml, line 2: train is a list of texts, got [1]."),
        ("[data]\nlimit = 1.5", 'recipe.toml, line 2: limit is a whole number or "none", got 1.5.'),
        ("[model]\nwidth = 1.5", "recipe.toml, line 2: width is a whole number, got 1.5."),
        ("[training]\n\nupdates = 0", "recipe.toml, line 3: updates is a whole number of at least 1, got 0."),
        ("[training]\nlearning_rate = -1", "recipe.toml, line 2: learning_rate is a number above 0, got -1.0."),
        ("[training]\nlearning_rate = nan", "recipe.toml, line 2: learning_rate is a number above 0, got nan."),
        ("[training]\nlabel_smoothing = 2", "recipe.toml, line 2: label_smoothing is a probability, got 2.0."),
        ('[training]\nschedule = "cosin"', "recipe.toml, line 2: schedule is one of 'inverse_sqrt', 'cosine'"),
        ("[training]\nkeep = 2\naverage = 5", "recipe.toml, line 3: the checkpoints that are averaged are kept till the end"),
        ("[training]\naverage = 20\nkeep = 15", "recipe.toml, line 2: the checkpoints that are averaged are kept till the end"),
        ("[tokens]\nmerges = -1", "recipe.toml, line 2: merges is a whole number of at least 0, got -1."),
        ("[decoding]\nbeam = 0", "recipe.toml, line 2: beam is a whole number of at least 1, got 0."),
        ("[data]\nheld_out = [-1, 2]", "recipe.toml, line 2: each of held_out is a whole number of at least 0, got -1."),
        ('[model]\nkind = "Transformer"\n\nnorm = "per"', "recipe.toml, line 4: norm is"),
        ("[model]\nwidth = 30\nheads = 4", "recipe.toml, line 3: heads that share the width evenly divide it"),
        (
            'task = "translat"',
            "recipe.toml, line 1: task is one of 'translate', 'tag', 'classify', 'language', got 'translat'.",
        ),
        (
            '[model]\nkind = "Tagger"',
            "recipe.toml, line 2: the task 'translate' trains a 'Transformer' or 'Seq2Seq', got 'Tagger'.",
        ),
        ('task = ["tag"]', "recipe.toml, line 1: task is one of 'translate', 'tag', 'classify', 'language', got ['tag']."),
        ("[model]\nkind = 3", "recipe.toml, line 2: the task 'translate' trains a 'Transformer' or 'Seq2Seq', got 3."),
        ("model = 3", "recipe.toml, line 1: model is a table, got 3. Fix: write its keys below [model]."),
        ("[training]\nupdates = ", "recipe.toml, line 2: a recipe is TOML, got Invalid value"),
    ],
)
def test_an_error_names_its_line(write, text, message):
    assert error_of(write(text), files=False).startswith(message)


def test_a_missing_file_of_data_is_named_with_its_line_and_where_to_get_it(write, tmp_path, monkeypatch):
    monkeypatch.setenv("OVERT_DATA", str(tmp_path))
    text = '[data]\nfolder = "corpus"\norigin = "a place"\ntrain = ["a.en", "a.de"]'
    found = error_of(write(text)).replace(f"{tmp_path}/", "")
    assert found == (
        "recipe.toml, line 4: train names files that are there, got corpus/a.en, which is not. Fix: set OVERT_DATA to the "
        "folder that holds corpus/, or put the file there, from a place."
    )


def test_a_recipe_without_training_files_says_so(write):
    assert "train names the files to learn from, got none" in error_of(write('task = "translate"\n[data]\njoin = 2'))


def test_a_recipe_that_is_not_there_is_named(tmp_path):
    assert error_of(tmp_path / "none.toml") == "none.toml is a recipe, got No such file or directory. Fix: check its name."


def test_a_recipe_that_is_not_utf8_names_byte_and_line(tmp_path):
    (tmp_path / "recipe.toml").write_bytes(b"# good\n# caf\xe9\n")
    assert error_of(tmp_path / "recipe.toml").startswith("recipe.toml, line 2: a recipe is UTF-8 text, got the byte 0xe9.")
