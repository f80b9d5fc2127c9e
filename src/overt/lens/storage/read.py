"""Read a recording from a safetensors file; no code from the file is run."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from overt.errors import InputError
from overt.lens.recording import Recording
from overt.lens.storage.declared_sizes import stored_tensors
from overt.lens.storage.field_kinds import checked
from overt.lens.storage.joined import RecordedPasses
from overt.lens.storage.offloading import import_safetensors
from overt.lens.storage.plain_data import NotRegistered, restored
from overt.lens.storage.stored_texts import restored_texts
from overt.lens.storage.validate import checked_call, checked_continuation
from overt.lens.storage.write import FORMAT, METADATA
from overt.lens.tokens import Tokens
from overt.reading import parse_json, reason

_READABLE = (2, FORMAT)  # the formats that `load` accepts; in format 2 no call continues another
_MAX_FORMAT = 1000
_MAX_EMPTY_PASSES = 2**16  # the most passes without a recorded call that a file may declare at its end
# _ERRORS_OF_BAD_DATA: exceptions from code that gets data of another kind, size or shape than it expects.
_ERRORS_OF_BAD_DATA = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    OSError,
)


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording that `Recording.save` wrote: its results equal those of the saved recording to the bit.

    Tensors are views of the file, read at first use, on the CPU and in their own dtype. No code in the file is run. Raises
    InputError for a file that is damaged, is not a recording, or was written by a newer overt.

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
    files = import_safetensors("overt.lens.load")
    if not os.path.isfile(path):
        raise InputError("a file that recording.save wrote", got=f"{path}, which is not a file", fix="check the path")
    saved, recording = None, None
    try:
        with files.safe_open(path, "pt") as opened:
            saved = parse_json((opened.metadata() or {}).get(METADATA, "null"))
            if saved is not None and _format(saved) in _READABLE:
                recording = _recording(saved, opened.get_tensor)
    except NotRegistered:
        raise
    except (files.SafetensorError, *_ERRORS_OF_BAD_DATA) as error:
        fix = "save it again: the file is damaged"
        raise InputError(f"a recording in {path}", got=f"a file that cannot be read: {reason(error)}", fix=fix) from error
    if saved is None:
        got = f"{path}, a safetensors file without one"
        raise InputError("a file that holds a recording", got=got, fix="pass a file that recording.save wrote")
    if recording is None:
        newer = saved["format"] > FORMAT
        raise InputError(
            f"a recording of format {FORMAT}",
            got=f"format {saved['format']}, written by {'a newer' if newer else 'an older'} overt",
            fix="update overt: pip install --upgrade overt" if newer else "record the model and save it again",
        )
    recording.file = Path(path).absolute()
    return recording


def _format(saved: dict[str, Any]) -> int:
    if type(saved["format"]) is not int or not 1 <= saved["format"] < _MAX_FORMAT:
        raise ValueError("its format is not a valid number")
    return saved["format"]


def _recording(saved: dict[str, Any], tensor: Callable[[str], Tensor]) -> Recording:
    get = stored_tensors(tensor)
    model, pass_count, missing, mixing = saved["model"], saved["passes"], restored(saved["missing"], get), saved["mixing"]
    names = (model, *(text for name, why in missing for text in (name, why)), *mixing)
    named = isinstance(mixing, list) and all(isinstance(name, str) for name in names)
    if not named or type(pass_count) is not int:
        raise TypeError("its names or its number of passes are of another type")
    strings = Tokens.from_strings(saved["query_tokens"], saved["key_tokens"], restored_texts(saved.get("texts"), get))
    calls = RecordedPasses()
    for call, continuation in zip(saved["calls"], saved.get("continuations") or [None] * len(saved["calls"]), strict=True):
        continues = None if continuation is None else checked_continuation(continuation, calls)
        calls.append(checked_call(restored(call, get, checked), calls, continues), continues)
    last = max((call.pass_index for call in calls.stored), default=-1)
    if not last < pass_count <= last + _MAX_EMPTY_PASSES:
        raise ValueError(f"its last call is of pass {last}, and it has {pass_count} passes")
    refusal = _refusal(saved.get("refusal"))
    return Recording(
        model, recorded=calls, missing=missing, strings=strings, pass_count=pass_count, mixing=mixing, refusal=refusal
    )


def _refusal(parts: Any) -> InputError | None:
    """The reason why nothing was recorded; None if there are calls, or if an older overt wrote the file."""
    if parts is None:
        return None
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
        raise TypeError("the reason why nothing was recorded is no sentence")
    return InputError(*parts)
