"""A folder with the data of a small recipe, and the run of that recipe."""

import os

import pytest

from small_recipe import RECIPE, run


@pytest.fixture(autouse=True)
def data_folder_stays(monkeypatch):
    monkeypatch.setenv("OVERT_DATA", os.environ.get("OVERT_DATA", ""))  # --data sets it; it is as before after each test


@pytest.fixture(scope="module")
def training_folder(tmp_path_factory):
    from overt.learn.run.model_folder import save_model
    from translators import ENGLISH, FRENCH, by_heart  # here, since both load torch

    folder = tmp_path_factory.mktemp("training")
    (folder / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, FRENCH, strict=True)))
    (folder / "small.toml").write_text(RECIPE)
    (folder / "plain.toml").write_text(RECIPE.replace("[training]", "dropout = 0.0\n[training]"))
    (folder / "en.txt").write_text("\n".join(ENGLISH) + "\n")
    (folder / "fr.txt").write_text("\n".join(FRENCH) + "\n")
    save_model(by_heart().model, folder / "by_heart", by_heart().tokenizer)
    return folder


@pytest.fixture(scope="module")
def trained(training_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OVERT_DATA", "")
        return run("train", training_folder / "small.toml", "--data", training_folder, "--out", training_folder / "run")
