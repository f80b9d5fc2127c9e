"""A progress bar for work that takes longer than a second, only on a terminal."""

import os
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")

AFTER = 1.0  # seconds without a bar
_inside: ContextVar[bool] = ContextVar("_inside", default=False)


def progress(items: Iterable[Item], doing: str, total: int | None = None) -> Generator[Item, None, None]:
    """Yield the items; after a second, with a bar on the terminal's stderr that is removed at the end.

    `total` is the number of items; None: their own length, if they have one.

    There is no bar in a pipe, a notebook or a file, with OVERT_PROGRESS=0 in the environment, or inside work with its own bar.

    >>> list(progress("abc", "reading"))
    ['a', 'b', 'c']
    """
    if not sys.stderr.isatty() or os.environ.get("OVERT_PROGRESS") == "0" or _inside.get():
        yield from items
        return
    token = _inside.set(True)
    try:
        yield from _with_bar(items, doing, len(items) if total is None and isinstance(items, Sized) else total)
    finally:
        _inside.reset(token)


def _with_bar(items: Iterable[Item], doing: str, total: int | None) -> Iterator[Item]:
    start, bar, task = time.monotonic(), None, None
    try:
        for done, item in enumerate(items):
            if bar is None and time.monotonic() - start > AFTER:
                bar = _bar()
                task = bar.add_task(doing, total=total, completed=done)
                bar.start()
            if bar is not None and task is not None:
                bar.update(task, completed=done, refresh=True)
            yield item
    finally:
        if bar is not None:
            bar.stop()


def _bar():
    # Importing rich is slow, so it is imported only for long work.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
