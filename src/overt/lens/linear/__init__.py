"""Linear token mixers: each recurrence as a plain formula with its source and its signed weights.

A `Recurrence` has `weights(rows)` by the walk back from each row, `matrix()` by one triangular system, and `output()` step by step. The
functions make a `Recurrence` from a mixer's own quantities: mixers that erase (`delta_rule`, `gated_delta_rule`, `kimi_delta_attention`,
`rwkv7`), that only decay (`retention`, `lightning_attention`, `gated_linear_attention`, `rwkv6`), state spaces (`mamba2`, `mamba`,
`rg_lru`), and mixers that divide by a sum (`linear_attention`, `mlstm`, `rwkv4`).
"""

from overt.lens.linear.forms.decaying import gated_linear_attention, lightning_attention, retention, rwkv6
from overt.lens.linear.forms.delta import delta_rule, gated_delta_rule, kimi_delta_attention, rwkv7
from overt.lens.linear.forms.normalized import linear_attention, mlstm, rwkv4
from overt.lens.linear.forms.state_space import mamba, mamba2, rg_lru
from overt.lens.linear.recurrence import Recurrence

__all__ = [
    "Recurrence",
    "delta_rule",
    "gated_delta_rule",
    "gated_linear_attention",
    "kimi_delta_attention",
    "lightning_attention",
    "linear_attention",
    "mamba",
    "mamba2",
    "mlstm",
    "retention",
    "rg_lru",
    "rwkv4",
    "rwkv6",
    "rwkv7",
]
