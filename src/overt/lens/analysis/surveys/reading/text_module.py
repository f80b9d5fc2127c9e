"""The module of a model that reads one text: the model itself, or the encoder of an encoder–decoder.

A decoder has a text of its own. Some models make it from the encoder's, moved by one token (Bart), so that the decoder's rows would
count for the wrong words; others refuse to run without it (T5).
"""

import inspect
from typing import Any

from torch import nn

from overt.errors import InputError

ENCODER_ONLY = "only the encoder is measured, because the decoder reads a text of its own"


def text_module(model: nn.Module) -> nn.Module:
    """The model, or its encoder if a decoder has a text of its own. Raises InputError for a model of several texts, or of no text.

    >>> text_module(nn.Identity())
    Identity()
    """
    encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False) and hasattr(model, "get_encoder")
    module: Any = model.get_encoder() if encodes else model  # type: ignore[operator]
    expected = "a model that reads one text"
    first = getattr(module, "main_input_name", "input_ids")
    if first != "input_ids":
        fix = "use overt.lens.record, which records any input"
        raise InputError(expected, got=f"a {type(model).__name__}, which reads {first}", fix=fix)
    required = [
        parameter.name
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 1 and required[1] not in ("attention_mask", "lengths"):
        got = f"a {type(model).__name__}, which is called with {', '.join(required)}"
        raise InputError(expected, got=got, fix="pass the part that reads the text, such as model.encoder")
    return module
