"""The processes that train together, each with its share of the rows, and the sum over them."""

import os
from typing import Any

import torch
from torch import Tensor

from overt.errors import MissingExtra


class Processes:
    """What `accelerate` or `torchrun` started: one process where they started none.

    The device is the accelerator that torch finds; ACCELERATE_USE_CPU=1 in the environment keeps to the CPU.
    """

    def __init__(self):
        try:
            from accelerate import PartialState
        except ModuleNotFoundError as error:
            raise MissingExtra("overt.learn.train", needs="accelerate", extra="train") from error
        on_cpu = not torch.accelerator.is_available() or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {
            "1",
            "true",
            "yes",
        }
        state: Any = PartialState(cpu=on_cpu)
        self._state = state
        self.device: torch.device = torch.device("cpu") if on_cpu else state.device
        self.count: int = state.num_processes
        self.number: int = state.process_index

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and evaluates."""
        return self.number == 0

    def share(self, rows: list[int]) -> list[int]:
        """This process's rows of a batch: every `count`-th, so that long and short ones are spread evenly."""
        return rows[self.number :: self.count]

    def move(self, batch: Any) -> Any:
        """A batch on this process's device."""
        if self.device.type == "cpu":
            return batch
        from accelerate.utils import send_to_device

        return send_to_device(batch, self.device, non_blocking=True)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place; every process has to ask for it."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def told(self, number: float) -> float:
        """The first process's number, in every process."""
        if self.count == 1:
            return number
        return self.sum(torch.tensor(number if self.first else 0.0, dtype=torch.float64, device=self.device)).item()

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            self._state.wait_for_everyone()
