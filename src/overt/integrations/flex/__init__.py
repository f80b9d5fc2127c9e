"""FlexAttention's interface on overt's kernels: mods are traced to expressions, which are lowered to scores, masks and biases.

A mod is traced, not sampled: an expression holds for all sizes, which values at some positions could not prove.
"""

from overt.integrations.flex.front import flex_attention, flex_attention_plan
from overt.integrations.flex.replacement import replacing_flex_attention

__all__ = ["flex_attention", "flex_attention_plan", "replacing_flex_attention"]
