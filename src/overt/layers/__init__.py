"""Layers: attention with its parameters, each one call of the same mechanism.

`SelfAttention` lets the positions of one sequence look at each other; `Contextual` puts it behind any layer that maps a
sequence to a sequence, so that the next layer reads [h_i, c_i]; `CrossAttention` lets a decoder look at an encoder's states;
`AttentionPool` makes one vector of a sequence. What a named score learns is a table in `overt.layers.scoring`.
"""

from overt.layers.contextual import Contextual
from overt.layers.cross_attention import CrossAttention, Prepared
from overt.layers.pooling import AttentionPool
from overt.layers.self_attention import SelfAttention

__all__ = ["AttentionPool", "Contextual", "CrossAttention", "Prepared", "SelfAttention"]
