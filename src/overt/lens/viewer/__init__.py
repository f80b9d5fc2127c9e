"""A recording as one page: every head from the whole map to single cells, offline."""

import gzip
import os
from base64 import b64encode
from collections.abc import Sequence

from torch import nn

from overt.drawing.html import PAGE_LIMIT, bundle, escape_text, fill_template, read, script_json, write_page
from overt.files import separate
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.viewer.packing import Opened, Packed, pack_heads
from overt.lens.viewer.select_heads import PageTooLarge, chosen
from overt.lens.viewer.static import static_page
from overt.lens.viewer.story import FROZEN, Live, Story

_WEB = "lens/viewer/web"
_STYLES = ("drawing/web/palette.css", *(f"{_WEB}/styles/{name}.css" for name in ("page", "steps", "panels")))


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
    beside: RecordedCalls | None = None,
    story: Story | None = None,
    live: Live = FROZEN,
    padding: bool = False,
) -> str:
    """Make the page of these calls, see `Recording.page`. Returns the HTML, or the path of the written file.

    A recipe passes its `story` and a second recording to compare; `live` runs a model in the page.
    """
    separate({"path": path}, {"the recording": calls.file})
    both = [calls] if beside is None else [calls, beside]
    recordings = [(side, chosen(side, heads, exact, limit // len(both))) for side in both]
    packed = pack_heads(recordings, title=title, exact=exact, model=model, opened=opened, story=story, padding=padding)
    html = _html(packed, story, live)
    if len(html) > limit:  # the page is ASCII except for its title and its still picture
        shown = [captured for side in recordings for captured in side[1]]
        raise PageTooLarge(sum(len(call.heads) for call in shown), max(call.batch for call in shown), len(html), limit, exact)
    return write_page(html, path)


def _html(packed_heads: Packed, story: Story | None, live: Live) -> str:
    return fill_template(
        f"{_WEB}/template.html",
        style="\n".join(read(path) for path in (*_STYLES, *live.styles)),
        script=bundle(live.boot, reused=f"{_WEB}/data/exact.js"),
        script_sources="".join(f" {source}" for source in live.script_sources),
        connections="".join(f" connect-src {source};" for source in live.connections),
        title=escape_text(packed_heads.header["title"]),
        header=_header(script_json(packed_heads.header), compressed=live is not FROZEN),
        blocks="\n".join(_block(number, *block) for number, block in enumerate(packed_heads.blocks.texts())),
        static=static_page(packed_heads, story.still if story else ""),
        behind=live.behind,
    )


def _header(text: str, compressed: bool) -> str:
    if not compressed:
        return f'<script type="application/json" id="header">{text}</script>'
    letters = b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/octet-stream" id="header" data-encoding="gzip">{letters}</script>'


def _block(number: int, encoding: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="block-{number}" data-encoding="{encoding}">{text}</script>'
