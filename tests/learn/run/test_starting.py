"""Training that starts from a finished model: its tokens, its weights, and what does not fit."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from overt.errors import InputError
from overt.learn.config.recipe import read_recipe
from overt.learn.config.settings import Data, Recipe, Tokenization, Training
from overt.learn.data.tokenizer import BYTES, RARE, SPECIAL, Tokenizer
from overt.learn.loop.training import train
from overt.learn.run.model_folder import load_model, save_model
from overt.learn.run.weights import get_weights
from overt.learn.tasks.build import build_task
from overt.learn.translator import Translator

TRANSFORMER = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 32, "dropout": 0.0}
SEQ2SEQ = {"width": 12}
ROWS = {
    "train": [("one two", "eins zwei"), ("two three", "zwei drei"), ("three", "drei"), ("one½", "eins½")] * 8,
    "valid": [("two one", "zwei eins")],
}


@pytest.fixture
def recipe(tmp_path):
    for split, rows in ROWS.items():
        (tmp_path / split).write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    data = Data(format="pairs", folder=str(tmp_path), train=("train",), valid=("valid",))
    training = Training(updates=2, tokens_per_batch=40)
    return Recipe(data=data, tokens=Tokenization(merges=20), model={"kind": "Transformer", **TRANSFORMER}, training=training)


def finished(recipe, folder: Path) -> Path:
    """A model of the recipe, as a run leaves it."""
    task, model = build_task(recipe, folder)
    save_model(model, folder / "model", task.tokenizer)
    return folder


def continued(recipe, folder: Path, **tokens) -> Recipe:
    return replace(recipe, tokens=Tokenization(**tokens), training=replace(recipe.training, seed=7, start=str(folder)))


@pytest.mark.parametrize("model", [{"kind": "Transformer", **TRANSFORMER}, {"kind": "Seq2Seq", **SEQ2SEQ}])
def test_a_run_starts_with_the_tokens_and_the_weights_of_a_finished_one(recipe, tmp_path, model):
    recipe = replace(recipe, model=model)
    old = Translator.load(finished(recipe, tmp_path / "old"))
    task, new = build_task(continued(recipe, tmp_path / "old"), tmp_path / "new")
    assert task.tokenizer.pieces.to_str() == old.tokenizer.pieces.to_str()
    weights = get_weights(old.model)
    assert {name: tensor.tolist() for name, tensor in get_weights(new).items()} == {
        name: tensor.tolist() for name, tensor in weights.items()
    }
    assert str(tmp_path / "old") in task.corpus.notes[-1]


@pytest.mark.parametrize("more", [{"encoder_layers": 3}, {"decoder_layers": 2}, {"encoder_layers": 2, "decoder_layers": 3}])
def test_added_layers_change_nothing_at_first_and_learn(recipe, tmp_path, more):
    finished(recipe, tmp_path / "old")
    deeper = replace(continued(recipe, tmp_path / "old"), model=recipe.model | more)
    _, model = build_task(deeper, tmp_path / "new")
    old = load_model(tmp_path / "old" / "model")[0].eval()
    source, target = torch.tensor([[5, 6, 7, 2], [6, 5, 2, 0]]), torch.tensor([[1, 5, 6], [1, 7, 7]])
    scores = model.eval()(source, target)
    torch.testing.assert_close(scores, old(source, target), rtol=0, atol=1e-6)
    scores.square().sum().backward()
    number = {side: len(model.get_submodule(side).layers) for side in ("encoder", "decoder")}
    assert number == {"encoder": more.get("encoder_layers", 1), "decoder": more.get("decoder_layers", 1)}
    for side in ("encoder", "decoder"):
        for layer in model.get_submodule(side).layers:
            assert layer.feed_forward.narrow.weight.grad.abs().max() > 0


@pytest.mark.parametrize("other", [{"norm": "post", "encoder_layers": 2}, {"feed_forward": 64}])
def test_layers_are_added_to_a_model_with_norms_first_alone(recipe, tmp_path, other):
    finished(replace(recipe, model=recipe.model | {"norm": other.get("norm", "pre")}), tmp_path / "old")
    with pytest.raises(InputError, match="only in the model|in the file"):
        build_task(replace(continued(recipe, tmp_path / "old"), model=recipe.model | other), tmp_path / "new")


def test_a_finished_model_may_keep_a_share_of_the_starting_weights(recipe, tmp_path):
    finished(recipe, tmp_path / "old")
    models = {}
    for share in (0.0, 0.25, 1.0):
        settings = replace(continued(recipe, tmp_path / "old").training, start_share=share, average=2)
        task, model = build_task(replace(recipe, tokens=Tokenization(), training=settings), tmp_path / f"task{share}")
        start = {name: tensor.clone() for name, tensor in get_weights(model).items()}
        train(model, task, settings, tmp_path / f"run{share}")
        models[share] = get_weights(load_model(tmp_path / f"run{share}" / "model")[0])
    for name, tensor in models[0.25].items():
        torch.testing.assert_close(tensor, 0.75 * models[0.0][name] + 0.25 * start[name])
        torch.testing.assert_close(models[1.0][name], start[name])
    assert any(not torch.equal(models[0.0][name], start[name]) for name in start)


def test_a_share_of_no_start_is_refused():
    with pytest.raises(InputError, match="start_share only where start names a model"):
        Training(start_share=0.2)


@pytest.mark.parametrize("tied", ["all", "target", None])
def test_with_byte_fallback_the_bytes_have_new_rows_and_all_other_pieces_the_old_ones(recipe, tmp_path, tied):
    recipe = replace(recipe, model=recipe.model | {"tied": tied})
    old = Translator.load(finished(recipe, tmp_path / "old"))
    task, new = build_task(continued(recipe, tmp_path / "old", byte_fallback=True), tmp_path / "new")
    assert task.tokenizer.words == old.tokenizer.words + 256 - 1  # "½" is rare, and part of no merge
    names, before = task.tokenizer.pieces.get_vocab(), old.tokenizer.pieces.get_vocab()
    assert set(before) - set(names) == {"½"}
    for name in ("encoder.embedding.table", "decoder.embedding.table", "output"):
        table, old_table = new.get_submodule(name).weight, old.model.get_submodule(name).weight
        for piece, number in names.items():
            assert (piece in before) == bool((old_table == table[number]).all(1).any())
            assert piece not in before or torch.equal(table[number], old_table[before[piece]])
    text = "one½"
    assert task.tokenizer.decode(task.tokenizer.encode(text)) == text
    source = "two three one"
    old_scores = old.model.eval()(torch.tensor([old.encode(source)]), torch.tensor([[1]]))
    new_scores = new.eval()(torch.tensor([[*task.tokenizer.encode(source), 2]]), torch.tensor([[1]]))
    common = [piece for piece in before if piece in names]
    columns = [[ids[piece] for piece in common] for ids in (names, before)]
    torch.testing.assert_close(new_scores[..., columns[0]], old_scores[..., columns[1]])


def test_rows_follow_their_pieces_where_as_many_pieces_are_lost_as_bytes_are_new(recipe, tmp_path):
    letters = Counter(letter for pair in ROWS["train"] for text in pair for letter in text.replace(" ", ""))
    lost = sum(count < RARE for count in letters.values())
    ideographs = "".join(chr(0x4E00 + number) for number in range(len(BYTES) - lost))
    with (tmp_path / "train").open("a", encoding="utf-8") as file:
        file.write(f"{ideographs}\teins\n")
    plain = replace(recipe, tokens=Tokenization(merges=0))
    old = Translator.load(finished(plain, tmp_path / "old"))
    task, new = build_task(continued(plain, tmp_path / "old", byte_fallback=True), tmp_path / "new")
    names, before = task.tokenizer.pieces.get_vocab(), old.tokenizer.pieces.get_vocab()
    assert task.tokenizer.words == old.tokenizer.words
    table, old_table = (model.get_submodule("output").weight for model in (new, old.model))
    assert all(torch.equal(table[names[piece]], old_table[before[piece]]) for piece in names.keys() & before.keys())


def test_bytes_are_added_behind_the_special_tokens_and_merges_stay():
    plain = Tokenizer.learn(["low lower lowest", "new newer newest"], merges=20)
    tokenizer = plain.with_byte_fallback([])
    ids = tokenizer.pieces.get_vocab()
    assert sorted(ids, key=ids.get)[: 4 + 256] == [*SPECIAL, *BYTES]
    assert tokenizer.byte_fallback
    for text in ("newest lower", "Low!", "你好 </s> <0x41>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokens(tokenizer.encode("newest lower")) == plain.tokens(plain.encode("newest lower"))
    merges = [json.loads(each.pieces.to_str())["model"]["merges"] for each in (plain, tokenizer)]
    assert merges[0] == merges[1]


def test_bytes_are_not_added_to_moses_words(recipe, tmp_path):
    words = replace(recipe, tokens=Tokenization(merges=20, moses=True), data=replace(recipe.data, languages=("en", "de")))
    finished(words, tmp_path / "old")
    with pytest.raises(InputError, match="a tokenizer of plain text, for byte fallback"):
        build_task(continued(words, tmp_path / "old", byte_fallback=True), tmp_path / "new")


def test_other_architectures_and_folders_are_refused(recipe, tmp_path):
    finished(recipe, tmp_path / "old")
    for model, message in (
        (recipe.model | {"width": 32}, r"\(.*, 16\) in the file, \(.*, 32\) in the model"),
        ({"kind": "Seq2Seq", **SEQ2SEQ}, "Expected a Seq2Seq to start from, got a Transformer"),
    ):
        with pytest.raises(InputError, match=message):
            build_task(continued(replace(recipe, model=model), tmp_path / "old"), tmp_path / "new")
    with pytest.raises(InputError, match="start to name the folder of a finished model, got '.*nowhere'"):
        build_task(continued(recipe, tmp_path / "nowhere"), tmp_path / "new")
    (tmp_path / "old" / "model" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="a model with its tokenizer, got no tokenizer.json"):
        build_task(continued(recipe, tmp_path / "old"), tmp_path / "newer")


def test_tokens_that_a_starting_model_would_ignore_are_refused_with_their_line(recipe, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[training]\nstart = "bundled"\n[tokens]\ndropout = 0.1\nmerges = 20\n')
    with pytest.raises(InputError, match=r"got merges \(.*recipe.toml, line 5\). Fix: leave merges out of \[tokens\]"):
        read_recipe(path, files=False)


def test_the_translator_in_the_package_is_a_start(recipe, tmp_path):
    box = Translator.bundled()
    config = {name: value for name, value in box.model.config.items() if not name.endswith("_words")}
    same = replace(recipe, model={"kind": "Transformer", **config})
    task, model = build_task(continued(same, "bundled"), tmp_path / "new")
    translated = Translator(model.eval(), task.tokenizer).translate(["I am happy to see you."])[0].text
    assert translated == box.translate(["I am happy to see you."])[0].text


def test_labels_come_with_the_starting_model(tmp_path):
    (tmp_path / "train").write_text("yes:all good day\nno:all bad day\n", encoding="latin-1")
    (tmp_path / "valid").write_text("yes:all good\n", encoding="latin-1")
    data = Data(format="labels", folder=str(tmp_path), train=("train",), valid=("valid",), encoding="latin-1")
    model = {"kind": "Classifier", "width": 8}
    recipe = Recipe(task="classify", data=data, model=model, training=Training(updates=2, tokens_per_batch=40))
    finished(recipe, tmp_path / "old")
    task, model = build_task(continued(recipe, tmp_path / "old"), tmp_path / "new")
    assert task.tokenizer.labels == ["no", "yes"]
    before = get_weights(load_model(tmp_path / "old" / "model")[0])
    assert all(torch.equal(tensor, before[name]) for name, tensor in get_weights(model).items())
