"""Other libraries' models on overt's kernels.

`huggingface()` enters overt into transformers' registries under the name "overt". A model that asks for it attends by
`overt.attend`: masks go as one run of keys a query, two numbers in the place of Q × K; grouped heads are not copied; soft caps, sinks,
position biases and dropout are those of the model.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.errors import InputError, MissingExtra
from overt.masks import Causal, Dense, Ranges
from overt.mechanism import attend
from overt.normalizers import Softmax
from overt.scores import Dot
from overt.trace import steps

__all__ = ["huggingface"]

NAME = "overt"
_AT_ONCE = 2**22  # numbers of a mask that are looked at together


def huggingface() -> str:
    """Let Hugging Face models attend by overt: afterwards `attn_implementation="overt"` is known to transformers.

    For models whose attention goes through transformers' registry, as most do; of one that writes its attention out itself, such as
    Bloom, the first pass is an InputError. The outputs are those of "eager", with which they share the model's own scale, mask, soft
    cap, sinks and position bias; queries that may attend to nothing get zeros. Returns the name. Calling it again changes nothing.

    MissingExtra says how to install transformers where it is not there.

    >>> import transformers
    >>> settings = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9}
    >>> config = transformers.GPT2Config(attn_implementation=huggingface(), **settings)
    >>> model = transformers.GPT2Model(config).eval()
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 16])

    A model that is there already changes over with `model.set_attn_implementation("overt")`.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, __version__, masking_utils
    except ImportError as error:
        raise MissingExtra("overt.backends.huggingface", needs="transformers", extra="text") from error
    if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        rule = "overt.backends.huggingface reads masks as transformers describes them from 5.4 on"
        raise InputError(rule, got=f"transformers {__version__}", cure='run: pip install "transformers>=5.4"')
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, runs)
    return NAME


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **asked: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as transformers asks: query (B, H, Q, D), key and value (B, Hk, K, D) to (B, Q, H, D), and the weights if asked for."""
    if asked.get("cache") is not None:
        raise InputError(
            "overt attends to keys and values that lie in one tensor",
            got="a paged cache, as continuous batching keeps it",
            cure='choose attn_implementation="paged|eager" for it',
        )
    mask, added = _read(attention_mask, key.shape[2])
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1:
        mask = Causal(offset=0)  # a cache that is longer than what it holds is filled from its start
    biases = [bias for bias in (position_bias, added) if bias is not None]
    given: dict[str, Any] = {
        "score": Dot(scaling, softcap),
        "mask": mask,
        "bias": sum(biases[1:], biases[0]) if biases else None,
        "normalizer": Softmax(sink=None if s_aux is None else s_aux.flatten().to(query.dtype)),
    }
    output = attend(query, key, value, **given, dropout=dropout)  # (B, H, Q, D)
    weights = steps(query, key, value, **given).weights if asked.get("output_attentions") else None
    return output.transpose(1, 2).contiguous(), weights


def _read(mask: Tensor | None, keys: int) -> tuple[Any, Tensor | None]:
    """What transformers hands on as a mask: the runs that it had from us, or a tensor (…, Q, K) that somebody made. Mask and bias."""
    if mask is None:
        return None, None
    if mask.dtype == torch.bool:
        return Dense(mask[..., :keys]), None
    if mask.is_floating_point():
        return None, mask[..., :keys]
    low, high = mask[:, :1, :, 0], mask[:, 1:, :, 0]  # (B, 1, Q)
    return Ranges(low, high), None


def runs(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    config: Any = None,
    **_: Any,
) -> Tensor | None:
    """The mask that transformers describes, as the first key of each query and the one after its last: (B or 1, 2, Q, 1) integers.

    Where a query's keys are not one run, it is a bool tensor (B, 1, Q, K); None where all may attend to all.
    """
    from transformers import masking_utils

    _refuse_own_attention(config)
    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    padding = _padding(attention_mask, kv_length, kv_offset)
    found = _told(function, masking_utils)
    plain = padding is None or not torch.compiler.is_compiling()
    if found is not None and plain and (padding is None or _is_one_run(padding)):
        if allow_is_bidirectional_skip and found == (None, None) and (padding is None or bool(padding.all())):
            return None
        rows = torch.arange(q_length, device=device) + q_offset - kv_offset  # (Q,)
        return _joined(found, rows, kv_length, padding)

    def block(first: int, size: int) -> Tensor:
        return masking_utils.sdpa_mask(
            batch_size, size, kv_length, q_offset + first, kv_offset, function, attention_mask,  # type: ignore[arg-type]
            allow_is_causal_skip=False, use_vmap=use_vmap, device=device,
        )  # type: ignore[return-value]  # fmt: skip

    return _looked_at(block, q_length, kv_length)


def _refuse_own_attention(config: Any) -> None:
    """Refuse a model whose source knows no registry: it takes the name, and would read our runs as its own kind of mask."""
    source = sys.modules.get(type(config).__module__.replace("configuration_", "modeling_"))
    known = config is None or source is None or hasattr(source, "ALL_ATTENTION_FUNCTIONS")
    if known or getattr(config, "sub_configs", None):
        return
    raise InputError(
        "overt serves models whose attention goes through transformers' registry",
        got=f"one of {type(config).__name__}, which writes its attention out itself",
        cure='choose attn_implementation="eager" for it',
    )


def _padding(attention_mask: Tensor | None, keys: int, offset: int) -> Tensor | None:
    """Which keys are no padding, (B, K)."""
    if attention_mask is None:
        return None
    missing = keys + offset - attention_mask.shape[-1]
    padded = torch.nn.functional.pad(attention_mask, (0, missing)) if missing > 0 else attention_mask
    return padded[:, offset : offset + keys].bool()


# How far a query sees: the keys from `before` ones before it to `after` ones after it; None: as far as there are any.
Reach = tuple[int | None, int | None]


def _told(function: Callable, masking: Any) -> Reach | None:
    """What a mask function of transformers' own says of every query; None where it says anything else."""
    if function is masking.bidirectional_mask_function:
        return None, None
    if function is masking.causal_mask_function:
        return None, 0
    held = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True))
    made = function.__qualname__
    if made.startswith("sliding_window_overlay."):
        return held["sliding_window"] - 1, None
    if made.startswith("sliding_window_bidirectional_overlay."):
        return held["sliding_window"], held["sliding_window"]
    if not made.startswith("and_masks."):
        return None
    parts = [_told(part, masking) for part in held["mask_functions"]]
    if any(part is None for part in parts):
        return None
    sides = zip(*(part for part in parts if part is not None), strict=True)
    before, after = (min((side for side in each if side is not None), default=None) for each in sides)
    return before, after


def _is_one_run(padding: Tensor) -> bool:
    """Whether each row's keys that are no padding stand beside each other."""
    begins = (padding[:, 1:] & ~padding[:, :-1]).sum(-1) + padding[:, :1].sum(-1)
    return bool((begins <= 1).all())


def _joined(reach: Reach, rows: Tensor, keys: int, padding: Tensor | None) -> Tensor:
    before, after = reach
    low = torch.zeros_like(rows) if before is None else rows - before
    high = torch.full_like(rows, keys) if after is None else rows + after + 1
    low, high = low.clamp(0, keys)[None], high.clamp(0, keys)[None]  # (1, Q)
    if padding is not None:
        first = padding.int().argmax(-1, keepdim=True)  # (B, 1)
        low, high = torch.maximum(low, first), torch.minimum(high, first + padding.sum(-1, keepdim=True))
    return torch.stack([low, torch.maximum(low, high)], dim=1)[..., None]  # (B or 1, 2, Q, 1)


def _looked_at(block: Callable[[int, int], Tensor], queries: int, keys: int) -> Tensor:
    """The runs of a mask that must be looked at, some rows at a time; the mask itself where there are none."""
    size = max(1, _AT_ONCE // max(keys, 1))
    edges = []
    for first in range(0, queries, size):
        allowed = block(first, min(size, queries - first))  # (B, 1, rows, K)
        low = allowed.int().argmax(-1)
        high = low + allowed.sum(-1)
        places = torch.arange(keys, device=allowed.device)
        if not torch.equal(allowed, (low[..., None] <= places) & (places < high[..., None])):
            return block(0, queries)
        edges.append(torch.cat([low, high], dim=1))  # (B, 2, rows)
    return torch.cat(edges, dim=-1)[..., None]
