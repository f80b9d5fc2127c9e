"""All forms of linear token mixers that are recognised, by the names of their functions."""

from overt.lens.capture.mixers.delta_rule import DeltaRule
from overt.lens.capture.mixers.form import Form
from overt.lens.capture.mixers.state_space import Mamba2Scan, MambaScan, StateUpdate

FORMS: tuple[Form, ...] = (DeltaRule(), Mamba2Scan(), MambaScan(), StateUpdate())
BY_FUNCTION = {name: form for form in FORMS for name in form.functions}
