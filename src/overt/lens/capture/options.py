"""What is kept of the recorded calls, and where: `layers`, `heads`, `keep`, `offload` and `limit` of `record`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from overt.attention import check
from overt.attention.kernels.call import Call
from overt.errors import InputError, KindError
from overt.lens.captured import Captured, CapturedCall, size
from overt.lens.statistics.summarized import CELLS, TOP, SummaryOptions, summarized
from overt.lens.storage.offloading import OnCpu, OnDisk
from overt.lens.tokens import Tokens


@dataclass(frozen=True)
class RecordOptions:
    """Which calls and heads are kept, what of them, and where.

    `take` makes of a call with its copies what is kept of it; where it `lends`, of the call as it stands, with which it is done at
    once. `needed(call, output, heads, total)` says before how many bytes that takes, and `room(held)` how many there may be in
    all where so many are held already.
    """

    layers: Sequence[int | str] | None
    heads: Sequence[int] | None
    take: Callable[[CapturedCall], Captured]
    needed: Callable[[Call, Tensor, int, int], int]
    room: Callable[[int], int]
    lends: bool


def record_options(
    layers: Sequence[int | str] | None,
    heads: Sequence[int] | None,
    keep: str,
    offload: str | None,
    tokens: Tokens,
    limit: int,
    top: int = TOP,
    map_size: int | tuple[int, int] = CELLS,
) -> RecordOptions:
    """Check the options of `record` and make them one thing."""
    _listed("layers", layers, (int, str), "numbers of calls or names of modules")
    _listed("heads", heads, (int,), "numbers of heads")
    if keep not in ("qkv", "summary"):
        raise InputError('record keeps "qkv" or "summary"', got=f"keep={keep!r}", fix="choose one of them")
    if offload not in (None, "cpu", "disk"):
        raise InputError('record offloads to "cpu" or "disk"', got=f"offload={offload!r}", fix="choose one of them, or None")
    check.whole_number("limit", limit)
    how = _how(keep, top, map_size)
    store = OnCpu() if offload == "cpu" else OnDisk() if offload == "disk" else None

    def take(kept: CapturedCall) -> Captured:
        found = summarized(kept, tokens, how) if keep == "summary" else kept
        return found if store is None else store.take(found)

    def room(held: int) -> int:
        return held + store.free if isinstance(store, OnDisk) else limit

    return RecordOptions(layers, heads, take, how.size if keep == "summary" else size, room, keep == "summary")


def _how(keep: str, top: int, map_size: int | tuple[int, int]) -> SummaryOptions:
    check.whole_number("top", top)
    sizes = (map_size, map_size) if isinstance(map_size, int) else map_size
    if not isinstance(sizes, tuple) or len(sizes) != 2:
        raise InputError("map_size is a number of cells or (rows, keys)", got=repr(map_size), fix="pass map_size=256")
    for each in sizes:
        check.whole_number("map_size", each)
    if keep != "summary" and (top, sizes) != (TOP, (CELLS, CELLS)):
        fix = 'leave them out, and ask for head.top(row, k) and head.map(size), or pass keep="summary"'
        raise InputError('top and map_size are of keep="summary"', got=f"keep={keep!r}", fix=fix)
    return SummaryOptions(top, sizes)


def _listed(name: str, given: Any, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what is no list of these; None is everything."""
    if given is None:
        return
    if not isinstance(given, Sequence) or isinstance(given, str) or not given or any(type(each) not in kinds for each in given):
        fix = f"write {name}=[…], or leave it out to keep all"
        raise KindError(f"{name} is a list of {what}, at least one", got=f"{name}={given!r}", fix=fix)


def in_bytes(count: int) -> str:
    """A number of bytes, to be read.

    >>> in_bytes(3_600)
    '3.6 kB'
    """
    for unit, bytes_in in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_in:
            return f"{count / bytes_in:.1f} {unit}"
    return f"{count} bytes"
