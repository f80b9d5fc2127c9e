"""Measure each call of attention while a model runs, without storing it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from overt.lens.capture.adapters import catching
from overt.lens.capture.options import RecordOptions
from overt.lens.capture.recordable import recordable
from overt.lens.capture.recorder import Recorder
from overt.lens.captured import Captured, CapturedCall
from overt.lens.linear.captured import CapturedMixer

Measure = Callable[[CapturedCall | CapturedMixer], None]
Compute = Callable[[CapturedCall], Tensor | None]


@contextmanager
def observing(model: nn.Module, measure: Measure, compute: Compute | None = None) -> Iterator[Recorder]:
    """Call `measure` with each call of attention while the block runs; the call is valid until the model goes on.

    Only the size and name of a call are stored, in `recorder.calls`, so memory does not grow with the number of calls. As with
    `record`, the model's outputs stay the same; an error of `measure` goes to `recorder.missing` and does not reach the model.
    `compute` may compute a call of torch's fused function, the same within rounding, before the call is measured.
    """

    def store(captured: CapturedCall | CapturedMixer) -> Captured:
        measure(captured)
        return Captured(**captured.facts)

    recorder = Recorder(recordable(model), RecordOptions(store=store, compute=compute))
    with catching(recorder):
        yield recorder


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode while the block runs; afterwards the mode of each module is restored."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
