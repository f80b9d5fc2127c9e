"""The training loop: updates, evaluations, checkpoints, and resuming a stopped run."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.files import exclusive
from overt.learn.config.settings import Training
from overt.learn.loop.averaging import average_checkpoints, interpolate
from overt.learn.loop.distributed import Processes
from overt.learn.loop.optimizer_step import OptimizerStep
from overt.learn.run import checkpoint
from overt.learn.run.log import TrainingLog
from overt.learn.run.model_folder import save_model
from overt.learn.run.progress import ProgressDisplay
from overt.learn.run.run_record import claim_folder, describe_run
from overt.learn.run.weights import get_weights, load_weights

PERPLEXITY = "perplexity"


class TrainingTask(Protocol):
    """What a task must provide for the training loop."""

    measure: str  # the validation measure that training maximizes

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, each a list of row indices; they depend on the epoch only."""
        ...

    def batch(self, indices: list[int]) -> Any:
        """Rows as tensors, padded to the same length."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        """The loss summed over the tokens (or rows) that count, and their number."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measures on validation data, including `measure`; between equal values of it, the lower "perplexity" is better."""
        ...


@dataclass
class RunState:
    """The state of a run, saved with each checkpoint."""

    update: int = 0  # updates done
    epoch: int = 0
    position: int = 0  # batches of this epoch read so far
    seconds: float = 0.0  # of training, including evaluations
    tokens: int = 0  # or the unit that the task counts
    best: float | None = None
    best_update: int | None = None
    best_perplexity: float | None = None  # if the task measures it; decides between equal values of the measure
    waiting: int = 0  # evaluations since the best one


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run, which `train` returns."""

    state: RunState
    measures: dict[str, float]  # of the finished model, on validation data
    model: Path  # the folder that holds it
    stopped_early: bool


def train(
    model: nn.Module,
    task: TrainingTask,
    settings: Training,
    folder: str | Path,
    *,
    recipe: Mapping[str, Any] | None = None,
    console: Any = None,
    resume: bool = True,
) -> TrainingResult:
    """Train `model` on `task` by AdamW; the finished model is in `model` and in `folder`/model.

    Each update follows the gradient of Σ loss / Σ count, with sums over all its batches and all processes, so that one large
    batch, several small ones, and rows distributed over processes give the same update. A stopped run resumes from its last
    checkpoint when it is started again. Random numbers depend on (seed, update), so on one process it ends with the same
    weights, to the bit.

    `recipe` is saved with the settings, to distinguish this run from others. Raises InputError for a folder with another run or in
    which another program trains, a damaged checkpoint, a full disk, too little memory and a loss that is not finite; the last complete
    checkpoint remains.

    >>> class Doubling:
    ...     measure = "closeness"
    ...     def batches(self, epoch): return [[1, 2], [3, 4]]
    ...     def batch(self, indices): return torch.tensor(indices)[:, None].float()
    ...     def loss(self, model, batch): return (model(batch) - 2 * batch).square().sum(), len(batch)
    ...     def evaluate(self, model): return {"closeness": -abs(model.weight.item() - 2)}
    >>> import tempfile
    >>> settings = Training(updates=200, learning_rate=0.1, warmup=5, schedule="linear")
    >>> result = train(nn.Linear(1, 1, bias=False), Doubling(), settings, tempfile.mkdtemp())
    >>> result.state.update, result.measures["closeness"] > -0.1
    (200, True)
    """
    folder, processes = Path(folder), Processes()
    devices = [processes.device] if processes.device.type == "cuda" else []
    lock = exclusive(folder) if processes.is_main else nullcontext()
    with torch.random.fork_rng(devices), lock:
        run = _TrainingRun(model.to(processes.device), task, settings, folder, processes)
        run.begin(dict(recipe or {}), resume)
        return run.go(console)


class _TrainingRun:
    """A run and its folder."""

    def __init__(self, model: nn.Module, task: TrainingTask, settings: Training, folder: Path, processes: Processes):
        self.model, self.task, self.settings, self.folder, self.processes = model, task, settings, folder, processes
        self.checkpoints = folder / "checkpoints"
        self.log = TrainingLog(folder / "log.jsonl")
        self.step = OptimizerStep(model, task, settings, processes)
        self.state = RunState()
        self.start = {name: tensor.clone() for name, tensor in get_weights(model).items()} if settings.start_share else {}
        self.epoch = task.batches(0)
        if not self.epoch:
            raise InputError("at least one batch", got="none", fix="check the training data")

    def begin(self, recipe: dict[str, Any], resume: bool) -> None:
        """Claim the folder for this run, and restore its last checkpoint."""
        saved = checkpoint.list_checkpoints(self.checkpoints)
        if saved and not resume:
            got = f"{self.folder} with {len(saved)} checkpoints"
            raise InputError("an empty folder where resume=False", got=got, fix="choose another folder, or resume the run")
        self.processes.wait()
        if self.processes.is_main:
            claim_folder(self.folder, describe_run(self.model, self.epoch, self.settings, recipe))
            if saved:
                self.log.truncate(int(saved[-1].name))
            else:
                self.log.path.unlink(missing_ok=True)
                self._save()  # saved at the start, so that a read-only folder is an error immediately and not after an hour
        self.processes.wait()
        self._restore(checkpoint.list_checkpoints(self.checkpoints)[-1])

    def go(self, console: Any) -> TrainingResult:
        """Update until the end, evaluate and save in between, and finish the model."""
        settings, state = self.settings, self.state
        with ProgressDisplay(console if self.processes.is_main else None, settings.updates, state.update) as display:
            self.model.train()
            while state.update < settings.updates and not self._stopped():
                self._update(display)
                last = state.update == settings.updates
                better = (last or state.update % settings.evaluate_every == 0) and self._evaluate(display)
                if last or better or self._stopped() or state.update % settings.checkpoint_every == 0:
                    self._save()
            return self._finish(display)

    def _update(self, display: ProgressDisplay) -> None:
        """The next update, in the log and on the bar."""
        state, started = self.state, time.perf_counter()
        with _explain_out_of_memory(state.update + 1, self.settings):
            batches = [self._next() for _ in range(self.settings.accumulate)]
            statistics = self.step(state.update + 1, batches)
        duration = time.perf_counter() - started
        state.update += 1
        state.tokens += statistics.count
        state.seconds += duration
        speed = statistics.count / duration
        if self.processes.is_main:
            self.log.add(update=state.update, **asdict(statistics), tokens_per_second=speed, seconds=state.seconds)
        display.show_update(state.update, statistics.loss, speed)

    def _next(self) -> list[int]:
        """The next batch, of this epoch or of the one after it."""
        state = self.state
        if state.position >= len(self.epoch):
            state.epoch, state.position = state.epoch + 1, 0
            self.epoch = self.task.batches(state.epoch)
        state.position += 1
        return self.epoch[state.position - 1]

    def _evaluate(self, display: ProgressDisplay) -> bool:
        """Evaluate the model on validation data; returns whether it is the best so far."""
        state, started = self.state, time.perf_counter()
        measures = self._measures()
        value = measures[self.task.measure]
        if not math.isfinite(value):
            got = f"{value} at update {state.update}"
            fix = "check the validation data and the task's evaluate"
            raise InputError(f"a finite value of the measure {self.task.measure}", got=got, fix=fix)
        perplexity = measures.get(PERPLEXITY)
        perplexity = perplexity if perplexity is not None and math.isfinite(perplexity) else None
        better = state.best is None or value > state.best or (value == state.best and _lower(perplexity, state.best_perplexity))
        state.waiting = 0 if better else state.waiting + 1
        if better:
            state.best, state.best_update, state.best_perplexity = value, state.update, perplexity
        state.seconds += time.perf_counter() - started
        if self.processes.is_main:
            self.log.add(update=state.update, validation=measures, seconds=state.seconds)
        display.show_evaluation(state.update, measures, better)
        return better

    def _measures(self) -> dict[str, float]:
        """The measures, computed by the main process; the others receive the two that decide."""
        self.model.eval()
        with torch.no_grad(), _explain_out_of_memory(self.state.update, self.settings):
            measures = dict(self.task.evaluate(self.model)) if self.processes.is_main else {self.task.measure: 0.0}
        self.model.train()
        measures[self.task.measure] = self.processes.broadcast(measures[self.task.measure])
        perplexity = self.processes.broadcast(measures.get(PERPLEXITY, math.inf))
        return {**measures, PERPLEXITY: perplexity} if math.isfinite(perplexity) else measures

    def _stopped(self) -> bool:
        return self.settings.patience is not None and self.state.waiting >= self.settings.patience

    def _save(self) -> None:
        if self.processes.is_main:
            content = {**asdict(self.state), "scale": self.step.scale, "steady": self.step.steady}
            saved = checkpoint.Checkpoint(get_weights(self.model), self.step.optimizer_state(), content)
            checkpoint.write(self.checkpoints, self.state.update, saved)
            checkpoint.remove_old(self.checkpoints, self.settings.keep, self.state.best_update)

    def _restore(self, path: Path) -> None:
        saved = checkpoint.read(path)
        load_weights(self.model, saved.model, f"{path}/model.safetensors")
        self.step.load_optimizer_state(saved.optimizer)
        self.step.scale, self.step.steady = saved.state["scale"], saved.state["steady"]
        # Checkpoints before November 2026 have no perplexity.
        self.state = RunState(**{name: saved.state[name] for name in asdict(self.state) if name in saved.state})
        self.epoch = self.task.batches(self.state.epoch)

    def _finish(self, display: ProgressDisplay) -> TrainingResult:
        """Average the last checkpoints, or take the best one, mix in the starting weights if requested, and save the finished model."""
        self.processes.wait()
        paths = self._final_checkpoints()
        weights, share = average_checkpoints(paths), self.settings.start_share
        weights = interpolate(self.start, weights, share) if share else weights
        load_weights(self.model, weights, f"the checkpoints in {self.checkpoints}")
        measures = self._measures()
        self.model.eval()
        target = self.folder / "model"
        if self.processes.is_main:
            save_model(self.model, target, getattr(self.task, "tokenizer", None))
            self.log.add(update=self.state.update, finished=measures, checkpoints=[int(path.name) for path in paths])
        display.show_result([int(path.name) for path in paths], measures)
        self.processes.wait()
        return TrainingResult(self.state, measures, target, self._stopped())

    def _final_checkpoints(self) -> list[Path]:
        """The checkpoints from which the finished model's weights are computed."""
        if self.settings.average:
            return [path for path in checkpoint.list_checkpoints(self.checkpoints) if int(path.name) > 0][
                -self.settings.average :
            ]
        state = self.state
        best = state.update if state.best_update is None else state.best_update
        return [self.checkpoints / f"{best:06d}"]


def _lower(perplexity: float | None, best: float | None) -> bool:
    return perplexity is not None and best is not None and perplexity < best


@contextmanager
def _explain_out_of_memory(update: int, settings: Training) -> Iterator[None]:
    """Convert an out-of-memory error to one that names the setting to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise InputError(
            f"enough memory for update {update}",
            got=f"tokens_per_batch = {settings.tokens_per_batch}, and: {str(error).splitlines()[0] if str(error) else 'no memory'}",
            fix="lower training.tokens_per_batch and raise training.accumulate by as much: the update stays the same",
        ) from error
