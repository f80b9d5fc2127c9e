"""Which kind of noise the values have, beyond noise that the bank itself models."""

from overt.smoothing.data.observed import Observed
from overt.smoothing.noise.amounts import SkewedAmounts
from overt.smoothing.noise.codes import ErrorCodes
from overt.smoothing.noise.counts import Counts
from overt.smoothing.noise.kind import Kind
from overt.smoothing.noise.logarithms import Proportional, Rates
from overt.smoothing.noise.outcomes import Outcomes
from overt.smoothing.noise.passed import Angles, OnScale

# The kinds in the order in which the values are asked, after what was passed. A kind of your own can be inserted.
KINDS: list[Kind] = [ErrorCodes(), Angles(), OnScale(), Outcomes(), Counts(), Rates(), SkewedAmounts(), Proportional()]


def recognize_kind(series: Observed) -> Kind | None:
    """The first kind that holds; None for most series. noise="poisson" comes before all others."""
    passed = [kind for kind in KINDS if isinstance(kind, Counts)] if series.options.counts else KINDS
    return next((kind for kind in passed if kind.holds(series)), None)


def kind_named(name: str) -> Kind:
    """The kind whose smoothings have this name."""
    return next(kind for kind in KINDS if name in kind.names)
