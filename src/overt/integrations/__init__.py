"""Run other libraries' models on overt's kernels.

`huggingface()` registers overt in transformers under the name "overt". A model with `attn_implementation="overt"` computes attention
by `overt.attend`: a mask is passed as one range of keys for each query, two numbers instead of Q × K; grouped heads are not copied;
soft caps, sinks, position biases and dropout are those of the model. Unsupported arguments are an error that names them. With a
score, a mask or a normalizer of the caller's own, `huggingface` registers another attention under another name.
"""

from overt.integrations.attention_interface import attention
from overt.integrations.flex import flex_attention, flex_attention_plan, replacing_flex_attention
from overt.integrations.mask_interface import attention_mask
from overt.integrations.registration import huggingface

__all__ = [
    "attention",
    "attention_mask",
    "flex_attention",
    "flex_attention_plan",
    "huggingface",
    "replacing_flex_attention",
]
