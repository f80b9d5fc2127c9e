"""Build models from plain data: a recipe or a saved folder names a model and its arguments, and `from_config` builds it.

Every model stores its arguments in `model.config`, so `type(model)(**model.config)` is a model of the same shape, as is
`from_config({"kind": type(model).__name__, **model.config})`.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_type_hints

from torch import nn

from overt.errors import InputError, KindError
from overt.models.classifier import Classifier
from overt.models.language_model import LanguageModel
from overt.models.seq2seq import Seq2Seq
from overt.models.tagger import Tagger
from overt.models.transformer import Transformer
from overt.models.transformer_encoder import TransformerEncoder

KINDS: dict[str, type[nn.Module]] = {
    model.__name__: model for model in (Transformer, TransformerEncoder, LanguageModel, Seq2Seq, Tagger, Classifier)
}

_MAX_NUMBER, _MAX_LAYERS = 2**31 - 1, 1000


def from_config(config: Mapping[str, Any]) -> nn.Module:
    """The model of a config: its `kind`, one of `KINDS`, and the arguments of that class by name.

    Raises InputError for an unknown kind, an unknown or missing argument, and KindError for an argument of another type, each by name.

    >>> model = from_config({"kind": "TransformerEncoder", "words": 100, "width": 16, "heads": 2, "layers": 1})
    >>> model.config["words"], model.config["norm"]
    (100, 'pre')
    """
    kind, arguments = config.get("kind"), {name: value for name, value in config.items() if name != "kind"}
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"kind as one of {', '.join(KINDS)}", got=repr(kind), fix=_nearest(str(kind), KINDS))
    model = KINDS[kind]
    _check(kind, arguments, model.__init__)
    try:
        return model(**arguments)
    except (ArithmeticError, MemoryError, RuntimeError) as error:
        sizes = ", ".join(f"{name} = {value}" for name, value in arguments.items() if type(value) is int)
        got = f"{sizes}: {' '.join(str(error).split())[:200]}"
        raise InputError(f"a {kind} that fits into memory", got=got, fix="choose smaller sizes") from error


def _check(kind: str, arguments: Mapping[str, Any], constructor: Callable[..., Any]) -> None:
    """Refuse unknown and missing arguments, and values whose types are not the constructor's."""
    parameters = {name: parameter for name, parameter in inspect.signature(constructor).parameters.items() if name != "self"}
    for name in arguments:
        if name not in parameters:
            raise InputError(f"arguments of {kind}: {', '.join(parameters)}", got=repr(name), fix=_nearest(name, parameters))
    missing = [name for name, parameter in parameters.items() if parameter.default is parameter.empty and name not in arguments]
    if missing:
        raise InputError(
            f"{' and '.join(missing)} of {kind}", got=", ".join(arguments) or "no arguments", fix="add each of them"
        )
    hints = get_type_hints(constructor)
    for name, value in arguments.items():
        maximum = _MAX_LAYERS if "layers" in name else _MAX_NUMBER
        if type(value) is int and abs(value) > maximum:
            raise InputError(f"{name} of {kind} of at most {maximum:,}", got=_short(value), fix="choose a smaller number")
        if not _has_type(value, hints.get(name, Any)):
            names = " or ".join(
                "None" if choice is type(None) else choice.__name__ for choice in get_args(hints[name]) or (hints[name],)
            )
            raise KindError(f"{name} of {kind} as {names}", got=f"{_short(value)} of type {type(value).__name__}")


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a plain value has the annotated type; an int is accepted as a float, and a bool is not accepted as a number."""
    if hint is Any:
        return True
    if get_args(hint):
        return any(_has_type(value, argument) for argument in get_args(hint))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"write {matches[0]!r}" if matches else "choose one of them"
