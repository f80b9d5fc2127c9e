"""Catches the attention of Hugging Face models in functions of transformers' registry of attention functions.

Each attention module gets a function by its name ("eager", "sdpa", …) from the registry and calls it with query, key, value and all
options of the attention. During a recording the registry returns the same function with a hook before and after it; names,
configurations and mask functions stay unchanged. The recording holds the functions that run inside; comparing them with the arguments
shows which options the function ignored.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import sum_of
from overt.attention.check import aligned_right
from overt.attention.kernels.call import Call
from overt.attention.masks import Causal, as_mask
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.errors import OvertError
from overt.lens.capture.barrier import guarded
from overt.lens.capture.ranges import MaskReader, Ranges
from overt.lens.capture.watching import Patch, at_work, patch
from overt.lens.capture.written_out.weighted import WeightedSum, agrees, disagreement

_ORDER = ("module", "query", "key", "value", "attention_mask")


@dataclass(frozen=True, eq=False)
class RegistryEntry:
    """The arguments of one call of a function of the registry."""

    name: str
    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    arguments: dict[str, Any]

    @classmethod
    def from_arguments(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "RegistryEntry | None":
        """The entry, or None if query, key and value are not tensors (B, H, length, features)."""
        arguments = dict(zip(_ORDER, args, strict=False)) | kwargs
        tensors = [arguments.get(name) for name in ("query", "key", "value")]
        if not all(isinstance(tensor, Tensor) and tensor.ndim == 4 for tensor in tensors):
            return None
        return cls(name, arguments.get("module"), *tensors, arguments.get("attention_mask"), arguments)  # type: ignore[arg-type]

    @property
    def source(self) -> str:
        """The place where the call was caught."""
        return f'transformers "{self.name}"'

    @property
    def softcap(self) -> float | None:
        """The bound on the scores that the call, its module or the configuration sets."""
        holders = (self.module, getattr(self.module, "config", None))
        values = [getattr(holder, "attn_logit_softcapping", None) for holder in holders]
        return next((part for part in (self.arguments.get("softcap"), *values) if part is not None), None)

    @property
    def sinks(self) -> Tensor | None:
        """One learned logit per head that takes weight from all keys."""
        return next((element for name in ("s_aux", "sinks") if isinstance(element := self.arguments.get(name), Tensor)), None)

    @property
    def position_bias(self) -> Tensor | None:
        """The bias of the scores."""
        return self.arguments.get("position_bias")

    def written(self, mixed: WeightedSum, masks: MaskReader) -> Call | None:
        """The call of these arguments, if its weights are the ones that the model multiplied with its values.

        A function may ignore a softcap or a sink, so this takes the closest of the calls with and without them.
        """
        value = _input_repeated(mixed.value, self.value)
        if value is None or mixed.weights.shape[:-1] != self.query.shape[:-1]:
            return None
        softcaps, sinks = ([part] if part is None else [part, None] for part in (self.softcap, self.sinks))
        calls = []
        for parts in product(softcaps, sinks):
            # Shapes that do not fit mean other scores, or a sink with more than one number per head.
            with suppress(OvertError, RuntimeError):
                call = self._call(value, *parts, masks)
                calls.append((disagreement(call, mixed.weights), len(calls), call))
        nearest = min(calls)[2] if calls else None
        return nearest if nearest is not None and agrees(nearest, mixed.weights) else None

    def _call(self, value: Tensor, softcap: float | None, sinks: Tensor | None, masks: MaskReader) -> Call:
        mask, bias = self.mask, aligned_right(self.position_bias, self.query.ndim)
        if isinstance(mask, Tensor):
            read = masks.read(mask[..., : self.key.shape[-2]])
            mask, added = (aligned_right(text, self.query.ndim) for text in read)  # as torch broadcasts it
            bias = sum_of(bias, added)
        score, normalizer = (
            Dot(self.arguments.get("scaling"), softcap),
            Softmax(sink=None if sinks is None else sinks.flatten()),
        )
        return Call.checked(self.query, self.key, value, score=score, mask=mask, bias=bias, normalizer=normalizer)

    def fused(self, arguments: dict[str, Any], output: Tensor) -> tuple[dict[str, Any], Tensor]:
        """The arguments of torch's function with one row for each query head and one key head for each group.

        For one query token transformers passes the heads of a group as the rows of their key head; otherwise it repeats key and
        value.
        """
        arguments = dict(arguments)
        heads, keys = self.query.shape[1], self.key.shape[1]
        packed = (self.query.shape[0], keys, heads // max(keys, 1), self.query.shape[3])
        if heads != keys and self.query.shape[2] == 1 and arguments["query"].shape == packed:
            arguments["query"], output = (tensor.reshape(*self.query.shape[:3], -1) for tensor in (arguments["query"], output))
            mask = arguments["attn_mask"]
            if mask is not None and mask.ndim == 4 and mask.shape[1] != 1:
                arguments["attn_mask"] = mask.reshape(mask.shape[0], heads, 1, mask.shape[-1])
        for name, tensor in (("key", self.key), ("value", self.value)):
            repeated = _input_repeated(arguments[name], tensor)
            arguments[name] = arguments[name] if repeated is None else repeated
        return arguments, output

    def separated(self, mask: Tensor | None, masks: MaskReader) -> tuple[Any, Tensor] | None:
        """Mask and bias, each shared by the layers, whose sum this tensor is; None if it is no such sum."""
        bias = self.position_bias
        if bias is None or mask is None or not mask.is_floating_point() or bias.dtype != mask.dtype:
            return None
        allowed_mask, row_bias = (None, None) if self.mask is None else masks.read(self.mask[..., : mask.shape[-1]])
        if row_bias is not None:
            return None
        lowest = torch.finfo(mask.dtype).min
        for item in [None, Causal(offset=0)] if allowed_mask is None else [as_mask(allowed_mask)]:
            positions = [torch.arange(size, device=mask.device) for size in mask.shape[-2:]]
            allowed = None if item is None else item.block(*positions)
            if allowed is not None and not bool(allowed.any(-1).all()):
                continue  # the lowest number on all scores of a query makes them equal
            joined = bias if allowed is None else torch.where(allowed, bias, lowest)
            if torch.equal(joined.expand(mask.shape), mask):
                return item, bias
        return None

    def notes(self, call: Call, masks: MaskReader) -> tuple[str, ...]:
        """The options that the call ignored."""
        left_out = []
        if self.softcap is not None and getattr(call.score, "softcap", None) is None:
            left_out.append(f"a softcap of {self.softcap} on the scores")
        if self.sinks is not None and getattr(call.normalizer, "sink", None) is None:
            left_out.append("a sink in every head's softmax")
        if self.position_bias is not None and call.bias is None:
            left_out.append("a position bias")
        window = self.arguments.get("sliding_window")
        both_sides = getattr(self.module, "is_causal", True) is False
        if isinstance(window, int) and self._reach(call, masks) > (2 * window + 1 if both_sides else window):
            left_out.append(f"a sliding window of {window} keys")
        return tuple(f'as run: the model sets {name}, and its path "{self.name}" ignores that' for name in left_out)

    def _reach(self, call: Call, masks: MaskReader) -> int:
        """The largest number of keys, from the first to the last, that a query may attend to; 0 if the mask is not in ranges."""
        if not isinstance(self.mask, Tensor):
            return call.keys
        read = masks.read(self.mask)
        if not isinstance(read.mask, Ranges) or not read.mask.low.numel():
            return 0
        reach = read.mask.high - read.mask.low
        return int((reach if read.bias is None else torch.where(read.bias[..., 0] == 0, reach, 0)).max())


def registry_patches() -> list[Patch]:
    """The patch that hooks transformers' registry, if transformers is imported."""
    registry = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    return [patch(registry, "get_interface", _noting)] if hasattr(registry, "get_interface") else []


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_interface(self, attn_implementation, default):
        function, catcher = original(self, attn_implementation, default), at_work()
        noted = None if catcher is None else guarded(catcher.failed, _noted, function, attn_implementation, catcher)
        return function if noted is None else noted

    return get_interface


def _noted(function: Callable[..., Any], name: Any, catcher: Any) -> Callable[..., Any] | None:
    """The function with a hook before and after it; None for overt's own functions."""
    if getattr(function, "__module__", "").split(".")[:2] == ["overt", "integrations"]:
        return None

    @functools.wraps(function)
    def noted(*args, **kwargs):
        entry = guarded(catcher.failed, catcher.enter, str(name), args, kwargs)
        done = False
        try:
            output = function(*args, **kwargs)
            done = True
            return output
        finally:
            if entry is not None:
                guarded(catcher.failed, catcher.leave, entry, done)

    return noted


def _input_repeated(used: Tensor, inputs: Tensor) -> Tensor | None:
    """The used positions of the key or value in the call's arguments, if its heads were repeated; else None."""
    original = inputs[..., : used.shape[-2], :]
    if used.shape[0] != original.shape[0] or used.shape[2:] != original.shape[2:] or used.shape[1] % original.shape[1]:
        return None
    groups = used.unflatten(1, (original.shape[1], -1))  # (B, Hk, H/Hk, K, E)
    return original if torch.equal(groups, original[:, :, None].expand(groups.shape)) else None
