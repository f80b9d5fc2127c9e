"""All forms of linear token mixers that are recognised, by the names of their functions."""

from overt.lens.capture.mixers.delta_rule import DeltaRule
from overt.lens.capture.mixers.form import Form

FORMS: tuple[Form, ...] = (DeltaRule(),)
BY_FUNCTION = {name: form for form in FORMS for name in form.functions}
