"""Hugging Face models, caught where they enter transformers' registry of attention functions.

Each attention module asks the registry for the function of its own name ("eager", "sdpa", …) and calls it with query, key, value
and all that the attention is made of. While a recording is at work the registry hands out the same function, noted on entry;
names, configurations and mask functions stay as they are. What runs inside is the truth, and what an entry was given tells what
that left out.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor

from overt.attention.biases import sum_of
from overt.attention.kernels.call import Call
from overt.attention.masks import Causal, as_mask
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.errors import OvertError
from overt.lens.capture.barrier import beside
from overt.lens.capture.ranges import MasksSeen, Ranges
from overt.lens.capture.watching import Patch, at_work, patch
from overt.lens.capture.written_out.weighted import Mixed, agrees, disagreement

_ORDER = ("module", "query", "key", "value", "attention_mask")


@dataclass(frozen=True, eq=False)
class Entry:
    """What one call of a function of the registry was given."""

    name: str
    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    asked: dict[str, Any]

    @classmethod
    def of(cls, name: str, args: tuple, kwargs: dict[str, Any]) -> "Entry | None":
        """The entry, or None where query, key and value are not tensors (B, H, length, features)."""
        given = dict(zip(_ORDER, args, strict=False)) | kwargs
        tensors = [given.get(each) for each in ("query", "key", "value")]
        if not all(isinstance(tensor, Tensor) and tensor.ndim == 4 for tensor in tensors):
            return None
        return cls(name, given.get("module"), *tensors, given.get("attention_mask"), given)  # type: ignore[arg-type]

    @property
    def source(self) -> str:
        """Where the call was caught."""
        return f'transformers "{self.name}"'

    @property
    def softcap(self) -> float | None:
        """The bound on the scores that the entry, its module or the configuration asks for."""
        held = (self.module, getattr(self.module, "config", None))
        found = [getattr(each, "attn_logit_softcapping", None) for each in held]
        return next((each for each in (self.asked.get("softcap"), *found) if each is not None), None)

    @property
    def sinks(self) -> Tensor | None:
        """One learned logit a head that takes weight from all keys."""
        return next((each for name in ("s_aux", "sinks") if isinstance(each := self.asked.get(name), Tensor)), None)

    @property
    def position_bias(self) -> Tensor | None:
        """What is added to the scores."""
        return self.asked.get("position_bias")

    def written(self, mixed: Mixed, masks: MasksSeen) -> Call | None:
        """The call that the entry asks for, if that gives the weights that the model mixed its values with.

        A function may leave out a softcap or a sink: of the calls with and without, it is the one that comes nearest.
        """
        value = _as_given(mixed.value, self.value)
        if value is None or mixed.weights.shape[:-1] != self.query.shape[:-1]:
            return None
        softcaps, sinks = ([each] if each is None else [each, None] for each in (self.softcap, self.sinks))
        calls = []
        for parts in product(softcaps, sinks):
            # Shapes that do not come together mean that something else was scored, or that a sink is no number for each head.
            with suppress(OvertError, RuntimeError):
                call = self._call(value, *parts, masks)
                calls.append((disagreement(call, mixed.weights), len(calls), call))
        nearest = min(calls)[2] if calls else None
        return nearest if nearest is not None and agrees(nearest, mixed.weights) else None

    def _call(self, value: Tensor, softcap: float | None, sinks: Tensor | None, masks: MasksSeen) -> Call:
        mask, bias = self.mask, self.position_bias
        if isinstance(mask, Tensor):
            mask, added = masks.read(mask[..., : self.key.shape[-2]])
            bias = sum_of(bias, added)
        score, normalizer = Dot(self.asked.get("scaling"), softcap), Softmax(sink=None if sinks is None else sinks.flatten())
        return Call.of(self.query, self.key, value, score=score, mask=mask, bias=bias, normalizer=normalizer)

    def fused(self, given: dict[str, Any], output: Tensor) -> tuple[dict[str, Any], Tensor]:
        """The arguments of torch's function as the entry has them: one row a query head, one key head for each group.

        For one query token transformers lays the heads of a group out as the rows of their key head; otherwise it repeats key
        and value.
        """
        given = dict(given)
        heads, keys = self.query.shape[1], self.key.shape[1]
        packed = (self.query.shape[0], keys, heads // max(keys, 1), self.query.shape[3])
        if heads != keys and self.query.shape[2] == 1 and given["query"].shape == packed:
            given["query"], output = (tensor.reshape(*self.query.shape[:3], -1) for tensor in (given["query"], output))
            mask = given["attn_mask"]
            if mask is not None and mask.ndim == 4 and mask.shape[1] != 1:
                given["attn_mask"] = mask.reshape(mask.shape[0], heads, 1, mask.shape[-1])
        for name, own in (("key", self.key), ("value", self.value)):
            found = _as_given(given[name], own)
            given[name] = given[name] if found is None else found
        return given, output

    def apart(self, mask: Tensor | None, masks: MasksSeen) -> tuple[Any, Tensor] | None:
        """Mask and bias, each shared by the layers, in the place of one tensor that joins them; None where it does not."""
        bias = self.position_bias
        if bias is None or mask is None or not mask.is_floating_point() or bias.dtype != mask.dtype:
            return None
        own, drowned = (None, None) if self.mask is None else masks.read(self.mask[..., : mask.shape[-1]])
        if drowned is not None:
            return None
        floor = torch.finfo(mask.dtype).min
        for each in [None, Causal(offset=0)] if own is None else [as_mask(own)]:
            places = [torch.arange(size, device=mask.device) for size in mask.shape[-2:]]
            allowed = None if each is None else each.block(*places)
            if allowed is not None and not bool(allowed.any(-1).all()):
                continue  # the lowest number drowns all scores of a query that may attend to nothing, and spreads it evenly
            joined = bias if allowed is None else torch.where(allowed, bias, floor)
            if torch.equal(joined.expand(mask.shape), mask):
                return each, bias
        return None

    def notes(self, call: Call, masks: MasksSeen) -> tuple[str, ...]:
        """What was asked for and is not in the call that ran."""
        left_out = []
        if self.softcap is not None and getattr(call.score, "softcap", None) is None:
            left_out.append(f"a softcap of {self.softcap} on the scores")
        if self.sinks is not None and getattr(call.normalizer, "sink", None) is None:
            left_out.append("a sink in every head's softmax")
        if self.position_bias is not None and call.bias is None:
            left_out.append("a position bias")
        window = self.asked.get("sliding_window")
        both_sides = getattr(self.module, "is_causal", True) is False
        if isinstance(window, int) and self._reach(call, masks) > (2 * window + 1 if both_sides else window):
            left_out.append(f"a sliding window of {window} keys")
        return tuple(f'as run: the model asks for {each}, and its path "{self.name}" leaves that out' for each in left_out)

    def _reach(self, call: Call, masks: MasksSeen) -> int:
        """The largest number of keys, from the first to the last, that a query may attend to; 0 where that is not known."""
        if not isinstance(self.mask, Tensor):
            return call.keys
        found = masks.read(self.mask)
        if not isinstance(found.mask, Ranges) or not found.mask.low.numel():
            return 0
        reach = found.mask.high - found.mask.low
        return int((reach if found.bias is None else torch.where(found.bias[..., 0] == 0, reach, 0)).max())


class Following(Protocol):
    """What is told of the entries: a catcher of attention."""

    def enter(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Entry | None:
        """A function of the registry begins."""
        ...

    def leave(self, entry: Entry, done: bool) -> None:
        """It ended, `done` or with an error."""
        ...

    def failed(self, error: Exception) -> None:
        """This went wrong."""
        ...


def registry_patches() -> list[Patch]:
    """What notes the entries of transformers' registry, where it is imported; others pass through."""
    registry = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    return [patch(registry, "get_interface", _noting)] if hasattr(registry, "get_interface") else []


def _noting(original: Callable) -> Callable:
    @functools.wraps(original)
    def get_interface(self, attn_implementation, default):
        function, catcher = original(self, attn_implementation, default), at_work()
        noted = None if catcher is None else beside(catcher.failed, _noted, function, attn_implementation, catcher)
        return function if noted is None else noted

    return get_interface


def _noted(function: Callable, name: Any, catcher: Following) -> Callable | None:
    """The same function, which notes when it begins and ends; overt tells of its own calls."""
    if getattr(function, "__module__", "").split(".")[:2] == ["overt", "integrations"]:
        return None

    @functools.wraps(function)
    def noted(*args, **kwargs):
        entry = beside(catcher.failed, catcher.enter, str(name), args, kwargs)
        done = False
        try:
            output = function(*args, **kwargs)
            done = True
            return output
        finally:
            if entry is not None:
                beside(catcher.failed, catcher.leave, entry, done)

    return noted


def _as_given(used: Tensor, given: Tensor) -> Tensor | None:
    """The entry's own key or value, of as many positions as were used, if what was used repeats its heads; else None."""
    own = given[..., : used.shape[-2], :]
    if used.shape[0] != own.shape[0] or used.shape[2:] != own.shape[2:] or used.shape[1] % own.shape[1]:
        return None
    groups = used.unflatten(1, (own.shape[1], -1))  # (B, Hk, H/Hk, K, E)
    return own if torch.equal(groups, own[:, :, None].expand(groups.shape)) else None
