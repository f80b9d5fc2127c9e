"""Recognition of kinds of noise that the bank does not model itself."""

from overt.smoothing.data.observed import Observed
from overt.smoothing.noise.amounts import SkewedAmounts
from overt.smoothing.noise.codes import ErrorCodes
from overt.smoothing.noise.counts import Counts
from overt.smoothing.noise.kind import Kind
from overt.smoothing.noise.logarithms import Proportional, Rates
from overt.smoothing.noise.outcomes import Outcomes
from overt.smoothing.noise.passed import Angles, OnScale

# KINDS: kinds of noise in the order in which they are tested. You can insert a kind of your own.
KINDS: list[Kind] = [ErrorCodes(), Angles(), OnScale(), Outcomes(), Counts(), Rates(), SkewedAmounts(), Proportional()]


def recognize_kind(series: Observed) -> Kind | None:
    """The first kind of noise that holds for a series; None for most series. noise="poisson" overrides all other kinds."""
    passed = [kind for kind in KINDS if isinstance(kind, Counts)] if series.options.counts else KINDS
    return next((kind for kind in passed if kind.holds(series)), None)


def kind_named(name: str) -> Kind:
    """The kind whose smoothings have this name."""
    return next(kind for kind in KINDS if name in kind.names)
