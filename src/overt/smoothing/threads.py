"""Independent parts of one computation, several at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from overt import native

Part = TypeVar("Part")
Found = TypeVar("Found")


def side_by_side(function: Callable[[Part], Found], parts: Sequence[Part]) -> Iterator[Found]:
    """What the function gives for each part, in order; a thread a processor, in each of which kernels run on that thread alone.

    A kernel divides only itself; in threads the arithmetic between kernels goes on at once as well.

    >>> list(side_by_side(lambda part: part**2, [1, 2, 3]))
    [1, 4, 9]
    """
    workers = min(native.threads(), len(parts))
    if workers < 2:
        yield from map(function, parts)
        return
    # Here, so that what needs no threads is quick from a cold start.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers, initializer=native.alone) as pool:
        yield from pool.map(function, parts)
