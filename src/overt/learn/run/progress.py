"""The terminal output of a run: a progress bar, and a line for each evaluation."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

_MIN_BAR = 8  # columns: no bar in a narrower terminal


class ProgressDisplay:
    """A bar with the loss, the speed and the remaining time; no bar in a pipe, and no output without a console.

    >>> import io
    >>> with ProgressDisplay(Console(file=(pipe := io.StringIO())), updates=100, done=0) as display:
    ...     display.show_evaluation(50, {"bleu": 31.25}, best=True)
    >>> print(pipe.getvalue().rstrip())
    update 50: bleu 31.25, the best so far
    """

    def __init__(self, console: Console | None, updates: int, done: int):
        self._console = console
        hidden = console is None or not console.is_terminal
        columns = _columns(80 if console is None else console.width, updates)
        self._bar = Progress(*columns, console=console, disable=hidden, transient=True)
        # There is no loss and no speed before the first update.
        self._task = self._bar.add_task("", total=updates, completed=done, loss="", speed="")

    def __enter__(self) -> "ProgressDisplay":
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def show_update(self, update: int, loss: float, speed: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=update, loss=f"loss {loss:.3f}", speed=f"{speed:,.0f} tokens/s")

    def show_evaluation(self, update: int, measures: dict[str, Any], best: bool) -> None:
        """Print a line."""
        self._print(f"update {update}: {_words(measures)}{', the best so far' if best else ''}")

    def show_result(self, updates: list[int], measures: dict[str, Any]) -> None:
        """Print the checkpoints of the finished model, and its measures."""
        origin = "the checkpoint" if len(updates) == 1 else f"the average of the {len(updates)} checkpoints"
        self._print(f"finished, from {origin} {', '.join(map(str, updates))}: {_words(measures)}")

    def _print(self, sentence: str) -> None:
        if self._console is not None:
            self._console.print(sentence, highlight=False)


def _columns(width: int, updates: int) -> list[ProgressColumn]:
    """The columns that fit this terminal width, the most important first; a line that is too wide would cut off its numbers."""
    count = 2 * len(str(updates)) + 1
    parts: list[tuple[int, ProgressColumn]] = [  # in the order of the line, each with its largest width
        (6, TextColumn("update")),
        (count, MofNCompleteColumn()),
        (15, TextColumn("{task.fields[loss]}")),
        (19, TextColumn("{task.fields[speed]}")),
        (8, TimeRemainingColumn()),
    ]
    remaining, included = width, set[int]()
    for index in (1, 2, 0, 3, 4):
        if parts[index][0] < remaining:
            included.add(index)
            remaining -= parts[index][0] + 1
    columns = [column for index, (_, column) in enumerate(parts) if index in included]
    if remaining >= _MIN_BAR:
        columns.insert(1 if 0 in included else 0, BarColumn(bar_width=min(remaining - 1, 40)))
    return columns


def _words(measures: dict[str, Any]) -> str:
    numbers = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in measures.items())
    return ", ".join(f"{name} {value}" for name, value in numbers)
