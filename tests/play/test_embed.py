"""A page in a frame of another page: it is small, shows one panel, follows its address, and an element of another page holds it."""

import functools
import http.server
import threading

import pytest
from live_page import Typed, write

COURSE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A course</title>
<script src="overt-attention.js"></script><main><h1>Six steps of it</h1>
<overt-attention src="page.html" word="it" head="L1H2" panel="steps" step="2"></overt-attention>
<overt-attention src="page.html" head="five"></overt-attention><overt-attention></overt-attention></main></html>"""
INSIDE = "document.querySelector('iframe').contentDocument"
FRAMED = "document.querySelector('iframe').contentWindow.viewer"


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def course(little, tmp_path_factory):
    """The address of a folder with the page, its model beside it, and a course."""
    folder = tmp_path_factory.mktemp("course")
    write(little, folder / "page.html", small=True, beside=True, one_head=True)
    (folder / "index.html").write_text(COURSE, encoding="utf-8")
    (folder / "favicon.ico").write_bytes(b"")
    handler = functools.partial(Silent, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_element_shows_six_steps_of_a_word_as_high_as_they_are(course, chromium):
    folder, address = course
    assert (folder / "page.html").stat().st_size <= 400_000
    page = chromium.page().open(f"{address}/index.html", width=900)
    page.until(f"Number({INSIDE}?.querySelector('#viewer')?.dataset.read ?? 0) > 0", 60)
    assert page.ask(f"{INSIDE}.querySelector('.steps h2').textContent").startswith("Six steps for “it” in L1H2")
    assert page.ask(f"{FRAMED}.recording.heads.length") == 12
    assert page.ask(f"{FRAMED}.store.get().step") == 1
    for hidden in (".tabs", ".bar h1", ".beside", ".examples"):
        assert page.ask(f"{INSIDE}.querySelector('{hidden}').checkVisibility()") is False
    page.until(f"Math.abs(document.querySelector('iframe').offsetHeight - {INSIDE}.querySelector('#viewer').offsetHeight) < 3")
    assert page.ask(f"{INSIDE}.documentElement.scrollWidth <= {INSIDE}.documentElement.clientWidth")
    # Another word: the same page, which is not loaded again.
    page.ask(f"{FRAMED}.mark = true; document.querySelector('overt-attention').setAttribute('word', 'tired')")
    page.until(f"{INSIDE}.querySelector('.steps h2').textContent.startsWith('Six steps for “tired”')")
    assert page.ask(f"{FRAMED}.mark")
    whole = page.ask(f"{INSIDE}.querySelector('.whole').href")
    assert "embed" not in whole
    assert "panel=steps" in whole
    assert page.ask("[...document.querySelectorAll('overt-attention')].slice(1).map((each) => each.textContent)") == [
        "Expected a layer and a head as L5H11 as head, got “five”. Fix: change the attribute head, or leave it out.",
        'Expected a page of overt as src, got none. Fix: write src="attention.html".',
    ]
    assert page.broken_rules() == []
    assert page.complaints == []


def test_another_sentence_begins_at_the_word_that_is_asked_for(course, chromium):
    page = chromium.page()
    page.open(f"{course[1]}/page.html#embed=1&text=The%20trophy%20is%20too%20big%20for%20it.&word=it&head=2.3&theme=dark")
    Typed(page).ready()
    assert page.ask("document.querySelector('.steps h2').textContent") == "Six steps for “it” in L2H3"
    assert page.ask("document.querySelector('.running .own').textContent") == "it"
    assert page.ask("document.documentElement.dataset.theme") == "dark"
    page.press("3")
    assert page.ask("viewer.dataset.panel") == "steps"
    assert page.complaints == []


def test_opened_as_a_file_the_explained_head_is_there_and_the_reason(course, opened):
    live = opened(f"{(course[0] / 'page.html').as_uri()}#embed=1&panel=steps")
    live.until_said("The model could not be fetched, so the sentence cannot be changed.")
    assert live.page.ask("viewer.recording.heads.length") == 1
    assert live.page.ask("document.querySelectorAll('.six tbody tr').length") > 5
