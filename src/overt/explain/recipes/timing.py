"""The loop form and the matrix form, both timed."""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from overt.attention.mechanism import attend
from overt.attention.trace import loop as attend_one_by_one
from overt.errors import InputError
from overt.explain.explanation import Timing

LONGEST_LOOP = 64  # most tokens for the loop form


def timed(query: Tensor, key: Tensor, value: Tensor, score: Any, mask: Any = None) -> Timing:
    """Attend as plain loops and as matrices, both timed, and compare."""
    if max(len(query), len(key)) > LONGEST_LOOP:
        raise InputError(
            f"at most {LONGEST_LOOP} tokens for the loop form, which computes one number at a time",
            got=f"{max(len(query), len(key))} tokens",
            fix="shorten the text, or leave out --loop",
        )
    loop_seconds, loops = _quickest(2, lambda: attend_one_by_one(query, key, value, score=score, mask=mask))
    matrix_seconds, matrices = _quickest(9, lambda: attend(query, key, value, score=score, mask=mask))
    return Timing(loop_seconds, matrix_seconds, float((loops - matrices).abs().max()))


def _quickest(times: int, compute: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """The quickest of several runs, so that warming up counts for neither form."""
    runs = []
    for _ in range(times):
        start = time.perf_counter()
        result = compute()
        runs.append((time.perf_counter() - start, result))
    return min(runs, key=lambda run: run[0])
