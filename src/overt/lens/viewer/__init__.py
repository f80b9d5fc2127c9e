"""A recording as one page: every head from the whole map to single cells, offline."""

import json
import os
from collections.abc import Sequence

from torch import nn

from overt.drawing.html import PAGE_LIMIT, bundle, escape_text, fill_template, plain_script, read, script_json
from overt.files import separate, whole
from overt.lens.capture.options import in_bytes
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.viewer.packing import Opened, Packed, pack_heads
from overt.lens.viewer.select_heads import chosen, refuse
from overt.lens.viewer.static import static_page

_WEB = "lens/viewer/web"
_STYLES = ("drawing/web/palette.css", f"{_WEB}/styles/page.css", f"{_WEB}/styles/reading.css")


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
    html = _html(pack_heads(calls, chosen(calls, heads, exact, limit), title=title, exact=exact, model=model, opened=opened))
    if len(html) > limit:  # the page is ASCII but for its title
        refuse(f"a page of {in_bytes(len(html))}", max(1, len(calls) // 2), limit)
    if path is None:
        return html
    with whole(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return os.fspath(path)


def _html(packed_heads: Packed) -> str:
    # JSON is JavaScript, and with "<" spelled out it cannot end the script element that it stands in.
    worker = json.dumps(plain_script(f"{_WEB}/data/exact.js")).replace("<", "\\u003c")
    return fill_template(
        f"{_WEB}/template.html",
        style="\n".join(read(path) for path in _STYLES),
        script=f"const EXACT_TEXT = {worker};\n{bundle(f'{_WEB}/boot.js')}",
        title=escape_text(packed_heads.header["title"]),
        header=script_json(packed_heads.header),
        blocks="\n".join(_block(number, *block) for number, block in enumerate(packed_heads.blocks.texts())),
        static=static_page(packed_heads),
    )


def _block(number: int, encoding: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="block-{number}" data-encoding="{encoding}">{text}</script>'
