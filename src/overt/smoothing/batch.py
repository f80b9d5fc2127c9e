"""Many series, one task each: in this process, in several, or on a Dask cluster, with resumption after a restart."""

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overt
from overt.errors import InputError, MissingExtra
from overt.smoothing.api import analyze
from overt.smoothing.data.series import Floats
from overt.smoothing.reporting.curve import Curve, curve_of, empty_curve

# A series of more bytes is sent to a cluster separately: Dask warns of large arguments within a task.
_LARGE = 2**20


@dataclass(frozen=True)
class Task:
    """One series with the arguments of `analyze` as `options`."""

    name: str
    values: Floats  # (n,)
    times: NDArray[Any] | None  # (n,) numbers or datetime64
    options: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A hash of the series, the options and the version of overt, which names the stored result."""
        hashed = hashlib.sha256(repr((overt.__version__, sorted(self.options.items()))).encode())
        for array in (self.values, self.times):
            hashed.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return hashed.hexdigest()[:32]


def smooth_task(task: Task) -> Curve:
    """Smooth one series; an error contains its name. A series without any value stays empty."""
    if np.isnan(task.values).all():
        return empty_curve(task.values.size)
    try:
        return curve_of(analyze(task.values, times=task.times, **task.options))
    except InputError as error:
        raise InputError(f"{error.expected} (series {task.name})", got=error.got, fix=error.fix) from error


def smooth_many(
    tasks: Sequence[Task], *, jobs: int = 1, dask: str | None = None, parts: Path | None = None
) -> Iterator[tuple[int, Curve]]:
    """Smooth each series separately and yield its index among the tasks with its curve, in the order of completion.

    The work is shared by `jobs` processes, or by the workers of the Dask scheduler at the address `dask`. With a folder `parts`,
    each curve is stored there before it is yielded, under a hash of its series and options. A job that is started again reads the
    stored curves and computes the missing ones.

    Raises InputError, with the name of the series, for one that cannot be smoothed; for a scheduler that does not answer;
    for a worker that was killed; for a full disk. The curves in `parts` remain.

    >>> tasks = [Task("a", np.array([1.0, 3.0]), None, {"keys": "value", "bandwidth": 1e9})]
    >>> [(index, curve.values) for index, curve in smooth_many(tasks)]
    [(0, array([2., 2.]))]
    """
    paths = [None if parts is None else parts / f"{task.digest}.npz" for task in tasks]
    missing = []
    for index, path in enumerate(paths):
        curve = None if path is None else Curve.load(path)
        if curve is None:
            missing.append(index)
        else:
            yield index, curve
    for at, curve in _computed([tasks[index] for index in missing], jobs, dask):
        index = missing[at]
        path = paths[index]
        if path is not None:
            curve.save(path)
        yield index, curve


def _computed(tasks: list[Task], jobs: int, dask: str | None) -> Iterator[tuple[int, Curve]]:
    if dask is not None and tasks:
        return _on_dask(tasks, dask)
    if jobs > 1 and len(tasks) > 1:
        return _in_processes(tasks, min(jobs, len(tasks)))
    return ((index, smooth_task(task)) for index, task in enumerate(tasks))


def _in_processes(tasks: list[Task], jobs: int) -> Iterator[tuple[int, Curve]]:
    # Spawned, not forked: a fork of a process with threads, such as that of a progress bar, may deadlock.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (max(1, processors() // jobs),))
    try:
        yield from _as_done(tasks, lambda task: pool.submit(smooth_task, task), at_once=2 * jobs)
    except BrokenProcessPool as error:
        fix = "run it again, with fewer jobs if memory ran out; finished series are not computed again"
        raise InputError("processes that finish their series", got="one that was killed", fix=fix) from error
    finally:
        pool.shutdown(cancel_futures=True)


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(threads: int) -> None:
    """Use a share of the processors, and exit when the process that started this one ends."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _on_dask(tasks: list[Task], address: str) -> Iterator[tuple[int, Curve]]:
    try:
        from distributed import Client, KilledWorker
    except ModuleNotFoundError as error:
        raise MissingExtra("a Dask cluster", needs="distributed", extra="smooth") from error
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(address, timeout="10s", set_as_default=False))
        except (OSError, ValueError) as error:
            fix = "start one with `dask scheduler` and pass the address that it prints"
            raise InputError(f"a Dask scheduler at {address}", got=f"an error: {error}", fix=fix) from error
        executor = stack.enter_context(client.get_executor(pure=False))

        def submit(task: Task) -> Future[Curve]:
            large = task.values.nbytes > _LARGE
            return executor.submit(smooth_task, client.scatter(task, hash=False) if large else task)

        threads: Any = client.nthreads()
        try:
            yield from _as_done(tasks, submit, at_once=max(8, 2 * sum(threads.values())))
        except (KilledWorker, CancelledError) as error:
            fix = "read the workers' logs and run it again; finished series are not computed again"
            raise InputError("workers that finish their series", got=f"an error: {error}", fix=fix) from error


def _as_done(tasks: list[Task], submit: Callable[[Task], Future[Curve]], at_once: int) -> Iterator[tuple[int, Curve]]:
    """Submit the tasks, `at_once` at a time so that memory stays bounded, and yield each result when it is done."""
    rest = enumerate(tasks)
    running: dict[Future[Curve], int] = {}
    while True:
        for index, task in itertools.islice(rest, at_once - len(running)):
            running[submit(task)] = index
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()
