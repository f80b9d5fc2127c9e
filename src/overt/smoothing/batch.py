"""Many series, one task each: here, in processes or on a Dask cluster, and only what is missing after a restart."""

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
from overt.smoothing.data.curve import Curve, curve_of, nothing
from overt.smoothing.data.series import Floats

# A series larger than this is sent to a cluster by itself: Dask warns of large arguments within a task.
_LARGE = 2**20


@dataclass(frozen=True)
class Task:
    """One series and how to smooth it; `options` are arguments of `analyze`."""

    name: str
    values: Floats  # (n,)
    times: NDArray[Any] | None  # (n,) numbers or datetime64
    options: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A name for the result that changes with the series, the options and the version of overt."""
        found = hashlib.sha256(repr((overt.__version__, sorted(self.options.items()))).encode())
        for array in (self.values, self.times):
            found.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return found.hexdigest()[:32]


def smooth_task(task: Task) -> Curve:
    """Smooth one series; an error names it. A series without any value stays empty."""
    if np.isnan(task.values).all():
        return nothing(task.values.size)
    try:
        return curve_of(analyze(task.values, times=task.times, **task.options))
    except InputError as error:
        raise InputError(f"{task.name}: {error.expected}", got=error.got, fix=error.fix) from error


def smooth_many(
    tasks: Sequence[Task], *, jobs: int = 1, dask: str | None = None, parts: Path | None = None
) -> Iterator[tuple[int, Curve]]:
    """Smooth each series by itself and yield its place among the tasks with its curve, as they are done.

    `jobs` processes share the work, or the workers of the Dask scheduler at the address `dask`. With a folder `parts`,
    each curve is written there, whole, before it is yielded, under a name that its series and options give it; a job that was
    stopped and is started again takes from there what is done, and computes what is missing.

    Raises InputError, with the name of the series, for one that cannot be smoothed; for a scheduler that does not answer;
    for a worker that was killed; for a disk that is full. What is in `parts` by then stays.

    >>> tasks = [Task("a", np.array([1.0, 3.0]), None, {"keys": "value", "bandwidth": 1e9})]
    >>> [(place, curve.values) for place, curve in smooth_many(tasks)]
    [(0, array([2., 2.]))]
    """
    places = [None if parts is None else parts / f"{task.digest}.npz" for task in tasks]
    missing = []
    for place, path in enumerate(places):
        curve = None if path is None else Curve.load(path)
        if curve is None:
            missing.append(place)
        else:
            yield place, curve
    for at, curve in _computed([tasks[place] for place in missing], jobs, dask):
        place = missing[at]
        path = places[place]
        if path is not None:
            curve.save(path)
        yield place, curve


def _computed(tasks: list[Task], jobs: int, dask: str | None) -> Iterator[tuple[int, Curve]]:
    if dask is not None and tasks:
        return _on_dask(tasks, dask)
    if jobs > 1 and len(tasks) > 1:
        return _in_processes(tasks, min(jobs, len(tasks)))
    return ((place, smooth_task(task)) for place, task in enumerate(tasks))


def _in_processes(tasks: list[Task], jobs: int) -> Iterator[tuple[int, Curve]]:
    # Spawned, not forked: a fork of a process with threads, as a progress bar has one, may lock up.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (max(1, processors() // jobs),))
    try:
        yield from _as_done(tasks, lambda task: pool.submit(smooth_task, task), at_once=2 * jobs)
    except BrokenProcessPool as error:
        fix = "run it again, with fewer jobs where memory was short; what is done is not done again"
        raise InputError("each process lives until its series are done", got="one that was killed", fix=fix) from error
    finally:
        pool.shutdown(cancel_futures=True)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(threads: int) -> None:
    """Take a share of the processors, and end with the process that started this one, however it ends."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
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
            raise InputError(f"a Dask scheduler answers at {address}", got=str(error), fix=fix) from error
        executor = stack.enter_context(client.get_executor(pure=False))

        def submit(task: Task) -> Future[Curve]:
            large = task.values.nbytes > _LARGE
            return executor.submit(smooth_task, client.scatter(task, hash=False) if large else task)

        threads: Any = client.nthreads()
        try:
            yield from _as_done(tasks, submit, at_once=max(8, 2 * sum(threads.values())))
        except (KilledWorker, CancelledError) as error:
            fix = "see the workers' logs and run it again; what is done is not done again"
            raise InputError("the cluster lives until its series are done", got=str(error), fix=fix) from error


def _as_done(tasks: list[Task], submit: Callable[[Task], Future[Curve]], at_once: int) -> Iterator[tuple[int, Curve]]:
    """Hand out the tasks, `at_once` at a time so that memory stays bounded, and yield each result as it comes."""
    rest = enumerate(tasks)
    running: dict[Future[Curve], int] = {}
    while True:
        for place, task in itertools.islice(rest, at_once - len(running)):
            running[submit(task)] = place
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()
