"""One update: the gradient of the mean loss over several batches and processes, clipped, and a step of AdamW."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.learn.config.settings import Training
from overt.learn.loop.distributed import Processes
from overt.learn.loop.gradient import FlatGradient
from overt.learn.loop.schedule import learning_rate

# _INITIAL_SCALE of a float16 loss, whose small gradients underflow to 0; _GROWTH_INTERVAL: updates without overflow until it doubles.
_INITIAL_SCALE, _GROWTH_INTERVAL = 256.0, 2000


@dataclass(frozen=True)
class StepStatistics:
    """Statistics of one update: the mean loss, the gradient's norm before clipping, the count of tokens (or rows), the learning rate."""

    loss: float
    gradient: float
    count: int
    learning_rate: float


class OptimizerStep:
    """Takes the optimizer's steps: holds a model, its gradient and AdamW."""

    def __init__(self, model: nn.Module, task: Any, settings: Training, processes: Processes):
        self.model = model
        self.task = task
        self.settings = settings
        self.processes = processes
        self.gradient: FlatGradient = FlatGradient(model)
        self.optimizer: torch.optim.AdamW = adamw(model, settings)
        self.scale: float = _INITIAL_SCALE if settings.precision == "float16" else 1.0
        self.steady: int = 0  # updates since the scale changed

    def __call__(self, update: int, batches: list[list[int]]) -> StepStatistics:
        """Take step number `update`, counted from 1."""
        # Each update and process has its own seed, so a resumed run draws the same numbers as an uninterrupted one.
        names = np.random.SeedSequence([self.settings.seed, update, self.processes.rank])
        torch.manual_seed(int(names.generate_state(1, np.uint64)[0]))
        rate = learning_rate(update, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, count = self._losses(batches)
        self.processes.sum(self.gradient.vector)
        norm = float(self.gradient.divide_and_clip(max(count, 1) * self.scale, self.settings.clip))
        if not math.isfinite(loss):
            raise _not_finite("loss", loss / max(count, 1), update)
        if math.isfinite(norm):
            self.optimizer.step()
        self._rescale(norm, update)
        return StepStatistics(loss / max(count, 1), norm, count, rate)

    def _losses(self, batches: list[list[int]]) -> tuple[float, int]:
        """Compute the gradient of the summed loss; returns this sum and the count, over all processes."""
        self.gradient.vector.zero_()
        total, dtype = torch.zeros(2, device=self.processes.device), getattr(torch, self.settings.precision)
        kind = self.processes.device.type
        autocast: Any = nullcontext() if dtype is torch.float32 else torch.autocast(kind, dtype)
        for batch in batches:
            if rows := self.processes.share(batch):
                with autocast:
                    loss, count = self.task.loss(self.model, self.processes.to_device(self.task.batch(rows)))
                (loss * self.scale).backward()
                total += torch.stack([loss.detach().float(), torch.full_like(loss.detach(), count, dtype=torch.float32)])
        loss, count = self.processes.sum(total).tolist()
        return loss, round(count)

    def _rescale(self, norm: float, update: int) -> None:
        """Halve a float16 loss's scale after an overflow, whose step was skipped; double it after many updates without one."""
        self.steady += 1
        if not math.isfinite(norm):
            self.scale, self.steady = self.scale / 2, 0
            if self.scale < 1:
                raise _not_finite("gradient", norm, update)
        elif self.settings.precision == "float16" and self.steady >= _GROWTH_INTERVAL:
            self.scale, self.steady = self.scale * 2, 0

    def optimizer_state(self) -> dict[str, Tensor]:
        """AdamW's state, as tensors named after the parameters."""
        state = self.optimizer.state
        return {
            f"{name}/{key}": tensor.cpu()
            for name, parameter in self.model.named_parameters()
            for key, tensor in state.get(parameter, {}).items()
        }

    def load_optimizer_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore AdamW's state."""
        for name, parameter in self.model.named_parameters():
            state = {key.removeprefix(f"{name}/"): tensor for key, tensor in tensors.items() if key.startswith(f"{name}/")}
            if state:
                self.optimizer.state[parameter] = {key: moment.to(parameter.device) for key, moment in state.items()}


def adamw(model: nn.Module, settings: Training) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019); weights decay in matrices, not in biases and norms."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [weight for weight in parameters if weight.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in parameters if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], betas=settings.betas, fused=True)


def _not_finite(what: str, value: float, update: int) -> InputError:
    fix = "lower training.learning_rate, raise training.warmup, or set training.clip; the last checkpoint is from before this update"
    return InputError(f"a finite {what} at every update", got=f"{value} at update {update}", fix=fix)
