"""Docstrings as this project writes them, made Markdown: examples become blocks of their own, lists of fields become lists."""

import importlib
import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
PLAIN = griffe.ParameterKind.positional_or_keyword
CONSTANT = re.compile(r"[A-Z][A-Z_]+")
UNSEEN = re.compile(r"<BLANKLINE>$| *# doctest:.*$", re.MULTILINE)
FIELD = re.compile(r"^([a-z_]+(?:, [a-z_]+)*)( \(.*?\)+)?: ", re.MULTILINE)


class Docstrings(griffe.Extension):
    """What Markdown would misread in a docstring, written so that it does not; and signatures of pieces."""

    def on_object(self, *, obj, **kwargs):
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = "\n\n".join(markdown(part) for part in obj.docstring.value.split("\n\n"))

    def on_function(self, *, func, **kwargs):
        """Called for each function: a default that is a constant's name is given by its value."""
        for parameter in func.parameters:
            if CONSTANT.fullmatch(str(parameter.default)):
                parameter.default = repr(getattr(importlib.import_module(func.module.path), str(parameter.default)))

    def on_class(self, *, cls, **kwargs):
        """Called for each class: one made by `overt.attention.pieces.piece` is a dataclass, which is not seen from outside."""
        if any(str(decorator.value) == "piece" for decorator in cls.decorators):
            fields = [each for each in cls.attributes.values() if "instance-attribute" in each.labels]
            inputs = [
                griffe.Parameter("self", kind=PLAIN),
                *(griffe.Parameter(each.name, kind=PLAIN, default=each.value) for each in fields),
            ]
            made = griffe.Function(
                "__init__", parameters=griffe.Parameters(*inputs), lineno=cls.lineno, endlineno=cls.endlineno
            )
            cls.set_member("__init__", made)


def markdown(part: str) -> str:
    """A paragraph of a docstring: an example fenced, a list of fields with a bullet each, all else as it is."""
    if part.startswith(">>> "):
        return EXAMPLE.sub(lambda example: f"```pycon\n{UNSEEN.sub('', example[0])}\n```", part)
    if len(FIELD.findall(part)) > 2 and FIELD.match(part):
        return FIELD.sub(lambda field: f"- `{field[1]}`{field[2] or ''}: ", part)
    return part
