"""What a person sees of a run: a bar on a terminal, a line for each evaluation."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

_LEAST_BAR = 8  # columns under which a bar says nothing


class Shown:
    """A bar with the loss, the speed and the time left; nothing where there is no console, and no bar in a pipe.

    >>> import io
    >>> with Shown(Console(file=(pipe := io.StringIO())), updates=100, done=0) as shown:
    ...     shown.evaluated(50, {"bleu": 31.25}, best=True)
    >>> print(pipe.getvalue().rstrip())
    update 50: bleu 31.25, the best so far
    """

    def __init__(self, console: Console | None, updates: int, done: int):
        self._console = console
        hidden = console is None or not console.is_terminal
        columns = _columns(80 if console is None else console.width, updates)
        self._bar = Progress(*columns, console=console, disable=hidden, transient=True)
        # Before the first update there is no loss and no speed to tell.
        self._task = self._bar.add_task("", total=updates, completed=done, loss="", speed="")

    def __enter__(self) -> "Shown":
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def updated(self, update: int, loss: float, speed: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=update, loss=f"loss {loss:.3f}", speed=f"{speed:,.0f} tokens/s")

    def evaluated(self, update: int, measures: dict[str, Any], best: bool) -> None:
        """Print one line, which stays."""
        self._say(f"update {update}: {_words(measures)}{', the best so far' if best else ''}")

    def finished(self, updates: list[int], measures: dict[str, Any]) -> None:
        """Print what the finished model is made of, and what it measures."""
        made = "the checkpoint" if len(updates) == 1 else f"the average of the {len(updates)} checkpoints"
        self._say(f"finished, from {made} {', '.join(map(str, updates))}: {_words(measures)}")

    def _say(self, sentence: str) -> None:
        if self._console is not None:
            self._console.print(sentence, highlight=False)


def _columns(width: int, updates: int) -> list[ProgressColumn]:
    """What a terminal of this width has room for, the most telling first: a line that is too wide would have its numbers cut."""
    count = 2 * len(str(updates)) + 1
    parts: list[tuple[int, ProgressColumn]] = [  # in the order of the line, with the columns that each needs at most
        (6, TextColumn("update")),
        (count, MofNCompleteColumn()),
        (15, TextColumn("{task.fields[loss]}")),
        (19, TextColumn("{task.fields[speed]}")),
        (8, TimeRemainingColumn()),
    ]
    room, kept = width, set[int]()
    for place in (1, 2, 0, 3, 4):
        if parts[place][0] < room:
            kept.add(place)
            room -= parts[place][0] + 1
    shown = [column for place, (_, column) in enumerate(parts) if place in kept]
    if room >= _LEAST_BAR:
        shown.insert(1 if 0 in kept else 0, BarColumn(bar_width=min(room - 1, 40)))
    return shown


def _words(measures: dict[str, Any]) -> str:
    numbers = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in measures.items())
    return ", ".join(f"{name} {value}" for name, value in numbers)
