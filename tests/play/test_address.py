"""The live page's address: it holds the sentence and what is chosen, and whatever stands in it is only text."""

import json
import urllib.parse

import pytest
from test_live_page import HOSTILE

TEXT = "My neighbour's cat chased the dog because it was bored, wasn't it?"


def addressed(path, **said):
    return f"{path.absolute().as_uri()}#{urllib.parse.urlencode(said, quote_via=urllib.parse.quote)}"


def state_of(live):
    return live.page.ask(
        "(({ text, head, token, panel, step, side }) => [text, head, token, panel, step, side])(viewer.store.get())"
    )


@pytest.mark.slow
def test_a_link_restores_the_sentence_and_what_is_chosen(written_little, opened):
    live = opened(written_little).ready()
    live.type(TEXT)
    live.page.ask("void viewer.store.set({ head: 11, token: 13, panel: 'links', side: 'key', step: 2 })")
    link, state = live.page.ask("viewer.store.link()"), state_of(live)
    assert state == [TEXT, 11, 13, "links", 2, "key"]
    second = opened(link).ready()
    second.page.until(f"viewer.store.get().text === {json.dumps(TEXT)}")
    assert state_of(second) == state
    assert second.page.ask("document.getElementById('sentence').value") == TEXT
    assert second.page.ask("viewer.recording.heads[0].queries[13]") == ","


@pytest.mark.slow
def test_the_address_follows_without_filling_the_history(written_little, opened):
    live = opened(written_little).ready()
    before = live.page.ask("history.length")
    for length in range(20, len(TEXT) + 1, 9):
        live.type(TEXT[:length])
    live.type(TEXT)
    live.page.until(f"new URLSearchParams(location.hash.slice(1)).get('text') === {json.dumps(TEXT)}")
    assert live.page.ask("history.length") == before
    live.type("word " * 1000)  # more than an address should hold
    live.page.until("!location.hash.includes('text=')")


@pytest.mark.slow
def test_another_address_of_the_same_page_is_followed(written_little, opened):
    live = opened(written_little).ready()
    live.page.ask("void (location.hash = 'text=Dogs%20bark.&head=2.3&token=2')")
    live.page.until("viewer.recording.title === 'Dogs bark.'", 30)
    assert state_of(live)[:3] == ["Dogs bark.", 11, 2]


@pytest.mark.slow
def test_an_address_that_is_entered_while_the_pages_own_is_about_to_be_written_is_followed(written_little, opened):
    live = opened(written_little).ready()
    # The page's own address is due before the event of the entered one.
    change = "viewer.store.set({ colour: viewer.store.get().colour === 'log' ? 'linear' : 'log' })"
    wait = "for (const end = performance.now() + 700; performance.now() < end; );"
    live.page.ask(f"(() => {{ {change}; {wait} location.hash = 'text=Dogs%20bark.&head=2.3&token=2'; }})()")
    live.page.until("viewer.recording.title === 'Dogs bark.'", 30)


@pytest.mark.parametrize("text", [*HOSTILE, "&head=9.9#%00%zz"])
@pytest.mark.few_cases(1)
def test_hostile_text_in_the_address_is_text(written_little, opened, text):
    wellformed = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    live = opened(
        addressed(written_little, text=wellformed, panel="<b>", head="'\"><img>", token="1e9", palette="</style>")
    ).ready()
    assert live.page.ask("document.getElementById('sentence').value") == wellformed
    assert live.page.ask("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert live.page.ask("document.querySelector('[role=tab][aria-selected=true]').textContent") == "Steps"
    assert live.page.complaints == []


@pytest.mark.slow
def test_any_panel_is_saved_as_a_picture(written_little, opened):
    live = opened(addressed(written_little, text='a <b>bold</b> \x01 & "quoted" word', panel="steps")).ready()
    live.page.ask(
        "void (URL.createObjectURL = (blob) => { createImageBitmap(blob).then((image) => { window.saved = [image.width, image.height, blob.type];"
        "const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0);"
        "window.inks = new Set(new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer)).size; }); return 'blob:none'; },"
        "HTMLAnchorElement.prototype.click = () => {})"
    )
    for panel in ("steps", "map", "links"):
        live.page.ask(
            f"window.saved = null, viewer.store.set({{ panel: '{panel}' }}), document.getElementById('picture').click()"
        )
        live.page.until("window.saved && window.inks", 20)
        width, height, kind = live.page.ask("window.saved")
        assert (width, kind) == (2 * live.page.ask("viewer.clientWidth"), "image/png")
        assert height > 600
        assert live.page.ask("window.inks") > 100  # colours: it is no blank sheet
        live.page.ask("window.inks = 0")
    assert live.page.complaints == []
