"""FlexAttention's interface on overt's kernels: mods traced to expressions, and these lowered to scores, masks and biases.

A mod is traced and not sampled: an expression holds for all sizes, and values at some positions would not prove that.
"""

from overt.integrations.flex.front import flex_attention, flex_attention_plan
from overt.integrations.flex.replacement import replacing_flex_attention

__all__ = ["flex_attention", "flex_attention_plan", "replacing_flex_attention"]
