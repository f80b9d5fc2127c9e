"""The page's main path in Firefox: a word, a head, the map, the links, the checks, with the numbers of the recording."""

import pytest

from reading_pages import multi_head

pytestmark = pytest.mark.slow


def choose(page, tab):
    page.ask(f"[...document.querySelectorAll('[role=tab]')].find((each) => each.textContent.trim() === '{tab}').click()")


@pytest.mark.parametrize("width", [1280, 400])
def test_words_heads_map_links_and_checks_work_in_firefox(running_firefox, width, tmp_path):
    _, recording = multi_head()
    recording.page(tmp_path / "page.html")
    page = running_firefox.page().open(tmp_path / "page.html", width=width)
    page.until("document.querySelectorAll('[data-token]').length >= 12")
    page.click('[data-token="3"]')
    page.until("document.body.innerText.includes('Six steps for “w3” in L0H1')")
    weights = recording[0, 1].weights(rows=3)[0, 0]
    assert f"{float(weights.max()):.3f}" in page.ask("document.querySelector('[role=tabpanel]:not([hidden])').innerText")
    choose(page, "Map")
    drawn = "[...document.querySelectorAll('canvas')].some((each) => { const box = each.getContext('2d')?.getImageData(0, 0, each.width, each.height).data; return box && new Set(new Uint32Array(box.buffer)).size > 8; })"
    page.until(drawn)
    choose(page, "Links")
    page.until("document.body.innerText.includes('strongest links of L0H1')")
    square = recording[0, 1].weights()[0]
    strongest = f"{float(square.max()):.4f}"
    assert strongest in page.ask("document.querySelector('[role=tabpanel]:not([hidden])').innerText")
    choose(page, "Checks")
    page.until("document.body.innerText.includes('within the rounding bound')")
    assert page.complaints == []
    assert {request.split(":")[0] for request in page.requests} <= {"file", "blob", "data", "about"}
