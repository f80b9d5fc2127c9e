"""Many series, one task per series: in this process, in several, or on a Dask cluster, with resumption after a restart."""

import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overt
from overt import native
from overt.errors import InputError, MissingExtra
from overt.smoothing.analysis import analyze_together
from overt.smoothing.api import analyze
from overt.smoothing.data.frames import read_input
from overt.smoothing.data.observed import read_columns
from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import Times
from overt.smoothing.heads.local.short_grid import LONGEST
from overt.smoothing.reporting.curve import Curve, empty_curve, extract_curve, load_curves, save_curves
from overt.smoothing.selection.bank.stages import TOGETHER

# _LARGE: bytes beyond which a series is sent to a cluster separately: Dask warns of large arguments within a task.
_LARGE = 2**20


@dataclass(frozen=True)
class Task:
    """One series with the arguments of `analyze` as `options`; `wanted` are "derivative", "anomalies" and "changes"."""

    name: str
    values: Floats  # (n,)
    times: NDArray[Any] | Times | None  # (n,) numbers or datetime64, or dates with their zone
    options: Mapping[str, Any]
    wanted: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the series, the options and the version of overt, which names the stored result."""
        moments, zone = (self.times.as_passed, self.times.zone) if isinstance(self.times, Times) else (self.times, None)
        hashed = hashlib.sha256(repr((overt.__version__, self.wanted, sorted(self.options.items()), zone)).encode())
        for array in (self.values, moments):
            hashed.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return hashed.hexdigest()[:32]


def smooth_task(task: Task) -> Curve:
    """Smooth one series; errors contain its name. A series without any value stays empty."""
    if np.isnan(task.values).all():
        return empty_curve(task.values.size)
    try:
        times: Any = task.times
        return extract_curve(analyze(task.values, times=times, **task.options), task.wanted)
    except InputError as error:
        raise InputError(f"{error.expected} (series {task.name})", got=error.got, fix=error.fix) from error


def smooth_tasks(tasks: Sequence[Task]) -> list[Curve]:
    """Smooth several series of one length and with one set of options, at once if that is faster, else one by one."""
    if len(tasks) == 1:
        return [smooth_task(tasks[0])]
    try:
        options = Options(**tasks[0].options)
        several = [read_columns(read_input(task.values, task.times), None, options)[0] for task in tasks]
        return [extract_curve(smoothing, tasks[0].wanted) for smoothing in analyze_together(several)]
    except InputError:  # one by one, so that the error names the wrong series
        return [smooth_task(task) for task in tasks]


Bundle = list[Task]


class Workers:
    """A thread of this process and `count` − 1 other processes that smooth series."""

    def __init__(self, count: int, thread: ThreadPoolExecutor, processes: ProcessPoolExecutor) -> None:
        self.count = count
        self._thread, self._processes = thread, processes
        self._in_thread: Future[list[Curve]] | None = None

    def submit(self, bundle: Bundle) -> Future[list[Curve]]:
        """Smooth a bundle in the thread if it is free, else in the next free process."""
        if self._in_thread is None or self._in_thread.done():
            self._in_thread = self._thread.submit(smooth_tasks, bundle)
            return self._in_thread
        return self._processes.submit(smooth_tasks, bundle)


def smooth_many(
    tasks: Sequence[Task], *, jobs: int | Workers = 1, dask: str | None = None, parts: Path | None = None
) -> Iterator[tuple[int, Curve]]:
    """Smooth every series separately and yield its index among the tasks with its curve, in the order of completion.

    Short series of one length are smoothed `TOGETHER` at a time, which gives the same curves up to rounding.

    The work is shared by `jobs` processes including this one, by workers from `start_workers`, or by the workers of the Dask scheduler
    at the address `dask`. With a folder `parts`, curves are stored there before they are yielded, under a hash of their series and
    options. A restarted job reads the stored curves and computes the missing ones.

    Raises InputError, with the name of the series, if a series cannot be smoothed; also if a scheduler does not answer, a worker was
    killed or the disk is full. The curves in `parts` remain.

    >>> tasks = [Task("a", np.array([1.0, 3.0]), None, {"keys": "value", "bandwidth": 1e9})]
    >>> [(index, curve.values) for index, curve in smooth_many(tasks)]
    [(0, array([2., 2.]))]
    """
    bundles = list(_bundles(tasks))
    paths = [None if parts is None else parts / f"{_digest([tasks[index] for index in bundle])}.npz" for bundle in bundles]
    missing = []
    for bundle, path in zip(bundles, paths, strict=True):
        curves = None if path is None else load_curves(path)
        if curves is None:
            missing.append((bundle, path))
        else:
            yield from zip(bundle, curves, strict=True)
    for at, curves in _computed([[tasks[index] for index in bundle] for bundle, _ in missing], jobs, dask):
        bundle, path = missing[at]
        if path is not None:
            save_curves(path, curves)
        yield from zip(bundle, curves, strict=True)


def _digest(bundle: Sequence[Task]) -> str:
    """A hash of the series, which names the file of their curves."""
    return (
        bundle[0].digest
        if len(bundle) == 1
        else hashlib.sha256("".join(task.digest for task in bundle).encode()).hexdigest()[:32]
    )


def _bundles(tasks: Sequence[Task]) -> Iterator[list[int]]:
    """Bundles of series that may go through the bank at once: short series of one length, with the same options."""
    bundles: dict[tuple[int, str], list[int]] = {}
    for index, task in enumerate(tasks):
        if task.values.size > LONGEST or task.options.get("keys", "auto") != "auto" or "weights" in task.options:
            yield [index]
            continue
        alike = task.values.size, repr((task.wanted, sorted(task.options.items())))
        bundles.setdefault(alike, []).append(index)
        if len(bundles[alike]) == TOGETHER:
            yield bundles.pop(alike)
    yield from bundles.values()


def _computed(bundles: list[Bundle], jobs: int | Workers, dask: str | None) -> Iterator[tuple[int, list[Curve]]]:
    if dask is not None and bundles:
        yield from _on_dask(bundles, dask)
    elif jobs == 1 or len(bundles) <= 1:
        yield from ((index, smooth_tasks(bundle)) for index, bundle in enumerate(bundles))
    elif isinstance(jobs, int):
        with start_workers(min(jobs, len(bundles))) as workers:
            yield from _computed(bundles, workers, None)
    else:
        yield from _as_done(bundles, jobs.submit, at_once=2 * jobs.count)


@contextmanager
def start_workers(count: int) -> Iterator[Workers]:
    """Start `count` workers, at least two, for `smooth_many`; call it before reading the series, so that workers start meanwhile."""
    threads = max(1, processors() // count)
    # Spawned, not forked: a fork of a process with threads, for example of a progress bar, may deadlock.
    processes = ProcessPoolExecutor(count - 1, get_context("spawn"), _begin, (threads,))
    try:
        with ThreadPoolExecutor(1, initializer=native.limit_threads, initargs=(threads,)) as thread:
            for _ in range(count - 1):  # a call starts one process, as none is ready yet
                processes.submit(os.getpid)
            yield Workers(count, thread, processes)
    except BrokenProcessPool as error:
        fix = (
            "run it again, with fewer jobs if memory ran out; finished series are not computed again"
            ', and put the call under `if __name__ == "__main__":` in a script'
        )
        raise InputError("processes that finish their series", got="one that was killed", fix=fix) from error
    finally:
        processes.shutdown(cancel_futures=True)


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(threads: int) -> None:
    """Use a share of the processors, and exit when the process that started this one ends."""
    native.limit_threads(threads)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _on_dask(bundles: list[Bundle], address: str) -> Iterator[tuple[int, list[Curve]]]:
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

        def submit(bundle: Bundle) -> Future[list[Curve]]:
            large = sum(task.values.nbytes for task in bundle) > _LARGE
            return executor.submit(smooth_tasks, client.scatter(bundle, hash=False) if large else bundle)

        threads: Any = client.nthreads()
        try:
            yield from _as_done(bundles, submit, at_once=max(8, 2 * sum(threads.values())))
        except (KilledWorker, CancelledError) as error:
            fix = "read the workers' logs and run it again; finished series are not computed again"
            raise InputError("workers that finish their series", got=f"an error: {error}", fix=fix) from error


def _as_done(
    bundles: list[Bundle], submit: Callable[[Bundle], Future[list[Curve]]], at_once: int
) -> Iterator[tuple[int, list[Curve]]]:
    """Submit the bundles, `at_once` at a time so that memory stays bounded, and yield results when they are done."""
    rest = enumerate(bundles)
    running: dict[Future[list[Curve]], int] = {}
    while True:
        for index, bundle in itertools.islice(rest, at_once - len(running)):
            running[submit(bundle)] = index
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()
