"""Layers: attention with its parameters, each one call of the same mechanism.

In `SelfAttention` the positions of one sequence attend to each other; `Contextual` puts it after any layer that maps a
sequence to a sequence, so that the next layer reads [h_i, c_i]; in `CrossAttention` a decoder attends to an encoder's states;
`AttentionPool` makes one vector of a sequence. The table in `overt.layers.parts.learned_scores` says what each named score learns.

`MultiHeadAttention` is the Transformer's, for self-attention and cross-attention: with positions by name or as a module (the table of
`overt.layers.positions.named`), and with a `KVCache` where tokens come one at a time. Its weights can be converted from and to torch's
layer, and `replace_multihead_attention` makes the torch layers inside any model compute with overt.
"""

from overt.layers.contextual import Contextual
from overt.layers.cross_attention import CrossAttention, Prepared
from overt.layers.kv_cache import KVCache
from overt.layers.multi_head import MultiHeadAttention, torch_state_dict
from overt.layers.pooling import AttentionPool
from overt.layers.positions.base import Positions
from overt.layers.positions.named import ALiBiPositions, LearnedPositions, RelativePositions, Sinusoidal
from overt.layers.positions.rotary import Rotary
from overt.layers.self_attention import SelfAttention
from overt.layers.torch_interop.replacing import ReplacedAttention, replace_multihead_attention

__all__ = [
    "ALiBiPositions",
    "AttentionPool",
    "Contextual",
    "CrossAttention",
    "KVCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "Positions",
    "Prepared",
    "RelativePositions",
    "ReplacedAttention",
    "Rotary",
    "SelfAttention",
    "Sinusoidal",
    "replace_multihead_attention",
    "torch_state_dict",
]
