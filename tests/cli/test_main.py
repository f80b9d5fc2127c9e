"""The command: its commands, its version, its errors, and what it does not load."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import overt
from overt.cli.main import COMMANDS, app
from overt.cli.shared.termination import exit_on_sigterm
from overt.errors import install_command

runner = CliRunner()


def python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_version_is_the_packages():
    assert runner.invoke(app, ["--version"]).output == f"overt {overt.__version__}\n"


def test_it_can_be_run_as_a_module():
    result = subprocess.run([sys.executable, "-m", "overt", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"overt {overt.__version__}\n"


def test_help_lists_every_command_with_its_sentence():
    shown = " ".join(runner.invoke(app, ["--help"]).output.replace("│", " ").split())
    for name, sentence in COMMANDS.items():
        assert f"{name} {sentence}" in shown


def test_help_and_smooth_load_no_torch(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2\n4\n")
    program = """
import sys
from typer.testing import CliRunner
from overt.cli.main import app
for args in (["--help"], ["smooth", "--help"], ["smooth", {path!r}, "--column", "x"]):
    assert CliRunner().invoke(app, args).exit_code == 0, args
print("torch" in sys.modules)
"""
    assert python(program.format(path=str(tmp_path / "a.csv"))) == "False\n"


def test_an_error_is_one_message_on_stderr_and_2():
    result = runner.invoke(app, ["smooth", "nowhere.csv", "--column", "x"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(
        r"overt: Expected nowhere\.csv to be a readable file to smooth, got No such file or directory\. Fix: check its name\.\n",
        result.stderr,
    )
    coloured = runner.invoke(app, ["smooth", "4.csv", "--column", "x"], env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert coloured.stderr == result.stderr.replace("nowhere", "4")


def test_a_command_that_is_not_there_is_2_and_a_near_one_suggested():
    result = runner.invoke(app, ["smoth"])
    assert result.exit_code == 2
    assert "Did you mean 'smooth'?" in result.stderr


def test_a_missing_package_is_named_with_its_cure(monkeypatch):
    import importlib

    import_module = importlib.import_module

    def without_torch(name, package=None):
        if name.startswith("overt."):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return import_module(name, package)

    monkeypatch.setattr(importlib, "import_module", without_torch)
    result = runner.invoke(app, ["explain", "a word"])
    assert result.exit_code == 2
    assert f"overt explain needs torch, which is not installed. Fix: run: {install_command('all')}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "a.toml"], "train"),
        (["evaluate", "a.toml"], "train"),
        (["translate", "Hello."], "text"),
        (["view", "a.safetensors"], "text"),
    ],
)
def test_without_torch_a_command_names_the_extra_that_has_all_it_needs(arguments, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"needs torch, which is not installed. Fix: run: {install_command(extra)}\n")


WRITES = """
import sys, time
from overt.cli.main import app
from overt.files import whole

@app.command()
def write():
    with whole("page.html"):
        print("begun", flush=True)
        time.sleep(60)

app(["write"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without a signal")
def test_sigterm_ends_a_command_with_143_and_leaves_no_temporary_file(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(overt.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", WRITES], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "begun\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_handles_sigterm_keeps_its_handler():
    def handler(number, frame):
        raise AssertionError("nothing was sent")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with exit_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_behind_a_command_sigterm_is_the_systems_again():
    assert runner.invoke(app, ["no-such-command"]).exit_code == 2
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_help_page(name):
    result = runner.invoke(app, [name, "--help"], prog_name="overt")
    assert result.exit_code == 0, result.output
    assert f"overt {name}" in result.output
    assert "--install-completion" not in result.output  # the whole command has it, and no part of it


@pytest.mark.parametrize("name", ["overt.explain.nothing", None])
def test_a_module_of_overts_own_that_is_not_there_is_no_missing_package(monkeypatch, name):
    def fail(module, package=None):
        raise ModuleNotFoundError("broken", name=name)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="broken"):
        runner.invoke(app, ["explain", "a word"], catch_exceptions=False)


@pytest.mark.parametrize("name", [*COMMANDS, None])
def test_on_a_narrow_terminal_help_cuts_no_name_and_fits(name):
    arguments = [name, "--help"] if name else ["--help"]
    narrow = runner.invoke(app, arguments, env={"COLUMNS": "40"}, prog_name="overt").output
    wide = runner.invoke(app, arguments, env={"COLUMNS": "160"}, prog_name="overt").output
    assert max(map(len, narrow.splitlines())) <= 40
    options = set(re.findall(r"--[a-z][a-z-]+", wide))
    assert options
    assert not {option for option in options if option not in narrow}
    assert name or not {sentence for sentence in COMMANDS.values() if sentence.replace(" ", "") not in "".join(narrow.split())}
