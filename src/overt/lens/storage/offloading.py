"""Where the copies of a recorded call go: they stay where the model runs, move to the CPU, or into files."""

import os
import re
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from overt.errors import MissingExtra
from overt.files import unwritable
from overt.lens.captured import Captured, TensorCache
from overt.lens.storage.plain_data import plain, restored

_CURE = 'make room there, name a larger disk with TMPDIR, or record with offload="cpu"'


class OnCpu:
    """Moves the copies to the CPU; what is there already stays as it is."""

    def __init__(self):
        self._once = TensorCache()

    def take(self, call: Captured) -> Captured:
        """The same call with every tensor on the CPU."""
        held: list[Any] = []

        def put(leaf: Any) -> int:
            held.append(leaf)
            return len(held) - 1

        data = plain(call.frozen(), put)
        if not any(isinstance(leaf, Tensor) and _elsewhere(leaf) for leaf in held):
            return call
        moved = [self._once(leaf, _on_cpu) if isinstance(leaf, Tensor) else leaf for leaf in held]
        return restored(data, moved.__getitem__)


class OnDisk:
    """Writes the copies to files in a private folder, which is removed with the last call that is in it."""

    def __init__(self):
        tensor_files('offload="disk"')
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="overt-recording-"))
        except OSError as error:
            raise unwritable(tempfile.gettempdir(), error, _CURE) from error
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._once, self._numbers, self._objects = TensorCache(), count(), {}

    @property
    def free(self) -> int:
        """Bytes that the folder's disk has left."""
        return shutil.disk_usage(self.folder).free

    def take(self, call: Captured) -> "Offloaded":
        """The same call, its tensors in files."""
        return Offloaded(**call.facts, data=plain(call.frozen(), self._put), store=self, size=call.bytes)

    def get(self, name: Any) -> Any:
        """What was put: a tensor as a view of its file, which is read when, and as far as, it is looked at."""
        if isinstance(name, str):
            return self._objects[name]
        file, shape = name
        with tensor_files().safe_open(self.folder / file, "pt") as opened:
            return opened.get_tensor("tensor").expand(shape)

    def _put(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self._once(leaf, self._write)
        name = f"object {next(self._numbers)}"
        self._objects[name] = leaf
        return name

    def _write(self, tensor: Tensor) -> tuple[str, list[int]]:
        file = f"{next(self._numbers)}.safetensors"
        try:
            write_tensors({"tensor": unexpanded(tensor).cpu().contiguous()}, self.folder / file)
        except OSError as error:
            (self.folder / file).unlink(missing_ok=True)  # half a file on a full disk
            raise unwritable(self.folder, error, _CURE) from error
        return file, list(tensor.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Offloaded(Captured):
    """A call whose tensors are in files."""

    data: Any
    store: OnDisk
    size: int

    @property
    def bytes(self):
        """What the files take."""
        return self.size

    def opened(self):
        """The call, its tensors as views of their files."""
        return restored(self.data, self.store.get)


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError where the system refuses, such as for a full disk, as any other writer does."""
    files = tensor_files()
    try:
        files.torch.save_file(tensors, path, metadata=metadata)
    except files.SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def tensor_files(what: str = "a recording in files") -> Any:
    """The package safetensors, or an error that says how to get it."""
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtra(what, needs="safetensors", extra="text") from error
    return safetensors


def unexpanded(tensor: Tensor) -> Tensor:
    """The tensor without what it repeats: dimensions of stride 0 cut to 1."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _elsewhere(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


def _on_cpu(tensor: Tensor) -> Tensor:
    return unexpanded(tensor).to("cpu").expand(tensor.shape)
