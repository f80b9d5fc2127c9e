"""What is wrong with the links of a built site: files and anchors that are not there, and anything that a browser would fetch elsewhere."""

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Where a page names something: what a browser fetches by itself, and what a reader follows.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
    "object": "data",
}
FOLLOWED = {"a": "href"}
IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(https?:|//)")


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[tuple[str, str, bool]] = []  # tag, address, whether a browser fetches it

    def handle_starttag(self, tag, attrs):
        """Notes the names of anchors, and the links."""
        inputs = dict(attrs)
        self.anchors |= {inputs[name] for name in ("id", "name") if inputs.get(name)}
        for kinds, fetched in ((FETCHED, True), (FOLLOWED, False)):
            address = inputs.get(kinds.get(tag, ""))
            if address is not None:
                self.links.append((tag, address, fetched))


def faults(site: Path) -> Iterator[str]:
    """A sentence for each link of the site that leads nowhere, and for each file that it would take from elsewhere."""
    pages = {page.resolve(): _read(page) for page in sorted(site.rglob("*.html"))}
    for page, read in pages.items():
        name = page.relative_to(site.resolve())
        for tag, address, fetched in read.links:
            parts = urlsplit(address)
            if parts.scheme in {"data", "mailto", "javascript", "blob"}:
                continue
            if parts.scheme or parts.netloc:
                if fetched:
                    yield f"{name}: <{tag}> fetches {address}"
                continue
            if name.name == "404.html":  # is shown at any depth
                continue
            target = page if not parts.path else Path(os.path.normpath(page.parent / unquote(parts.path)))
            if not target.exists():
                yield f"{name}: {address} is no file of the site"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {address} names no place of that page"
    for style in sorted(site.rglob("*.css")):
        if IN_STYLES.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: fetches from elsewhere"


def _read(page: Path) -> _Page:
    result = _Page()
    result.feed(page.read_text(encoding="utf-8"))
    return result
