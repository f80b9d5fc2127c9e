"""The attention function for transformers' AttentionInterface: it converts a model's arguments to a call of `overt.attend`."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.attention.check import aligned_right, describe
from overt.attention.masks import Causal, Dense, Ranges
from overt.attention.masks.convert import from_cu_seqlens
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.attention.trace import steps
from overt.errors import InputError, KindError
from overt.integrations.lazy_mask import LazyMask
from overt.integrations.unused_warning import count_call

# WITHOUT_EFFECT: arguments that do not change attention: already in the mask, the query or the key, or about other outputs.
WITHOUT_EFFECT = frozenset(
    {
        "sliding_window", "position_ids", "cache_position", "position_embeddings", "past_key_values", "use_cache", "layer_idx",
        "max_length_q", "max_length_k", "seq_idx", "deterministic", "labels", "token_type_ids", "num_items_in_batch", "return_dict",
        "output_hidden_states", "output_router_logits",
    }
)  # fmt: skip


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
    sinks: Tensor | None = None,
    indices: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    output_attentions: bool | None = None,
    pieces: Callable[..., dict[str, Any]] | None = None,
    **other_arguments: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers calls it: query (B, H, Q, D), key and value (B, Hk, K, D) → output (B, Q, H, D), and weights.

    Returns None for the weights unless they are requested. Without a mask, every query attends to every key, except with `is_causal`.
    `s_aux` and `sinks` are attention sinks: one logit for each head (H,), or for each head and query (B, H, Q, 1), that takes weight
    and adds nothing to the output. `indices` (B, Q, n) are the keys that a query may attend to, −1 for none; `cu_seq_lens_q` and
    `cu_seq_lens_k` are the starts of packed sequences. Raises InputError for any other argument, except for those that do not change
    attention (`WITHOUT_EFFECT`). `pieces` replaces arguments of `overt.attend`, as `huggingface(score=…)` registers it.

    >>> x = torch.randn(1, 2, 5, 8)
    >>> output, weights = attention(None, x, x, x, None, scaling=0.5, output_attentions=True)
    >>> output.shape, weights.shape
    (torch.Size([1, 5, 2, 8]), torch.Size([1, 2, 5, 5]))
    """
    count_call()
    _check_unsupported(other_arguments)
    mask, bias = mask_and_bias(attention_mask, key)
    if attention_mask is None and is_causal and query.shape[2] > 1:
        mask = Causal(offset=0)  # a static cache is filled from its start
    selected = None if indices is None else _selected_keys(indices, key.shape[2])
    for part in (selected, _packed_sequences(cu_seq_lens_q, cu_seq_lens_k, query, key)):
        mask = part if mask is None else mask if part is None else mask & part
    if position_bias is not None:
        positions: Tensor = aligned_right(position_bias, key.ndim)
        bias = positions if bias is None else positions + bias
    call: dict[str, Any] = {
        "query": query,
        "key": key,
        "value": value,
        "score": Dot(scaling, softcap or None),  # 0 is no softcap
        "mask": mask,
        "bias": bias,
    }
    if pieces is not None:
        causal = getattr(module, "is_causal", None) if is_causal is None else is_causal
        call = pieces(call, attention_mask, other_arguments.get("sliding_window"), causal, type(module).__module__)
    sink, keys = s_aux if sinks is None else sinks, key.shape[2]
    call = call if sink is None else _with_sink(call, sink)
    output = attend(**call, dropout=dropout)  # (B, H, Q, D)
    weights = steps(**call).weights[..., :keys] if output_attentions or _weights_are_collected() else None
    return output.transpose(1, 2).contiguous(), weights


def _check_unsupported(others: dict[str, Any]) -> None:
    if others.get("cache") is not None:
        raise InputError(
            "keys and values in one tensor",
            got="a paged cache, as continuous batching uses it",
            fix='choose attn_implementation="paged|eager"',
        )
    names = sorted(name for name, value in others.items() if value is not None and name not in WITHOUT_EFFECT)
    if names:
        raise InputError(
            "only arguments of attention that overt supports",
            got=" and ".join(f"{name}=, {describe(others[name])}" for name in names),
            fix='choose attn_implementation="eager" or "sdpa" for this model, or leave these arguments out',
        )


def mask_and_bias(mask: Any, key: Tensor) -> tuple[Any, Tensor | None]:
    """Convert transformers' mask to mask and bias: ranges for an unchanged `LazyMask`, a mask for bool, a bias for numbers."""
    if mask is None:
        return None, None
    if not isinstance(mask, Tensor):
        raise KindError(
            "a mask of transformers as a tensor",
            got=describe(mask),
            fix='choose attn_implementation="flex_attention"',
        )
    if type(mask) is LazyMask:
        ranges = None if torch.compiler.is_compiling() or mask.shape[-1] != key.shape[2] else mask.ranges()
        if ranges is not None:
            return ranges, None
        mask = mask.clone()  # an ordinary tensor
    mask = aligned_right(mask[..., : key.shape[2]], key.ndim)  # like torch's broadcasting
    if mask.dtype == torch.bool:
        return Dense(mask), None
    return None, mask if mask.is_floating_point() else mask.to(key.dtype)


def _selected_keys(indices: Tensor, keys: int) -> Dense:
    """The keys that a sparse model's indexer selected for each query, as a mask."""
    indices = indices if indices.ndim == 4 else indices[:, None]  # (B, 1, Q, n)
    selected = torch.zeros(*indices.shape[:-1], keys + 1, dtype=torch.bool, device=indices.device)
    selected.scatter_(-1, torch.where(indices < 0, keys, indices).long(), True)
    return Dense(selected[..., :keys])


def _packed_sequences(starts: Tensor | None, key_starts: Tensor | None, query: Tensor, key: Tensor) -> Any:
    """The mask that keeps sequences packed into one row separate; None without packing."""
    if starts is None and key_starts is None:
        return None
    same = starts is None or key_starts is None or torch.equal(starts, key_starts)
    if not same or query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise InputError(
            "cu_seq_lens of sequences packed into one row, the same for queries and keys",
            got=f"{query.shape[0]} rows of {query.shape[2]} queries and {key.shape[2]} keys"
            + ("" if same else ", with different starts"),
            fix="leave it out, and pass position_ids that restart at 0 for each sequence",
        )
    return from_cu_seqlens(starts if starts is not None else key_starts, total=key.shape[2])  # type: ignore[arg-type]


def _with_sink(call: dict[str, Any], sink: Tensor) -> dict[str, Any]:
    """The call with the model's sinks in the softmax."""
    if "normalizer" in call:
        raise InputError(
            "a normalizer of your own in a model without attention sinks, which are part of the softmax",
            got=f"sinks of shape {tuple(sink.shape)}",
            fix="leave normalizer= out for this model",
        )
    if sink.numel() == call["query"].shape[1]:
        return call | {"normalizer": Softmax(sink=sink.flatten().to(call["query"].dtype))}
    return _with_sink_key(call, sink)


def _with_sink_key(call: dict[str, Any], sink: Tensor) -> dict[str, Any]:
    """The call with one more key, whose score is the sink of each query (B, H, Q, 1), and whose value is zero.

    This takes one more feature: the sink divided by the scale in the query, 0 in the keys, and 1 in the new key.
    """
    query, key, value, score = (call[name] for name in ("query", "key", "value", "score"))
    batch, heads, queries = query.shape[:3]
    simple = isinstance(score, Dot) and score.softcap is None
    if not simple or sink.ndim != 4 or any(
        size not in (1, full) for size, full in zip(sink.shape, (batch, heads, queries, 1), strict=True)
    ):  # fmt: skip
        raise InputError(
            f"sinks (H,), or, of a dot product without a softcap, of each query (B, H, Q, 1) = {(batch, heads, queries, 1)}",
            got=f"shape {tuple(sink.shape)}" + ("" if simple else f" with the score {score}"),
            fix='choose attn_implementation="eager" for this model',
        )
    pad = torch.nn.functional.pad
    scale = query.shape[-1] ** -0.5 if score.scale is None else score.scale
    query = torch.cat([query, (sink / scale).to(query.dtype).expand(batch, heads, queries, 1)], dim=-1)
    key, value = pad(key, (0, 1, 0, 1)), pad(value, (0, 0, 0, 1))
    last = torch.zeros_like(key)
    last[..., -1, -1] = 1
    mask, bias, keys = call["mask"], call["bias"], key.shape[2]
    positions = torch.arange(keys, device=query.device)
    if isinstance(mask, (Causal, Ranges)):
        mask = mask | Dense((positions == keys - 1)[None])
    elif mask is not None:
        allowed = mask.bind(2, queries, keys - 1).block(torch.arange(queries, device=query.device), positions[:-1])
        mask = Dense(pad(allowed.expand(*allowed.shape[:-1], keys - 1), (0, 1), value=True))
    bias = None if bias is None else pad(bias.expand(*bias.shape[:-1], keys - 1), (0, 1))
    return {"query": query, "key": key + last, "value": value, "score": Dot(scale), "mask": mask, "bias": bias}


def _weights_are_collected() -> bool:
    """Whether transformers' hooks collect the weights of attention modules, for `output_attentions=True`."""
    collector = getattr(sys.modules.get("transformers.utils.output_capturing"), "_active_collector", None)
    if collector is None:
        return False
    collected = (
        collector.global_var if torch.compiler.is_compiling() else collector.get()
    )  # torch.compile cannot trace a context variable
    return bool(collected) and any("attentions" in name for name in collected)
