"""Seconds of named steps, each run many times."""

import statistics
import time
from collections.abc import Callable
from typing import Any


class Stopwatch:
    """The times of each step in the order in which it ran."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def timed(self, step: str, run: Callable[[], Any]) -> Any:
        """What a step returns; its time is kept."""
        start = time.perf_counter()
        result = run()
        self.times.setdefault(step, []).append(time.perf_counter() - start)
        return result

    @property
    def medians(self) -> dict[str, float]:
        """The median seconds of each step."""
        return {step: statistics.median(taken) for step, taken in self.times.items()}
