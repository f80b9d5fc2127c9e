"""Many series: the same curves wherever they are computed, and nothing computed twice after a stop."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from full_disk import files_up_to
from overt.errors import InputError, MissingExtra, install_command
from overt.smoothing import batch
from overt.smoothing.batch import Task, smooth_many
from overt.smoothing.reporting.curve import load_curves, save_curves
from overt.smoothing.selection.bank.noisy_series import NoisySeries
from overt.smoothing.selection.bank.stages import TOGETHER

OPTIONS = {"keys": "time", "bandwidth": 2.0}
NAN = float("nan")


def tasks(count=5, options=OPTIONS, times=None):
    random = np.random.default_rng(0)
    return [Task(f"series {index}", random.normal(size=40 + index), times, options) for index in range(count)]


def curves(*args, **kwargs):
    result = dict(smooth_many(*args, **kwargs))
    return [result[index] for index in range(len(result))]


def assert_alike(result, expected):
    assert len(result) == len(expected)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        assert one.sentence == other.sentence
        assert one.facts == other.facts


@pytest.fixture
def counted(monkeypatch):
    """The names of the series that were computed rather than taken from their parts."""
    names = []
    once = batch.smooth_task

    def smooth(task):
        names.append(task.name)
        return once(task)

    monkeypatch.setattr(batch, "smooth_task", smooth)
    return names


def test_each_series_is_smoothed_as_if_alone():
    for task, curve in zip(tasks(), curves(tasks()), strict=True):
        np.testing.assert_array_equal(curve.values, batch.analyze(task.values, **OPTIONS).values)
        assert curve.sentence == batch.analyze(task.values, **OPTIONS).sentence


def short_series(points):
    """Series of one length of every kind that goes through the bank at once, and some that may not."""
    draw, t = np.random.default_rng(points), np.arange(points)
    series = [np.sin(t / draw.uniform(3, 20)) + 0.3 * draw.normal(size=points) for _ in range(5)]
    series += [np.where(t < points // 3, 1e6, 3e6) + 1e4 * draw.normal(size=points), np.full(points, 2.5), t * 0.5]
    series += [draw.poisson(5.0, points).astype(float), np.where(t > points // 2, 6.0, 1.0) * draw.normal(size=points)]
    series += [np.where(t == points // 2, 40.0, draw.normal(size=points)), np.where(t == 3, NAN, draw.normal(size=points))]
    series += [np.where((t + gap + 1) % 9, np.sin(t / 9) + 0.3 * draw.normal(size=points), NAN) for gap in range(3)]
    return [Task(f"series {index}", values, None, {}) for index, values in enumerate(series)]


@pytest.mark.parametrize("points", [1, 2, 5, 30, 100, 128, 129])
@pytest.mark.few_cases(2)
def test_short_series_that_go_through_the_bank_at_once_are_smoothed_as_if_alone(points):
    for task, curve in zip(short_series(points), curves(short_series(points)), strict=True):
        alone = batch.smooth_task(task)
        for name in ("values", "lower", "upper", "shares"):
            one, other = getattr(curve, name), getattr(alone, name)
            assert (one is None) == (other is None)
            if one is not None:
                # The weights of heads of a line without noise depend on rounding errors, divided by next to nothing.
                tolerance = 1e-12 * np.nanmax(np.abs(task.values)) if name != "shares" else 1e-9
                np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
        assert curve.sentence == alone.sentence


def test_most_short_series_go_through_the_bank_at_once(monkeypatch):
    sizes, joined = [], NoisySeries.joined
    monkeypatch.setattr(NoisySeries, "joined", lambda several: sizes.append(len(several)) or joined(several))
    hours = [Task(str(day), np.sin(np.arange(24.0) + day), np.arange(24.0) * 3600, {}) for day in range(40)]
    for task, curve in zip(hours, curves(hours), strict=True):
        np.testing.assert_allclose(curve.values, batch.smooth_task(task).values, rtol=0, atol=1e-12)
    assert sizes == [TOGETHER, 40 - TOGETHER]


def test_an_error_names_the_series_among_those_that_are_smoothed_at_once():
    wrong = Task("the third", np.append(np.ones(29), 1e300), None, {})
    with pytest.raises(InputError, match=r"\(series the third\)"):
        curves([*short_series(30)[:2], wrong, *short_series(30)[2:]])


def test_a_restart_takes_the_parts_of_series_that_were_smoothed_at_once(tmp_path, monkeypatch):
    first = curves(short_series(30), parts=tmp_path)
    monkeypatch.setattr(batch, "analyze_together", None)
    monkeypatch.setattr(batch, "smooth_task", None)
    assert_alike(curves(short_series(30), parts=tmp_path), first)


def test_processes_give_the_same_curves_as_one():
    assert_alike(curves(tasks(), jobs=2), curves(tasks()))


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_curves():
    distributed = pytest.importorskip("distributed")
    large = [*tasks(), Task("large", np.random.default_rng(1).normal(size=200_000), None, {"keys": "time", "bandwidth": 5.0})]
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        assert_alike(curves(large, dask=cluster.scheduler_address), curves(large))


def test_a_cluster_that_does_not_answer_is_said(monkeypatch):
    distributed = pytest.importorskip("distributed")

    def refused(address, **_):
        raise OSError(f"Timed out trying to connect to {address} after 10 s")

    monkeypatch.setattr(distributed, "Client", refused)
    message = r"a Dask scheduler at tcp://nowhere:1, got an error: Timed out .*\. Fix: start one with `dask scheduler`"
    with pytest.raises(InputError, match=message):
        curves(tasks(), dask="tcp://nowhere:1")


def test_without_distributed_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=f"a Dask cluster needs distributed.* {re.escape(install_command('smooth'))}"):
        curves(tasks(), dask="tcp://nowhere:1")


def test_a_series_without_any_value_stays_empty_beside_the_others():
    empty = Task("empty", np.full(3, NAN), None, OPTIONS)
    result = curves([*tasks(1), empty])
    assert np.isfinite(result[0].values).all()
    assert np.isnan(result[1].values).all()
    assert "no values" in result[1].sentence


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_names_its_series_and_keeps_what_is_done(tmp_path, jobs):
    bad = Task("Ulm", np.array([1.0, np.inf]), None, OPTIONS)
    with pytest.raises(InputError, match=r"numbers up to 1e\+150, .* \(series Ulm\), got inf at \[1\]\. Fix: correct"):
        curves([*tasks(2), bad], jobs=jobs, parts=tmp_path)
    if jobs == 1:
        assert len(list(tmp_path.iterdir())) == 2


def test_a_restarted_job_computes_only_what_is_missing(tmp_path, counted):
    first = curves(tasks(2), parts=tmp_path)
    assert counted == ["series 0", "series 1"]
    result = curves(tasks(4), parts=tmp_path)
    assert counted == ["series 0", "series 1", "series 2", "series 3"]
    assert_alike(result[:2], first)
    assert_alike(result, curves(tasks(4)))


@pytest.mark.parametrize(
    "change",
    [
        lambda task: Task(task.name, task.values + 1e-15 * np.eye(1, task.values.size)[0], task.times, task.options),
        lambda task: Task(task.name, task.values, np.arange(task.values.size) * 2.0, task.options),
        lambda task: Task(task.name, task.values, task.times, {**task.options, "bandwidth": 3.0}),
        lambda task: Task(task.name, task.values, task.times, {**task.options, "causal": True}),
    ],
    ids=["values", "times", "bandwidth", "another option"],
)
def test_a_part_of_other_values_times_or_options_is_not_taken(tmp_path, counted, change):
    curves(tasks(1), parts=tmp_path)
    curves([change(tasks(1)[0])], parts=tmp_path)
    assert counted == ["series 0", "series 0"]


def test_a_part_that_cannot_be_read_is_computed_again(tmp_path, counted):
    curves(tasks(1), parts=tmp_path)
    (part,) = tmp_path.iterdir()
    part.write_bytes(part.read_bytes()[:100])
    assert_alike(curves(tasks(1), parts=tmp_path), curves(tasks(1)))
    assert counted == ["series 0", "series 0", "series 0"]
    assert load_curves(part) is not None


def test_a_full_disk_is_said_and_leaves_no_half_part(tmp_path):
    message = r"to be writable, got File too large\. Fix: raise the limit of a file"
    with files_up_to(512), pytest.raises(InputError, match=message):
        curves(tasks(), parts=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_curve_comes_back_from_its_part_as_it_was(tmp_path):
    for curve in (curves(tasks(1))[0], curves([Task("empty", np.full(3, NAN), None, {})])[0]):
        save_curves(tmp_path / "part.npz", [curve, curve])
        result = load_curves(tmp_path / "part.npz")
        assert result is not None
        _, result = result
        for name, value in vars(curve).items():
            np.testing.assert_array_equal(getattr(result, name), value)


KILLED = """
import pathlib, sys, time
import numpy as np
from overt.smoothing import analysis, batch

once = batch.smooth_task
def slowly(task):
    time.sleep(0.05)
    return once(task)
batch.smooth_task = slowly
random = np.random.default_rng(0)
tasks = [batch.Task(f"series {place}", random.normal(size=40 + place), None, {"keys": "time", "bandwidth": 2.0}) for place in range(100)]
for place, curve in batch.smooth_many(tasks, parts=pathlib.Path(sys.argv[1])):
    pass
"""


@pytest.mark.slow
def test_a_killed_job_leaves_whole_parts_and_a_restart_takes_them(tmp_path, counted):
    job = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("[!.]*.npz"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    whole = list(tmp_path.glob("[!.]*.npz"))
    assert 3 <= len(whole) < 100
    assert all(load_curves(part) is not None for part in whole)
    result = curves(tasks(100), parts=tmp_path)
    assert len(counted) == 100 - len(whole)
    assert_alike(result, curves(tasks(100)))


UNGUARDED = """
import numpy as np
from overt.smoothing import batch

tasks = [batch.Task(str(k), np.arange(40.0) + k, None, {"keys": "time", "bandwidth": 2.0}) for k in range(4)]
print(len(dict(batch.smooth_many(tasks, jobs=2))))
"""


def test_a_script_without_its_guard_is_told_of_it(tmp_path):
    (tmp_path / "job.py").write_text(UNGUARDED)
    output = subprocess.run([sys.executable, str(tmp_path / "job.py")], capture_output=True, text=True, timeout=120)
    fix = 'finished series are not computed again, and put the call under `if __name__ == "__main__":` in a script.'
    assert output.returncode != 0
    # Under load Python's resource tracker warns of semaphores behind it, in two lines.
    lines = [line for line in output.stderr.splitlines() if "resource_tracker" not in line]
    assert "\n".join(lines).rstrip().endswith(fix)


ORPHANED = """
import time
from multiprocessing import active_children
import numpy as np
from overt.smoothing import analysis, batch

if __name__ == "__main__":
    tasks = [batch.Task(f"series {place}", np.arange(40.0) + place, None, {"keys": "time", "bandwidth": 2.0}) for place in range(9)]
    for place, curve in batch.smooth_many(tasks, jobs=3):
        print(*(child.pid for child in active_children()), flush=True)
        time.sleep(60)
"""


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked up in /proc")
def test_the_processes_of_a_killed_job_end_too(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(ORPHANED)
    job = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    with job.stdout:
        workers = [int(pid) for pid in job.stdout.readline().split()]
        job.kill()
        job.wait()
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(lives(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(lives(pid) for pid in workers)
