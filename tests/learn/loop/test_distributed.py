"""Two processes train as one does: each takes half of the rows, and the gradient is that of all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from counting import Counting, Model
from overt.learn import Training, train
from overt.learn.loop.optimizer_step import OptimizerStep
from overt.learn.run import checkpoint as checkpoints
from overt.learn.run.log import read_log

pytestmark = pytest.mark.slow
# 40 sequences in batches of 13: the rows do not divide by two, and the last batch of an epoch has one row, for one process.
SETTINGS = {"accumulate": 2, "learning_rate": 0.01, "warmup": 5, "evaluate_every": 10, "checkpoint_every": 10, "average": 2}
PROGRAM = f"""
import sys, torch
from counting import Counting, Model
from overt.learn import Training, train
torch.manual_seed(0)
result = train(Model(), Counting(rows=13), Training(updates=30, **{SETTINGS}), sys.argv[1])
# As one text: torchrun's processes write to one pipe, unbuffered, and print would write word by word.
print(f"finished {{result.state.update}} {{result.measures}}\\n", end="")
"""


def on_two_processes(folder):
    """Start the program as `torchrun` does; gives what the two processes printed."""
    (program := folder.parent / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join(path for path in [str(Path(__file__).parents[1]), *sys.path] if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    result = subprocess.run([*start, program, folder], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.splitlines()


def on_one_process(folder, updates):
    torch.manual_seed(0)
    return train(Model(), Counting(rows=13), Training(updates=updates, **SETTINGS), folder)


def entries(folder, name):
    return [entry[name] for entry in read_log(folder / "log.jsonl") if name in entry]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of the same run on one process and on two, and what the two printed."""
    one, two = (tmp_path_factory.mktemp(name) / "run" for name in ("one", "two"))
    on_one_process(one, 30)
    return one, two, on_two_processes(two)


class Share:
    """One of several processes, all of whose rows are its own, and whose sums are those of itself."""

    device, count = torch.device("cpu"), 2

    def __init__(self, rank):
        self.rank = rank

    def share(self, rows):
        return rows

    def to_device(self, batch):
        return batch

    def sum(self, tensor):
        return tensor


def seeded(**options):
    torch.manual_seed(0)
    return Model(**options)


def dropped(seed, update, number):
    """The loss that a process sees of one batch under dropout."""
    step = OptimizerStep(seeded(dropout=0.5), Counting(), Training(seed=seed), Share(number))
    return step(update, [[0, 1, 2, 3]]).loss


def test_dropout_differs_between_processes_updates_and_seeds_and_is_the_same_for_the_same():
    names = [(seed, update, number) for seed in range(3) for update in (1, 2, 3) for number in range(3)]
    assert len({dropped(*name) for name in names}) == len(names)
    assert [dropped(*name) for name in names] == [dropped(*name) for name in names]


class Twin(Share):
    """One of two processes that have the same rows, so that each sum is twice its own."""

    def sum(self, tensor):
        return tensor.mul_(2)


def test_a_step_follows_the_sum_of_all_processes_over_their_common_count():
    one, two = (Share(0), Twin(0))
    steps = [OptimizerStep(seeded(), Counting(), Training(), each)(1, [[0, 1, 2], [3]]) for each in (one, two)]
    assert steps[1].count == 2 * steps[0].count
    assert (steps[1].loss, steps[1].gradient) == (pytest.approx(steps[0].loss), pytest.approx(steps[0].gradient))


def test_the_loss_curve_is_that_of_one_process(runs):
    one, two, _ = runs
    assert len(entries(two, "loss")) == 30
    assert entries(two, "loss") == pytest.approx(entries(one, "loss"), abs=1e-4)
    assert entries(two, "count") == entries(one, "count")
    assert entries(two, "validation") == [pytest.approx(each, abs=1e-4) for each in entries(one, "validation")]


def test_the_weights_are_those_of_one_process(runs):
    expected, result = (checkpoints.read(folder / "checkpoints" / "000030").model for folder in runs[:2])
    for name, tensor in expected.items():
        torch.testing.assert_close(result[name], tensor, rtol=1e-3, atol=1e-4)


def test_both_processes_end_with_the_same_result_and_the_log_is_written_once(runs):
    one, two, said = runs
    assert said == [said[0]] * 2
    assert said[0].startswith("finished 30 ")
    assert [entry["update"] for entry in read_log(two / "log.jsonl")] == [
        entry["update"] for entry in read_log(one / "log.jsonl")
    ]


def test_a_run_may_go_on_on_another_number_of_processes(runs, tmp_path):
    copied = shutil.copytree(runs[1], tmp_path / "run")
    on_one_process(copied, 40)
    on_one_process(unbroken := tmp_path / "unbroken", 40)
    assert entries(copied, "loss") == pytest.approx(entries(unbroken, "loss"), abs=1e-4)
