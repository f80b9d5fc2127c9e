"""The command as a process: arguments and names of any bytes, outputs on a full device, and two runs in one folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from small_recipe import RECIPE

SERIES = "t,x\n" + "".join(f"2024-01-{day:02d},{day % 7}.5\n" for day in range(1, 29))
NOT_UNICODE = [b"caf\xe9", b"\xff\xfe", b"a \xed\xa0\x80 b", b"\x80"]
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")


def command(*arguments, folder, **options):
    program = [os.fsencode(sys.executable), b"-m", b"overt", *map(os.fsencode, arguments)]
    result = subprocess.run(program, capture_output=True, cwd=folder, timeout=300, check=False, **options)
    assert b"Traceback" not in result.stderr
    return result


def refused(result, *said):
    message = " ".join(result.stderr.decode().split())
    assert "Traceback" not in message
    assert result.returncode == 2, message
    for part in said:
        assert part in message
    assert message.startswith("overt: Expected")
    assert "Fix: " in message


@pytest.mark.parametrize("text", NOT_UNICODE)
@pytest.mark.parametrize(
    "where", [["explain", "{}"], ["explain", "a b", "--with", "{}"], ["smooth", "a.csv", "--column", "{}"]]
)
@pytest.mark.few_cases(4)
def test_an_argument_that_is_not_unicode_is_refused_before_the_work(where, text, tmp_path):
    (tmp_path / "a.csv").write_text(SERIES)
    result = command(*(text if each == "{}" else each for each in where), folder=tmp_path)
    refused(result, "the argument ", "to be Unicode, got")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("name", [b"\xff\xfe.csv", b"caf\xe9.csv", b"a\nb.csv", "日本.csv".encode(), b" -x.csv"])
@pytest.mark.few_cases(1)
def test_the_name_of_a_file_may_be_any_bytes(name, tmp_path):
    path, out = os.path.join(os.fsencode(tmp_path), name), os.path.join(os.fsencode(tmp_path), b"out " + name)
    with open(path, "w") as file:
        file.write(SERIES)
    assert command("smooth", path, "--column", "x", "--out", out, folder=tmp_path).returncode == 0
    with open(out) as file:
        assert len(file.readlines()) == 29
    refused(command("smooth", path + b"2", "--column", "x", folder=tmp_path), "to be a readable file")


@full
@pytest.mark.parametrize(
    "arguments", [["smooth", "a.csv", "--column", "x", "--out"], ["explain", "the cat", "--recipe", "plain", "--html"]]
)
@pytest.mark.few_cases(1)
def test_a_full_device_is_the_reason_that_is_given(arguments, tmp_path):
    (tmp_path / "a.csv").write_text(SERIES)
    result = command(*arguments, "/dev/full", folder=tmp_path)
    refused(result, "/dev/full to be writable, got No space left on device. Fix: free disk space")
    assert b"shorter text" not in result.stderr


@full
@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["smooth", "a.csv", "--column", "x"],
        ["smooth", "--help"],
        ["explain", "a b", "--recipe", "plain"],
    ],
)
def test_standard_output_on_a_full_device_is_an_error_and_not_a_traceback(arguments, tmp_path):
    (tmp_path / "a.csv").write_text(SERIES)
    with open("/dev/full", "w") as device:
        program = [sys.executable, "-m", "overt", *arguments]
        # As a user's: where Python buffers standard output, it writes the rest at its end, and would end with 120.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        result = subprocess.run(program, stdout=device, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False)
    refused(result, "the output to be writable, got No space left on device")


@pytest.mark.slow
def test_of_two_runs_in_one_folder_one_is_refused_and_the_other_ends(tmp_path):
    (tmp_path / "pairs.txt").write_text("".join(f"a b {row}\t{row} b a\n" for row in range(40)))
    (tmp_path / "small.toml").write_text(RECIPE.replace("updates = 4", "updates = 200"))
    program = [sys.executable, "-m", "overt", "train", "small.toml", "--out", "run"]
    runs = [subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    said = [run.communicate(timeout=600)[0].decode() for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 2]
    [message] = [" ".join(text.split()) for run, text in zip(runs, said, strict=True) if run.returncode]
    assert "overt: Expected" in message
    assert "another run" in message or "another process" in message
    assert "free disk space" not in message
    assert (tmp_path / "run" / "results.json").exists()
