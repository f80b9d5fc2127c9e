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
from overt.learn.loop.gradient import Gradient
from overt.learn.loop.schedule import learning_rate

# A float16 loss is scaled, because small gradients are 0 in float16: a sum over many tokens needs little of it at first.
_SCALE, _STEADY = 256.0, 2000  # and the updates without an overflow after which it is doubled


@dataclass(frozen=True)
class Updated:
    """What an update saw: the mean loss, the gradient's length before clipping, and the count of tokens (or rows)."""

    loss: float
    gradient: float
    count: int
    learning_rate: float


class Updates:
    """A model, its gradient and its optimizer."""

    def __init__(self, model: nn.Module, task: Any, settings: Training, processes: Processes):
        self.model, self.task, self.settings, self.processes = model, task, settings, processes
        self.gradient = Gradient(model)
        self.optimizer = adamw(model, settings)
        self.scale = _SCALE if settings.precision == "float16" else 1.0
        self.steady = 0  # updates since the scale changed

    def __call__(self, update: int, batches: list[list[int]]) -> Updated:
        """Take the step number `update`, from 1."""
        torch.manual_seed(_seed(self.settings.seed, update, self.processes.number))
        rate = learning_rate(update, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, count = self._losses(batches)
        self.processes.sum(self.gradient.vector)
        length = float(self.gradient.divide(max(count, 1) * self.scale, self.settings.clip))
        if not math.isfinite(loss):
            raise _not_finite("loss", loss / max(count, 1), update)
        if math.isfinite(length):
            self.optimizer.step()
        self._rescale(length, update)
        return Updated(loss / max(count, 1), length, count, rate)

    def _losses(self, batches: list[list[int]]) -> tuple[float, int]:
        """Fill the gradient with that of the summed loss; gives this sum and the count, over all processes."""
        self.gradient.vector.zero_()
        total = torch.zeros(2, device=self.processes.device)
        for rows in batches:
            if own := self.processes.share(rows):
                with self._autocast():
                    loss, count = self.task.loss(self.model, self.processes.move(self.task.batch(own)))
                (loss * self.scale).backward()
                total += torch.stack([loss.detach().float(), torch.full_like(loss.detach(), count, dtype=torch.float32)])
        loss, count = self.processes.sum(total).tolist()
        return loss, round(count)

    def _autocast(self) -> Any:
        dtype = getattr(torch, self.settings.precision)
        return nullcontext() if dtype is torch.float32 else torch.autocast(self.processes.device.type, dtype)

    def _rescale(self, length: float, update: int) -> None:
        """Halve the scale of a float16 loss after a gradient that overflowed (its step was left out); double it after many that did not."""
        self.steady += 1
        if not math.isfinite(length):
            self.scale, self.steady = self.scale / 2, 0
            if self.scale < 1:
                raise _not_finite("gradient", length, update)
        elif self.settings.precision == "float16" and self.steady >= _STEADY:
            self.scale, self.steady = self.scale * 2, 0

    def averages(self) -> dict[str, Tensor]:
        """AdamW's state under the parameters' names."""
        state = self.optimizer.state
        return {
            f"{name}/{key}": tensor.cpu()
            for name, parameter in self.model.named_parameters()
            for key, tensor in state.get(parameter, {}).items()
        }

    def take_averages(self, averages: dict[str, Tensor]) -> None:
        """Put AdamW's state back."""
        for name, parameter in self.model.named_parameters():
            held = {key.removeprefix(f"{name}/"): each for key, each in averages.items() if key.startswith(f"{name}/")}
            if held:
                self.optimizer.state[parameter] = {key: each.to(parameter.device) for key, each in held.items()}


def adamw(model: nn.Module, settings: Training) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019); weights decay in matrices, not in biases and norms."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], betas=settings.betas, fused=True)


def _seed(seed: int, update: int, process: int) -> int:
    """A seed of its own for each update and process, so that a run that goes on draws what an unbroken one draws."""
    return int(np.random.SeedSequence([seed, update, process]).generate_state(1, np.uint64)[0])


def _not_finite(what: str, value: float, update: int) -> InputError:
    fix = "lower training.learning_rate, raise training.warmup, or clip; the last checkpoint is from before it"
    return InputError(f"the {what} of every update is a finite number", got=f"{value} at update {update}", fix=fix)
