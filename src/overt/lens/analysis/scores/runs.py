"""The run whose linear paths are followed, kept for the next score of the same recording."""

import threading
import weakref
from typing import Any

from torch import nn

from overt.lens.analysis.contributions.arguments import Recorded, compare, pass_arguments
from overt.lens.analysis.contributions.traced import Traced, traced
from overt.lens.recorded_calls import RecordedCalls


class _LatestRun:
    """At most one run, dropped with its recording or its model, because its graph is as large as the model's intermediate results."""

    def __init__(self):
        self.lock = threading.RLock()
        self.run: Traced | None = None
        self.source: tuple[Any, ...] = ()

    def traced_run(self, recording: RecordedCalls, model: nn.Module, calls: list[Recorded], inputs: Any) -> Traced:
        """The run of this recording and of the model's current parameters. Raises InputError if it differs from the recorded run."""
        versions = tuple((id(parameter), parameter._version) for parameter in model.parameters())
        same = self.run is not None and self.source[0]() is recording and self.source[1]() is model
        if not (same and self.source[2] is inputs and self.source[3] == versions):
            self.run = None
            args, kwargs = pass_arguments(recording, inputs, model)
            run = traced(model, args, kwargs, 0)
            compare(calls, run.points, type(model).__name__, inputs_passed=inputs is not None)
            run.differentiable = True
            self.source = weakref.ref(recording, self.drop), weakref.ref(model, self.drop), inputs, versions
            self.run = run
        assert self.run is not None
        self.run.forget()
        return self.run

    def drop(self, _: Any = None) -> None:
        """Free the run."""
        self.run, self.source = None, ()


LATEST = _LatestRun()
