"""Which call of a layer continues which: seen from the keys themselves, as a cache extends them.

In generation a layer is called once a step, each time with the keys of all tokens before. A call continues an earlier one of the same
layer where its first keys and values are those of that call, to the bit, and its queries belong to the keys after them. That holds
for a cache that grows, that is written over in place, that drops what a window does not reach, from which rejected tokens are removed,
and whose sequences beam search reorders. Independent calls share no keys, so nothing is joined by its shape.

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

_AT_ONCE = 2**22  # numbers of which fingerprints are made together
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Continuation(NamedTuple):
    """How a recorded call continues call `before`, its index among the recorded ones.

    Its sequences continue the sequences `rows` of that call (None: each the same one). Its first `retained` keys are the keys `first`,
    `first` + 1, … of that call. It has `written` keys; those after them are unused slots of a cache. The last `dropped` queries of
    that call are not continued: their keys were removed.
    """

    before: int
    rows: tuple[int, ...] | None
    first: int
    retained: int
    written: int
    dropped: int


def added_call(call: Call, continuation: Continuation) -> Call:
    """The call with those of its keys and values alone that it adds to the call that it continues."""
    added = slice(continuation.retained, continuation.written)
    return replace(call, key=call.key[..., added, :], value=call.value[..., added, :])


@dataclass(eq=False)
class Node:
    """A call of a layer, recorded or not, as what may be continued. `index` is its number among the recorded ones."""

    call: tuple[Any, ...]  # what must be equal in the calls of a sequence
    queries: int
    keys: int
    written: int
    prints: Tensor | None  # (B, written); None in a call that is continued, where they are put together from its `added`
    added: Tensor  # (B, written − retained)
    pass_index: int
    after: Tensor  # (B, 1): of the first slot after them; (B, 0) without one
    sibling: "Node | None" = None  # the call with growing keys before this one in its pass
    before: "Node | None" = None
    rows: tuple[int, ...] | None = None
    equal: Tensor | None = None  # (B, B of the call before): which of its sequences have the keys that each one begins with
    first: int = 0
    retained: int = 0
    dropped: int = 0
    index: int | None = None

    @property
    def continuation(self) -> Continuation | None:
        """What of it is recorded; None for a call that continues no recorded one."""
        if self.before is None or self.before.index is None:
            return None
        return Continuation(self.before.index, self.rows, self.first, self.retained, self.written, self.dropped)

    def all_prints(self) -> Tensor:
        """The fingerprints of all its keys: (B, written)."""
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
        self.in_order: list[Node] = []  # the calls of the pass that continue others, all in one order of sequences

    def add(self, layer: str, call: Call, pass_index: int) -> Node:
        """A call of a layer, connected with the call that it continues."""
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
        """The same calls, to be continued by a pass of which these do not learn."""
        other = Continued()
        other._nodes.update({name: list(nodes) for name, nodes in self._nodes.items()})
        return other

    def _put_in_order(self, node: Node) -> None:
        """Let the calls of a pass continue the same sequences, if their keys allow it.

        A cache is reordered in all layers alike. The keys of one layer may not show how: sequences with different first tokens have equal
        keys in a window that has dropped these tokens, and sequences with the same tokens so far may have different sources.
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
        """How many keys there are up to the last one that a query may attend to: a cache may have unused slots after them."""
        if call.keys <= call.queries or (call.mask is None and call.bias is None):
            return call.keys
        attended = attended_keys(call, self._masks).any(0).nonzero()
        return int(attended.max()) + 1 if len(attended) else call.keys

    def _has_the_same_keys(self, node: Node, nodes: list[Node], prints: Callable[[int], Tensor]) -> bool:
        """Connect a call of the same keys, as of attention to an encoder: with the call next to what the call next to it continues."""
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
    """The fingerprint of the slot after so many keys, (B, 1), or (B, 0): a cache is written there next."""
    return prints(min(count + 1, node.keys))[:, count:]


def _grows(node: Node, nodes: list[Node], prints: Callable[[int], Tensor]) -> None:
    """Connect a call with the latest one whose keys come first in it, and of whose last keys, those of its queries, it has at least one.

    A call writes a key for each of its queries. Those of its last queries may be padding that nothing attends to.
    """
    alike = [entry for entry in nodes if entry.call == node.call]
    for retained in _possibly_retained(node, alike, prints):
        if _continues(node, alike, prints(retained)):
            node.written = retained + node.queries
            return
    node.written = max(node.written, min(node.queries, node.keys))


def _possibly_retained(node: Node, alike: list[Node], prints: Callable[[int], Tensor]) -> list[int]:
    """How many keys a call may have from calls before it, the most first: in a cache without unused slots, with them, without padding."""
    least, most = node.written - node.queries, node.keys - node.queries
    counts = []
    if alike and least < most:
        full = {most} if most <= max(member.written for member in alike) else set()
        possible = sorted(full | {alike[-1].written}, reverse=True)
        counts = [count for count in possible if least < count <= most and bool(prints(count + node.queries)[:, -1].any())]
    return [part for part in (*counts, least) if part > 0]


def _continues(node: Node, alike: list[Node], retained: Tensor) -> bool:
    """Connect a call with the latest one that has these fingerprints (B, retained) up to one of its queries' keys."""
    count = retained.shape[1]
    for item in reversed(alike):
        prints, before = item.all_prints(), max(0, item.written - item.queries)
        # Where the retained keys may end, among the keys of that call's queries: where any row has what row 0 ends with.
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
    """Which rows of `old` (rows, K) equal each row of `new`: (rows of new, rows of old)."""
    return (new[:, None] == old).all(-1)


def _chosen(equal: Tensor) -> tuple[int, ...] | None:
    """One of the equal rows for each new row, the same one if that is equal; None if a row has none."""
    if not bool(equal.any(1).all()):
        return None
    rows = equal.int().argmax(1)
    if equal.shape[0] == equal.shape[1]:
        rows = torch.where(equal.diagonal(), torch.arange(len(rows), device=rows.device), rows)
    return tuple(rows.tolist())


def _unless_all(rows: tuple[int, ...], equal: Tensor) -> tuple[int, ...] | None:
    """None for all rows in order."""
    return None if rows == tuple(range(equal.shape[1])) else rows


def _kind(call: Call) -> tuple[Any, ...]:
    """What calls have in common that continue each other: heads, features, score and normalizer."""
    pieces = []
    for part in (call.score, call.normalizer):
        leaves, structure = tree_flatten(part)
        pieces += [structure, *(_Same(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)]
    shapes = (call.query.ndim, call.query.shape[-1], call.value.shape[-1], call.batch[-1:] if call.query.ndim >= 4 else ())
    return (*shapes, call.query.dtype, call.dropout, *pieces)


class _Same:
    """A tensor that equals another by its numbers."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        mine, others = self.tensor, getattr(other, "tensor", None)
        return others is not None and (mine is others or (mine.device == others.device and torch.equal(mine, others)))

    __hash__ = None  # type: ignore[assignment]


def fingerprints(call: Call, count: int) -> Tensor:
    """A number for each of the first `count` positions of each sequence, of all bits of its keys and values: (B, count), int64."""
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
    """The bits of a tensor as int64, as many numbers in one as fit."""
    per_number = 8 // tensor.element_size()
    if tensor.shape[-1] % per_number or not tensor.numel():  # keys without features come with the model's own weights
        return tensor.view(_INTEGERS[tensor.element_size()]).long()
    if tensor.stride(-1) != 1 or any(step % per_number for step in (*tensor.stride()[:-1], tensor.storage_offset())):
        tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.view(torch.int64)


@cache
def _odd_numbers(seed: int, count: int, device: Any) -> Tensor:
    draw = torch.Generator().manual_seed(20_261_123 + seed)  # the global generator is the model's
    return (torch.randint(-(2**62), 2**62, (count,), generator=draw) * 2 + 1).to(device)
