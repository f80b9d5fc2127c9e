import contextlib
import json

import pytest

from overt.lens.viewer import page


@pytest.fixture
def opened(chromium, tmp_path):
    """Makes the page of a recording and opens it; `address` is what stands behind the #."""
    pages = []

    def open_page(recording, address="", script=True, made=None, **how):
        path = tmp_path / "page.html"
        made = made or {}
        path.write_text(page(recording, **made), encoding="utf-8")
        result = chromium.page()
        pages.append(result)
        result.open(path, script=script, **how)
        if script:
            result.until("document.documentElement.className === 'live'")
        if address:
            result.ask(f"void (location.hash = {json.dumps(address)})")
            result.until("document.querySelector('.reading [aria-current], .heads-box button, table') !== null")
        return result

    yield open_page
    for each in pages:
        with contextlib.suppress(AssertionError):
            each.call("Page.close")
