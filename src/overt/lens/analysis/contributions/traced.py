"""A second run of a model with its linear paths tracked, and the gradient of a logit with respect to each writer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from overt.attention import mechanism
from overt.attention.kernels.call import Call
from overt.errors import InputError
from overt.lens.analysis.contributions.functions import detached, tensors, tracked
from overt.lens.analysis.contributions.linear_paths import LinearPaths, Writer
from overt.lens.capture.adapters import catching
from overt.lens.capture.recorder import Recorder
from overt.lens.capture.sink import CaughtCall, CaughtMixer
from overt.lens.captured import head_count

_OPENED = 8  # most writers of a prediction head through which the paths are followed


@dataclass(eq=False)
class Point:
    """A call of attention or of another token mixer in this run: its layer, its output (B, H, Q, E), and the target's gradient there.

    No gradient passes a point: it is a writer whose parts are known.
    """

    layer: str
    heads: int
    output: Tensor
    order: int
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    gradient: Tensor | None = None

    def watch(self, tensor: Tensor) -> None:
        """Store the gradient of this tensor, of which the output is a view, and end the linear paths there."""
        view = self.output.size(), self.output.stride(), self.output.storage_offset()
        size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()

        def viewed(gradient: Tensor) -> Tensor:
            storage = gradient.new_zeros(elements)
            storage.as_strided(size, stride, offset).copy_(gradient)
            part = storage.as_strided(*view)
            return part.reshape(-1, self.heads, *part.shape[-2:])

        self._take(tensor, viewed)

    def watch_gated(self, gated: Tensor) -> None:
        """Store the gradient of a tensor that is the output times a gate, which is frozen, and end the linear paths there."""
        output = self.output.reshape(-1, self.heads, *self.output.shape[-2:])
        gate = torch.where(output == 0, 0, gated.detach().reshape(output.shape) / output)

        self._take(gated, lambda gradient: gradient.reshape(output.shape) * gate)

    def _take(self, tensor: Tensor, part: Callable[[Tensor], Tensor]) -> None:
        """Add this part of the tensor's gradient to the point's, and let none of it pass."""

        def take(gradient: Tensor | None) -> Tensor | None:
            if gradient is None:
                return None
            passed = part(gradient)
            self.gradient = passed if self.gradient is None else self.gradient + passed
            return torch.zeros_like(gradient)

        tensor.register_hook(take)


class _Points(Recorder):
    """Tracks the module that runs, and notes the outputs of token mixers."""

    def __init__(self, model: nn.Module, paths: Callable[[], LinearPaths]):
        super().__init__(model)
        self.paths, self.points = paths, list[Point]()

    def keep(self, caught: CaughtCall) -> None:
        """Note the output of attention."""
        if self.inside:
            paths, call = self.paths(), caught.call
            vectors = (paths.followed(tensor) for tensor in (call.query, call.key, call.value))
            self._point(self._owner(caught.weight), head_count(call), caught.output, *vectors)

    def keep_mixer(self, caught: CaughtMixer) -> None:
        """Note the output of a linear token mixer."""
        if self.inside:
            self._point(self._owner(None), caught.recurrence.heads, caught.output)

    def reads_mixer(self, kind: str, output: Tensor) -> None:
        """Mark the output of a mixer before the gate and norm inside its own function."""
        tensor = self.paths().writing(output) if self.inside else None
        if tensor is not None:
            self.paths().mark_mixing(tensor)

    def _point(self, layer: str, heads: int, output: Tensor, *vectors: Tensor | None) -> None:
        paths = self.paths()
        # A copy, because the model may write to its output.
        point = Point(layer, heads, output.detach().clone(), len(paths.writers), *vectors)
        self.points.append(point)
        tensor = paths.writing(output)
        if tensor is not None:
            point.watch(tensor)
        elif (gated := paths.gated(output)) is not None:
            tensor = gated
            point.watch_gated(gated)
        else:
            self._note(layer, "its output is copied to another layout")
            return
        paths.mark_mixing(tensor)


@dataclass(eq=False)
class Traced:
    """The results of a tracked run: the model's output, its writers and its calls of attention."""

    output: Any
    paths: LinearPaths
    points: list[Point]
    missing: list[tuple[str, str]]
    gradients: dict[int, Tensor] = field(default_factory=dict)
    differentiable: bool = False  # whether the gradients are differentiated again

    @property
    def logits(self) -> Tensor:
        """The logits (B, n, words). Raises InputError if the model returns none."""
        return model_logits(self.output)

    def follow(self, target: Tensor, points: list[Point]) -> None:
        """Compute the gradient of the target with respect to every writer that its linear paths reach.

        If the paths reach none of these calls, the last writers on them are opened: a prediction head may have functions that are not
        linear, whose gates are frozen.
        """
        self._add(
            torch.autograd.grad(target, self._leaves(), allow_unused=True, retain_graph=True, create_graph=self.differentiable)
        )
        for _ in range(_OPENED if points else 0):
            if any(point.gradient is not None for point in points) or not any(
                map(self.open, sorted(self.gradients, reverse=True))
            ):
                break

    def forget(self) -> None:
        """Reset the run for another target."""
        self.gradients.clear()
        self.paths.rounding.squares = 0.0
        for key in self.paths.frozen:
            self.paths.frozen[key] = False
        for point in self.points:
            point.gradient = None

    def open(self, index: int) -> bool:
        """Follow the paths through a writer with its other factor frozen. Returns whether the writer can be opened."""
        writer, gradient = self.paths.writers[index], self.gradients[index]
        if writer.opening is None or not writer.opening[0].requires_grad:
            return False
        factor, frozen = writer.opening
        if not frozen.numel():
            ratio = writer.leaf.detach() / factor.detach()
            frozen = torch.where(factor == 0, torch.zeros_like(ratio), ratio)
        passed = (gradient * frozen).sum_to_size(factor.shape)
        del self.gradients[index]
        below = torch.autograd.grad(
            factor, self._leaves(), passed, allow_unused=True, retain_graph=True, create_graph=self.differentiable
        )
        self._add(below)
        return True

    def _leaves(self) -> list[Tensor]:
        return [writer.leaf for writer in self.paths.writers]

    def _add(self, gradients: tuple[Tensor | None, ...]) -> None:
        for index, gradient in enumerate(gradients):
            if gradient is not None:
                before = self.gradients.get(index)
                self.gradients[index] = gradient if before is None else before + gradient

    def reached(self) -> list[tuple[Writer, float]]:
        """The writers that the linear paths reach, each with its term of the target."""
        pairs = ((self.paths.writers[index], gradient) for index, gradient in self.gradients.items() if bool(gradient.any()))
        products = [(writer, gradient.double(), writer.leaf.detach().double()) for writer, gradient in pairs]
        return [
            (writer, float(torch.where(gradient == 0, 0, gradient * leaf).detach().sum()))
            for writer, gradient, leaf in products
        ]


def traced(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], words: int) -> Traced:
    """Run the model with its linear paths tracked; `words` is the number of its logits."""
    paths: LinearPaths
    recorder = _Points(model, lambda: paths)
    paths = LinearPaths(lambda: recorder.running[-1][0] if recorder.running else "")
    paths.words = words
    with torch.enable_grad(), paths, catching(recorder), _opaque(paths):
        names = [*(f"input {index}" for index in range(len(args))), *kwargs]
        main = getattr(model, "main_input_name", "")
        first = main if not args and main in kwargs else next(iter(names), "")
        values = [
            _begun(paths, value, name, name == first) for name, value in zip(names, (*args, *kwargs.values()), strict=True)
        ]
        output = model(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    return Traced(output, paths, recorder.points, recorder.missing)


def model_logits(output: Any) -> Tensor:
    """The logits of a model's output. Raises InputError if it has states and no logits."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None:
        if hasattr(output, "last_hidden_state"):
            fix = "load it with its head, AutoModelForCausalLM or AutoModelForMaskedLM.from_pretrained(name), and record that"
            raise InputError(
                "a language model, which gives logits", got="one that gives last_hidden_state and no logits", fix=fix
            )
        logits = tensors(tuple(output.values()) if hasattr(output, "values") else output)[0]
    return logits


def _begun(paths: LinearPaths, argument: Any, name: str, first: bool) -> Any:
    """Begin linear paths at an argument of the model: at vectors, pictures and sound, but not at a mask of numbers."""

    def begin(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        data = leaf.is_floating_point() and (leaf.ndim > 2 or (first and leaf.ndim == 2)) and "mask" not in name
        return paths.write(leaf, "embedding", "input", module=name) if data else leaf.clone()

    return tree_map(begin, argument)


_lock = threading.Lock()  # one run at a time: what it replaces is shared by all threads


@contextmanager
def _opaque(paths: LinearPaths) -> Iterator[None]:
    """Treat `overt.attend`, and functions with their own gradient, as one function each that is not linear."""
    function: Any = torch.autograd.Function
    apply, compute, thread = function.__dict__["apply"], mechanism.compute, threading.get_ident()

    def cut_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = apply.__get__(None, cls)
        ours = cls.__module__.startswith("overt.lens.analysis.contributions")
        if ours or threading.get_ident() != thread or not torch.is_grad_enabled() or not tracked((args, kwargs)):
            return run(*args, **kwargs)
        with torch.no_grad():
            output = run(*detached(args), **detached(kwargs))
        return tree_map(lambda leaf: paths.write(leaf, "function", cls.__name__), output)

    def cut_compute(call: Call) -> Tensor:
        if threading.get_ident() != thread:
            return compute(call)
        with torch.no_grad(), torch._C.DisableTorchFunction():
            output = compute(detached(call))
        return paths.write(output, "function", "attend")

    with _lock:
        function.apply, mechanism.compute = classmethod(cut_apply), cut_compute
        try:
            yield
        finally:
            function.apply, mechanism.compute = apply, compute
