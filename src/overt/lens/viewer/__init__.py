"""A recording as one page: every head from the whole map to single cells, offline."""

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from torch import nn

from overt.drawing.numbers import visible
from overt.explain.page import embedded, palette
from overt.explain.page.static import safe
from overt.files import separate, whole
from overt.lens.capture.options import in_bytes
from overt.lens.recorded_calls import PAGE_LIMIT, RecordedCalls
from overt.lens.viewer.joining import joined, read
from overt.lens.viewer.packing import Opened, Packed, packed
from overt.lens.viewer.select_heads import chosen, refuse
from overt.lens.viewer.static import still

_STYLES = ("style.css", "reading.css")


def page(
    calls: RecordedCalls,
    path: str | os.PathLike[str] | None = None,
    *,
    heads: str | Sequence[tuple[int | str, int]] | None = None,
    title: str | None = None,
    exact: bool = True,
    model: nn.Module | None = None,
    opened: Opened = None,
    limit: int = PAGE_LIMIT,
) -> str:
    """Make the page of these calls; `Calls.page` says more. Returns the HTML, or the path where it was written."""
    separate({"path": path}, {"the recording": calls.file})
    html = _html(packed(calls, chosen(calls, heads, exact, limit), title=title, exact=exact, model=model, opened=opened))
    if len(html) > limit:  # the page is ASCII but for its title
        refuse(f"a page of {in_bytes(len(html))}", max(1, len(calls) // 2), limit)
    if path is None:
        return html
    with whole(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return os.fspath(path)


def _html(found: Packed) -> str:
    style, script = "\n".join([palette(), *(read(name) for name in _STYLES)]), joined("boot")
    parts = {
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "title": safe(visible(found.header["title"])),
        "header": embedded(found.header),
        "blocks": "\n".join(_block(place, *each) for place, each in enumerate(found.blocks.texts())),
        "static": still(found),
    }
    # One pass: what is put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read("template.html"))


def _block(place: int, encoding: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="block-{place}" data-encoding="{encoding}">{text}</script>'


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
