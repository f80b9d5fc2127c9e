"""The terms of a head's weights that a browser can compute: score, bias, mask, temperature and sink."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from overt.attention.biases import ALiBi, LineBias
from overt.attention.kernels.call import Call
from overt.attention.masks import Causal
from overt.attention.normalizers import Softmax, Sum
from overt.attention.scores import Additive, Cosine, Dot, Gaussian, Score
from overt.lens.capture.ranges import Ranges, in_ranges, read
from overt.lens.captured import CapturedCall
from overt.lens.head import Head, head_part

_AT_ONCE = 2**22  # cells of a mask or of scores that are computed together


@dataclass(frozen=True)
class HeadTerms:
    """A head's terms. The score compares `query` (B, Q, D) and `key` (B, K, D), with a bilinear weight multiplied in.

    `score` and `bias` hold numbers and tensors under the names that exact.js reads.
    """

    query: Tensor
    key: Tensor
    score: dict[str, Any]
    bias: list[dict[str, Any]]  # one entry per batch element
    mask: list[dict[str, Any]]
    temperature: float
    sink: float | None


def head_terms(head: Head) -> HeadTerms | None:
    """The head's terms; None if the page needs the weights themselves, because it cannot compute them."""
    if not computable(head.captured_call):
        return None
    call = head.call
    normalizer, index, total = call.normalizer, head.index_in_call, head.heads_in_call
    temperature, sink = 1.0, None
    if isinstance(normalizer, Softmax):
        temperature, sink = _number(normalizer.temperature, index, total), _sink(normalizer.sink, index)
    compared = _score(head, call, index, total)
    if temperature is None or compared is None:
        return None
    query, key, score = compared
    return HeadTerms(query, key, score, _biases(head), _masks(head), temperature, sink)


def computable(captured: CapturedCall) -> bool:
    """Whether the page can compute the weights of this call."""
    score, normalizer, total = captured.call.score, captured.call.normalizer, len(captured.copies)
    if type(normalizer) is Sum and captured.queries * captured.keys > _AT_ONCE:
        return False  # its row sums need all scores, which are too many
    if type(normalizer) is not Sum and (type(normalizer) is not Softmax or _number(normalizer.temperature, 0, total) is None):
        return False
    if isinstance(score, Additive):
        return True
    if isinstance(score, Dot | Gaussian | Cosine):
        parameters = [getattr(score, name, None) for name in ("scale", "softcap", "bandwidth")]
        return all(parameter is None or _number(parameter, 0, total) is not None for parameter in parameters)
    return isinstance(score, Score) and score.as_dot(captured.call.query, captured.call.key) is not None


def row_sums(head: Head) -> Tensor:
    """The sum of each query's scores (B, Q), by which `Sum` divides them, without masked keys."""
    masked = head.stages(0, head.queries).masked
    return masked.masked_fill(masked == -torch.inf, 0).sum(-1).float()


def _number(value: Any, index: int, total: int) -> float | None:
    """A number, or a tensor of one number per head, (H, 1, 1), as a number; None if it differs by query or key."""
    if value is None or not isinstance(value, Tensor):
        return value
    if value.numel() == 1:
        return float(value)
    if value.ndim >= 3 and value.shape[-2:] == (1, 1) and value.numel() == value.shape[-3]:
        return float(head_part(value, index, total))
    return None


def _sink(sink: Tensor | None, index: int) -> float | None:
    return None if sink is None else float(sink if sink.ndim == 0 or sink.numel() == 1 else sink[index])


def _score(head: Head, call: Call, index: int, total: int) -> tuple[Tensor, Tensor, dict[str, Any]] | None:
    score = call.score
    if isinstance(score, Dot):
        scale, softcap = _number(score.factor(call.query), index, total), _number(score.softcap, index, total)
        if scale is None or (softcap is None and score.softcap is not None):
            return None
        return head.query, head.key, {"kind": "dot", "scale": scale, "softcap": softcap}
    if isinstance(score, Additive):
        weight = score.weight if score.weight.ndim == 1 else score.weight[index]
        return head.query, head.key, {"kind": "additive", "activation": score.activation, "weight": weight.float().tolist()}
    if isinstance(score, Gaussian) and (bandwidth := _number(score.bandwidth, index, total)) is not None:
        return head.query, head.key, {"kind": "gaussian", "bandwidth": bandwidth}
    if not isinstance(score, Score) or (dot := score.as_dot(call.query, call.key)) is None:
        return None
    query, key, scale = dot
    name = type(score).__name__.lower()
    return head.part_of(query), head.part_of(key), {"kind": "dot", "scale": scale, "softcap": None, "name": name}


def _biases(head: Head) -> list[dict[str, Any]]:
    """The bias of the scores for each batch element."""
    bias, queries, keys = head.call.bias, head.queries, head.keys
    if bias is None:
        return [{"kind": "none"}] * head.captured.batch
    if isinstance(bias, ALiBi) and isinstance(bias.offset, int):
        return [{"kind": "alibi", "slope": float(bias.slopes[head.index_in_call]), "offset": bias.offset}] * head.captured.batch
    if isinstance(bias, LineBias):
        lines = _lines(bias.of_queries[..., None], head, queries), _lines(bias.of_keys[..., None], head, keys)
        return [{"kind": "lines", "queries": rows, "keys": columns} for rows, columns in zip(*lines, strict=True)]
    device, pairs = head.call.query.device, bias.added_pairs()
    rows, columns = torch.arange(queries, device=device), torch.arange(keys, device=device)
    if pairs is None and bias.by_distance:
        first = _batched(_picked(bias.block(rows[:1], columns), head), head, 1, keys)[:, 0]  # (B, K)
        down = _batched(_picked(bias.block(rows, columns[:1]), head), head, queries, 1)[:, 1:, 0].flip(-1)  # (B, Q − 1)
        return [{"kind": "distance", "values": item} for item in torch.cat([down, first], dim=-1).float()]
    added = _picked(bias.block(rows, columns) if pairs is None else pairs, head).float()
    if added.shape[-2] == 1:
        return [{"kind": "key", "values": item[0]} for item in _batched(added, head, 1, keys)]
    if added.shape[-1] == 1:
        return [{"kind": "query", "values": item[:, 0]} for item in _batched(added, head, queries, 1)]
    return [_square(item) for item in _batched(added, head, queries, keys)]


def _lines(numbers: Tensor, head: Head, length: int) -> Tensor:
    """Float64 numbers (..., length, 1) of each batch element as float32, followed by their float32 remainders: (B, 2 · length)."""
    numbers = _batched(_picked(numbers, head), head, length, 1)[..., 0]
    return torch.cat([numbers.float(), (numbers - numbers.float()).float()], dim=-1)


def _square(values: Tensor) -> dict[str, Any]:
    """A bias of Q × K numbers, stored by distance if it depends only on the distance."""
    if torch.equal(values[1:, 1:], values[:-1, :-1]):
        return {"kind": "distance", "values": torch.cat([values[1:, 0].flip(-1), values[0]])}
    return {"kind": "given", "values": values.flatten()}


def _picked(block: Tensor, head: Head) -> Tensor:
    return head_part(block, head.index_in_call, head.heads_in_call) if head.call.query.ndim >= 4 else block


def _batched(tensor: Tensor, head: Head, rows: int, keys: int) -> Tensor:
    """The tensor with one entry for each batch element: (B, rows, keys)."""
    lead = head.call.batch[:-1] if head.call.query.ndim >= 4 else head.call.batch
    return tensor.expand(*lead, rows, keys).reshape(-1, rows, keys)


def _masks(head: Head) -> list[dict[str, Any]]:
    """The keys that each query may attend to, for each batch element."""
    mask, batch, device = head.call.mask, head.captured.batch, head.call.query.device
    if mask is None:
        return [{"kind": "none"}] * batch
    if type(mask) is Causal and isinstance(mask.offset, int):
        return [{"kind": "causal", "offset": mask.offset}] * batch
    known = in_ranges(mask, head.queries, head.keys, device)
    runs = _runs_of_blocks(mask, head) if known is None else _known_runs(known, head)
    if runs is not None:
        return [{"kind": "ranges", "starts": low.int(), "stops": high.int()} for low, high in zip(*runs, strict=True)]
    return [{"kind": "bits", "bits": bits} for bits in _bits(mask, head)]


def _known_runs(mask: Ranges, head: Head) -> tuple[Tensor, Tensor]:
    length = mask.low.shape[-1]
    low, high = (edge.expand(*head.call.batch, length)[..., None] for edge in (mask.low, mask.high))  # (…, H, Q, 1)
    low, high = (_batched(_picked(edge, head), head, length, 1)[..., 0] for edge in (low, high))
    return low, high


def _blocks(mask: Any, head: Head):
    """The mask of this head in blocks of rows: bool (B, rows, K)."""
    device, keys = head.call.query.device, torch.arange(head.keys, device=head.call.query.device)
    size = max(1, _AT_ONCE // max(1, head.keys * head.captured.batch))
    for rows in torch.arange(head.queries, device=device).split(size):
        block = _picked(mask.block(rows, keys), head)
        yield _batched(block, head, len(rows), head.keys)


def _runs_of_blocks(mask: Any, head: Head) -> tuple[Tensor, Tensor] | None:
    lows, highs = [], []
    for block in _blocks(mask, head):
        ranges = read(block.contiguous()).mask
        if not isinstance(ranges, Ranges):
            return None
        lows.append(ranges.low)
        highs.append(ranges.high)
    return torch.cat(lows, dim=-1), torch.cat(highs, dim=-1)


def _bits(mask: Any, head: Head) -> list[Any]:
    rows = np.concatenate([block.cpu().numpy() for block in _blocks(mask, head)], axis=1)  # (B, Q, K)
    return [np.packbits(row.reshape(-1), bitorder="little") for row in rows]
