"""The linear paths from the outputs of a model's parts to its logits, tracked while the model runs.

A function of torch is passed on with its gradient if it is linear (a sum, a product with a parameter), and cut if it is not: its
output becomes a leaf of torch's graph, called a writer, and no gradient passes to its inputs. A product of two tensors is linear in
one of them if the other is frozen: the scale of a norm, a gate after attention. So the logits are, to rounding, a sum over writers:
their numbers times their gradients.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from overt.lens.analysis.contributions import functions
from overt.lens.analysis.contributions.functions import (
    CASTS,
    GATES,
    JOINS,
    MATRICES,
    MEANS,
    MOVES,
    PRODUCTS,
    SCALES,
    SUMS,
    Joined,
    Valued,
    detached,
    plain,
    tensors,
    tracked,
    writes,
)
from overt.lens.analysis.contributions.rounding import PathRounding
from overt.lens.capture.recordable import unreadable

# Roles of a tensor on the paths. SCALE: the scale of a norm; MIXING: the output of a token mixer; WRITTEN: a matrix times that output.
SCALE, MIXING, WRITTEN = "scale", "mixing", "written"


class Writer(NamedTuple):
    """A leaf of the graph: its kind ("embedding", "bias", "constant", "function"), and the module and function that computed it.

    `opening` is a factor of the writer and its multiplier: the writer is linear in the first if the second is frozen.
    """

    leaf: Tensor
    kind: str
    module: str
    function: str
    opening: tuple[Tensor, Tensor] | None = None


class LinearPaths(TorchFunctionMode):
    """Runs the functions of a model unchanged, and tracks the linear ones. `module` names the module that runs."""

    sees_inside = True  # nn.MultiheadAttention reaches it function by function

    def __init__(self, module: Callable[[], str]):
        super().__init__()
        self.module = module
        self.writers: list[Writer] = []
        self.rounding: PathRounding = PathRounding()
        self.roles: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.frozen: dict[tuple[str, str], bool] = {}  # whether the linear paths to the target pass the frozen factor
        self.cap: str | None = None
        self.words = 0
        self.latest: list[weakref.ref[Tensor]] = []
        self.factors: list[Tensor] = []  # queries and keys that are multiplied, kept until attention is recognised
        self.by_storage: dict[int, weakref.ref[Tensor]] = {}  # the largest tensor on the paths of each storage
        # Tensors that no writer made, by storage.
        self.untracked: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the function, and track its results."""
        args, kwargs = functions.without_parameters((args, kwargs or {}))
        name = getattr(func, "__name__", "")
        if not tracked((args, kwargs)):
            output = func(*args, **kwargs)
            for tensor in tensors(output):
                if tensor.is_floating_point() and unreadable(tensor) is None:
                    self.untracked[tensor.untyped_storage().data_ptr()] = _base(tensor)
            return self.write(output, "embedding", "embedding") if name == "embedding" else output
        if name in ("numpy", "__array__", "tolist", "__get__", "__set__") or not torch.is_grad_enabled():
            return func(*(args if name in ("__get__", "__set__") else detached(args)), **kwargs)
        return self._run(func, name, args, kwargs)

    def write(
        self, value: Any, kind: str, function: str, opening: tuple[Tensor, Tensor] | None = None, module: str | None = None
    ) -> Any:
        """Return the value as the beginning of linear paths, in the module that runs unless `module` names another."""
        if not isinstance(value, Tensor) or not value.is_floating_point() or not torch.is_grad_enabled():
            return value
        output = self._leaf(value, kind, function, opening, module).clone()  # the model may write to it
        self._remember(output)
        return output

    def _leaf(self, value: Tensor, kind: str, function: str, opening: Any = None, module: str | None = None) -> Tensor:
        leaf = value.detach().requires_grad_()
        self.writers.append(Writer(leaf, kind, self.module() if module is None else module, function, opening))
        return leaf

    def _remember(self, tensor: Tensor) -> None:
        self.latest = [*self.latest[-15:], weakref.ref(tensor)]
        pointer = tensor.untyped_storage().data_ptr()
        stored = self.by_storage.get(pointer)
        widest = None if stored is None else stored()
        base = _base(tensor)
        if widest is None or widest.numel() <= base.numel():
            self.by_storage[pointer] = weakref.ref(base)

    def followed(self, view: Tensor) -> Tensor | None:
        """The tensor on the paths for a view: itself, or the same view of the tensor that shares its storage; None if there is neither.

        A tensor computed only from parameters, such as learned queries, begins paths here.
        """
        if view.grad_fn is not None:  # a view that was made without gradients has none
            return view
        reference = self.by_storage.get(view.untyped_storage().data_ptr())
        stored = None if reference is None else reference()
        # The base of all views covers the whole storage, which queries, keys and values may share.
        tensors = [view._base, None if stored is None else stored._base, stored]
        tensor = next((one for one in tensors if one is not None and one.grad_fn is not None), None)
        with torch.enable_grad(), torch._C.DisableTorchFunction():
            if tensor is None:
                constant = view.untyped_storage().data_ptr() in self.untracked
                return self.write(view, "constant", "constant") if constant else None
            return tensor.as_strided(view.size(), view.stride(), view.storage_offset())

    def writing(self, view: Tensor) -> Tensor | None:
        """The latest tensor on the paths that shares the storage of this view."""
        pointer = view.untyped_storage().data_ptr()
        tensors = (reference() for reference in reversed(self.latest))
        return next(
            (tensor for tensor in tensors if tensor is not None and tensor.untyped_storage().data_ptr() == pointer), None
        )

    def gated(self, output: Tensor) -> Tensor | None:
        """The tensor that a mixer's function has just returned if it multiplied its output by a gate; otherwise None."""
        returned = self.latest[-1]() if self.latest else None
        if returned is None or returned.numel() != output.numel() or returned.shape[:2] != output.shape[:2]:
            return None
        self._freeze("a gate", returned)
        return returned

    def mark_mixing(self, tensor: Tensor) -> None:
        """Note that attention, or another token mixer, made this tensor."""
        self.roles[tensor] = MIXING

    def _run(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = plain(name)
        if base in ("layer_norm", "rms_norm", "normalize") and args and args[0].requires_grad:
            return self._norm(func, base, args, kwargs)
        if base in MOVES or base in CASTS:
            return self._passed(func, name, args, kwargs, 1 if base in CASTS else 0)
        if base in JOINS or base in SUMS:
            return self._affine(func, name, base, args, kwargs)
        if base in MEANS:
            return self._passed(func, name, args, kwargs, max(args[0].shape[-1] ** int(base[-2]), 2))
        if base in PRODUCTS:
            return self._product(func, name, base, args, kwargs)
        if base in MATRICES:
            return self._matrix(func, name, base, args, kwargs)
        if base == "tanh" and args[0].shape[-1] == self.words:
            self.cap = self.module()
            return args[0]
        # For an elementwise function with f(0) = 0: its argument x, and f(x)/x, which `Traced.open` computes.
        gate = (args[0], torch.empty(0)) if base in GATES and isinstance(args[0], Tensor) else None
        return self._cut(func, name, args, kwargs, gate)

    def _passed(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], terms: int, role: str | None = ""
    ) -> Any:
        """Run a linear function; `terms` is how many numbers are summed and rounded in each of its results."""
        role = self._role(args, kwargs) if role == "" else role
        inputs = detached((args, kwargs)) if terms > 1 else ((), {})
        output = func(*args, **kwargs)
        for result in tensors(args[0] if writes(name) else output):
            if role is not None:
                self.roles[result] = role
            elif result in self.roles:
                del self.roles[result]
            if result.requires_grad:
                self._remember(result)
            if terms and result.requires_grad:
                self.rounding.expect(result, terms, func, inputs)
        return output

    def _role(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        roles = {self.roles.get(tensor) for tensor in tracked((args, kwargs))}
        return roles.pop() if len(roles) == 1 else None

    def _affine(self, func: Any, name: str, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function that may add tensors from no writer, which begin paths of their own."""
        before = args[0].detach().clone() if writes(name) else None
        was_tracked = before is not None and args[0].requires_grad
        zeros, others = functions.zeros((args, kwargs))
        adds = functions.adds_constants(base, args, kwargs)  # a function that writes makes its first argument tracked
        summed = args[0].numel() if base in ("sum", "mean", "cumsum") else 2
        output = self._passed(func, name, args, kwargs, summed if base in SUMS else 0)
        result = args[0] if writes(name) else output
        if not adds or not isinstance(result, Tensor) or not result.is_floating_point():
            return output
        with torch.no_grad():
            first = () if before is None else (torch.zeros_like(before) if was_tracked else before,)
            constant = func(*first, *zeros[len(first) :], **others)
        constant = first[0] if first else constant
        if not bool(constant.any()):
            return output
        role = self.roles.get(result)
        joined = Joined.apply(result, self._leaf(constant, "constant", "constant"))
        self._remember(joined)
        if writes(name):
            args[0].copy_(joined)
            joined = args[0]
        if role is not None:
            self.roles[joined] = role
        return output if output is None else joined

    def _product(self, func: Any, name: str, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a product: it is linear if one factor is a constant, or linear in one tensor if the other is frozen."""
        operands = [*args, *(kwargs[key] for key in ("input", "other") if key in kwargs)][:2]
        both = [isinstance(operand, Tensor) and operand.requires_grad for operand in operands]
        numerator = 1 if functions.reversed_operands(name) else 0
        if kwargs.get("rounding_mode") is not None or "out" in kwargs:
            return self._cut(func, name, args, kwargs)
        if all(both):
            side = self._linear_side(*operands)
            side = side if base == "mul" or side == numerator else None
            if side is None or (side == 1 and writes(name)):
                return self._cut(func, name, args, kwargs, self._factors(base, operands, numerator))
            role = self.roles.get(operands[side])
            parts = list(args)
            parts[1 - side] = operands[1 - side].detach()
            output = self._passed(func, name, tuple(parts), kwargs, 2, role)
            is_scale = self.roles.get(operands[1 - side]) == SCALE
            self._freeze("the scale of a norm" if is_scale else "a gate", args[0] if writes(name) else output)
            return output
        if base == "div" and not both[numerator]:
            return self._cut(func, name, args, kwargs)
        return self._passed(func, name, args, kwargs, 2)

    def _linear_side(self, first: Tensor, second: Tensor) -> int | None:
        roles = self.roles.get(first), self.roles.get(second)
        scales, mixed = [role == SCALE for role in roles], [role in (MIXING, WRITTEN) for role in roles]
        if scales[0] != scales[1]:
            return scales.index(False)
        return mixed.index(True) if mixed[0] != mixed[1] else None

    def _factors(self, base: str, operands: list[Tensor], numerator: int) -> tuple[Tensor, Tensor] | None:
        if operands[0] is operands[1]:
            return None
        first, second = operands if numerator == 0 else operands[::-1]
        return (first, second.detach() if base == "mul" else second.detach().reciprocal())

    def _freeze(self, what: str, output: Tensor) -> None:
        key = (what, self.module())
        self.frozen.setdefault(key, False)
        if output.requires_grad:
            output.register_hook(lambda gradient: self._reach(key, gradient))

    def _reach(self, key: tuple[str, str], gradient: Tensor | None) -> None:
        self.frozen[key] |= gradient is not None and bool(gradient.any())

    def _matrix(self, func: Any, name: str, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a product with parameters; its bias begins paths of its own."""
        parts, kwargs = list(args), dict(kwargs)
        added: list[tuple[Any, Any]] = []
        if base in ("addmm", "baddbmm", "addbmm") and parts:
            added = [(parts, 0)]
        elif base.startswith(("linear", "conv")):
            added = [(kwargs, "bias")] if "bias" in kwargs else [(parts, 2)] if len(parts) > 2 else []
        for holder, index in added:
            if isinstance(holder[index], Tensor) and not holder[index].requires_grad:
                holder[index] = self._leaf(holder[index], "bias", name)
        bias = {id(holder[index]) for holder, index in added}
        sides = [item for item in tracked((parts, kwargs)) if id(item) not in bias]
        if len(sides) > 1:
            mixed = [side for side in sides if self.roles.get(side) == MIXING]
            if len(mixed) != 1 or writes(name):
                self.factors += sides
                return self._cut(func, name, tuple(parts), kwargs)
            parts = [part.detach() if isinstance(part, Tensor) and part is not mixed[0] else part for part in parts]
            output = self._passed(func, name, tuple(parts), kwargs, sides[0].shape[-1], MIXING)
            self._freeze("a gate", output)
            return output
        role = WRITTEN if sides and self.roles.get(sides[0]) in (MIXING, WRITTEN) else None
        return self._passed(func, name, tuple(parts), kwargs, max(sides[0].shape[-1] if sides else 1, 2), role)

    def _norm(self, func: Any, base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Run a norm with its scale frozen: the result is the model's own, the gradient is the linear function's."""
        with torch.no_grad():
            value = func(*detached(args), **detached(kwargs))
        linear = _LINEAR_NORMS[base](
            self, args[0], *args[1:], **{key: entry for key, entry in kwargs.items() if key != "input"}
        )
        output = Valued.apply(linear, value)
        if args[0] in self.roles:
            self.roles[output] = self.roles[args[0]]
        self._freeze("the scale of a norm", output)
        self.rounding.expect(output, 8, None, ((), {}))
        return output

    def layer_norm(
        self,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Layer norm with its scale frozen, a linear function of the input."""
        dims = tuple(range(-len(normalized_shape), 0))
        centred = input.to(_wide(input)) - input.to(_wide(input)).mean(dims, keepdim=True)
        return self._scaled(centred, dims, eps, weight, bias)

    def rms_norm(
        self, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        """RMS norm with its scale frozen, a linear function of the input."""
        dims = tuple(range(-len(normalized_shape), 0))
        eps = torch.finfo(input.dtype).eps if eps is None else eps
        return self._scaled(input.to(_wide(input)), dims, eps, weight, None)

    def _scaled(self, centred: Tensor, dims: tuple[int, ...], eps: float, weight: Any, bias: Any) -> Tensor:
        linear = centred * (centred.detach().square().mean(dims, keepdim=True) + eps).rsqrt()
        linear = linear if weight is None else linear * weight
        return linear if bias is None else linear + self._leaf(bias, "bias", "norm")

    def normalize(self, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
        """Division by a frozen norm."""
        return input / input.detach().norm(p, dim, keepdim=True).clamp_min(eps)

    def _cut(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], opening: tuple[Tensor, Tensor] | None = None
    ) -> Any:
        """Run a function that is not linear; its outputs become writers."""
        scales = plain(name) in SCALES or (plain(name) == "pow" and _negative(args[1:]))
        scales = scales or self._role(args, kwargs) == SCALE
        constants, others = detached((args, kwargs))
        if writes(name):
            constants = (constants[0].clone(), *constants[1:])
        with torch.no_grad():
            output = func(*constants, **others)
        if writes(name):
            args[0].copy_(self.write(constants[0], "function", name, opening))
            return args[0] if output is not None else None

        def written(leaf: Any) -> Any:
            result = self.write(leaf, "function", name, opening if isinstance(leaf, Tensor) else None)
            if scales and isinstance(result, Tensor):
                self.roles[result] = SCALE
            return result

        return tree_map(written, output)


_LINEAR_NORMS = {"layer_norm": LinearPaths.layer_norm, "rms_norm": LinearPaths.rms_norm, "normalize": LinearPaths.normalize}


def _base(tensor: Tensor) -> Tensor:
    """The base of a view (such as a key that was transposed for a product), which lives as long as any of its views."""
    return tensor if tensor._base is None else tensor._base


def _negative(numbers: tuple[Any, ...]) -> bool:
    return bool(numbers) and isinstance(numbers[0], int | float) and numbers[0] < 0


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
