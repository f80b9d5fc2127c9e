"""A recipe's errors name the file, the line, and what to write instead."""

from pathlib import Path

import pytest

from overt.errors import InputError
from overt.learn.config.recipe import read_recipe
from overt.learn.config.settings import Data, Decoding, Recipe, Tokenization, Training

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
    with pytest.raises(InputError) as result:
        read_recipe(path, **options)
    return str(result.value).replace(str(path.parent) + "/", "")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_repository_can_be_read(path):
    assert isinstance(read_recipe(path, files=False), Recipe)


def test_what_a_recipe_says_is_taken_and_the_rest_has_its_default(write):
    assert read_recipe(write(SMALL), files=False) == Recipe(
        task="translate",
        data=Data(train=("a", "b")),
        tokens=Tokenization(),
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
            "a key of [training], got 'warmpu' (recipe.toml, line 3). Fix: write 'warmup'.",
        ),
        ("\n[trainig]\nupdates = 5", "a key of a recipe, got 'trainig' (recipe.toml, line 2). Fix: write 'training'."),
        (
            '[model]\nkind = "Transformer"\nheadz = 4',
            "a key of [model], got 'headz' (recipe.toml, line 3). Fix: write 'heads'.",
        ),
        ("[model]\nsource_words = 9", "a key of [model], got 'source_words' (recipe.toml, line 2)."),
        (
            '[training]\nupdates = "many"',
            "updates to be a whole number, got 'many' (recipe.toml, line 2). Fix: write digits only, as in 12.",
        ),
        ("[training]\nupdates = true", "updates to be a whole number, got True (recipe.toml, line 2)."),
        ("[training]\nbetas = [0.9]", "betas to be a list of 2 numbers, got [0.9] (recipe.toml, line 2)."),
        ("[data]\ntrain = [1]", "train to be a list of strings, got [1] (recipe.toml, line 2)."),
        ("[data]\nlimit = 1.5", 'limit to be a whole number or "none", got 1.5 (recipe.toml, line 2).'),
        ("[model]\nwidth = 1.5", "width to be a whole number, got 1.5 (recipe.toml, line 2)."),
        ("[training]\n\nupdates = 0", "a whole number of at least 1, got 0 (recipe.toml, line 3)."),
        ("[training]\nlearning_rate = -1", "a number above 0, got -1.0 (recipe.toml, line 2)."),
        ("[training]\nlearning_rate = nan", "a number above 0, got nan (recipe.toml, line 2)."),
        ("[training]\nlabel_smoothing = 2", "a probability, got 2.0 (recipe.toml, line 2)."),
        ('[training]\nschedule = "cosin"', "'linear', 'constant', 'trapezoid', got 'cosin' (recipe.toml, line 2)."),
        (
            "[training]\nkeep = 2\naverage = 5",
            "average to be at most keep, since the averaged checkpoints are kept, got average = 5",
        ),
        ("[training]\naverage = 20\nkeep = 15", "got average = 20 and keep = 15 (recipe.toml, line 2). Fix: raise keep."),
        ("[tokens]\nmerges = -1", "a whole number of at least 0, got -1 (recipe.toml, line 2)."),
        ("[decoding]\nbeam = 0", "a whole number of at least 1, got 0 (recipe.toml, line 2)."),
        ("[data]\nheld_out = [-1, 2]", "a whole number of at least 0, got -1 (recipe.toml, line 2)."),
        ('[model]\nkind = "Transformer"\n\nnorm = "per"', "got 'per' (recipe.toml, line 4)."),
        ("[model]\nwidth = 30\nheads = 4", "got width=30, heads=4 (recipe.toml, line "),
        (
            'task = "translat"',
            "task to be one of 'translate', 'tag', 'classify', 'language', got 'translat' (recipe.toml, line 1).",
        ),
        (
            '[model]\nkind = "Tagger"',
            "a model of kind 'Transformer' or 'Seq2Seq' for the task 'translate', got 'Tagger' (recipe.toml, line 2).",
        ),
        (
            'task = ["tag"]',
            "task to be one of 'translate', 'tag', 'classify', 'language', got ['tag'] (recipe.toml, line 1).",
        ),
        (
            "[model]\nkind = 3",
            "a model of kind 'Transformer' or 'Seq2Seq' for the task 'translate', got 3 (recipe.toml, line 2).",
        ),
        ("model = 3", "model to be a table, got 3 (recipe.toml, line 1). Fix: write its keys below [model]."),
        ("[training]\nupdates = ", "a recipe in TOML, got Invalid value"),
    ],
)
def test_an_error_names_its_line(write, text, message):
    error = error_of(write(text), files=False)
    assert error.startswith("Expected ")
    assert message in error


def test_a_missing_file_of_data_is_named_with_its_line_and_where_to_get_it(write, tmp_path, monkeypatch):
    monkeypatch.setenv("OVERT_DATA", str(tmp_path))
    text = '[data]\nfolder = "corpus"\norigin = "a place"\ntrain = ["a.en", "a.de"]'
    result = error_of(write(text)).replace(f"{tmp_path}/", "")
    assert result == (
        "Expected train to name existing files, got corpus/a.en, which does not exist (recipe.toml, line 4). Fix: set OVERT_DATA "
        "to the folder that holds corpus/, or put the file there, from a place."
    )


def test_a_recipe_without_training_files_says_so(write):
    assert "Expected train to name the training files, got none" in error_of(write('task = "translate"\n[data]\njoin = 2'))


def test_a_recipe_that_is_not_there_is_named(tmp_path):
    expected = "Expected none.toml to be a recipe, got No such file or directory. Fix: check its name."
    assert error_of(tmp_path / "none.toml") == expected


def test_a_recipe_that_is_not_utf8_names_byte_and_line(tmp_path):
    (tmp_path / "recipe.toml").write_bytes(b"# good\n# caf\xe9\n")
    expected = "Expected a recipe in UTF-8, got the byte 0xe9 (recipe.toml, line 2). Fix: save it in UTF-8."
    assert error_of(tmp_path / "recipe.toml") == expected


def test_added_files_that_do_not_exist_are_named(write, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    text = f'[data]\nformat = "pairs"\nfolder = "{tmp_path.as_posix()}"\ntrain = ["pairs.tsv"]\nadded = ["runs/none.tsv"]\n'
    message = error_of(write(text), files=True)
    assert "added to name existing files, got runs/none.tsv, which does not exist (recipe.toml, line 5)" in message
