"""Other libraries' models on overt's kernels.

`huggingface()` enters overt into transformers' registries under the name "overt". A model that asks for that name attends by
`overt.attend`: masks go as one range of keys a query, two numbers in the place of Q × K; grouped heads are not copied; soft caps,
sinks, position biases and dropout are those of the model. What a model asks for and overt does not serve is refused by its name.
"""

from overt.integrations.attention_function import attention
from overt.integrations.mask_function import attention_mask
from overt.integrations.registration import huggingface

__all__ = ["attention", "attention_mask", "huggingface"]
