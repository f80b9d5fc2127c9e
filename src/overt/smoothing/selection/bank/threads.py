"""Independent parts of one computation, several at a time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from overt import native

Part = TypeVar("Part")
Result = TypeVar("Result")


# From this many points on threads save more time than it takes to start them.
THREADED = 1024


def map_in_threads(function: Callable[[Part], Result], parts: Sequence[Part], *, points: int) -> list[Result]:
    """The function of each part, in order, computed in one thread per processor, where kernels run on that thread alone.

    A kernel alone uses several threads only for itself; here the arithmetic between kernels is parallel as well.

    >>> map_in_threads(lambda part: part**2, [1, 2, 3], points=2048)
    [1, 4, 9]
    """
    workers = min(native.threads(), len(parts)) if points >= THREADED else 1
    if workers < 2:
        return list(map(function, parts))
    # Imported here, so that calls without threads start fast.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers, initializer=native.limit_threads, initargs=(1,)) as pool:
        return list(pool.map(function, parts))
