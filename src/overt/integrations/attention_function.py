"""The attention function of transformers' registry: what a model asks for, as a call of `overt.attend`, or a refusal by name."""

import sys
from typing import Any

import torch
from torch import Tensor

from overt.attention.check import kind_of
from overt.attention.masks import Causal, Dense, Ranges
from overt.attention.masks.convert import from_cu_seqlens
from overt.attention.mechanism import attend
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.attention.trace import steps
from overt.errors import InputError, KindError
from overt.integrations.lazy_mask import LazyMask
from overt.integrations.watch import note_call

# What reaches attention and changes nothing there: it is in the mask, the query or the key already, or it is about other outputs.
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
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as transformers asks: query (B, H, Q, D), key and value (B, Hk, K, D) to (B, Q, H, D), and the weights if asked for.

    Without a mask all may attend to all, unless `is_causal` says otherwise. `s_aux` and `sinks` are a logit a head (H,), or a head
    and query (B, H, Q, 1), that takes weight and gives nothing; `indices` (B, Q, n) the keys that a query may attend to, −1 for
    none; `cu_seq_lens_q` and `cu_seq_lens_k` where packed sequences begin. Raises InputError for any other argument that is not
    known to change nothing (`WITHOUT_EFFECT`).

    >>> x = torch.randn(1, 2, 5, 8)
    >>> output, weights = attention(None, x, x, x, None, scaling=0.5, output_attentions=True)
    >>> output.shape, weights.shape
    (torch.Size([1, 5, 2, 8]), torch.Size([1, 2, 5, 5]))
    """
    note_call()
    _refuse_others(others)
    mask, bias = _mask_and_bias(attention_mask, key)
    if attention_mask is None and is_causal and query.shape[2] > 1:
        mask = Causal(offset=0)  # a cache that is longer than what it holds is filled from its start
    more = [None if indices is None else _selected(indices, key.shape[2]), _packed(cu_seq_lens_q, cu_seq_lens_k, query, key)]
    for each in more:
        mask = each if mask is None else mask if each is None else mask & each
    if position_bias is not None:
        bias = position_bias if bias is None else position_bias + bias
    call: dict[str, Any] = {
        "query": query,
        "key": key,
        "value": value,
        "score": Dot(scaling, softcap),
        "mask": mask,
        "bias": bias,
    }
    sink, keys = s_aux if sinks is None else sinks, key.shape[2]
    if sink is not None and sink.numel() != query.shape[1]:
        call = _with_sink_key(call, sink)
    elif sink is not None:
        call["normalizer"] = Softmax(sink=sink.flatten().to(query.dtype))
    output = attend(**call, dropout=dropout)  # (B, H, Q, D)
    weights = steps(**call).weights[..., :keys] if output_attentions or _weights_are_collected() else None
    return output.transpose(1, 2).contiguous(), weights


def _refuse_others(others: dict[str, Any]) -> None:
    if others.get("cache") is not None:
        raise InputError(
            "overt attends to keys and values that lie in one tensor",
            got="a paged cache, as continuous batching keeps it",
            fix='choose attn_implementation="paged|eager" for it',
        )
    names = sorted(name for name, value in others.items() if value is not None and name not in WITHOUT_EFFECT)
    if names:
        raise InputError(
            "overt serves the arguments of attention that it knows, and drops none unread",
            got=" and ".join(f"{name}=, {kind_of(others[name])}" for name in names),
            fix='choose attn_implementation="eager" or "sdpa" for this model, or leave out what it does not need',
        )


def _mask_and_bias(mask: Any, key: Tensor) -> tuple[Any, Tensor | None]:
    """Ranges, where the very mask that overt made arrives; else an ordinary mask: bool says who may attend, numbers are added."""
    if mask is None:
        return None, None
    if not isinstance(mask, Tensor):
        raise KindError(
            "overt takes a mask of transformers as a tensor",
            got=kind_of(mask),
            fix='choose attn_implementation="flex_attention"',
        )
    if type(mask) is LazyMask:
        ranges = None if torch.compiler.is_compiling() or mask.shape[-1] != key.shape[2] else mask.ranges()
        if ranges is not None:
            return ranges, None
        mask = mask.clone()  # an ordinary tensor
    mask = mask[..., : key.shape[2]]
    if mask.dtype == torch.bool:
        return Dense(mask), None
    return None, mask if mask.is_floating_point() else mask.to(key.dtype)


def _selected(indices: Tensor, keys: int) -> Dense:
    """The keys of each query that a sparse model's indexer chose."""
    indices = indices if indices.ndim == 4 else indices[:, None]  # (B, 1, Q, n)
    chosen = torch.zeros(*indices.shape[:-1], keys + 1, dtype=torch.bool, device=indices.device)
    chosen.scatter_(-1, torch.where(indices < 0, keys, indices).long(), True)
    return Dense(chosen[..., :keys])


def _packed(starts: Tensor | None, key_starts: Tensor | None, query: Tensor, key: Tensor) -> Any:
    """That sequences packed into one row do not see each other."""
    if starts is None and key_starts is None:
        return None
    same = starts is None or key_starts is None or torch.equal(starts, key_starts)
    if not same or query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise InputError(
            "cu_seq_lens says where sequences begin that are packed into one row, for queries and keys alike",
            got=f"{query.shape[0]} rows of {query.shape[2]} queries and {key.shape[2]} keys"
            + ("" if same else ", which begin at different positions"),
            fix="leave it out, and tell packed sequences by position_ids that begin again at 0",
        )
    return from_cu_seqlens(starts if starts is not None else key_starts, total=key.shape[2])  # type: ignore[arg-type]


def _with_sink_key(call: dict[str, Any], sink: Tensor) -> dict[str, Any]:
    """The call with one more key, whose score is each query's own sink (B, H, Q, 1), and whose value is nothing.

    One more feature does it: in the query it is the sink over the scale, in the keys 0, in the new key 1.
    """
    query, key, value, score = (call[name] for name in ("query", "key", "value", "score"))
    batch, heads, queries = query.shape[:3]
    if score.softcap is not None or sink.ndim != 4 or any(
        mine not in (1, whole) for mine, whole in zip(sink.shape, (batch, heads, queries, 1), strict=True)
    ):  # fmt: skip
        raise InputError(
            f"sinks are one logit a head (H,), or, without a softcap, a head and query (B, H, Q, 1) = {(batch, heads, queries, 1)}",
            got=f"shape {tuple(sink.shape)}" + ("" if score.softcap is None else f" beside a softcap of {score.softcap}"),
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
    if isinstance(mask, Causal | Ranges):
        mask = mask | Dense((positions == keys - 1)[None])
    elif mask is not None:
        allowed = mask.bind(2, queries, keys - 1).block(torch.arange(queries, device=query.device), positions[:-1])
        mask = Dense(pad(allowed.expand(*allowed.shape[:-1], keys - 1), (0, 1), value=True))
    bias = None if bias is None else pad(bias.expand(*bias.shape[:-1], keys - 1), (0, 1))
    return {"query": query, "key": key + last, "value": value, "score": Dot(scale), "mask": mask, "bias": bias}


def _weights_are_collected() -> bool:
    """Whether transformers' hooks gather the weights behind the attention modules, for `output_attentions=True`."""
    collector = getattr(sys.modules.get("transformers.utils.output_capturing"), "_active_collector", None)
    if collector is None:
        return False
    wanted = collector.global_var if torch.compiler.is_compiling() else collector.get()  # a context variable cannot be compiled
    return bool(wanted) and any("attentions" in name for name in wanted)
