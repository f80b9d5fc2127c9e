"""Docstrings as this project writes them, made Markdown: examples become blocks of their own."""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Fences the examples of docstrings, which Markdown would take for quotations."""

    def on_instance(self, *, obj, **kwargs):
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", obj.docstring.value)
