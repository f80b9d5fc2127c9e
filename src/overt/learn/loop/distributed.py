"""Training on several processes: each process's rows, and sums over all processes."""

import os
from typing import Any

import torch
from torch import Tensor

from overt.errors import needed_by


class Processes:
    """The processes that `accelerate` or `torchrun` started; one process if neither did.

    The device is the accelerator that torch finds; with ACCELERATE_USE_CPU=1 in the environment it is the CPU.
    """

    def __init__(self):
        with needed_by("overt.learn.train", "train"):
            from accelerate import PartialState
        on_cpu = not torch.accelerator.is_available() or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {
            "1",
            "true",
            "yes",
        }
        state: Any = PartialState(cpu=on_cpu)
        self._state = state
        self.device: torch.device = torch.device("cpu") if on_cpu else state.device
        self.count: int = state.num_processes
        self.rank: int = state.process_index

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and evaluates."""
        return self.rank == 0

    def share(self, rows: list[int]) -> list[int]:
        """The rows of a batch that this process computes: every `count`-th, so that each process has long and short rows."""
        return rows[self.rank :: self.count]

    def to_device(self, batch: Any) -> Any:
        """A batch on this process's device."""
        if self.device.type == "cpu":
            return batch
        from accelerate.utils import send_to_device

        return send_to_device(batch, self.device, non_blocking=True)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place; every process must call it."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, number: float) -> float:
        """The main process's number, in every process."""
        if self.count == 1:
            return number
        return self.sum(torch.tensor(number if self.is_main else 0.0, dtype=torch.float64, device=self.device)).item()

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.count > 1:
            self._state.wait_for_everyone()
