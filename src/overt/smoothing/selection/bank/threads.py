"""Independent parts of one computation, several at a time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from overt import native

Part = TypeVar("Part")
Result = TypeVar("Result")


# THREADED: from this many points on, threads save more time than it takes to start them.
THREADED = 1024


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part], *, points: int) -> list[Result]:
    """Apply the function to all parts, in one thread per processor on which its kernels run; results are in the order of the parts.

    The threads of a kernel share only the work of that kernel; here the arithmetic between kernels is parallel as well.

    >>> map_in_threads(lambda part: part**2, [1, 2, 3], points=2048)
    [1, 4, 9]
    """
    workers = min(native.threads(), len(parts)) if points >= THREADED else 1
    if workers < 2:
        return list(map(function, parts))
    # Imported late, so that calls without threads start fast.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers, initializer=native.limit_threads, initargs=(1,)) as pool:
        return list(pool.map(function, parts))
