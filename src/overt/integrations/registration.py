"""Register overt in transformers' AttentionInterface and AttentionMaskInterface."""

import inspect
import re
from typing import Any

from overt.attention.typing import MaskLike, NormalizerLike, ScoreLike
from overt.errors import InputError, MissingExtra
from overt.integrations.attention_interface import attention
from overt.integrations.custom_attention import CustomAttention
from overt.integrations.mask_interface import attention_mask
from overt.integrations.unused_warning import warn_if_unused

NAME = "overt"
_SERVED = "Its outputs are correct; overt's kernels were not used for it."
_NOT_APPLIED = "The score, mask or normalizer that you registered was not applied in it."


def huggingface(
    *,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    normalizer: NormalizerLike | None = None,
    name: str | None = None,
) -> str:
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

    With a `score`, `mask` or `normalizer`, as `overt.attend` takes them, it registers another attention under a name of its own,
    "overt_1" and so on, or `name`; a `name` of an earlier call is registered again. The score replaces the model's, its scale and
    soft cap included, and gets query (B, H, Q, D) and key (B, H, K, D) as the model computed them; `overt.Dot()` without a scale
    keeps the model's scale. The mask is applied together with the model's, and counts positions from the first token of the text. The
    normalizer replaces the softmax; a model with sinks refuses it. Scores, masks and weights are in float32 for a model in half precision,
    as in `overt.attend`; the output has the model's dtype.

    >>> from overt import Window
    >>> model.set_attn_implementation(huggingface(mask=Window(1, 0), name="two_keys"))
    >>> model(torch.tensor([[1, 2, 3]]), output_attentions=True).attentions[0][0, 0, 2, 0] == 0
    tensor(True)
    """
    custom = any(piece is not None for piece in (score, mask, normalizer))
    _check_transformers()
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    function: Any = CustomAttention(score, mask, normalizer) if custom else attention
    name = _name(name, custom, AttentionInterface())
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, attention_mask)
    warn_if_unused(PreTrainedModel, name, _NOT_APPLIED if custom else _SERVED)
    return name


def _check_transformers() -> None:
    try:
        from transformers import __version__, masking_utils
    except ImportError as error:
        raise MissingExtra("overt.integrations.huggingface", needs="transformers", extra="text") from error
    if "q_length" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        expected = "the mask interface of transformers 5.4 or later"
        raise InputError(expected, got=f"transformers {__version__}", fix='run: pip install "transformers>=5.4"')


def _name(name: str | None, custom: bool, registered: Any) -> str:
    """The name to register: a free one, or one of an earlier call."""
    if not custom:
        if name in (None, NAME):
            return NAME
        fix = f'leave name= out for "{NAME}", or pass a piece with it'
        raise InputError("a score=, mask= or normalizer= with a name", got=f"name={name!r} alone", fix=fix)
    if name is None:
        number = 1
        while f"{NAME}_{number}" in registered:
            number += 1
        return f"{NAME}_{number}"
    plain = isinstance(name, str) and re.fullmatch(r"[A-Za-z]\w*", name) and not re.search("flash|flex|sdpa|eager|paged", name)
    if not plain or name == NAME or not isinstance(registered.get(name, CustomAttention()), CustomAttention):
        raise InputError(
            'a name= of letters, digits and underscores, other than "overt" and the names of transformers',
            got=repr(name),
            fix='write name="narrow", or leave it out',
        )
    return name
