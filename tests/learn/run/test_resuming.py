"""A run that was stopped goes on, and ends where an unbroken run ends, to the bit."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from counting import Counting, Model
from full_disk import files_up_to
from overt.errors import InputError
from overt.learn import Training, train
from overt.learn.run import checkpoint as checkpoints
from overt.learn.run.log import read_log

# Dropout, so that random numbers count; accumulation and 7 batches an epoch, so that updates cross the ends of epochs.
SETTINGS = {
    "updates": 60,
    "accumulate": 2,
    "learning_rate": 0.01,
    "warmup": 10,
    "evaluate_every": 6,
    "checkpoint_every": 4,
    "keep": 5,
    "average": 3,
}
CHILD = """
import sys, torch
from counting import Counting, Model
from overt.learn import Training, train
torch.manual_seed(0)
train(Model(dropout=0.3), Counting(), Training(**{settings}), sys.argv[1])
"""


def trained(folder, model=None, **changes):
    torch.manual_seed(0)
    model = Model(dropout=0.3) if model is None else model
    return model, train(model, Counting(), Training(**{**SETTINGS, **changes}), folder)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    trained(folder)
    return folder


def test_the_same_run_twice_ends_with_the_same_bytes(unbroken, tmp_path):
    trained(tmp_path)
    assert files_of(tmp_path) == files_of(unbroken)


@pytest.mark.parametrize("stop", [1, 17, 30])
def test_a_run_stopped_by_an_error_goes_on_to_the_same_bytes(unbroken, tmp_path, stop):
    class Stopping(Counting):
        left = 2 * stop

        def loss(self, model, batch):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().loss(model, batch)

    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        train(Model(dropout=0.3), Stopping(), Training(**SETTINGS), tmp_path)
    torch.manual_seed(1)
    trained(tmp_path, Model(dropout=0.3))
    assert files_of(tmp_path) == files_of(unbroken)


def test_the_log_of_a_run_that_went_on_is_that_of_an_unbroken_one(unbroken, tmp_path):
    trained(tmp_path, updates=30)
    trained(tmp_path)
    entries = [
        [{name: value for name, value in entry.items() if "second" not in name} for entry in read_log(folder / "log.jsonl")]
        for folder in (unbroken, tmp_path)
    ]
    assert [each for each in entries[1] if "finished" not in each] == [each for each in entries[0] if "finished" not in each]


def test_a_run_that_is_over_is_finished_again_and_not_trained(unbroken):
    before = files_of(unbroken)
    _, result = trained(unbroken)
    assert result.state.update == 60
    assert files_of(unbroken) == before


def kill_at(folder: Path, update: int, moment: random.Random) -> None:
    """Run the training in a process of its own until its log says `update`, and a moment more; then SIGKILL."""
    program = CHILD.format(settings=SETTINGS)
    child = subprocess.Popen([sys.executable, "-c", program, str(folder)], env=environment(), stderr=subprocess.PIPE)
    while child.poll() is None and not any(entry["update"] >= update for entry in read_log(folder / "log.jsonl")):
        time.sleep(0.001)
    time.sleep(moment.uniform(0, 0.02))
    child.send_signal(signal.SIGKILL)
    _, said = child.communicate()
    assert child.returncode in (-signal.SIGKILL, 0), said.decode()


def environment():
    paths = [str(Path(__file__).parents[1]), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_bytes(unbroken, tmp_path):
    kill_at(tmp_path, 23, random.Random(0))
    assert checkpoints.list_checkpoints(tmp_path / "checkpoints")
    assert not (tmp_path / "model").exists(), "the process was over before it was killed"
    trained(tmp_path)
    assert files_of(tmp_path) == files_of(unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_process_killed_again_and_again_goes_on_to_the_same_bytes(unbroken, tmp_path, seed):
    moments = random.Random(seed)
    for update in sorted(moments.sample(range(1, 56), 5)):
        kill_at(tmp_path, update, moments)
    trained(tmp_path)
    assert files_of(tmp_path) == files_of(unbroken)


class Filling(Counting):
    """The disk is full from update 10 on: files end after 8,192 bytes, which the log's do not reach."""

    left = 20

    def loss(self, model, batch):
        self.left -= 1
        if self.left == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
        return super().loss(model, batch)


def test_after_a_full_disk_a_run_goes_on_to_the_same_bytes(tmp_path):
    torch.manual_seed(0)
    message = r"000012 to be writable, got .*raise the limit of a file's size .*: it resumes from update 8\."
    with files_up_to(resource.RLIM_INFINITY), pytest.raises(InputError, match=message):
        train(Model(64, dropout=0.3), Filling(), Training(**SETTINGS), tmp_path / "full")
    for folder in (tmp_path / "full", tmp_path / "unbroken"):
        torch.manual_seed(0)
        trained(folder, Model(64, dropout=0.3))
    assert files_of(tmp_path / "full") == files_of(tmp_path / "unbroken")


def test_a_half_written_checkpoint_of_a_killed_run_is_not_read_and_is_removed(unbroken, tmp_path):
    trained(tmp_path, updates=30)
    half = tmp_path / "checkpoints" / ".000032"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    trained(tmp_path)
    assert files_of(tmp_path) == files_of(unbroken)
    assert not half.exists()


def test_a_run_may_go_on_for_longer(unbroken, tmp_path):
    trained(tmp_path, updates=30)
    trained(tmp_path)
    assert files_of(tmp_path / "checkpoints" / "000060") == files_of(unbroken / "checkpoints" / "000060")


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    model, expected = Model(), torch.rand(3)
    torch.manual_seed(5)
    model = Model()
    train(model, Counting(), Training(updates=2, warmup=1), tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_beginning_anew_in_a_folder_with_a_run_is_refused(unbroken):
    message = r"an empty folder where resume=False, got .* with \d checkpoints\. Fix: choose another folder"
    with pytest.raises(InputError, match=message):
        train(Model(dropout=0.3), Counting(), Training(**SETTINGS), unbroken, resume=False)


def test_the_folder_of_another_run_is_refused_and_what_differs_is_named(unbroken):
    before = files_of(unbroken)
    message = (
        r"to hold this run, got model\.width 8 in the folder, 16 in this run; training\.learning_rate 0\.01 in the folder, 0\.02 in this run\."
        r" Fix: choose another folder, or use the recipe of that run\."
    )
    with pytest.raises(InputError, match=message):
        train(Model(16, dropout=0.3), Counting(), Training(**{**SETTINGS, "learning_rate": 0.02}), unbroken)
    assert files_of(unbroken) == before


def test_other_data_is_another_run(unbroken):
    with pytest.raises(InputError, match=r"to hold this run, got batches '\w+' in the folder, '\w+' in this run"):
        train(Model(dropout=0.3), Counting(sequences=39), Training(**SETTINGS), unbroken)
