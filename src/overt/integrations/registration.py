"""overt's entry in transformers' registries of attention and of masks."""

import inspect

from overt.errors import InputError, MissingExtra
from overt.integrations.attention_function import attention
from overt.integrations.mask_function import attention_mask
from overt.integrations.watch import watch_models

NAME = "overt"


def huggingface() -> str:
    """Let Hugging Face models attend by overt: afterwards `attn_implementation="overt"` is known to transformers.

    For models whose attention goes through transformers' registry, as most do. The outputs are those of "eager", with which they
    share the model's own scale, mask, soft cap, sinks and position bias; queries that may attend to nothing get zeros. A model that
    takes the name and never asks for it is told of in a warning at its first forward pass; arguments that overt does not serve are
    an InputError that names them. `output_attentions=True` gives the weights, or a warning where the model's own code does not
    return them. Returns the name. Calling it again changes nothing.

    MissingExtra says how to install transformers where it is not there.

    >>> import torch, transformers
    >>> settings = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9}
    >>> config = transformers.GPT2Config(attn_implementation=huggingface(), **settings)
    >>> model = transformers.GPT2Model(config).eval()
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 16])

    A model that is there already changes over with `model.set_attn_implementation("overt")`.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, __version__, masking_utils
    except ImportError as error:
        raise MissingExtra("overt.integrations.huggingface", needs="transformers", extra="text") from error
    if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        rule = "overt.integrations.huggingface reads masks as transformers describes them from 5.4 on"
        raise InputError(rule, got=f"transformers {__version__}", fix='run: pip install "transformers>=5.4"')
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, attention_mask)
    watch_models(PreTrainedModel, NAME)
    return NAME
