"""All recognised forms of linear token mixers, also indexed by the names of their functions."""

from overt.lens.capture.mixers.delta_rule import DeltaRule
from overt.lens.capture.mixers.flash_linear import HGRN, RWKV6, RWKV7, Decaying, Neighbours, NotRecorded
from overt.lens.capture.mixers.form import Form
from overt.lens.capture.mixers.lightning import Lightning
from overt.lens.capture.mixers.linear_unit import LinearUnit
from overt.lens.capture.mixers.normalized import MLSTM, RWKV4
from overt.lens.capture.mixers.state_space import Mamba2Scan, MambaScan, StateUpdate

FORMS: tuple[Form, ...] = (
    DeltaRule(),
    Mamba2Scan(),
    MambaScan(),
    StateUpdate(),
    Lightning(),
    MLSTM(),
    RWKV4(),
    LinearUnit(),
    Decaying(),
    RWKV6(),
    RWKV7(),
    HGRN(),
    NotRecorded(),
    Neighbours(),
)
BY_FUNCTION = {name: form for form in FORMS for name in form.functions}
