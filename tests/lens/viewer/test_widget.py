import json
import re
import shutil
import subprocess
import sys

import pytest

from overt.drawing.html import read
from overt.errors import InputError, MissingExtra, install_command
from overt.lens.viewer import page
from overt.lens.viewer.widget import _kind, widget
from reading_pages import multi_head

pytest.importorskip("anywidget", reason='needs anywidget: pip install "overt[widget]"')


def test_the_traits_hold_the_page_and_go_to_the_notebook():
    _, recording = multi_head()
    result = recording.widget(height=500, title="a title")
    state = result.get_state()
    assert state["page"] == page(recording, title="a title")
    assert (state["height"], state["title"]) == (500, "a title")
    assert state["_esm"] == read("lens/viewer/web/embed/widget.js")


def test_a_height_is_a_whole_number():
    _, recording = multi_head()
    with pytest.raises((InputError, TypeError), match="height"):
        widget(recording, height="tall")


def test_without_anywidget_the_error_says_what_to_install(monkeypatch):
    _, recording = multi_head()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    _kind.cache_clear()
    with pytest.raises(
        MissingExtra,
        match=rf"recording.widget\(\) needs anywidget, which is not installed.*{re.escape(install_command('widget'))}",
    ):
        widget(recording)
    _kind.cache_clear()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_module_parses_with_a_default_export(tmp_path):
    module = tmp_path / "widget.mjs"
    module.write_text(read("lens/viewer/web/embed/widget.js"), encoding="utf-8")
    subprocess.run(["node", "--check", module], check=True, capture_output=True)


# What a notebook does: import the module, and let it render into an element with the model's traits.
HOST = """void (async () => {
  const { default: kind } = await import("data:text/javascript;charset=utf-8," + encodeURIComponent(MODULE));
  const listeners = {};
  window.traits = TRAITS;
  const model = { get: (name) => window.traits[name], on: (name, act) => { listeners[name] = act; }, off: (name) => { delete listeners[name]; } };
  window.listeners = listeners;
  window.leave = await kind.render({ model, el: document.body });
  window.addEventListener("message", (event) => { window.said = event.data; });
})()"""


@pytest.fixture
def notebook(chromium, tmp_path):
    """A page that shows a recording as a notebook does."""
    _, recording = multi_head()
    (tmp_path / "host.html").write_text("<!doctype html><title>host</title><body></body>")
    result = chromium.page()
    result.open(tmp_path / "host.html")
    traits = {"page": page(recording), "height": 420, "title": "a recording"}
    result.ask(
        HOST.replace("MODULE", json.dumps(read("lens/viewer/web/embed/widget.js"))).replace("TRAITS", json.dumps(traits))
    )
    result.until("document.querySelector('iframe') !== null && typeof window.leave === 'function'")
    yield result
    result.call("Page.close")


def test_in_a_browser_the_module_shows_the_page_in_a_frame_of_its_own(notebook):
    frames = "document.querySelector('iframe')"
    assert notebook.ask(f"{frames}.style.height") == "420px"
    assert notebook.ask(f"{frames}.title") == "a recording"
    assert notebook.ask(f"{frames}.getAttribute('sandbox')") == "allow-scripts allow-downloads"
    assert notebook.ask(f"{frames}.contentDocument") is None


def test_in_a_browser_the_framed_page_comes_alive_and_complains_of_nothing(notebook):
    framed = notebook.browser.frame("about:srcdoc")
    framed.until("document.querySelectorAll('.part bdi').length === 12")
    assert framed.ask(
        "document.querySelector('[data-save=svg]') !== null && document.querySelector('[data-save=link]') === null"
    )
    framed.ask("void document.querySelector('[data-token=\"5\"]').click()")
    framed.until("document.querySelector('.part [aria-current]').textContent === 'w5'")
    assert framed.complaints == []
    assert notebook.complaints == []


def test_in_a_browser_another_page_takes_its_place_and_leaving_takes_it_away(notebook):
    notebook.ask("void (window.traits.page = '<p>another</p>', window.listeners['change:page']())")
    assert notebook.ask("document.querySelector('iframe').srcdoc") == "<p>another</p>"
    notebook.ask("void window.leave()")
    assert notebook.ask("document.querySelector('iframe') === null && Object.keys(window.listeners).length === 0")
