"""Attention to keys on several processes: keys circulate, and each process merges the results of all passes.

Ring attention (Liu, Zaharia and Abbeel 2024), with pieces from both ends of the sequence under a causal mask (Brandon et al. 2023). The
backward pass circulates keys again, with their gradients. Memory is linear: two shares of keys, values and gradients.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from overt.attention.kernels.call import Call
from overt.attention.kernels.sharded.layout import Interval, Sequence
from overt.attention.kernels.sharded.partial import Formula, merge, partial, resumed, sink_gradient, with_sink
from overt.attention.kernels.sharded.schedule import Schedule, Shift, moved, ring_schedule
from overt.attention.masks.base import mask_of_block
from overt.attention.scores import Score


class Ring(NamedTuple):
    """A process's share of a call with divided keys; mask and bias cover all positions."""

    call: Call
    formula: Formula
    sequence: Sequence
    total: tuple[int, int]  # Q and K of all positions
    schedule: Schedule


def divided_keys(call: Call, formula: Formula, sequence: Sequence, total: tuple[int, int]) -> Tensor:
    """The output of this process's queries over the keys of all processes."""
    if sequence.query:
        schedule = ring_schedule(sequence, call.mask, total[1])
    else:  # all processes have all queries: nothing is moved, and each attends to the keys that it has
        schedule = Schedule(
            [[row] for row in sequence.rows], [[key] for key in sequence.keys], [0], {(0, total[0]): (0, total[1])}
        )
    leaves, _ = pytree.tree_flatten((call.score, call.bias, call.normalizer))
    output: Any = _DividedKeys.apply(Ring(call, formula, sequence, total, schedule), call.query, call.key, call.value, *leaves)
    return output


class _DividedKeys(torch.autograd.Function):
    """The forward and backward passes, as one function of this process's share and the tensors of score, bias and normalizer."""

    @staticmethod
    def forward(ctx, ring, query, key, value, *leaves):  # type: ignore[override]
        inputs = _moved(ring, (query, key, value), False)
        output, lse = _forward(ring, *inputs)
        ctx.ring = ring
        ctx.save_for_backward(*inputs, output, lse, *leaves)
        return moved(output, ring.schedule.rows, _home(ring.sequence.rows), ring.sequence).to(query.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, upstream):  # type: ignore[override]
        ring, (query, key, value, output, lse, *leaves) = ctx.ring, ctx.saved_tensors
        upstream = moved(upstream.to(output.dtype), _home(ring.sequence.rows), ring.schedule.rows, ring.sequence)
        gradients = _Gradients(ring, (query, key, value), leaves)
        gradients.add_sink(output, lse, upstream)
        gradients.gather(output, lse, upstream)
        direct = _moved(ring, (gradients.query, *gradients.keys), True)
        direct = (gradient.to(tensor.dtype) for gradient, tensor in zip(direct, (query, key, value), strict=True))
        learned = zip(gradients.leaves, leaves, strict=True)
        return None, *direct, *(None if total is None else total.to(leaf.dtype) for total, leaf in learned)


def _home(intervals: list[Interval]) -> list[list[Interval]]:
    return [[interval] for interval in intervals]


def _moved(ring: Ring, tensors: tuple[Tensor, ...], back: bool) -> tuple[Tensor, ...]:
    """Move queries, keys and values, or their gradients, to the processes that compute with them, or back."""
    result = []
    for tensor, side in zip(tensors, ("rows", "keys", "keys"), strict=True):
        home, layout = _home(getattr(ring.sequence, side)), getattr(ring.schedule, side)
        result.append(moved(tensor, layout, home, ring.sequence) if back else moved(tensor, home, layout, ring.sequence))
    return tuple(result)


def _forward(ring: Ring, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The output and log-sum-exp of this process's queries, in the computation's dtype."""
    batch, rows = ring.call.batch, query.shape[-2]
    output = query.new_zeros(*batch, rows, value.shape[-1], dtype=ring.call.dtype)
    lse = query.new_full((*batch, rows), -torch.inf, dtype=ring.call.dtype)
    for _, chunk, keys in _passes(ring, [key, value]):
        for part, (row_slice, key_slice) in _parts(ring, chunk):
            call = _part(ring, part, query[..., row_slice, :], *(tensor[..., key_slice, :] for tensor in keys))
            merged = merge(output[..., row_slice, :], lse[..., row_slice], *partial(call, ring.formula))
            output[..., row_slice, :], lse[..., row_slice] = merged
    if not ring.sequence.query:
        output, lse = _merged_over_processes(output, lse, ring.sequence)
    return with_sink(output, lse, ring.call.normalizer.sink)


def _merged_over_processes(output: Tensor, lse: Tensor, sequence: Sequence) -> tuple[Tensor, Tensor]:
    """Merge output and log-sum-exp of the same queries over all processes' keys; in a fixed order, so all get the same bits."""
    outputs, sums = ([torch.empty_like(tensor) for _ in sequence.keys] for tensor in (output, lse))
    torch.distributed.all_gather(outputs, output.contiguous(), group=sequence.group)
    torch.distributed.all_gather(sums, lse.contiguous(), group=sequence.group)
    output, lse = outputs[0], sums[0]
    for more in zip(outputs[1:], sums[1:], strict=True):
        output, lse = merge(output, lse, *more)
    return output, lse


def _passes(ring: Ring, keys: list[Tensor]) -> Iterator[tuple[int, int, list[Tensor]]]:
    """Yield for each pass the keys' distance from their home process, the home, and the keys; the next keys are sent meanwhile."""
    count, rank, passes = len(ring.schedule.keys), ring.sequence.rank, ring.schedule.passes
    keys = _shift(ring, keys, 0, passes[0]).wait()
    for step, following in zip(passes, [*passes[1:], None], strict=True):
        under_way = None if following is None else _shift(ring, keys, step, following)
        yield step, (rank - step) % count, keys
        keys = keys if under_way is None else under_way.wait()


def _shift(ring: Ring, tensors: list[Tensor], step: int, target: int) -> Shift:
    """Send tensors that are `step` steps from their home process on, until they are `target` steps from it."""
    rank, count = ring.sequence.rank, len(ring.schedule.keys)
    length = sum(stop - first for first, stop in ring.schedule.keys[(rank - target) % count])
    return Shift(tensors, length, target - step, ring.sequence)


def _parts(ring: Ring, chunk: int) -> Iterator[tuple[tuple[Interval, Interval], tuple[slice, slice]]]:
    """Yield the intervals of this process's queries and of keys of `chunk` that may see each other, and their slices in the tensors."""
    row = 0
    for rows in ring.schedule.rows[ring.sequence.rank]:
        key, count = 0, rows[1] - rows[0]
        for keys in ring.schedule.keys[chunk]:
            stop = key + keys[1] - keys[0]
            if ring.schedule.sees(rows, keys):
                yield (rows, keys), (slice(row, row + count), slice(key, stop))
            key = stop
        row += count


def _part(ring: Ring, part: tuple[Interval, Interval], query: Tensor, key: Tensor, value: Tensor, pieces: Any = None) -> Call:
    """The call of an interval of queries and an interval of keys, without its sink."""
    score, bias, normalizer = pieces or (ring.call.score, ring.call.bias, ring.call.normalizer)
    return block_call(
        replace(ring.call, query=query, key=key, value=value, score=score, bias=bias, normalizer=replace(normalizer, sink=None)),
        slice(*part[0]), slice(*part[1]), ring.total,
    )  # fmt: skip


def block_call(call: Call, rows: slice, keys: slice, total: tuple[int, int]) -> Call:
    """The call of these queries and keys out of `total`; its tensors are already theirs, its score, mask and bias are restricted here."""
    bias = None if call.bias is None else call.bias.of_block(rows, keys)
    mask = None if call.mask is None else mask_of_block(call.mask, rows, keys, total)
    score = call.score.of_block(rows, keys) if isinstance(call.score, Score) else call.score
    return replace(call, score=score, mask=mask, bias=bias)


class _Gradients:
    """The gradients of this process's share, summed over the passes."""

    def __init__(self, ring: Ring, inputs: tuple[Tensor, ...], leaves: list[Tensor]):
        self.ring, self.inputs, self.dtype = ring, inputs, ring.call.dtype
        self.query = torch.zeros_like(inputs[0], dtype=self.dtype)
        self.keys: tuple[Tensor, ...] = ()
        self.leaf_values = leaves
        self.leaves: list[Tensor | None] = [
            torch.zeros_like(leaf, dtype=self.dtype) if leaf is not None and leaf.requires_grad else None for leaf in leaves
        ]
        self.spec = pytree.tree_flatten((ring.call.score, ring.call.bias, ring.call.normalizer))[1]

    def add_sink(self, output: Tensor, lse: Tensor, upstream: Tensor) -> None:
        """Add the sink's gradient, which belongs to no key; if all processes have all queries, only one adds it."""
        sink, sequence = self.ring.call.normalizer.sink, self.ring.sequence
        if sink is not None and (sequence.query or sequence.rank == 0):
            _, _, normalizer = self._pieces(self.leaf_values)
            index = next(index for index, leaf in enumerate(self.leaf_values) if leaf is normalizer.sink)
            self._add(index, sink_gradient(output, lse, upstream, normalizer.sink))

    def gather(self, output: Tensor, lse: Tensor, upstream: Tensor) -> None:
        """Circulate keys again, followed by their gradients, which finally return to their home process."""
        ring, arriving, step = self.ring, None, 0
        for step, chunk, keys in _passes(ring, [self.inputs[1], self.inputs[2]]):
            sums = [torch.zeros_like(tensor, dtype=self.dtype) for tensor in keys]
            for part, where in _parts(ring, chunk):
                self._add_part(part, where, keys, sums, (output, lse, upstream))
            if arriving is not None:
                sums = [mine + others for mine, others in zip(sums, arriving.wait(), strict=True)]
            following = [number for number in ring.schedule.passes if number > step]
            arriving = _shift(ring, sums, step, following[0] if following else len(ring.schedule.keys))
        self.keys = tuple(arriving.wait()) if arriving is not None else ()

    def _add_part(self, part: Any, where: tuple[slice, slice], keys: list[Tensor], sums: list[Tensor], result: Any) -> None:
        row_slice, key_slice = where
        output, lse, upstream = result
        learned = [index for index, gradient in enumerate(self.leaves) if gradient is not None]
        with torch.enable_grad():
            inputs = [self.inputs[0][..., row_slice, :], *(tensor[..., key_slice, :] for tensor in keys)]
            inputs = [tensor.detach().requires_grad_() for tensor in inputs]
            leaves = list(self.leaf_values)
            for index in learned:
                leaves[index] = leaves[index].detach().requires_grad_()
            call = _part(self.ring, part, *inputs, pieces=self._pieces(leaves))
            known = resumed(call, output[..., row_slice, :], lse[..., row_slice], self.ring.formula)
        gradients = torch.autograd.grad(
            known, [*inputs, *(leaves[index] for index in learned)], upstream[..., row_slice, :], allow_unused=True
        )
        self.query[..., row_slice, :] += gradients[0]
        for total, gradient in zip(sums, gradients[1:3], strict=True):
            total[..., key_slice, :] += gradient
        for index, gradient in zip(learned, gradients[3:], strict=True):
            self._add(index, gradient)

    def _pieces(self, leaves: list[Tensor]) -> Any:
        return pytree.tree_unflatten(leaves, self.spec)

    def _add(self, index: int, gradient: Tensor | None) -> None:
        total = self.leaves[index]
        if gradient is not None and total is not None:
            total += gradient
