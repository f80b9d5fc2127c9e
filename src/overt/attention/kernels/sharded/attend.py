"""Attention with DTensors: this process's share of the output."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from overt.attention.kernels.blocked import Block
from overt.attention.kernels.call import Call
from overt.attention.normalizers import Softmax
from overt.errors import InputError


def share(call: Call, compute: Callable[[Call], Tensor], formula: Callable[[Block], Any]) -> Tensor:
    """The output, a DTensor divided like the queries, of which this process computes its part.

    Batch entries and heads are independent. Divided keys circulate, and the results of all passes are merged; a normalizer other
    than softmax needs all scores of a row at once, so each process gathers all keys.
    """
    # Imports torch.distributed.tensor only if it is needed.
    from overt.attention.kernels.sharded.layout import assembled, call_layout, local_call, with_all_keys
    from overt.attention.kernels.sharded.ring import block_call, divided_keys

    if call.dropout > 0:
        raise InputError(
            "no dropout of weights in DTensors, each of whose processes would draw its own",
            got=f"dropout={call.dropout}",
            fix="drop out of the output: torch.nn.functional.dropout(overt.attend(…), p)",
        )
    all_keys = type(call.normalizer) is not Softmax
    layout = call_layout(call, all_keys)
    call = with_all_keys(call) if all_keys else call
    local, sequence, total = local_call(call, layout), layout.sequence, (call.queries, call.keys)
    if sequence is None:
        output = compute(local)
    elif sequence.key:
        output = divided_keys(local, formula, sequence, total)
    else:
        output = compute(block_call(local, slice(*sequence.rows[sequence.rank]), slice(0, call.keys), total))
    return assembled(output, layout, (*call.batch, call.queries, call.value.shape[-1]))


def share_summary(call: Call, summarize: Callable[[Call], Any], map_size: Any) -> Any:
    """The summary of DTensors: each process gathers all keys and summarises its own queries."""
    from overt.attention.kernels.sharded.layout import assembled, call_layout, local_call, with_all_keys
    from overt.attention.kernels.sharded.ring import block_call

    if map_size is not None:
        refuse_whole("a map of the weights, whose cells are on several processes", "summarize", "map_size=None, or ")
    layout, call = call_layout(call, all_keys=True), with_all_keys(call)
    local, sequence, rows = local_call(call, layout), layout.sequence, (*call.batch, call.queries)
    if sequence is not None:
        local = block_call(local, slice(*sequence.rows[sequence.rank]), slice(0, call.keys), (call.queries, call.keys))
    summary = summarize(local)
    alive = (summary.top_keys[..., :1] >= 0).sum(-2)  # queries with at least one key: (..., 1)
    received = summary.received * alive
    for group in [] if sequence is None else [sequence.group]:
        torch.distributed.all_reduce(received, group=group)
        torch.distributed.all_reduce(alive, group=group)
    received = received / alive.clamp(min=1)
    parts = {
        name: getattr(summary, name) for name in ("lse", "entropy", "sink", "top_weights", "top_keys", "output", "support")
    }
    joined = {
        name: None if part is None else assembled(part, layout, (*rows, *part.shape[len(rows) :]), part.ndim - len(rows))
        for name, part in parts.items()
    }
    return replace(summary, **joined, received=assembled(received, layout, (*call.batch, call.keys), 0, by_query=False))


def refuse_whole(what: str, name: str, otherwise: str = "") -> NoReturn:
    """Raise the error of a result that a process cannot compute from its share."""
    raise InputError(
        f"plain tensors for {what}", got="DTensors", fix=f"{otherwise}overt.{name}(query.full_tensor(), key.full_tensor(), …)"
    )
