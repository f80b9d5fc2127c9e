"""Tokens that an index moves, followed exactly to find the ones that meet other tokens.

A function that takes tokens by an index gives its result `Origins`, which later functions rearrange, combine and reduce. Tokens are
mixed if they meet others in arithmetic, if each place sums several, if several are put into one place, or if all of them stay in
another order until the model ends. Tokens that are sorted, packed or sent to an expert and then put back are not mixed, nor are
tokens that are chosen or pooled.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from overt.lens.capture.token_axes.arrived import aligned, arrived_tokens, matching, sent_twice
from overt.lens.capture.token_axes.carried import (
    along_tokens,
    dims_reduced,
    joined,
    laid_out,
    multiplied,
    reduced,
    same_tokens,
    tensor_operands,
)
from overt.lens.capture.token_axes.earlier import EarlierTensors
from overt.lens.capture.token_axes.factors import Axes, Axis, Factor, axis_marks, is_basic, part
from overt.lens.capture.token_axes.labels import (
    NEIGHBOURS,
    ORDER,
    FunctionCall,
    Mixing,
    TensorLabel,
    TensorLabels,
    is_numbers,
)
from overt.lens.capture.token_axes.layout import JOINS, NEW, NORMS, REDUCTIONS
from overt.lens.capture.token_axes.mixing import PRODUCTS
from overt.lens.capture.token_axes.origins import (
    Move,
    Origins,
    are_several,
    counted_along,
    token_factors,
)
from overt.lens.capture.token_axes.put import PUTS, Slots, put
from overt.lens.capture.token_axes.taken import TAKING, Taking

Mixings = list[tuple[Mixing, nn.Module]]


class MovedTokens:
    """Follows tokens that an index took, and finds where they meet other tokens."""

    def __init__(self, labels: TensorLabels):
        self.labels = labels
        self.moves: list[Move] = []
        self.mixings: Mixings = []
        self.module: nn.Module | None = None
        self.earlier: EarlierTensors = EarlierTensors(labels)

    def begin(self, inputs: frozenset[int]) -> None:
        """Begin a run of the model with these input tensors."""
        self.moves, self.mixings = [], []
        self.earlier.begin(inputs)

    def in_another_order(self, sequences: set[str]) -> Mixings:
        """The modules that left all tokens in another order; the marks `sequences` count tokens if the batch is not the first mark."""
        moves = [
            move for move in self.moves if move.complete and not move.restored and (not move.whole_entries or "0" in sequences)
        ]
        self.moves = []
        return [(ORDER, move.module) for move in moves]

    def recorded(self, *tensors: Tensor) -> None:
        """Note that the moved tokens of these tensors are the keys of recorded attention."""
        for tensor in tensors:
            label = self.labels.label(tensor)
            for move in (move for origins in (() if label is None else label.origins) for move in origins.moves):
                move.restored = True

    def observe(self, step: FunctionCall, before: dict[int, TensorLabel], module: nn.Module, mixing: Mixing | None) -> None:
        """Follow one function, whose operands had these labels before it."""
        self.module, tensor = module, step.args[0] if step.args else None
        source = self._taken_from(step) if step.name in TAKING and _by_tensors(step) else None
        take = None if source is None else TAKING[step.name](step, source)
        if take is not None and source is not None and id(source) in before:
            self._take(step, source, before[id(source)], module, take)
        elif step.name in PUTS and (slots := self._slots(step, before)):
            self._put(step, slots, before, module)
        elif step.name not in NEW and any(label.origins for label in before.values()):
            self._carry(step, tensor, before, mixing)

    def _slots(self, step: FunctionCall, before: dict[int, TensorLabel]) -> list[Slots]:
        value = step.args[2] if step.name == "__setitem__" else None
        plain = step.name == "__setitem__" and not _by_tensors(step) and not (id(value) in before and before[id(value)].origins)
        return [] if plain else put(step)

    def _taken_from(self, step: FunctionCall) -> Tensor | None:
        tensor = (
            step.argument(1, "weight") if step.name == "embedding" else step.args[0] if step.args else step.kwargs.get("input")
        )
        label = self.labels.label(tensor)
        fixed = step.name == "embedding" and (label is None or label.constant)
        return tensor if tensor is not None and is_numbers(tensor) and tensor.ndim and not fixed else None

    def _take(self, step: FunctionCall, tensor: Tensor, label: TensorLabel, module: nn.Module, take: Taking) -> None:
        output = step.outputs[0]
        axes: list[Axis] = [(Factor(size),) for size in output.shape]
        whole = output.shape == tensor.shape and step.name != "pad" and not _are_pairs(label.axes)
        move = Move(module, complete=whole and tensor not in self.earlier)
        placed, fresh = [], False
        taken = {
            dim: Origins(token_factors(axis), take(counted_along(axis, dim, tensor.ndim, tensor.device), tensor.shape))
            for dim, axis in enumerate(label.axes)
            if tensor.shape[dim] > 1
        }
        if any(origins.tokens.ndim != output.ndim for origins in taken.values()):
            return
        where = {dim: at for dim, origins in taken.items() if (at := origins.identity()) is not None}
        touched, settled = taken.keys() - where.keys(), set(where.values())
        for dim, at in where.items():
            axes[at] = label.axes[dim] if output.shape[at] == tensor.shape[dim] else taken[dim].axis_at(at)
        for dim in touched:
            if axis_marks(label.axes[dim]) and not any(dim in origin.varying for origin in label.origins):
                fresh |= self._placed(axes, placed, taken[dim], move, label.axes, settled)
        for before in label.origins:
            twice_moved = touched & set(before.varying)
            moves = (*before.moves, move) if twice_moved else before.moves
            fresh |= bool(twice_moved)
            self._placed(
                axes, placed, Origins(before.home, take(before.tokens, tensor.shape), moves), None, label.axes, settled
            )
        if fresh:
            self.moves.append(move)
        known = self.labels.label(output)
        if step.name in _LAID_OUT and known is not None and touched and placed:  # its rule handles shifts and windows
            axes = list(known.axes)
        self.labels.know(output, TensorLabel(tuple(axes), label.position, label.sure, origins=tuple(placed)))

    def _placed(
        self,
        axes: list[Axis],
        placed: list[Origins],
        origins: Origins,
        move: Move | None,
        before: Sequence[Axis],
        settled: set[int],
    ) -> bool:
        """Store the axes of a result with taken tokens, except for `settled` dimensions.

        Returns whether the tokens are in another order.
        """
        varying, home = origins.varying, origins.home
        if not varying:
            return False
        if (where := origins.identity()) is not None:
            axes[where] = origins.axis_at(where)
            origins.restore()
            return False
        first = int(origins.tokens.flatten()[0])
        size = origins.tokens.numel()
        if move is not None and len(varying) == 1 and bool((origins.tokens.flatten().diff() == 1).all()):
            axes[varying[0]] = part(home, first, first + size, size)
            return False
        for dim in set(varying) - settled:
            axes[dim] = (Factor(origins.tokens.shape[dim], _mark(home), None, whole=False),)
        if move is not None:
            others = [axis for axis in before if axis_marks(axis) and axis != home]
            move.whole_entries = axis_marks(home) == {"0"} and bool(others)
        placed.append(origins if move is None else Origins(home, origins.tokens, (move,)))
        return move is not None

    def _put(self, step: FunctionCall, slots: list[Slots], before: dict[int, TensorLabel], module: nn.Module) -> None:
        output = step.args[0] if step.name == "__setitem__" else step.outputs[0]
        target, value = slots[0].target, slots[0].value
        label, source = before.get(id(target)), before.get(id(value))
        if source is None:
            return
        axes = list(
            label.axes if label is not None and len(label.axes) == output.ndim else [(Factor(s),) for s in output.shape]
        )
        if value.ndim == output.ndim:
            axes = [
                mine if axis_marks(mine) or value.shape[dim] != output.shape[dim] else source.axes[dim]
                for dim, mine in enumerate(axes)
            ]
        placed: list[Origins] = list(label.origins) if label is not None else []
        for slot in slots:
            counts = bool(label and not label.constant and len(label.axes) > slot.dim and axis_marks(label.axes[slot.dim]))
            slot = slot._replace(added=slot.added and counts)
            sources = self._sources(slot, source, _by_tensors(step))
            for origins in sources if len(slots) == 1 else matching(slot, sources):
                axes[slot.dim] = self._arrived(slot, origins, placed, output, module, len(slots) == 1)
        position = None if label is None else label.position
        self.labels.know(output, TensorLabel(tuple(axes), position, source.sure, origins=tuple(placed)))

    def _sources(self, slots: Slots, source: TensorLabel, plain: bool) -> list[Origins]:
        """The tokens of the numbers along the dimensions in which their slots differ; if `plain`, also tokens in order."""
        value, offset = slots.value, slots.slots.ndim - slots.value.ndim
        along = {dim - offset for dim, size in enumerate(slots.slots.shape) if size > 1 and dim >= offset}
        result = [origins for origins in source.origins if set(origins.varying) & along]
        known = {dim for origins in source.origins for dim in origins.varying}
        for dim, axis in enumerate(source.axes if plain else ()):
            if dim in along and dim not in known and axis_marks(axis):
                result.append(Origins(token_factors(axis), counted_along(axis, dim, value.ndim, value.device)))
        return result

    def _arrived(
        self, slots: Slots, origins: Origins, placed: list[Origins], output: Tensor, module: nn.Module, single: bool
    ) -> Axis:
        """Put tokens into their slots, and return the resulting axis."""
        size, home = output.shape[slots.dim], origins.home
        target = next((origin for origin in placed if origin.home == home and slots.dim in origin.varying), None)
        expected = slots.slots if target is None else target.tokens.flatten()[slots.slots] if len(target.varying) == 1 else None
        fits = size == origins.length or target is not None
        if fits and expected is not None and same_tokens(origins.tokens, expected):
            origins.restore()
            return home if target is None else (Factor(size, _mark(home), None, whole=False),)
        arrived = arrived_tokens(slots, origins.tokens, output) if single else None
        several = arrived is None or are_several(arrived)
        if arrived is not None and not slots.added and (copied := Origins(home, arrived)).identity(several=True) == slots.dim:
            origins.restore()
            return copied.axis_at(slots.dim)
        if slots.added or (several and (fits or sent_twice(slots, origins.tokens))):
            self.mixings.append((NEIGHBOURS, self._mixed_by(origins.moves)))
            return home if size == origins.length else (Factor(size, _mark(home), None, whole=False),)
        if arrived is not None:
            moves = origins.moves
            if not several and fits:
                moves = (*moves, Move(module, complete=True))
                self.moves.append(moves[-1])
            placed[:] = [origin for origin in placed if origin is not target]
            placed.append(Origins(home, arrived, moves))
        return (Factor(size, _mark(home), None, whole=False),)

    def _carry(
        self,
        step: FunctionCall,
        tensor: Tensor | None,
        before: dict[int, TensorLabel],
        mixing: Mixing | None,
    ) -> None:
        """Carry the places of a function's operands to its results."""
        label = before.get(id(tensor))
        if step.name in JOINS:
            if not along_tokens(step, before):
                self._meet(step, before, mixing)
            for origins in joined(step, before):
                self._give(step.outputs[0], origins)
        elif step.name in PRODUCTS and (products := multiplied(step, before)) is not None:
            for origins, mixed in products:
                self._result(step.outputs[0], origins, mixed, mixing)
        elif step.name in REDUCTIONS | NORMS and label is not None and tensor is not None:
            self._reduce(step, tensor, label, mixing)
        elif step.name == "scaled_dot_product_attention":
            for origins in before[id(query)].origins if (query := step.argument(0, "query")) is not None else ():
                self._give(step.outputs[0], origins)
        else:
            known = (
                {}
                if label is None or tensor is None
                else {id(origin): laid_out(step, tensor, origin) for origin in label.origins}
            )
            if any(entry is not None for entry in known.values()):
                for origins in label.origins:  # type: ignore[union-attr]
                    for output, tokens in zip(step.outputs, known[id(origins)] or [], strict=False):
                        if tokens is not None:
                            self._give(output, Origins(origins.home, tokens, origins.moves))
            else:
                self._combine(step, before, mixing)

    def _reduce(self, step: FunctionCall, tensor: Tensor, label: TensorLabel, mixing: Mixing | None) -> None:
        number = 2 if step.name in NORMS else 1
        dims = dims_reduced(step, number, tensor.ndim)
        for output in step.outputs if dims is not None else []:
            for origins in label.origins:
                tokens, mixed = reduced(origins, dims or set(), keepdim=output.ndim == tensor.ndim)
                self._result(output, Origins(origins.home, tokens, origins.moves), mixed, mixing)

    def _result(self, output: Tensor, origins: Origins, mixed: bool, mixing: Mixing | None) -> None:
        if mixed:
            if mixing is None:
                self.mixings.append((NEIGHBOURS, self._mixed_by(origins.moves)))
        else:
            self._give(output, origins)

    def _combine(self, step: FunctionCall, before: dict[int, TensorLabel], mixing: Mixing | None) -> None:
        """Carry places through a function that combines operands element by element, or treats each token separately."""
        at_home = self._meet(step, before, mixing)
        for output in step.outputs:
            for tensor in tensor_operands(step):
                for origins in before[id(tensor)].origins if id(tensor) in before else ():
                    tokens = origins.tokens
                    alike = (
                        [tensor.shape[dim] == output.shape[dim] for dim in origins.varying]
                        if tensor.ndim == output.ndim
                        else []
                    )
                    if tensor.ndim < output.ndim:
                        tokens = tokens.reshape(*(1,) * (output.ndim - tensor.ndim), *tokens.shape)
                        alike = [size in (1, wide) for size, wide in zip(tokens.shape, output.shape, strict=True)]
                    if alike and all(alike) and origins.home not in at_home:
                        self._give(output, Origins(origins.home, tokens, origins.moves))

    def _meet(self, step: FunctionCall, before: dict[int, TensorLabel], mixing: Mixing | None) -> list[Axis]:
        """Find tokens that meet others. Returns the dimensions along which a result has all tokens in order."""
        at_home: list[Axis] = []
        tensors = [tensor for tensor in tensor_operands(step) if id(tensor) in before]
        for tensor in tensors:
            for origins in before[id(tensor)].origins:
                for other in tensors:
                    if other is tensor or before[id(other)].constant:
                        continue
                    tokens, whole = _opposite(origins, tensor, other, before[id(other)])
                    if tokens is None or not aligned(origins.tokens, tokens) or same_tokens(origins.tokens, tokens):
                        continue
                    if mixing is None:
                        self.mixings.append((NEIGHBOURS, self._mixed_by(origins.moves)))
                    if whole:
                        at_home.append(origins.home)
        return at_home

    def _mixed_by(self, moves: Sequence[Move]) -> nn.Module:
        """The module to name: one that took all tokens by an index, or that is around the running function; else the innermost."""
        assert self.module is not None
        for move in moves:
            if move.complete or any(self.module is inside for inside in move.module.modules()):
                return move.module
        return self.module

    def _give(self, output: Tensor, origins: Origins) -> None:
        """Add places to a result, unless its tokens are in order."""
        label = self.labels.label(output)
        if label is None or not origins.varying or origins.tokens.ndim != output.ndim or len(label.axes) != output.ndim:
            return
        if any(size not in (1, length) for size, length in zip(origins.tokens.shape, output.shape, strict=True)):
            return
        if (where := origins.identity()) is not None:
            origins.restore()
            axes = tuple(origins.axis_at(dim) if dim == where else axis for dim, axis in enumerate(label.axes))
            self.labels.know(output, label._replace(axes=axes))
        elif not any(origin.home == origins.home for origin in label.origins):
            axes = tuple(
                (Factor(output.shape[dim], _mark(origins.home), None, whole=False),)
                if dim in origins.varying and not axis_marks(axis)
                else axis
                for dim, axis in enumerate(label.axes)
            )
            self.labels.know(output, label._replace(axes=axes, origins=(*label.origins, origins)))


_LAID_OUT = {"roll", "unfold", "pad"}


def _by_tensors(step: FunctionCall) -> bool:
    """Whether `tensor[index]` has an index of numbers unknown before the model runs; true for other functions."""
    return step.name not in ("__getitem__", "__setitem__") or not is_basic(step.args[1])


def _mark(axis: Axis) -> str:
    """The last mark of a dimension: the tokens' mark if batch entries come before them."""
    return next((factor.mark for factor in reversed(axis) if factor.mark), "")


def _are_pairs(axes: Axes) -> bool:
    """Whether numbers belong to pairs of tokens, like scores, or to single tokens, without features."""
    marks = [axis_marks(axis) for axis in axes]
    return all(marks) or (len(axes) > 1 and bool(marks[-1]) and any(marks[-1] & mark for mark in marks[:-1]))


def _opposite(origins: Origins, tensor: Tensor, other: Tensor, label: TensorLabel) -> tuple[Tensor | None, bool]:
    """The tokens of another operand along the same dimension, and whether all of them are in order."""
    for origin in label.origins:
        if origin.home == origins.home:
            return origin.tokens, False
    varying = {dim - tensor.ndim for dim in origins.varying}
    for dim, axis in enumerate(label.axes):
        if token_factors(axis) == origins.home and other.shape[dim] > 1:
            return counted_along(axis, dim, other.ndim, other.device), varying == {dim - other.ndim}
    return None, False
