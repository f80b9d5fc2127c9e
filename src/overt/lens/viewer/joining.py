"""The page's modules as one text: what a build step would do, done by reading their import and export lines."""

import json
import re
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|let|class)) (\w+)", re.MULTILINE)


@cache
def joined(first: str) -> str:
    """The module `first` of this folder and all that it imports, each once, those imported before those that import.

    The modules import only by `import { name } from "./file.js";` on one line and export only by `export function`, `const` or
    `class`. Each becomes a function of its own, so that its names stay its own, which returns what it exports. `EXACT_TEXT` is the
    text of exact.js, which a Worker runs too.

    >>> "import" in joined("exact").split("EXACT_TEXT", 1)[0], "const $exact" in joined("exact")
    (False, True)
    """
    order: dict[str, None] = {}
    _visit(first, order)
    # JSON is JavaScript, and with "<" spelled out it cannot end the script element that it stands in.
    exact = json.dumps(_EXPORT.sub(r"\1 \2", read("exact.js"))).replace("<", "\\u003c")
    return "\n".join([f"const EXACT_TEXT = {exact};", *(_closed(name) for name in order)])


def read(name: str) -> str:
    """A file of this folder."""
    return files("overt.lens.viewer").joinpath(name).read_text(encoding="utf-8")


def _visit(name: str, order: dict[str, None]) -> None:
    """Put a module behind all that it imports."""
    for _, needed in _IMPORT.findall(read(f"{name}.js")):
        if needed not in order:
            _visit(needed, order)
    order.setdefault(name)


def _closed(name: str) -> str:
    text = read(f"{name}.js")
    exported = ", ".join(export for _, export in _EXPORT.findall(text))
    text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const \1 = $\2;\n", text))
    return f"const ${name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();"
