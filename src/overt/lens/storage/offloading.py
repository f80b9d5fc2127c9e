"""Where recorded tensors are stored: on the CPU or in files."""

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

from overt.drawing.numbers import in_bytes
from overt.errors import InputError, needed_by
from overt.files import remedy, unwritable
from overt.lens.captured import Captured
from overt.lens.storage.plain_data import plain, restored
from overt.lens.storage.tensor_cache import TensorCache, unexpanded

_LESS = 'choose another folder with TMPDIR, or record less: keep="summary", layers=[…] or heads=[…]'


class OnCpu:
    """Moves recorded tensors to the CPU."""

    def __init__(self):
        self._cache = TensorCache()

    def store(self, call: Captured) -> Captured:
        """The call with every tensor on the CPU; tensors already there are not copied."""
        leaves: list[Any] = []

        def put(leaf: Any) -> int:
            leaves.append(leaf)
            return len(leaves) - 1

        data = plain(call.frozen(), put)
        if not any(isinstance(leaf, Tensor) and _on_other_device(leaf) for leaf in leaves):
            return call
        moved = [self._cache(leaf, _on_cpu) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return restored(data, moved.__getitem__)


class OnDisk:
    """Writes recorded tensors to files in a private folder, which is removed together with the last call in it."""

    def __init__(self):
        import_safetensors('offload="disk"')
        try:
            self.folder: Path = Path(tempfile.mkdtemp(prefix="overt-recording-"))
        except OSError as error:
            raise unwritable(tempfile.gettempdir(), error, remedy(error, _LESS)) from error
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._cache, self._numbers, self._objects = TensorCache(), count(), {}

    @property
    def free(self) -> int:
        """The free bytes of the folder's disk."""
        return shutil.disk_usage(self.folder).free

    def refusal(self, needed: int, recorded: int) -> InputError:
        """The error for a call that needs more bytes than the disk has free."""
        got = f"{in_bytes(self.free)} for a call of {in_bytes(needed)}, after {in_bytes(recorded)} for others"
        return InputError(f"enough free disk space in {self.folder.parent}", got=got, fix=f"free disk space, {_LESS}")

    def store(self, call: Captured) -> "Offloaded":
        """The call with its tensors in files."""
        return Offloaded(**call.facts, data=plain(call.frozen(), self._put), store=self, size=call.bytes)

    def get(self, name: Any) -> Any:
        """The value stored under a name: a tensor is a view of its file, read at first use."""
        if isinstance(name, str):
            return self._objects[name]
        file, shape = name
        with import_safetensors().safe_open(self.folder / file, "pt") as opened:
            return opened.get_tensor("tensor").expand(shape)

    def _put(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self._cache(leaf, self._write)
        name = f"object {next(self._numbers)}"
        self._objects[name] = leaf
        return name

    def _write(self, tensor: Tensor) -> tuple[str, list[int]]:
        file = f"{next(self._numbers)}.safetensors"
        try:
            write_tensors({"tensor": unexpanded(tensor).cpu().contiguous()}, self.folder / file)
        except OSError as error:
            (self.folder / file).unlink(missing_ok=True)  # the disk is full and the file incomplete
            raise unwritable(self.folder, error, remedy(error, _LESS)) from error
        return file, list(tensor.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Offloaded(Captured):
    """A call whose tensors are in files."""

    data: Any
    store: OnDisk
    size: int

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return self.size

    def opened(self) -> Captured:
        """The call with its tensors as views of their files."""
        return restored(self.data, self.store.get)


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file. Raises OSError if the system refuses, for example because the disk is full."""
    files = import_safetensors()
    try:
        files.torch.save_file(tensors, path, metadata=metadata)
    except files.SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def import_safetensors(what: str = "a recording in files") -> Any:
    """The package safetensors. Raises MissingExtra, which says how to install it."""
    with needed_by(what, "text"):
        import safetensors.torch
    return safetensors


def _on_other_device(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


def _on_cpu(tensor: Tensor) -> Tensor:
    return unexpanded(tensor).to("cpu").expand(tensor.shape)
