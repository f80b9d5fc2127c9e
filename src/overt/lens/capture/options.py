"""The options of `record` for content and storage: `layers`, `heads`, `keep`, `offload` and `limit`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from overt.attention import check
from overt.attention.kernels.call import Call
from overt.drawing.numbers import in_bytes
from overt.errors import InputError, KindError
from overt.lens.captured import Captured, CapturedCall, size
from overt.lens.linear.captured import CapturedMixer, mixer_size
from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.summarized import summarized_mixer, summarized_size
from overt.lens.statistics.summarized import CELLS, TOP, SummaryOptions, computed, summarized
from overt.lens.storage.offloading import OnCpu, OnDisk
from overt.lens.tokens import Tokens


@dataclass(frozen=True)
class RecordOptions:
    """The recorded calls and heads, their content and their storage; by default everything in memory, without a limit.

    `needed(call, output, heads, total)` is the number of bytes of a call, `mixer_needed` of a linear token mixer, and
    `refusal(needed, recorded)` the error for a call that does not fit after `recorded` bytes. If `copies`, the inputs of a call are
    copied before `store` gets it; otherwise `store` must finish with them before the model continues. `compute`, if set, returns the
    output of a call and measures it in the same pass, just before `store` gets it; None if it cannot.
    """

    layers: Sequence[int | str] | None = None
    heads: Sequence[int] | None = None
    store: Callable[[CapturedCall | CapturedMixer], Captured] = lambda captured: captured
    needed: Callable[[Call, Tensor, int, int], int] = lambda *_: 0
    mixer_needed: Callable[[Recurrence, Tensor, int, int], int] = lambda *_: 0
    refusal: Callable[[int, int], InputError | None] = lambda *_: None
    copies: bool = False
    compute: Callable[[CapturedCall], Tensor | None] | None = None


def record_options(
    layers: Sequence[int | str] | None,
    heads: Sequence[int] | None,
    keep: str,
    offload: str | None,
    tokens: Tokens,
    limit: int,
    top: int = TOP,
    map_size: int | tuple[int, int] = CELLS,
    steps: Iterator[Any] | None = None,
    one_pass: bool = False,
) -> RecordOptions:
    """Check the options of `record`; `steps` advances with each summarised call."""
    _check_list("layers", layers, (int, str), "numbers of calls or names of modules")
    _check_list("heads", heads, (int,), "numbers of heads")
    if keep not in ("qkv", "summary"):
        raise InputError('keep="qkv" or keep="summary"', got=f"keep={keep!r}", fix="choose one of them")
    if offload not in (None, "cpu", "disk"):
        raise InputError('offload="cpu" or offload="disk"', got=f"offload={offload!r}", fix="choose one of them, or None")
    check.whole_number("limit", limit)
    if one_pass and (keep != "summary" or heads is not None):
        got = f"keep={keep!r}" + (f", heads={heads!r}" if heads is not None else "")
        raise InputError('one_pass=True with keep="summary" and all heads', got=got, fix="leave one_pass out")
    summary = _summary_options(keep, top, map_size)
    storage = OnCpu() if offload == "cpu" else OnDisk() if offload == "disk" else None

    def store(call: CapturedCall | CapturedMixer) -> Captured:
        captured: Captured = call
        if keep == "summary":
            next(steps or iter(()), None)
            is_mixer = isinstance(call, CapturedMixer)
            captured = summarized_mixer(call, tokens, summary) if is_mixer else summarized(call, tokens, summary)
        return captured if storage is None else storage.store(captured)

    def refusal(needed: int, recorded: int) -> InputError | None:
        if isinstance(storage, OnDisk):
            return None if needed <= storage.free else storage.refusal(needed, recorded)
        return None if recorded + needed <= limit else _beyond(limit, needed, recorded)

    sizes = (summary.size, partial(summarized_size, summary)) if keep == "summary" else (size, mixer_size)
    compute = partial(computed, tokens=tokens, options=summary) if one_pass else None
    return RecordOptions(layers, heads, store, *sizes, refusal, copies=keep == "qkv", compute=compute)


def _beyond(limit: int, needed: int, recorded: int) -> InputError:
    """The error for a call that does not fit into the limit."""
    return InputError(
        f"a recording of at most {in_bytes(limit)}",
        got=f"{in_bytes(needed)} for this call and {in_bytes(recorded)} for others",
        fix='record less with layers=[…], heads=[…] or keep="summary", write it to files with offload="disk", or raise limit=',
    )


def _summary_options(keep: str, top: int, map_size: int | tuple[int, int]) -> SummaryOptions:
    check.whole_number("top", top)
    sizes = (map_size, map_size) if isinstance(map_size, int) else map_size
    if not isinstance(sizes, tuple) or len(sizes) != 2:
        raise InputError("map_size as a number of cells or (rows, keys)", got=repr(map_size), fix="pass map_size=256")
    for entry in sizes:
        check.whole_number("map_size", entry)
    if keep != "summary" and (top, sizes) != (TOP, (CELLS, CELLS)):
        fix = 'leave them out, and call head.top(row, k) and head.map(size), or pass keep="summary"'
        raise InputError('top and map_size with keep="summary" only', got=f"keep={keep!r}", fix=fix)
    return SummaryOptions(top, sizes)


def _check_list(name: str, values: Any, kinds: tuple[type, ...], meaning: str) -> None:
    """Refuse anything but a list of these types; None means all."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if values is not None and not (is_list and values and all(type(value) in kinds for value in values)):
        fix = f"write {name}=[…], or leave it out to record all"
        raise KindError(f"{name} as a list of {meaning}, at least one", got=f"{name}={values!r}", fix=fix)
