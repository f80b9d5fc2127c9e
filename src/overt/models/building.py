"""Models from plain data: a recipe or a saved folder names a kind and its numbers, and `from_config` makes the model of them.

Every model keeps what it was built with as `model.config`, so that `type(model)(**model.config)` is one of the same shape, and
`from_config({"kind": type(model).__name__, **model.config})` too.
"""

import difflib
import importlib
import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from torch import nn

from overt.errors import InputError, KindError

KINDS = {
    "Transformer": "overt.models.transformer",
    "TransformerEncoder": "overt.models.transformer_encoder",
    "LanguageModel": "overt.models.language_model",
    "Seq2Seq": "overt.models.seq2seq",
    "Tagger": "overt.models.tagger",
    "Classifier": "overt.models.classifier",
}

_LARGEST, _MOST_LAYERS = 2**31 - 1, 1000


def from_config(config: Mapping[str, Any]) -> nn.Module:
    """The model of a config: its `kind`, one of `KINDS`, and what that class is built with, by name.

    Raises InputError for an unknown kind, an unknown or missing name, and KindError for a value of another type, each saying which.

    >>> model = from_config({"kind": "TransformerEncoder", "words": 100, "width": 16, "heads": 2, "layers": 1})
    >>> model.config["words"], model.config["norm"]
    (100, 'pre')
    """
    kind, given = config.get("kind"), {name: value for name, value in config.items() if name != "kind"}
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"kind is one of {', '.join(KINDS)}", got=repr(kind), fix=_nearest(str(kind), list(KINDS)))
    model = getattr(importlib.import_module(KINDS[kind]), kind)
    _check(kind, given, model.__init__)
    try:
        return model(**given)
    except (ArithmeticError, MemoryError, RuntimeError) as error:
        sizes = ", ".join(f"{name} = {value}" for name, value in given.items() if type(value) is int)
        got = f"{sizes}: {' '.join(str(error).split())[:200]}"
        raise InputError(f"a {kind} has sizes that a machine can hold", got=got, fix="choose smaller sizes") from error


def arguments(given: dict[str, Any]) -> dict[str, Any]:
    """What a model is built with, from the `locals()` of its `__init__` before anything else is named there.

    >>> class Model:
    ...     def __init__(self, words, width=512):
    ...         self.config = arguments(locals())
    >>> Model(100).config
    {'words': 100, 'width': 512}
    """
    return {name: value for name, value in given.items() if name not in {"self", "__class__"}}


def _check(kind: str, given: Mapping[str, Any], made_by: Any) -> None:
    """Refuse names that the class does not take, those that it misses, and values of other types than it says."""
    parameters = {name: found for name, found in inspect.signature(made_by).parameters.items() if name != "self"}
    for name in given:
        if name not in parameters:
            raise InputError(
                f"{kind} is built with {', '.join(parameters)}", got=f"{name!r}", fix=_nearest(name, list(parameters))
            )
    missing = [name for name, found in parameters.items() if found.default is found.empty and name not in given]
    if missing:
        raise InputError(
            f"{kind} is not built without {' and '.join(missing)}", got=", ".join(given) or "nothing", fix="give each of them"
        )
    hints = get_type_hints(made_by)
    for name, value in given.items():
        most = _MOST_LAYERS if "layers" in name else _LARGEST
        if type(value) is int and abs(value) > most:
            raise InputError(f"{name} of {kind} is at most {most:,}", got=_short(value), fix="choose a smaller number")
        if not _is_of(value, hints.get(name, Any)):
            raise KindError(
                f"{name} of {kind} is {_in_words(hints[name])}", got=f"{_short(value)} of type {type(value).__name__}"
            )


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a plain value is of the annotated type; a whole number is a float too, and True is no number."""
    if hint is Any:
        return True
    if get_args(hint):
        return any(_is_of(value, each) for each in get_args(hint))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def _in_words(hint: Any) -> str:
    return " or ".join("None" if each is type(None) else each.__name__ for each in get_args(hint) or (hint,))


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 80 else f"{told[:60]}… ({len(told)} characters)"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"write {near[0]!r}" if near else "choose one of them"
