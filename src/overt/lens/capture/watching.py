"""The mode and the hooks of a recording in torch, which leave torch's kernels and results unchanged.

A mode gets the functions that the model calls, and two global hooks show the running module: hooks on the modules themselves would be
copied with them, and would turn off torch's fast path. For the same reason the mode is hidden when torch's own layers check for
overrides of their tensors. Both are removed while compiled code runs, because a mode or a hook would change the compiled program.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils.hooks import RemovableHandle

from overt.lens.capture.barrier import guarded

_WITH_FAST_PATH = ("torch.nn.modules.activation", "torch.nn.modules.transformer")
_lock = threading.Lock()
_thread = threading.local()  # torch's modes are also local to a thread


def at_work() -> "Watching | None":
    """The mode that watches this thread."""
    return getattr(_thread, "mode", None)


class Watch(NamedTuple):
    """The observation of a model's function: a replacement, equal to the bit, and a reader of its output."""

    run: Callable[..., Any]
    observe: Callable[[Any], object]


class Patch:
    """An attribute of another library, replaced while any thread needs it: `make(old)` returns the new one."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]):
        self.owner = owner
        self.name = name
        self.make = make
        self.original: Any = None
        self.replacement: Any = None
        self.users: int = 0

    def apply(self) -> None:
        """Replace the attribute, unless it is already replaced."""
        with _lock:
            self.users += 1
            if self.users == 1:
                self.original = getattr(self.owner, self.name)
                self.replacement = self.make(self.original)
                setattr(self.owner, self.name, self.replacement)

    def revert(self) -> None:
        """Restore the old attribute after the last user, unless other code has replaced it."""
        with _lock:
            self.users -= 1
            if not self.users and getattr(self.owner, self.name) is self.replacement:
                setattr(self.owner, self.name, self.original)


_patches: dict[tuple[int, str], Patch] = {}


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """The patch of an attribute of a module or class, one for all threads."""
    return _patches.setdefault((id(owner), name), Patch(owner, name, make))


class Watching(TorchFunctionMode):
    """A mode for one thread, with hooks for all modules, which is removed while compiled code runs.

    A subclass defines the reactions to a module that is `entered` or `left`, to compiled code (`stepped_aside`), and to an error of
    this work itself (`failed`).
    """

    def __init__(self, patches: list[Patch]):
        super().__init__()
        hidden = [patch(torch.overrides, "has_torch_function", _without_recorder)]
        if hasattr(torch.nn.modules.module, "_has_any_global_hook"):  # missing in torch 2.7; a compiled module warns of hooks
            hidden.append(patch(torch.nn.modules.module, "_has_any_global_hook", _without_recorder_hooks))
        self.patches: list[Patch] = [*hidden, *patches]
        self.compiler: Patch = _compiler()
        self.handles: list[RemovableHandle] = []
        self.wrapper: FrameType | None = None  # the frame that runs compiled code while the mode is removed
        self.index: int | None = None

    def begin(self) -> None:
        """Begin to watch."""
        _thread.mode = self
        self.compiler.apply()
        _push_mode(self)
        self._appear()

    def add(self, patches: list[Patch]) -> None:
        """Apply these patches as well, without duplicates."""
        new = [patch for patch in patches if patch not in self.patches]
        self.patches = [*self.patches, *new]
        for item in new if self.wrapper is None else []:
            item.apply()

    def end(self) -> None:
        """Stop watching and restore torch."""
        if self.wrapper is None:
            self._disappear()
            _take_off(self)
        self.compiler.revert()
        _thread.mode = None

    def step_aside(self, wrapper: FrameType) -> None:
        """Remove mode and hooks before compiled code, called by this frame, begins."""
        if self.wrapper is None:
            self.wrapper, self.index = wrapper, _take_off(self)
            self._disappear()
            # A compiled module runs without its hooks: torch's wrapper wraps one of its methods.
            self.stepped_aside(getattr(wrapper.f_locals.get("fn"), "__self__", None))

    def come_back(self, wrapper: FrameType) -> None:
        """Restore the mode after the compiled code that this frame called."""
        if self.wrapper is wrapper:
            self.wrapper = None
            if self.index is not None:
                _put_on(self, self.index)
            self._appear()

    def watch_compiler(self) -> None:
        """Patch torch's compiler after it is imported."""
        compiler = _compiler()
        if compiler is not self.compiler:
            compiler.apply()
            self.compiler.revert()
            self.compiler = compiler

    def entered(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """React to a module that begins, in any thread, with these positional arguments."""
        raise NotImplementedError

    def left(self, module: nn.Module, args: tuple[Any, ...] = (), returned: Any = None) -> None:
        """React to a module that ended, with an output or an error."""
        raise NotImplementedError

    def stepped_aside(self, owner: Any) -> None:
        """React to compiled code, which cannot be observed; `owner` is the owner of a compiled method, else None."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """React to an error of this work itself, not of the model."""
        raise NotImplementedError

    def hook(self) -> None:
        """Register the hooks for every module that begins or ends."""
        self.handles = [
            register_module_forward_pre_hook(self._entering),
            register_module_forward_hook(self._leaving, always_call=True),
        ]

    def unhook(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()

    def _appear(self) -> None:
        self.hook()
        for entry in self.patches:
            entry.apply()

    def _disappear(self) -> None:
        self.unhook()
        for entry in self.patches:
            entry.revert()

    def _entering(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        guarded(self.failed, self.entered, module, args)

    def _leaving(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        guarded(self.failed, self.left, module, args, output)


def caller(frame: FrameType | None) -> str:
    """The name of the module that called a function; overt's normalizers and torch's functions count as their callers."""
    while frame is not None and frame.f_globals.get("__name__", "") in ("overt.attention.normalizers", "torch.nn.functional"):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


def _without_recorder(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.overrides.has_torch_function` that ignores the recorder when torch's layers call it before their fast path."""

    @functools.wraps(original)
    def has_torch_function(relevant_args):
        mode = at_work()
        if mode is None or sys._getframe(1).f_globals.get("__name__") not in _WITH_FAST_PATH:
            return original(relevant_args)
        with _off(mode):
            return original(relevant_args)

    return has_torch_function


def _without_recorder_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_has_any_global_hook` that ignores the recorder's hooks, because a compiled module would warn of them."""

    @functools.wraps(original)
    def has_any_global_hook():
        mode = at_work()
        if mode is None:
            return original()
        mode.unhook()
        try:
            return original()
        finally:
            mode.hook()

    return has_any_global_hook


def _compiler() -> Patch:
    """The patch that notices compiled code: of the function that begins and ends it or, before its import, of torch.compile."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if hasattr(frames, "_maybe_set_eval_frame"):
        return patch(frames, "_maybe_set_eval_frame", _compiled_code)
    return patch(torch, "compile", _compiling)


def _compiled_code(original: Callable[..., Any]) -> Callable[..., Any]:
    """Notice compiled code: torch's wrapper sets a callback before a compiled function, and restores the old one after it."""

    @functools.wraps(original)
    def set_eval_frame(callback):
        mode, wrapper = at_work(), sys._getframe(1)
        if mode is not None and callback is not None:
            guarded(mode.failed, mode.step_aside, wrapper)
        before = original(callback)
        if mode is not None and callback is None:
            guarded(mode.failed, mode.come_back, wrapper)
        return before

    return set_eval_frame


def _compiling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(*args, **kwargs):
        compiled, mode = original(*args, **kwargs), at_work()
        if mode is not None:
            guarded(mode.failed, mode.watch_compiler)
        return compiled

    return compile


@contextmanager
def _off(mode: TorchFunctionMode) -> Iterator[None]:
    """Run the block with the mode off the stack."""
    index = _take_off(mode)
    try:
        yield
    finally:
        if index is not None:
            _put_on(mode, index)


def _take_off(mode: TorchFunctionMode) -> int | None:
    """Take a mode off the stack, even below others. Returns its index; None if it is not there (its own function runs)."""
    above = []
    index = None
    while index is None and (size := torch._C._len_torch_function_stack()):
        top = _pop_mode()
        if top is mode:
            index = size - 1
        else:
            above.append(top)
    for item in reversed(above):
        _push_mode(item)
    return index


def _put_on(mode: TorchFunctionMode, index: int) -> None:
    """Put a mode back on the stack at this index."""
    above = [_pop_mode() for _ in range(torch._C._len_torch_function_stack() - index)]
    for part in (mode, *reversed(above)):
        _push_mode(part)
