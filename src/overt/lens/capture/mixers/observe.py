"""The calls of linear token mixers, observed by a hook before and after their functions."""

import functools
import inspect
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from overt.lens.capture.barrier import guarded, unseen
from overt.lens.capture.mixers import packed
from overt.lens.capture.mixers.check import disagreement
from overt.lens.capture.mixers.discover import FunctionHolder, function_holders
from overt.lens.capture.mixers.families import BY_FUNCTION, FORMS
from overt.lens.capture.mixers.flash_linear import Neighbours
from overt.lens.capture.mixers.form import Form, MixerCall
from overt.lens.capture.mixers.history import Histories, HistoryLink
from overt.lens.capture.recordable import unreadable
from overt.lens.capture.sink import CaughtMixer
from overt.lens.capture.token_axes.labels import Mixing
from overt.lens.capture.watching import Patch, at_work, patch
from overt.lens.linear.recurrence import Recurrence

NOT_CALLED = "it has a linear token mixer, {}, which did not run where it can be observed"
_NEIGHBOURS = {"a convolution": "{} mixes neighbours before it", "shift": "{} before it"}


@dataclass(eq=False)
class Running:
    """A running call of a mixer: the recurrence with all earlier positions, or the reason why there is none."""

    form: Form
    call: MixerCall
    reason: str | None = None
    whole: Recurrence | None = None
    notes: tuple[str, ...] = ()
    link: HistoryLink = field(default_factory=HistoryLink)
    original: Tensor | None = None


class Mixers:
    """The classes with mixers, the running mixer, and the functions that mixed tokens in its layer before it.

    `keeper` is the `Catcher`, which gets the observed mixers.
    """

    def __init__(self, keeper: Any):
        self.keeper = keeper
        self.kinds: dict[type, tuple[str, ...]] = {}
        self.instance_patches: dict[tuple[int, str], Patch] = {}
        self.histories: Histories = Histories()
        self.checked: MutableMapping[nn.Module, set[str]] = WeakIdKeyDictionary()  # the names of the checked functions
        self.running: Running | None = None
        self.stack: list[tuple[nn.Module, int, int]] = []  # running modules, with counts of earlier calls and mixings
        self.mixed: list[tuple[nn.Module, Mixing]] = []

    def patches(self, model: nn.Module) -> list[Patch]:
        """The patches that hook the functions of the mixers of a model."""
        by_kind = function_holders(model, BY_FUNCTION, FORMS)
        for kind, holders in by_kind.items():
            names = [holder.name for holder in holders if not isinstance(holder.form, Neighbours)]
            self.kinds |= {kind: tuple(dict.fromkeys(names))} if names else {}
        return [self._patch(item) for item in dict.fromkeys(holder for holders in by_kind.values() for holder in holders)]

    def _patch(self, holder: FunctionHolder) -> Patch:
        hooked = partial(_hooked, holder.form, holder.name)
        if not isinstance(holder.owner, nn.Module):
            return patch(holder.owner, holder.name, hooked)
        return self.instance_patches.setdefault((id(holder.owner), holder.name), Patch(holder.owner, holder.name, hooked))

    def entered(self, module: nn.Module, args: tuple[Any, ...] = ()) -> None:
        """Note that a module begins."""
        running = self.running
        if running is not None and running.form.read_by and module is getattr(running.call.module, running.form.read_by):
            with unseen():  # a view of overt's, hidden from other observers
                output = running.form.by_head(running.call.module, args[0])
            running.original = self.keeper.overwrite_mixer(running.form.kind, output, partial(self._so_far, running))
        if self.keeper.module is module:
            self.stack.append((module, self.keeper.caught, len(self.mixed)))

    def left(self, module: nn.Module, args: tuple[Any, ...], returned: Any) -> None:
        """Note that a module ended, and whether its mixer ran."""
        if self.running is not None:
            names = [name for name, child in self.running.call.module.named_children() if child is module]
            self.running.call.inner |= dict.fromkeys(names, (args, returned))
        if not any(entry is module for entry, *_ in self.stack):
            return
        while self.stack[-1][0] is not module:
            self.stack.pop()
        _, caught, _ = self.stack.pop()
        if not self.stack:
            self.mixed.clear()
        if type(module) in self.kinds and caught == self.keeper.caught:
            self.keeper.miss(NOT_CALLED.format(" or ".join(self.kinds[type(module)])))

    def mixes(self, mixing: Mixing) -> None:
        """Note that a function mixed tokens in the running module."""
        module = self.keeper.module
        if module is not None:
            self.mixed.append((module, mixing))

    def begin(self, form: Form, name: str, arguments: dict[str, Any], notes: tuple[str, ...] = ()) -> Running | None:
        """Read the arguments of a mixer's function before it may write to them."""
        module = self.keeper.module
        if module is None or self.running is not None:
            return None
        call = MixerCall(name, arguments, module, notes=notes)
        tensors = [argument for argument in arguments.values() if isinstance(argument, Tensor)]
        reason = next((reason for tensor in tensors if (reason := unreadable(tensor)) is not None), None)
        if (mixing := form.neighbours(call)) is not None:
            return self._mixed_neighbours(form, call, mixing)
        if reason is None and form.reads_after:
            call.before = form.prepare(call)
        elif reason is None:
            call.alone = form.read(call)
        running = Running(form, call, reason)
        if not form.reads_after:
            self._complete(running)
        self.running = running
        return running

    def _mixed_neighbours(self, form: Form, call: MixerCall, mixing: Mixing) -> Running:
        self.mixes(mixing)
        for sink in self.keeper.sinks:
            sink.mixes(mixing)
        self.running = Running(form, call)
        return self.running

    def _complete(self, running: Running) -> None:
        """Put the positions of earlier calls before this call's."""
        if isinstance(running.call.alone, str):
            running.reason = running.reason or running.call.alone
        else:
            running.whole, running.notes, running.link = self.histories.complete(running.call.module, running.call.alone)

    def _so_far(self, running: Running) -> Recurrence | None:
        """The recurrence of a call before its output is read, with all earlier positions; None if it cannot be recorded."""
        alone = running.form.read(running.call) if running.reason is None else running.reason
        return None if isinstance(alone, str) else self.histories.complete(running.call.module, alone)[0]

    def end(self, running: Running, returned: Any) -> None:
        """Record a mixer's function after it ended."""
        call = running.call
        self._label(call, returned)
        if running.form.neighbours(call) is not None:
            return None
        if running.form.reads_after and running.reason is None:
            call.alone = running.form.read(call)
            self._complete(running)
        if running.reason is not None:
            return self.keeper.miss(running.reason)
        assert isinstance(call.alone, Recurrence)
        assert running.whole is not None
        output, state = running.form.result(call, returned)
        checked = self.checked.setdefault(call.module, set())
        mixed = output if running.original is None else running.original
        which = call.name if not call.starts else f"{call.name} of packed texts"
        if which not in checked and (reason := disagreement(call.alone, mixed, call.starts)) is not None:
            return self.keeper.miss(reason)
        checked.add(which)
        if state is not None:
            now = self.histories.keep(call.module, call.alone.start, running.whole, state)
            running.link = running.link._replace(now=now)
        around = (*self._before(call.module), *running.form.around(call.module))
        written = None if running.form.read_by else running.form.written(call, returned)
        notes = (*running.notes, *call.notes)
        caught = CaughtMixer(running.whole, output, call.source, around, notes, running.link, written)
        return self.keeper.keep_mixer(caught, running.original)

    def _before(self, module: nn.Module) -> tuple[str, ...]:
        """Sentences on functions that mixed neighbours in this layer before its mixer; no other note names them.

        If the module has no modules of its own, and so holds only the recurrence, the layer is the module around it.
        """
        indices = [first for entry, _, first in self.stack if entry is module]
        if indices and len(self.stack) > 1 and next(module.children(), None) is None:
            indices = [self.stack[-2][2]]
        sentences = []
        for entry, mixing in self.mixed[indices[0] :] if indices else []:
            if mixing.kind in _NEIGHBOURS:
                for sink in self.keeper.sinks:
                    sink.explained(entry, mixing)
                sentences.append(_NEIGHBOURS[mixing.kind].format(mixing.says))
        return tuple(dict.fromkeys(sentences))

    def _label(self, call: MixerCall, returned: Any) -> None:
        """Label the results' dimensions like those of an argument of the same shape."""
        tokens, arguments = (
            self.keeper.tokens,
            [argument for argument in call.arguments.values() if isinstance(argument, Tensor)],
        )
        for tensor in tree_leaves(returned):
            if isinstance(tensor, Tensor):
                same = [argument for argument in arguments if argument.shape == tensor.shape]
                tokens.give(tensor, tokens.axes(same[-1]) if same else None)


def _hooked(form: Form, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a hook before and after it."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def hooked(*args, **kwargs):
        catcher: Any = at_work()
        mixers = getattr(catcher, "mixers", None)
        if mixers is None:
            return original(*args, **kwargs)
        running = guarded(catcher.failed, _begun, mixers, form, name, signature, args, kwargs)
        if running is None:
            return original(*args, **kwargs)
        try:
            returned = original(*args, **kwargs)
        finally:
            mixers.running = None
        guarded(catcher.failed, _ended, mixers, running, returned)
        return returned

    return hooked


def _begun(
    mixers: Mixers, form: Form, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Running | None:
    with unseen():
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments, passed_over = dict(bound.arguments), []
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                others = arguments.pop(parameter.name)
                passed_over = [name for name in packed.NAMES if others.pop(name, None) is not None]
                arguments |= others
        return mixers.begin(form, name, arguments, tuple(packed.PASSED_OVER.format(name) for name in passed_over))


def _ended(mixers: Mixers, running: Running, returned: Any) -> None:
    with unseen():
        mixers.end(running, returned)
