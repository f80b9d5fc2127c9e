"""Registering overt in transformers' AttentionInterface and AttentionMaskInterface."""

import inspect

from overt.errors import InputError, MissingExtra
from overt.integrations.attention_interface import attention
from overt.integrations.mask_interface import attention_mask
from overt.integrations.unused_warning import warn_if_unused

NAME = "overt"


def huggingface() -> str:
    """Register overt in transformers, so that Hugging Face models accept `attn_implementation="overt"`; returns that name.

    It works for models that use transformers' attention registry, as most do. The outputs are those of "eager", with the model's
    scale, mask, soft cap, sinks and position bias; queries that may attend to nothing get zeros. A model that accepts the name and
    does not call overt gives a warning at its first forward pass, and arguments that overt does not support are an InputError that
    names them. `output_attentions=True` returns the weights, or gives a warning if the model's code does not return them. A second
    call changes nothing. Raises MissingExtra without transformers, and InputError for a version before 5.4.

    >>> import torch, transformers
    >>> settings = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9}
    >>> config = transformers.GPT2Config(attn_implementation=huggingface(), **settings)
    >>> model = transformers.GPT2Model(config).eval()
    >>> model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 16])

    A model that is already loaded is switched with `model.set_attn_implementation("overt")`.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, __version__, masking_utils
    except ImportError as error:
        raise MissingExtra("overt.integrations.huggingface", needs="transformers", extra="text") from error
    if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        expected = "the mask interface of transformers 5.4 or later"
        raise InputError(expected, got=f"transformers {__version__}", fix='run: pip install "transformers>=5.4"')
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, attention_mask)
    warn_if_unused(PreTrainedModel, NAME)
    return NAME
