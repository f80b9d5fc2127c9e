"""A recording as one safetensors file: written on a server, read on a laptop. No pickle, no device, no model."""

import json
import os
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.masks import Dense
from overt.errors import InputError
from overt.files import whole
from overt.lens.captured import Captured, CapturedCall, HeadsOfMask
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.storage.offloading import unexpanded, write_tensors
from overt.lens.storage.plain_data import known, plain
from overt.lens.storage.tensor_cache import TensorCache
from overt.lens.storage.validate import MAX_DEPTH, depth

FORMAT = 2
METADATA = "overt.recording"  # the key in the file's metadata under which a recording stands
_MAX_METADATA = 90 * 10**6  # bytes of a header that readers of safetensors accept, with room for the tensors' own


def write(recording: RecordedCalls, path: str | os.PathLike[str]) -> None:
    """Write a recording as one file, whole or not at all; `Recording.save` says more."""
    writer = _Writer()
    held = {
        "format": FORMAT,
        "model": recording.model,
        "passes": recording.pass_count,
        "missing": plain(recording.missing, writer.put),
        "mixing": recording.mixing,
        "query_tokens": recording.strings.queries,
        "key_tokens": recording.strings.keys,
        "calls": [plain(_portable(call.opened().frozen()), writer.put) for call in recording.calls],
    }
    metadata = json.dumps(held, allow_nan=False)
    if len(metadata.encode()) > _MAX_METADATA:
        raise InputError(
            "a recording is saved with at most 90 MB of names and tokens",
            got=f"{len(recording.calls)} calls",
            fix="record fewer with layers=[…], or fewer passes",
        )
    with whole(path) as temporary:
        write_tensors(writer.tensors, temporary, {METADATA: metadata})


class _Writer:
    """Collects the tensors of a recording under their names, each once."""

    def __init__(self):
        self.tensors: dict[str, Tensor] = {}
        self._once = TensorCache()
        self._storages: set[int] = set()

    def put(self, leaf: Any) -> list[Any]:
        """The name under which a tensor is written, and its shape."""
        if not isinstance(leaf, Tensor):
            raise InputError(
                "a saved recording holds tensors and overt's own scores, biases and normalizers, no code",
                got=f"{getattr(leaf, '__name__', type(leaf).__name__)} of the caller's own",
                fix='use one of overt.scores, overt.biases or overt.normalizers, or record with keep="summary"',
            )
        return [self._once(leaf, self._name), list(leaf.shape)]

    def _name(self, tensor: Tensor) -> str:
        name = str(len(self.tensors))
        tensor = unexpanded(tensor).cpu().contiguous()
        # Two names for one memory are refused by safetensors.
        storage = tensor.untyped_storage()._cdata
        self.tensors[name] = tensor.clone() if storage in self._storages else tensor
        self._storages.add(storage)
        return name


def _portable(call: Captured) -> Captured:
    """The call with a mask of the caller's own as the tensor that it makes, in a piece that the kernels do not look into.

    So what is computed of it takes the same path as before, and is the same to the bit.
    """
    if isinstance(call, CapturedCall) and max(depth(call.call.mask), depth(call.call.bias)) > MAX_DEPTH:
        got, fix = f"more of them in {call.layer}", "pass them as one tensor"
        raise InputError(f"a saved mask or bias is made of at most {MAX_DEPTH}, one within another", got=got, fix=fix)
    if not isinstance(call, CapturedCall) or call.call.mask is None or known(call.call.mask):
        return call
    rows, keys = (torch.arange(length, device=call.call.query.device) for length in (call.queries, call.keys))
    made = Dense(call.call.mask.block(rows, keys))
    return replace(call, call=replace(call.call, mask=HeadsOfMask(made, tuple(range(len(call.copies))), len(call.copies))))
