"""No command writes over what it reads, whatever the file is called, nor two outputs into one file."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from overt.cli.main import COMMANDS, app, command_module

# What each path on a command line is. A new one has to be said here, and then has to be kept apart from the others.
ROLES = {
    "atlas": {"model": "apart", "corpus": "input", "out": "output", "survey": "output", "beside": "input"},
    "play": {"model": "apart", "text": "apart", "out": "apart"},
    "replay": {"log": "apart", "model": "apart", "html": "apart", "json_out": "apart"},  # its own tests
    "smooth": {
        "paths": "input",
        "out": "output",
        "plot": "output",
        "html": "output",
        "json_out": "output",
        "anomalies": "output",
    },
    "view": {"recording": "input", "out": "output"},
    "explain": {
        "text": "input",
        "other": "input",
        "compare": "input",
        "vectors": "input",
        "model": "folder",
        "html": "output",
        "png": "output",
        "gif": "output",
        "json": "output",
    },
    "translate": {
        "text": "input",
        "model": "folder",
        "out": "output",
        "attention": "output",
        "warnings": "output",
        "json_out": "output",
    },
    "train": {"recipe": "apart", "out": "apart", "data": "apart"},  # their own tests, below
    "evaluate": {
        "recipe": "input",
        "model": "folder",
        "source": "input",
        "reference": "input",
        "data": "apart",  # its files are the recipe's
        "json_out": "output",
    },
    "doctor": {"json_out": "output"},
    "heads": {"model": "apart", "pairs": "input", "json": "output", "html": "output", "plot": "output"},
    "bench": {"out": "output"},
}
TEXTS = {"text", "other", "compare", "model"}  # strings that may name files
FLAGS = {"other": "--with", "json_out": "--json"}
BASE = {
    "atlas": ["a-model", "a-corpus.txt"],
    "heads": ["a-model"],
    "smooth": ["--column", "v"],
    "explain": ["--recipe", "plain"],
}


def parameters(command):
    module = importlib.import_module(command_module(command))
    signature = inspect.signature(getattr(module, command))
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.annotation is not typer.Context}


def names_a_file(name, parameter):
    kind = get_args(parameter.annotation)[0]
    return Path in (kind, *get_args(kind)) or name in TEXTS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_path_on_a_command_line_has_its_role_here(command):
    paths = {name for name, parameter in parameters(command).items() if names_a_file(name, parameter)}
    assert paths == set(ROLES.get(command, {}))


def flag(command, name):
    positional = "Argument" in str(get_args(parameters(command)[name].annotation)[1:])
    return [] if positional else [option(name)]


def option(name):
    return FLAGS.get(name, f"--{name}")


def _pairs(*roles):
    for command, of in ROLES.items():
        outputs = [name for name, role in of.items() if role == "output"]
        for name in (name for name, role in of.items() if role in roles):
            for output in outputs:
                if name != output and (roles != ("output",) or name < output):
                    yield command, name, output


def pairs(*roles):
    return list(_pairs(*roles))


def refused(command, *arguments):
    result = CliRunner().invoke(app, [*command.split(), *BASE.get(command, []), *map(str, arguments)], input="x\n")
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def linked(path):
    os.symlink(path, path.with_name("link.txt"))
    return path.with_name("link.txt")


def hard(path):
    os.link(path, path.with_name("hard.txt"))
    return path.with_name("hard.txt")


WAYS = {
    "the same path": lambda path: path,
    "a link": linked,
    "a hard link": hard,
    "a relative path": lambda path: os.path.relpath(path),
    "another way": lambda path: path.parent / ".." / path.parent.name / path.name,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("command", "name", "output"), pairs("input"))
@pytest.mark.each_value
def test_no_output_is_an_input(command, name, output, way, tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("what the user has\n")
    first = [] if command != "explain" or name == "text" else ["a text"]
    message = refused(command, *first, *flag(command, name), file, option(output), way(file))
    assert f"not an input file, got {option(output)}" in message
    assert "the same file as" in message
    assert file.read_text() == "what the user has\n"


@pytest.mark.parametrize(("command", "name", "output"), pairs("folder"))
def test_no_output_is_a_file_of_the_model(command, name, output, tmp_path):
    for folder in (tmp_path, tmp_path / "model"):
        folder.mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (folder / file).write_text("what the user has")
            message = refused(command, "a text", f"--{name}", tmp_path, option(output), folder / file)
            assert f"the same file as {file} of the model in" in message
            assert (folder / file).read_text() == "what the user has"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("command", "name", "output"), pairs("output"))
def test_two_outputs_are_two_files(command, name, output, there, tmp_path):
    (tmp_path / "in.txt").write_text("v\n1\n")
    if there:
        (tmp_path / "out.png").write_text("old")
    message = refused(command, tmp_path / "in.txt", option(name), tmp_path / "out.png", option(output), tmp_path / "out.png")
    assert "a different file for each output, got --" in message
    assert (tmp_path / "out.png").exists() == there


def test_what_is_read_from_standard_input_is_not_written_over(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("Hello.\n")
    command = [sys.executable, "-m", "overt", "translate", "--out", str(file)]
    with file.open("rb") as stream:
        result = subprocess.run(command, stdin=stream, capture_output=True, text=True)
    assert result.returncode == 2
    assert "the same file as standard input" in result.stderr
    assert file.read_text() == "Hello.\n"


@pytest.mark.parametrize("name", ["log.jsonl", "model/config.json"])
def test_a_run_does_not_replace_its_data(name, tmp_path, monkeypatch):
    monkeypatch.delenv("OVERT_DATA", raising=False)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("a\tb\n")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[data]\nformat = "pairs"\nfolder = "{tmp_path}"\ntrain = ["{name}"]\nheld_out = [1, 0]\n')
    message = refused("train", recipe, "--out", tmp_path)
    assert f"got {name} of --out" in message
    assert (tmp_path / name).read_text() == "a\tb\n"


def test_a_run_does_not_replace_its_recipe(tmp_path):
    recipe = tmp_path / "run.json"
    (tmp_path / "a.txt").write_text("a\tb\n")
    text = f'[data]\nformat = "pairs"\nfolder = "{tmp_path}"\ntrain = ["a.txt"]\nheld_out = [1, 0]\n'
    recipe.write_text(text)
    assert "the same file as the recipe" in refused("train", recipe, "--out", tmp_path)
    assert recipe.read_text() == text
    assert "--out to be a folder, got the file" in refused("train", recipe, "--out", recipe)
    assert recipe.read_text() == text
