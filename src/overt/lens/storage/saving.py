"""A recording as one safetensors file: made on a server, looked at on a laptop. No pickle, no device, no model."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from overt.attention.masks import Dense
from overt.errors import InputError
from overt.files import parse_json, reason, whole
from overt.lens.captured import Captured, HeadsOfMask, Kept, Once
from overt.lens.recording import Recording
from overt.lens.storage.declared_sizes import tensors_of
from overt.lens.storage.field_kinds import checked
from overt.lens.storage.offloading import tensor_files, unexpanded, write_tensors
from overt.lens.storage.plain_data import known, plain, restored
from overt.lens.storage.validate import DEEPEST, depth, fitting
from overt.lens.tokens import Tokens

FORMAT = 1
_KEY = "overt.recording"
_LONGEST = 90 * 10**6  # bytes of a header that readers of safetensors accept, with room for the tensors' own

_NO_FORMAT = 1000
_UNSEEN_PASSES = 2**16  # in which no call was kept
_OF_WHAT_DOES_NOT_FIT = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    OSError,
)


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write a recording as one file, whole or not at all; `Recording.save` says more."""
    writer = _Writer()
    held = {
        "format": FORMAT,
        "model": recording.model,
        "turns": recording.turns,
        "missing": plain(recording.missing, writer.put),
        "mixing": recording.mixing,
        "query_tokens": recording.strings.queries,
        "key_tokens": recording.strings.keys,
        "calls": [plain(_portable(call.opened().settled()), writer.put) for call in recording.calls],
    }
    metadata = json.dumps(held, allow_nan=False)
    if len(metadata.encode()) > _LONGEST:
        raise InputError(
            "a recording is saved with at most 90 MB of names and tokens",
            got=f"{len(recording.calls)} calls",
            fix="record fewer with layers=[…], or fewer passes",
        )
    with whole(path) as temporary:
        write_tensors(writer.tensors, temporary, {_KEY: metadata})


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording that `Recording.save` wrote: it answers as the one that was saved did, equal to the bit.

    Tensors are views of the file, read when they are looked at, on the CPU and in their own dtype. Nothing in the file is run. Raises
    InputError for a file that is damaged, from elsewhere, or written by a newer overt.

    >>> import tempfile, pathlib, torch, overt
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "recording.safetensors"
    >>> recording.save(file)
    >>> loaded = overt.lens.load(file)
    >>> torch.equal(loaded[0, 1].weights(), recording[0, 1].weights())
    True
    """
    files = tensor_files("overt.lens.load")
    if not os.path.isfile(path):
        raise InputError("overt.lens.load reads a file", got=f"{path}, which is none", fix="check the path")
    held, found = None, None
    try:
        with files.safe_open(path, "pt") as opened:
            held = parse_json((opened.metadata() or {}).get(_KEY, "null"))
            if held is not None and _format(held) <= FORMAT:
                found = _recording(held, opened.get_tensor)
    except (files.SafetensorError, *_OF_WHAT_DOES_NOT_FIT) as error:
        fix = "save it again: the file is damaged"
        raise InputError(f"{path} cannot be read as a recording", got=reason(error), fix=fix) from error
    if held is None:
        raise InputError(
            f"{path} holds no recording", got="a safetensors file from elsewhere", fix="pass a file that recording.save wrote"
        )
    if found is None:
        raise InputError(
            f"this overt reads recordings of format {FORMAT}",
            got=f"format {held['format']}, written by a newer one",
            fix="update it: pip install --upgrade overt",
        )
    found.file = Path(path).absolute()
    return found


def _format(held: dict[str, Any]) -> int:
    if type(held["format"]) is not int or not 1 <= held["format"] < _NO_FORMAT:
        raise ValueError("its format is no number of one")
    return held["format"]


def _recording(held: dict[str, Any], tensor: Callable[[str], Tensor]) -> Recording:
    get = tensors_of(tensor)
    model, turns, missing = held["model"], held["turns"], restored(held["missing"], get)
    mixing = held.get("mixing", [])  # files from before it was kept have none
    names = (model, *(part for name, why in missing for part in (name, why)), *mixing)
    named = isinstance(mixing, list) and all(isinstance(each, str) for each in names)
    if not named or type(turns) is not int:
        raise TypeError("something else stands where names and passes were saved")
    strings = Tokens.of(held["query_tokens"], held["key_tokens"])
    calls = [fitting(restored(call, get, checked)) for call in held["calls"]]
    last = max((call.turn for call in calls), default=-1)
    if not last < turns <= last + _UNSEEN_PASSES:
        raise ValueError(f"{turns} passes cannot be those of a recording whose last call is of pass {last}")
    return Recording(model, calls=calls, missing=missing, strings=strings, turns=turns, mixing=mixing)


class _Writer:
    """Collects the tensors of a recording under their names, each once."""

    def __init__(self):
        self.tensors: dict[str, Tensor] = {}
        self._once = Once()
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
    if isinstance(call, Kept) and max(depth(call.call.mask), depth(call.call.bias)) > DEEPEST:
        got, fix = f"more of them in {call.layer}", "pass them as one tensor"
        raise InputError(f"a saved mask or bias is made of at most {DEEPEST}, one within another", got=got, fix=fix)
    if not isinstance(call, Kept) or call.call.mask is None or known(call.call.mask):
        return call
    rows, keys = (torch.arange(length, device=call.call.query.device) for length in (call.queries, call.keys))
    made = Dense(call.call.mask.block(rows, keys))
    return replace(call, call=replace(call.call, mask=HeadsOfMask(made, tuple(range(len(call.copies))), len(call.copies))))
