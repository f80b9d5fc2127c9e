"""How much each token of an answer read of each span, and how much it loses without the span: mass, and exact knock-out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from overt.attention import mechanism
from overt.attention.kernels.call import Call, unrounded
from overt.attention.kernels.plan import choose_path
from overt.attention.kernels.sharded.ring import block_call
from overt.attention.masks import Window
from overt.attention.masks.kinds import Keys
from overt.attention.scores import Score
from overt.errors import InputError
from overt.lens.analysis.ablation import fast_path_off
from overt.lens.capture.adapters import catching
from overt.lens.capture.recordable import recordable, unreadable
from overt.lens.capture.recorder import Recorder
from overt.lens.capture.sink import CaughtCall, CaughtMixer
from overt.lens.captured import CapturedCall, by_head
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.repetition import weight_rows


@dataclass(eq=False)
class SpanMasses:
    """Adds up the weight that queries `first` to `stop` give to each span, call by call while the model runs.

    `masses` has, for each call by its layer's name and number, an array (heads, queries, spans): the sums of a head's weights over the
    span's tokens.
    """

    members: np.ndarray  # (spans, N)
    first: int
    stop: int
    masses: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    ahead: tuple[int, Tensor] | None = None  # the number of the call that `compute` has computed, and its masses

    def compute(self, captured: CapturedCall) -> Tensor | None:
        """The output of a call before the model computes it, with masses from the same products. None if no kernel computes both."""
        call, length = captured.checked_call(), self.members.shape[1]
        if (captured.batch, captured.queries, captured.keys) != (1, length, length) or call.query.dtype != call.dtype:
            return None
        members = self._members(captured.output.device)
        value = members.to(call.dtype).expand(*call.value.shape[:-1], members.shape[-1])
        both = replace(call, value=torch.cat([call.value, value], -1))
        if choose_path(call) != "native" or choose_path(both) != "native":
            return None
        parts = [_rows(call, slice(0, self.first)), _rows(both, slice(self.first, length))]
        before, rows = (mechanism.compute(part) for part in parts)
        width = call.value.shape[-1]
        self.ahead = captured.number, by_head(call, rows[..., : self.stop - self.first, width:])[0].double()
        return torch.cat([before, rows[..., :width]], -2)

    def _members(self, device: torch.device) -> Tensor:
        return torch.tensor(self.members.T, device=device)  # (N, spans)

    def __call__(self, captured: CapturedCall | CapturedMixer) -> None:
        """Measure a call whose queries and keys are the tokens."""
        length = self.members.shape[1]
        if (captured.batch, captured.queries, captured.keys) != (1, length, length):
            raise InputError(
                "queries and keys that are the tokens of the log", got=f"{captured.queries} queries and {captured.keys} keys"
            )
        members = self._members(captured.output.device)
        if self.ahead is not None and self.ahead[0] == captured.number:
            masses = self.ahead[1]
        elif isinstance(captured, CapturedMixer):
            masses = _mixer_masses(captured, members, self.first, self.stop)
        else:
            masses = _masses(captured, members, self.first, self.stop)
        self.masses[captured.layer, captured.call_index] = masses.cpu().numpy()


def _masses(captured: CapturedCall, members: Tensor, first: int, stop: int) -> Tensor:
    """The weight of these queries on each span (heads, rows, spans): attention to values that are 1 in the span, and 0 elsewhere.

    So the kernels compute it, no other queries are read, and no row of weights is stored.
    """
    call = captured.checked_call()
    query, key = call.query, call.key
    if isinstance(call.score, Score):  # a caller's own function gets its inputs unchanged
        query, key = query.to(call.dtype), key.to(call.dtype)
    value = members.to(call.dtype).reshape(*(1,) * (key.ndim - 2), *members.shape)
    rows = _rows(replace(call, query=query, key=key, value=value, dropout=0.0), slice(first, stop))
    with torch._C.DisableTorchFunction(), torch.no_grad(), unrounded(query):
        return by_head(call, mechanism.compute(rows))[0].double()


def _rows(call: Call, rows: slice) -> Call:
    """The call of some of its queries only."""
    part = replace(call, query=call.query[..., rows, :])
    return block_call(part, rows, slice(0, call.keys), (call.queries, call.keys))


def _mixer_masses(captured: CapturedMixer, members: Tensor, first: int, stop: int) -> Tensor:
    """The weight of these queries on each span in a linear token mixer, whose rows of weights must be computed."""
    rows = (weights[0] for _, weights, _ in weight_rows(captured, [(first, stop)]))
    return torch.cat([(weights @ members.to(weights.dtype)).double() for weights in rows], dim=1)


@contextmanager
def without_keys(model: nn.Module, visible: Tensor) -> Iterator[None]:
    """Mask keys in every call of attention while the block runs: tokens attend to a key (N,) only if it is visible or their own.

    So the masked tokens influence no other token, in any layer, and positions do not change. The model's own parameters and masks do not
    change; it must run without gradients, on all N tokens at once. Raises InputError if a call cannot be changed: an attention without
    its query and key, or a linear token mixer.
    """
    masker = _KeyMask(recordable(model), visible)
    with fast_path_off(), catching(masker):
        yield
    if masker.missing or not masker.changed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in masker.missing) or "no attention of these tokens ran"
        raise InputError("attention in which keys can be masked, in every layer", got=reasons)


class _KeyMask(Recorder):
    """Overwrites the output of each call by the output with some keys masked."""

    writes = True

    def __init__(self, model: nn.Module, visible: Tensor):
        super().__init__(model)
        self.visible, self.changed = visible, 0
        self.computed: Tensor | None = None  # the query of the call whose output already has the mask

    @property
    def computes(self) -> bool:
        """True inside the model, because the output without the mask is not needed."""
        return self.inside

    def compute(self, call: Call) -> Tensor:
        """The output with the mask."""
        self.computed, output = call.query, self._masked(call)
        return output.expand(*call.batch, *output.shape[-2:]).to(call.query.dtype)

    def keep(self, caught: CaughtCall) -> None:
        """Compute the call again with the mask, and overwrite its output."""
        if not self.inside:
            return
        if self.computed is not caught.call.query:
            masked = self._masked(caught.call)
            caught.output.copy_(masked.expand(caught.output.shape))
        self.computed = None
        self.changed += 1

    def _masked(self, call: Call) -> Tensor:
        layer, length = self.running[-1][0], len(self.visible)
        if (reason := unreadable(call.query)) is not None or (call.queries, call.keys) != (length, length):
            raise InputError(
                f"queries and keys of {layer} that are the tokens", got=reason or f"{call.queries} and {call.keys} of {length}"
            )
        with torch._C.DisableTorchFunction(), torch.no_grad():
            visible = Keys(self.visible.to(call.query.device)) | Window(0, 0)
            mask = visible.bind(len(call.batch), length, length)
            mask = mask if call.mask is None else call.mask & mask
            return mechanism.compute(replace(call, mask=mask, dropout=0.0))

    def keep_mixer(self, caught: CaughtMixer) -> None:
        """Raise, because a state has no keys that can be masked."""
        if self.inside:
            got = f"{self.running[-1][0]}, {caught.recurrence.kind}, which has a state"
            raise InputError("attention in which keys can be masked", got=got)

    def failed(self, error: Exception, weight: Tensor | nn.Module | None = None) -> None:
        """Stop the run, because a result with an unchanged layer would be wrong."""
        raise error
