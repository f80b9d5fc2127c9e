"""Heads removed from a model while it runs, and the change of its output."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from overt.errors import InputError
from overt.lens.analysis.editing.changes import checked_heads
from overt.lens.analysis.editing.context import Edits, edit
from overt.lens.analysis.editing.measures import relative_change
from overt.lens.capture.torch_layers.fast_path_switch import fast_path_off

LayerHead = tuple[int | str, int]


@dataclass(frozen=True)
class Ablation:
    """The result of an ablation: the measured `effect`, and the outputs `before` and `after`."""

    effect: Any
    before: Any
    after: Any
    heads: tuple[LayerHead, ...] = ()
    instead: str = "zero"

    def __repr__(self) -> str:
        effect = f"{float(self.effect):.3g}" if _is_number(self.effect) else type(self.effect).__name__
        number = f"{len(self.heads)} {'head' if len(self.heads) == 1 else 'heads'}"
        return f'Ablation(effect={effect}, {number}, "{self.instead}")'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def ablate(
    model: nn.Module,
    run: Callable[[], Any],
    heads: Sequence[LayerHead],
    *,
    instead: str = "zero",
    measure: Callable[[Any, Any], Any] | None = None,
) -> Ablation:
    """Run a model with and without some heads, and measure the change of its output.

        effect = measure(output, output without the heads)        by default ‖after − before‖ / ‖before‖

    Michel et al. 2019, section 2.3 (heads masked at test time). `run` runs the model and returns its output; `heads` are the heads
    to remove together, each `(layer, head)`, with the layer as its number within a pass or as a module's name. `instead="zero"` sets
    the output of a head to zero; "uniform" gives equal weight to every key that a query may attend to. A head of a linear token mixer
    is set to zero before gate and norm, and has no uniform weights. The default measure takes all floating-point tensors of the output
    together. Both runs draw the same dropout if the model is in training, run without gradients, and avoid torch's fast path, whose
    single kernel hides the heads.

    Limits: the model was not trained without the head, which causes a part of the effect (a smaller one with "uniform"). A head has
    little effect alone if another head can do the same.

    Raises InputError if a head does not exist or its attention cannot be changed, KindError for heads that are not pairs.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> ablation = overt.lens.ablate(attention, lambda: attention(x, x, x)[0], [(0, 1)])
    >>> 0 < ablation.effect < 2, ablation.after.shape
    (True, torch.Size([1, 5, 8]))
    """
    with torch.no_grad():
        with torch.random.fork_rng(), fast_path_off():
            before = run()
        with without_heads(model, heads, instead=instead):
            after = run()
    return Ablation(
        (measure or relative_change)(before, after), before, after, tuple((layer, head) for layer, head in heads), instead
    )


@contextmanager
def without_heads(model: nn.Module, heads: Sequence[LayerHead], *, instead: str = "zero") -> Iterator[None]:
    """Remove heads from a model while the block runs, and restore them afterwards.

    `ablate` describes the arguments and errors. The block runs without gradients. The output of a head is changed where `record` reads
    it: parameters do not change, and returned weights are those before the change. A recording opened inside the block has the
    changed outputs, and its `verify()` reports them; a recording around the block has the original ones.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.without_heads(attention, [(0, 0), (0, 1)]):
    ...     output = attention(x, x, x)[0]
    >>> bool((output == attention.out_proj.bias).all())
    True
    """
    if instead not in ("zero", "uniform"):
        raise InputError('instead="zero" or instead="uniform"', got=f"instead={instead!r}", fix="choose one of them")
    edits = Edits()
    for head in checked_heads(heads if heads is not None else []):
        edits = edits.scale(head, 0.0) if instead == "zero" else edits.pattern(head, "uniform")
    with edit(model, edits):
        yield
