"""Which call of a layer continues which, decided by comparing the keys.

In generation a layer is called once per step, each time with the keys of all previous tokens. A call continues an earlier call of the
same layer if its first keys and values equal the earlier ones to the bit, and its queries belong to the keys after them. The rule
covers a cache that grows, that is overwritten in place, that drops keys outside a window, that removes rejected tokens, and whose
sequences beam search reorders. Independent calls share no keys, so equal shapes alone join nothing.

Keys are compared by 64-bit fingerprints, one for each position of each sequence, so that no keys are stored for the comparison.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from overt.attention.kernels.call import Call
from overt.lens.capture.ranges import MaskReader
from overt.lens.statistics.padding import attended_keys

_AT_ONCE = 2**22  # numbers whose fingerprints are computed together, which bounds the memory
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Continuation(NamedTuple):
    """How a recorded call continues call `before`, its index among the recorded ones.

    Its sequences continue the sequences `rows` of that call (None: in the same order). Its first `retained` keys are the keys `first`,
    `first` + 1, … of that call. It has `written` keys; unused slots of a cache follow them. The last `dropped` queries of that call are
    not continued, because their keys were removed.
    """

    before: int
    rows: tuple[int, ...] | None
    first: int
    retained: int
    written: int
    dropped: int


def added_call(call: Call, continuation: Continuation) -> Call:
    """The call with only the keys and values that it adds to the call that it continues."""
    added = slice(continuation.retained, continuation.written)
    return replace(call, key=call.key[..., added, :], value=call.value[..., added, :])


@dataclass(eq=False)
class Node:
    """A call of a layer that later calls may continue. `index` is its number among the recorded calls, if it was recorded."""

    call: tuple[Any, ...]  # properties that all calls of a sequence share
    queries: int
    keys: int
    written: int
    prints: Tensor | None  # (B, written); None in a continued call, which joins them from `added`
    added: Tensor  # (B, written − retained)
    pass_index: int
    after: Tensor  # (B, 1): fingerprint of the first slot after the written keys; (B, 0) without one
    sibling: "Node | None" = None  # the call with growing keys before this one in its pass
    before: "Node | None" = None
    rows: tuple[int, ...] | None = None
    equal: Tensor | None = None  # (B, B of the call before): whether a sequence begins with that one's keys
    first: int = 0
    retained: int = 0
    dropped: int = 0
    index: int | None = None

    @property
    def continuation(self) -> Continuation | None:
        """How the call continues another; None if it continues no recorded call."""
        if self.before is None or self.before.index is None:
            return None
        return Continuation(self.before.index, self.rows, self.first, self.retained, self.written, self.dropped)

    def all_prints(self) -> Tensor:
        """The fingerprints of all keys of the call: (B, written)."""
        behind, node = [], self
        while node.prints is None:
            behind.append(node)
            assert node.before is not None
            node = node.before
        prints = node.prints
        for item in reversed(behind):
            prints = (prints if item.rows is None else prints[list(item.rows)])[:, item.first : item.first + item.retained]
            prints = torch.cat([prints, item.added], dim=1)
        return prints


class Continued:
    """Finds the call that each call continues."""

    def __init__(self):
        self._nodes: dict[tuple[str, int], list[Node]] = defaultdict(list)
        self._masks = MaskReader()
        self._begin_pass(-1)

    def _begin_pass(self, pass_index: int) -> None:
        self._pass_index, self._calls, self._growing = pass_index, Counter[str](), None
        self.in_order: list[Node] = []  # the pass's calls that continue others, all in one order of sequences

    def add(self, layer: str, call: Call, pass_index: int) -> Node:
        """Add a call of a layer and connect it with the call that it continues."""
        if pass_index != self._pass_index:
            self._begin_pass(pass_index)
        nodes = self._nodes[layer, self._calls[layer]]
        self._calls[layer] += 1
        prints = cache(partial(fingerprints, call))
        attended = self._attended(call)
        lengths = call.queries, call.keys, attended
        node = Node(_kind(call), *lengths, None, prints(attended), pass_index, prints(attended), self._growing)
        if not self._has_the_same_keys(node, nodes, prints):
            _grows(node, nodes, prints)
            self._growing = node
        node.prints, node.after = prints(node.written), _after(node, node.written, prints)
        node.added = node.prints[:, node.retained :].clone() if node.retained else node.prints
        if node.before is not None and node.before.before is not None:
            node.before.prints = None
        nodes.append(node)
        self._put_in_order(node)
        return node

    def branch(self) -> "Continued":
        """A copy of these calls, which a separate pass may continue without changing the original."""
        other = Continued()
        other._nodes.update({name: list(nodes) for name, nodes in self._nodes.items()})
        return other

    def _put_in_order(self, node: Node) -> None:
        """Let the calls of a pass continue the same sequences, if their keys allow it.

        All layers reorder their caches alike, but the keys of one layer may not show the order: a window may have dropped the first
        tokens, which alone differ, and sequences with the same tokens so far may have different sources.
        """
        if node.before is None or node.equal is None:
            return
        last = self.in_order[-1] if self.in_order else None
        if last is not None and last.before is not None and last.equal is not None:
            if last.equal.shape != node.equal.shape or last.before.pass_index != node.before.pass_index:
                return
            equal = last.equal & node.equal
            if not bool(equal.any(1).all()):
                return
            node.equal = equal
        self.in_order.append(node)
        rows = _unless_all(_chosen(node.equal) or (), node.equal)
        for continued in self.in_order:
            continued.rows = rows

    def _attended(self, call: Call) -> int:
        """The number of keys up to the last one that a query may attend to: unused slots of a cache may follow."""
        if call.keys <= call.queries or (call.mask is None and call.bias is None):
            return call.keys
        attended = attended_keys(call, self._masks).any(0).nonzero()
        return int(attended.max()) + 1 if len(attended) else call.keys

    def _has_the_same_keys(self, node: Node, nodes: list[Node], prints: Callable[[int], Tensor]) -> bool:
        """Connect a call with unchanged keys (cross-attention): with the one whose sibling this call's sibling continues."""
        sibling = node.sibling
        if sibling is None or sibling.before is None or node.queries != sibling.queries:
            return False
        for entry in reversed(nodes):
            if (
                entry.sibling is sibling.before
                and (entry.keys, entry.call) == (node.keys, node.call)
                and entry.written >= node.written
            ):
                equal = _equal(entry.all_prints(), prints(entry.written)) & _equal(
                    entry.after, _after(node, entry.written, prints)
                )
                rows = _chosen(equal)
                if rows is not None:
                    node.before, node.dropped = entry, sibling.dropped
                    node.written = node.retained = entry.written
                    node.rows, node.equal = _unless_all(rows, equal), equal
                    return True
        return False


def _after(node: Node, count: int, prints: Callable[[int], Tensor]) -> Tensor:
    """The fingerprint of the slot after `count` keys, where a cache is written next: (B, 1), or (B, 0) without a slot."""
    return prints(min(count + 1, node.keys))[:, count:]


def _grows(node: Node, nodes: list[Node], prints: Callable[[int], Tensor]) -> None:
    """Connect a call with the latest one whose keys it begins with, including at least one key of that call's queries.

    A call writes a key for each of its queries. The keys of its last queries may be padding that no query attends to.
    """
    alike = [entry for entry in nodes if entry.call == node.call]
    for retained in _possibly_retained(node, alike, prints):
        if _continues(node, alike, prints(retained)):
            node.written = retained + node.queries
            return
    node.written = max(node.written, min(node.queries, node.keys))


def _possibly_retained(node: Node, alike: list[Node], prints: Callable[[int], Tensor]) -> list[int]:
    """How many keys a call may share with earlier calls, most first: for a cache without unused slots, with them, without padding."""
    least, most = node.written - node.queries, node.keys - node.queries
    counts = []
    if alike and least < most:
        full = {most} if most <= max(member.written for member in alike) else set()
        possible = sorted(full | {alike[-1].written}, reverse=True)
        counts = [count for count in possible if least < count <= most and bool(prints(count + node.queries)[:, -1].any())]
    return [part for part in (*counts, least) if part > 0]


def _continues(node: Node, alike: list[Node], retained: Tensor) -> bool:
    """Connect a call with the latest one in which these fingerprints (B, retained) end at a key of its queries."""
    count = retained.shape[1]
    for item in reversed(alike):
        prints, before = item.all_prints(), max(0, item.written - item.queries)
        # The retained keys may end at any key of that call's queries that equals the last retained key of row 0.
        ends = (prints[:, before:] == retained[:1, -1:]).any(0).nonzero()[:, 0]
        for stop in reversed((ends + before + 1).tolist()):
            first = stop - count
            if first < 0:
                continue
            equal = _equal(prints[:, first:stop], retained)
            rows = _chosen(equal)
            if rows is not None:
                node.before, node.first, node.retained, node.dropped = item, first, count, item.written - stop
                node.rows, node.equal = _unless_all(rows, equal), equal
                return True
    return False


def _equal(old: Tensor, new: Tensor) -> Tensor:
    """Whether each row of `new` equals each row of `old` (rows, K): (rows of new, rows of old)."""
    return (new[:, None] == old).all(-1)


def _chosen(equal: Tensor) -> tuple[int, ...] | None:
    """One equal old row for each new row, preferably the row of the same number; None if a row has none."""
    if not bool(equal.any(1).all()):
        return None
    rows = equal.int().argmax(1)
    if equal.shape[0] == equal.shape[1]:
        rows = torch.where(equal.diagonal(), torch.arange(len(rows), device=rows.device), rows)
    return tuple(rows.tolist())


def _unless_all(rows: tuple[int, ...], equal: Tensor) -> tuple[int, ...] | None:
    """These rows; None if they are all rows in order."""
    return None if rows == tuple(range(equal.shape[1])) else rows


def _kind(call: Call) -> tuple[Any, ...]:
    """The properties that calls of one sequence share: heads, features, score and normalizer."""
    pieces = []
    for part in (call.score, call.normalizer):
        leaves, structure = tree_flatten(part)
        pieces += [structure, *(_Same(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)]
    shapes = (call.query.ndim, call.query.shape[-1], call.value.shape[-1], call.batch[-1:] if call.query.ndim >= 4 else ())
    return (*shapes, call.query.dtype, call.dropout, *pieces)


class _Same:
    """A tensor compared with another by its numbers."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        mine, others = self.tensor, getattr(other, "tensor", None)
        return others is not None and (mine is others or (mine.device == others.device and torch.equal(mine, others)))

    __hash__ = None  # type: ignore[assignment]


def fingerprints(call: Call, count: int) -> Tensor:
    """A hash of all bits of keys and values at each of the first `count` positions of each sequence: (B, count), int64."""
    lead = call.batch[:-1] if call.query.ndim >= 4 else call.batch
    total = torch.zeros(1, count, dtype=torch.int64, device=call.key.device)
    for seed, tensor in enumerate((call.key, call.value)):
        headed = tensor if call.query.ndim >= 4 and tensor.ndim >= 3 else tensor[..., None, :, :]
        prints = _position_sums(headed[..., :count, :], seed)  # (…, count)
        total = total + prints.expand(*lead, count).reshape(-1, count)
    return total


def _position_sums(tensor: Tensor, seed: int) -> Tensor:
    """Σ over heads and features of bits × random odd numbers, modulo 2⁶⁴: (..., H, K, D) → (..., K)."""
    bits = _bits(tensor.detach())
    odd = _odd_numbers(seed, bits.shape[-3] * bits.shape[-1], bits.device).view(bits.shape[-3], 1, bits.shape[-1])
    size = max(1, _AT_ONCE // max(1, math.prod(bits.shape[:-2]) * bits.shape[-1]))
    return torch.cat([(part * odd).sum(-1).sum(-2) for part in bits.split(size, dim=-2)], dim=-1)


def _bits(tensor: Tensor) -> Tensor:
    """The bits of a tensor as int64, with as many numbers packed into one as fit."""
    per_number = 8 // tensor.element_size()
    if tensor.shape[-1] % per_number or not tensor.numel():  # keys have no features if the model's weights are recorded
        return tensor.view(_INTEGERS[tensor.element_size()]).long()
    if tensor.stride(-1) != 1 or any(step % per_number for step in (*tensor.stride()[:-1], tensor.storage_offset())):
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.view(torch.int64)


@cache
def _odd_numbers(seed: int, count: int, device: Any) -> Tensor:
    draw = torch.Generator().manual_seed(20_261_123 + seed)  # a generator of its own leaves the model's random state unchanged
    return (torch.randint(-(2**62), 2**62, (count,), generator=draw) * 2 + 1).to(device)
