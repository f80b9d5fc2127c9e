"""The training loop: what happens at each update, and how a run goes on after it was stopped."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.learn.config.settings import Training
from overt.learn.loop.averaging import averaged
from overt.learn.loop.distributed import Processes
from overt.learn.loop.optimizer_step import Updates
from overt.learn.run import checkpoint
from overt.learn.run.log import Log
from overt.learn.run.model_folder import save_model
from overt.learn.run.progress import Shown
from overt.learn.run.run_record import claim, record
from overt.learn.run.weights import take_weights, weights_of


class Task(Protocol):
    """What is to be learnt, as far as the loop asks."""

    measure: str  # the name of the validation measure that training is after; larger is better

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of rows: a function of the epoch alone."""
        ...

    def batch(self, indices: list[int]) -> Any:
        """Some rows as tensors, padded to one length."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        """The loss summed over what counts (tokens, or rows), and how many those are."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measures on validation data, `measure` among them."""
        ...


@dataclass
class Standing:
    """Where a run stands; written with each checkpoint."""

    update: int = 0  # those that are done
    epoch: int = 0
    position: int = 0  # batches read of this epoch
    seconds: float = 0.0  # of training, evaluations included
    tokens: int = 0  # whatever the task counts
    best: float | None = None
    best_update: int | None = None
    waiting: int = 0  # evaluations since the best


@dataclass(frozen=True)
class Result:
    """How a run ended; `train` returns it, and its example has one."""

    standing: Standing
    measures: dict[str, float]  # of the finished model, on validation data
    model: Path  # the folder that holds it
    stopped_early: bool


def train(
    model: nn.Module,
    task: Task,
    settings: Training,
    folder: str | Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    console: Any = None,
    resume: bool = True,
) -> Result:
    """Train `model` on `task` by AdamW; the finished model is left in it and in `folder`/model.

    Each update follows the gradient of Σ loss / Σ count, the sums over all its batches and all processes, so that one large
    batch, several small ones, and rows that are spread over processes are the same update. A run that is stopped, by whatever
    means, goes on from its last checkpoint when it is started again: random numbers are drawn from (seed, update), so on one
    process it ends with the same weights, to the bit.

    `recipe` is kept beside the settings as what makes this run itself. Raises InputError for a folder that holds another run, a
    damaged checkpoint, a full disk, too little memory and a loss that is not finite; the last whole checkpoint stays.

    >>> class Doubling:
    ...     measure = "closeness"
    ...     def batches(self, epoch): return [[1, 2], [3, 4]]
    ...     def batch(self, indices): return torch.tensor(indices)[:, None].float()
    ...     def loss(self, model, batch): return (model(batch) - 2 * batch).square().sum(), len(batch)
    ...     def evaluate(self, model): return {"closeness": -abs(model.weight.item() - 2)}
    >>> import tempfile
    >>> settings = Training(updates=200, learning_rate=0.1, warmup=5, schedule="linear")
    >>> result = train(nn.Linear(1, 1, bias=False), Doubling(), settings, tempfile.mkdtemp())
    >>> result.standing.update, result.measures["closeness"] > -0.1
    (200, True)
    """
    folder, processes = Path(folder), Processes()
    on = [processes.device] if processes.device.type == "cuda" else []
    with torch.random.fork_rng(on):
        run = _Run(model.to(processes.device), task, settings, folder, processes)
        run.begin(dict(recipe or {}), resume)
        return run.go(console)


class _Run:
    """A run in its folder."""

    def __init__(self, model: nn.Module, task: Task, settings: Training, folder: Path, processes: Processes):
        self.model, self.task, self.settings, self.folder, self.processes = model, task, settings, folder, processes
        self.checkpoints = folder / "checkpoints"
        self.log = Log(folder / "log.jsonl")
        self.updates = Updates(model, task, settings, processes)
        self.standing = Standing()
        self.epoch = task.batches(0)
        if not self.epoch:
            raise InputError("training reads one batch or more", got="none", fix="check the training data")

    def begin(self, recipe: dict[str, Any], resume: bool) -> None:
        """Make the folder this run's, and go to where its last checkpoint stands."""
        found = checkpoint.written(self.checkpoints)
        if found and not resume:
            fix = "choose another folder, or let the run go on"
            raise InputError(
                "a run that begins anew has a folder of its own", got=f"{self.folder} with {len(found)} checkpoints", fix=fix
            )
        self.processes.wait()
        if self.processes.first:
            claim(self.folder, record(self.model, self.epoch, self.settings, recipe))
            if found:
                self.log.cut(int(found[-1].name))
            else:
                self.log.path.unlink(missing_ok=True)
                self._save()  # at once, so that a folder that takes no files is known now and not in an hour
        self.processes.wait()
        self._restore(checkpoint.written(self.checkpoints)[-1])

    def go(self, console: Any) -> Result:
        """Update until the end, evaluate and save on the way, and finish the model."""
        settings, standing = self.settings, self.standing
        with Shown(console if self.processes.first else None, settings.updates, standing.update) as shown:
            self.model.train()
            while standing.update < settings.updates and not self._stopped():
                self._update(shown)
                last = standing.update == settings.updates
                better = (last or standing.update % settings.evaluate_every == 0) and self._evaluate(shown)
                if last or better or self._stopped() or standing.update % settings.checkpoint_every == 0:
                    self._save()
            return self._finish(shown)

    def _update(self, shown: Shown) -> None:
        """The next update, in the log and on the bar."""
        standing, started = self.standing, time.perf_counter()
        with _memory(standing.update + 1, self.settings):
            seen = self.updates(standing.update + 1, self._batches())
        taken = time.perf_counter() - started
        standing.update += 1
        standing.tokens += seen.count
        standing.seconds += taken
        speed = seen.count / taken
        if self.processes.first:
            self.log.add(update=standing.update, **asdict(seen), tokens_per_second=speed, seconds=standing.seconds)
        shown.updated(standing.update, seen.loss, speed)

    def _batches(self) -> list[list[int]]:
        """The next `accumulate` batches, over the end of an epoch if need be."""
        return [self._next() for _ in range(self.settings.accumulate)]

    def _next(self) -> list[int]:
        standing = self.standing
        if standing.position >= len(self.epoch):
            standing.epoch, standing.position = standing.epoch + 1, 0
            self.epoch = self.task.batches(standing.epoch)
        standing.position += 1
        return self.epoch[standing.position - 1]

    def _evaluate(self, shown: Shown) -> bool:
        """Measure the model on validation data; whether it is the best so far."""
        standing, started = self.standing, time.perf_counter()
        measures = self._measures()
        value = measures[self.task.measure]
        if not math.isfinite(value):
            fix = "look at the validation data, and at how the measure is taken"
            raise InputError(
                f"the measure {self.task.measure} is a finite number", got=f"{value} at update {standing.update}", fix=fix
            )
        better = standing.best is None or value > standing.best
        standing.waiting = 0 if better else standing.waiting + 1
        if better:
            standing.best, standing.best_update = value, standing.update
        standing.seconds += time.perf_counter() - started
        if self.processes.first:
            self.log.add(update=standing.update, validation=measures, seconds=standing.seconds)
        shown.evaluated(standing.update, measures, better)
        return better

    def _measures(self) -> dict[str, float]:
        """The first process measures; the others are told the one number that decides."""
        self.model.eval()
        with torch.no_grad(), _memory(self.standing.update, self.settings):
            measures = self.task.evaluate(self.model) if self.processes.first else {self.task.measure: 0.0}
        self.model.train()
        return {**measures, self.task.measure: self.processes.told(measures[self.task.measure])}

    def _stopped(self) -> bool:
        return self.settings.patience is not None and self.standing.waiting >= self.settings.patience

    def _save(self) -> None:
        if self.processes.first:
            state = {**asdict(self.standing), "scale": self.updates.scale, "steady": self.updates.steady}
            held = checkpoint.Checkpoint(weights_of(self.model), self.updates.averages(), state)
            checkpoint.write(self.checkpoints, self.standing.update, held)
            checkpoint.keep(self.checkpoints, self.settings.keep, self.standing.best_update)

    def _restore(self, path: Path) -> None:
        held = checkpoint.read(path)
        take_weights(self.model, held.model, f"{path}/model.safetensors")
        self.updates.take_averages(held.optimizer)
        self.updates.scale, self.updates.steady = held.state["scale"], held.state["steady"]
        self.standing = Standing(**{name: held.state[name] for name in asdict(self.standing)})
        self.epoch = self.task.batches(self.standing.epoch)

    def _finish(self, shown: Shown) -> Result:
        """Average the last checkpoints, or take the best, and save what comes of it."""
        self.processes.wait()
        paths = self._chosen()
        take_weights(self.model, averaged(paths), f"the checkpoints in {self.checkpoints}")
        measures = self._measures()
        self.model.eval()
        target = self.folder / "model"
        if self.processes.first:
            save_model(self.model, target, getattr(self.task, "tokenizer", None))
            self.log.add(update=self.standing.update, finished=measures, checkpoints=[int(path.name) for path in paths])
        shown.finished([int(path.name) for path in paths], measures)
        self.processes.wait()
        return Result(self.standing, measures, target, self._stopped())

    def _chosen(self) -> list[Path]:
        """The checkpoints that the finished model is made of."""
        if self.settings.average:
            return [path for path in checkpoint.written(self.checkpoints) if int(path.name) > 0][-self.settings.average :]
        standing = self.standing
        best = standing.update if standing.best_update is None else standing.best_update
        return [self.checkpoints / f"{best:06d}"]


@contextmanager
def _memory(update: int, settings: Training) -> Iterator[None]:
    """Say what to do where memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise InputError(
            f"update {update} fits in memory",
            got=f"tokens_per_batch = {settings.tokens_per_batch}, and: {str(error).splitlines()[0] if str(error) else 'no memory'}",
            fix="lower training.tokens_per_batch and raise training.accumulate by as much: the update stays the same",
        ) from error
