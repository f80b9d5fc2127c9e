"""Pages that load nothing: style, script and data are in one file, and only that style and that script may run."""

import json
import math
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from overt.drawing.numbers import INDEX, in_bytes, visible
from overt.errors import InputError
from overt.files import whole

PAGE_LIMIT, DATA_PAGE_LIMIT = 24 * 10**6, 20 * 10**6  # bytes
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.[\w./-]+\.js)";\n', re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)  # lines of their own
_TRAILING = re.compile(r"""(?<=[;,{}]) // [^"'`\n]*$""", re.MULTILINE)  # no string of one line has this: its quote would follow
_BLANK = re.compile(r"^[ \t]+|^\n", re.MULTILINE)  # indentation, and empty lines
_STYLE_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STYLE_SPACE = re.compile(r"(?<=[{};,])\s+|\s+(?=[{}])")  # space that no style needs
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|let|class)) (\w+)", re.MULTILINE)


def escape_text(text: str) -> str:
    """Escape text for HTML, whatever it contains.

    >>> escape_text("<b>&\\x00")
    '&lt;b&gt;&amp;␀'
    """
    return escape(visible(text))


def formula(text: str) -> str:
    """A formula as HTML, with indices as subscripts.

    >>> formula("c_1 = Σ a_1j h_j")
    'c<sub>1</sub> = Σ a<sub>1j</sub> h<sub>j</sub>'
    """
    return re.sub(INDEX, r"<sub>\1</sub>", escape_text(text))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML; the first cell of a row is its heading.

    >>> table(["head", "right"], [["L0H1", "0.93"]])
    '<table><thead><tr><th>head</th><th>right</th></tr></thead><tbody><tr><th>L0H1</th><td>0.93</td></tr></tbody></table>'
    """
    names = "".join(f"<th>{name}</th>" for name in header)
    lines = "".join(f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for first, *cells in rows)
    return f"<table>{f'<thead><tr>{names}</tr></thead>' if names else ''}<tbody>{lines}</tbody></table>"


def script_json(value: Any) -> str:
    r"""JSON that is safe inside a script element: it can neither end that element nor start another.

    Numbers keep seven digits, like float32; non-finite numbers become text that JavaScript's `Number` reads.

    >>> script_json(["</script>", 0.1234567891, float("-inf")])
    '["\\u003c/script\\u003e",0.1234568,"-Infinity"]'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(f"{value:.7g}")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def read(path: str) -> str:
    """A file of the package, by its path inside it."""
    return files("overt").joinpath(path).read_text(encoding="utf-8")


def fill_template(path: str, *, style: str, script: str, **parts: str) -> str:
    """Fill the template's `{{name}}` fields with style, script, their hashes for the page's policy, and the other parts.

    Everything is inserted in one pass: inserted text is not searched for fields.
    """
    style = _STYLE_SPACE.sub("", _STYLE_COMMENT.sub("", style))
    parts |= {"style": style, "style_hash": _hash(style), "script": script, "script_hash": _hash(script)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read(path))


def data_page(
    root: str,
    web: str,
    path: str | os.PathLike[str] | None,
    *,
    title: str,
    data: Any,
    still: str,
    smaller: str,
    library: str = "",
) -> str:
    """Write a page whose script, `root`.js in the folder `web`, shows data in the element `root`; `still` is shown without scripts.

    `library` names a script and a style in drawing/web/vendored that come first. Returns the path, or without `path` the page itself.
    Raises InputError for more than 20 MB; `smaller` is the fix in that error.
    """
    vendored = [f"drawing/web/vendored/{library}.{ending}" for ending in ("iife.min.js", "min.css") if library]
    html = fill_template(
        "drawing/web/data_page.html",
        style="\n".join(
            map(read, (*vendored[1:], "drawing/web/palette.css", "drawing/web/data_page.css", f"{web}/{root}.css"))
        ),
        script="\n".join([*(read(file) for file in vendored[:1]), bundle(f"{web}/{root}.js")]),
        root=root,
        title=escape_text(title),
        data=script_json(data),
        still=still,
    )
    size = len(html.encode())
    if size > DATA_PAGE_LIMIT:
        raise InputError(f"a page of at most {in_bytes(DATA_PAGE_LIMIT)}", got=in_bytes(size), fix=smaller)
    return write_page(html, path)


def write_page(html: str, path: str | os.PathLike[str] | None) -> str:
    """Write a page, whole or not at all. Returns its path, or the page itself without one."""
    if path is None:
        return html
    with whole(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return os.fspath(path)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def bundle(first: str, reused: str = "") -> str:
    """The JavaScript module at `first` with all its imports, as one text without comments; imported modules come first.

    The modules import only by `import { name } from "./file.js";` on one line and export only by `export function`, `const` or
    `class`. Each becomes a function that returns its exports, so that two modules may use the same names. The function
    of the module `reused` has the name REUSED, for a Worker that runs its text.

    >>> text = bundle("lens/viewer/web/map/colour_scale.js")
    >>> "import" in text, text.index("const $viewer_data_exact") < text.index("const $viewer_map_colour_scale")
    (False, True)
    """
    order: dict[str, None] = {}
    _add_after_imports(first, order)
    return "\n".join(['"use strict";', *(_as_function(path, path == reused) for path in order)])


def _add_after_imports(path: str, order: dict[str, None]) -> None:
    for _, imported in _IMPORT.findall(read(path)):
        if (target := _resolved(path, imported)) not in order:
            _add_after_imports(target, order)
    order.setdefault(path)


def _resolved(path: str, imported: str) -> str:
    return normpath(PurePosixPath(path).parent / imported)


def _as_function(path: str, reused: bool) -> str:
    text = _BLANK.sub("", _TRAILING.sub("", _COMMENT.sub("", _EXPORT.sub(r"\1 \2", read(path)))))
    exported = ", ".join(name for _, name in _EXPORT.findall(read(path)))
    text = _IMPORT.sub(lambda match: f"const {match[1]} = {_identifier(_resolved(path, match[2]))};\n", text)
    function = f"() => {{\n{text}\nreturn {{ {exported} }};\n}}"
    return (
        f"const REUSED = {function};\nconst {_identifier(path)} = REUSED();"
        if reused
        else f"const {_identifier(path)} = ({function})();"
    )


def _identifier(path: str) -> str:
    """The module's name in the bundle: the package with the folder web, and the path inside that folder."""
    return "$" + re.sub(r"\W", "_", re.sub(r"^.*?(\w+)/web/", r"\1/", path.removesuffix(".js")))
