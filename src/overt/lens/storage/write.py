"""A recording as one safetensors file: written on a server, read on a laptop. No pickle, no device, no model."""

import json
import os
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.masks import Dense
from overt.drawing.progress import progress
from overt.errors import InputError
from overt.files import whole
from overt.lens.captured import Captured, CapturedCall, HeadsOfMask
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.storage.joined import RecordedPasses
from overt.lens.storage.offloading import write_tensors
from overt.lens.storage.plain_data import known, plain
from overt.lens.storage.stored_texts import stored_texts
from overt.lens.storage.tensor_cache import TensorCache, unexpanded
from overt.lens.storage.validate import MAX_DEPTH, depth

FORMAT = 3
METADATA = "overt.recording"  # the recording's key in the file's metadata
_MAX_METADATA = 90 * 10**6  # the most bytes of metadata that leave room for the tensors in a readable header


def write(recording: RecordedCalls, calls: RecordedPasses, path: str | os.PathLike[str]) -> None:
    """Write a recording with these calls as one file, whole or not at all; see `Recording.save`."""
    writer = _Writer()
    fields = {
        "format": FORMAT,
        "model": recording.model,
        "passes": recording.pass_count,
        "missing": plain(recording.missing, writer.put),
        "mixing": recording.mixing,
        "refusal": None
        if recording.refusal is None
        else [getattr(recording.refusal, part) for part in ("expected", "got", "fix")],
        "query_tokens": recording.strings.queries,
        "key_tokens": recording.strings.keys,
        "texts": stored_texts(recording.strings.texts, writer.put),
        "calls": [plain(_portable(call.opened().frozen()), writer.put) for call in progress(calls.stored, "saving")],
        "continuations": calls.continuations,
    }
    metadata = json.dumps(fields, allow_nan=False)
    if len(metadata.encode()) > _MAX_METADATA:
        raise InputError(
            "at most 90 MB of names and tokens in a saved recording",
            got=f"more of them for {len(calls.stored)} calls",
            fix="record fewer layers with layers=[…], or fewer passes",
        )
    with whole(path) as temporary:
        write_tensors(writer.tensors, temporary, {METADATA: metadata})


class _Writer:
    """Collects the tensors of a recording by name, each once."""

    def __init__(self):
        self.tensors: dict[str, Tensor] = {}
        self._cache = TensorCache()
        self._storages: set[int] = set()

    def put(self, leaf: Any) -> list[Any]:
        """The name under which a tensor is written, and its shape."""
        if not isinstance(leaf, Tensor):
            raise InputError(
                "tensors and overt's own scores, biases and normalizers, because a saved recording holds no code",
                got=f"{getattr(leaf, '__name__', type(leaf).__name__)}, which is the caller's own",
                fix='use one of overt.scores, overt.biases or overt.normalizers, or record with keep="summary"',
            )
        return [self._cache(leaf, self._name), list(leaf.shape)]

    def _name(self, tensor: Tensor) -> str:
        name = str(len(self.tensors))
        tensor = unexpanded(tensor).cpu().contiguous()
        # safetensors refuses two names for the same memory.
        storage = tensor.untyped_storage()._cdata
        self.tensors[name] = tensor.clone() if storage in self._storages else tensor
        self._storages.add(storage)
        return name


def _portable(call: Captured) -> Captured:
    """The call with a custom mask as its bool tensor, wrapped so that the kernels still treat it as a custom mask.

    Computations then take the same path as before saving, so their results are equal to the bit.
    """
    if isinstance(call, CapturedCall) and max(depth(call.call.mask), depth(call.call.bias)) > MAX_DEPTH:
        got, fix = f"more levels in {call.layer}", "pass them as one tensor"
        raise InputError(f"a mask or bias with at most {MAX_DEPTH} levels of nesting, to be saved", got=got, fix=fix)
    if not isinstance(call, CapturedCall) or call.call.mask is None or known(call.call.mask):
        return call
    rows, keys = (torch.arange(length, device=call.call.query.device) for length in (call.queries, call.keys))
    dense = Dense(call.call.mask.block(rows, keys))
    return replace(call, call=replace(call.call, mask=HeadsOfMask(dense, tuple(range(len(call.copies))), len(call.copies))))
