"""A caller's scores, masks and normalizers in a Hugging Face model: pieces that replace those of its attention."""

import threading
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.call import as_normalizer, as_score
from overt.attention.masks import Mask, as_mask
from overt.attention.masks.base import mask_of_block
from overt.attention.scores import Dot
from overt.errors import InputError
from overt.integrations.attention_interface import attention


class _Rows(NamedTuple):
    """The latest causal layer's queries, the position of the first, its keys, and the file of its class, if it declares causality."""

    queries: int
    first: int | Tensor
    keys: int
    source: str


_DECODER = threading.local()  # `rows`: a _Rows


@dataclass(frozen=True, eq=False)
class CustomAttention:
    """An attention function for transformers' AttentionInterface with a caller's score, mask or normalizer.

    A piece of None is the model's. Query, key and value are (B, H, length, D), as the model computed them: rotated, normalized, grouped.

    >>> x = torch.randn(1, 2, 5, 8)
    >>> output, _ = CustomAttention(normalizer="sparsemax")(None, x, x, x, None)
    >>> output.shape
    torch.Size([1, 5, 2, 8])
    """

    score: Any = None
    mask: Any = None
    normalizer: Any = None

    def __post_init__(self) -> None:
        for name, checked in (("score", as_score), ("mask", as_mask), ("normalizer", as_normalizer)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked(getattr(self, name)))

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """Compute attention with transformers' signature."""
        return attention(*args, **kwargs, pieces=self.replaced)

    def replaced(
        self, call: dict[str, Any], model_mask: Any, sliding_window: int | None, causal: bool | None, source: str
    ) -> dict[str, Any]:
        """The arguments of `overt.attend` with these pieces; `model_mask` is the mask that the model passed on. In a layer that is
        not `causal`, queries count from the first one, and in cross-attention from where the decoder is in its text. One that does not
        say whether it is causal is cross-attention if a causal layer of its `source` file has just read as many queries and other keys.

        Raises InputError for a mask in a layer with a sliding window whose cache may have dropped keys, if their number is not known.
        """
        if self.score is not None:
            has_scale = type(self.score) is not Dot or self.score.scale is not None
            call = call | {"score": self.score if has_scale else replace(self.score, scale=call["score"].scale)}
        if self.mask is not None:
            is_causal = not _is_cross(call, source) if causal is None else causal
            first, first_key = _first_positions(call, model_mask, sliding_window, is_causal)
            first = _first_in_text(call, first, is_causal, source if causal else "")
            mask = _at_positions(self.mask, call, first, first_key)
            call = call | {"mask": mask if call["mask"] is None else call["mask"] & mask}
        return call if self.normalizer is None else call | {"normalizer": self.normalizer}


@dataclass(frozen=True, eq=False)
class _LaterRows(Mask):
    """The rows of a bound mask from a position that is known only at run time."""

    inner: Any
    first: Tensor

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The mask at these rows."""
        return self.inner.block(rows + self.first, keys)


def _at_positions(mask: Any, call: dict[str, Any], first: int | Tensor, first_key: int) -> Mask:
    """Restrict a mask over all positions of the text to the queries and keys from these positions on."""
    queries, keys = call["query"].shape[2], first_key + call["key"].shape[2]
    compiling = isinstance(first, Tensor)
    lengths = (keys if compiling else max(keys, first + queries), keys)
    bound = mask.with_offset(0).bind(2, *lengths) if isinstance(mask, Mask) else mask
    if compiling:
        return _LaterRows(bound, first)
    return mask_of_block(bound, slice(first, first + queries), slice(first_key, keys), lengths)


def _is_cross(call: dict[str, Any], source: str) -> bool:
    """Whether the latest causal layer of the same file read as many queries and another number of keys."""
    rows = None if torch.compiler.is_compiling() else getattr(_DECODER, "rows", None)
    sizes = call["query"].shape[2], call["key"].shape[2]
    return rows is not None and (rows.queries, rows.source) == (sizes[0], source) and rows.keys != sizes[1]


def _first_in_text(call: dict[str, Any], first: int | Tensor, causal: bool, source: str) -> int | Tensor:
    """The position of the first query in the text; for cross-attention, from the decoder's preceding layer."""
    queries, keys = call["query"].shape[2], call["key"].shape[2]
    if torch.compiler.is_compiling():
        if not causal and queries == 1 < keys:
            raise InputError(
                "a mask whose positions are known in cross-attention",
                got="one query in a compiled model, which may be of a cache",
                fix="run the model without torch.compile, or with use_cache=False",
            )
        return first
    if causal or queries == keys:
        _DECODER.rows = _Rows(queries, first, keys, source) if causal else None
        return first
    rows = getattr(_DECODER, "rows", None)
    return rows.first if rows is not None and rows.queries == queries else first


def _first_positions(
    call: dict[str, Any], model_mask: Any, sliding_window: int | None, causal: bool
) -> tuple[int | Tensor, int]:
    """The positions of the first query and of the first key in the text: of all tokens, of a cache's last ones, or inside a cache
    with room left; a cache with a sliding window has dropped its first keys.
    """
    queries, keys = call["query"].shape[2], call["key"].shape[2]
    known = getattr(model_mask, "positions", None)
    if known is not None:
        return known
    if queries == keys or (model_mask is None and (call["mask"] is not None or not causal)):
        return 0, 0
    if sliding_window is not None:
        raise InputError(
            "a mask whose positions are known in a layer with a sliding window",
            got=f"{queries} queries and {keys} keys of a cache, in a compiled model or with a mask that the model made itself",
            fix="run the model without torch.compile, or with use_cache=False",
        )
    if not isinstance(model_mask, Tensor):
        return keys - queries, 0
    allowed = model_mask if model_mask.dtype == torch.bool else model_mask > torch.finfo(model_mask.dtype).min
    positions = torch.arange(1, allowed.shape[-1] + 1, device=allowed.device)
    last = (allowed.flatten(0, -2).any(0) * positions).max()  # the position of the last query's own key
    first = last - queries
    return (first if torch.compiler.is_compiling() else int(first)), 0
