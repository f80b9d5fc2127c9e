"""That the live page can be read: contrast of all texts, arcs beside the words, columns and numbers on a small screen."""

import re

import pytest
from live_page import TIRED

from contrast import faint_texts

PANELS = ("steps", "map", "links", "checks", "save", "states", "joining", "switches", "reweight")
# Points of all arcs that are inside of a word's box, away from where arcs begin and end.
CROSSED = """(() => {
  const words = [...document.querySelectorAll('.running [data-token]')].map((each) => [each.dataset.token, each.getBoundingClientRect()]);
  const own = document.querySelector('.running .own').dataset.token;
  const crossed = [];
  for (const path of document.querySelectorAll('.texts path[data-to]')) {
    const frame = path.ownerSVGElement.getBoundingClientRect();
    for (let at = 0; at < path.getTotalLength(); at += 2) {
      const { x, y } = path.getPointAtLength(at);
      for (const [token, box] of words) if (token !== own && token !== path.dataset.to && frame.x + x > box.left + 1 && frame.x + x < box.right - 1 && frame.y + y > box.top + 3 && frame.y + y < box.bottom - 3) crossed.push(token);
    }
  }
  return crossed;
})()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.few_cases(1)
def test_every_text_has_the_contrast_that_reading_needs(written_little, opened, dark):
    live = opened(written_little, dark=dark, calm=True, width=1400, height=900).ready()
    assert faint_texts(live.page, 22), "the measure sees no text"
    for head, side, step in [(0, "query", 0), (5, "key", 3), (7, "query", 9), (11, "key", 9)]:
        for token in (0, 3, 10):
            live.page.ask(f"viewer.store.set({{ head: {head}, side: '{side}', step: {step}, token: {token} }})")
            assert faint_texts(live.page) == []
    for panel in PANELS:
        live.page.ask(f"viewer.store.set({{ panel: '{panel}' }})")
        live.page.until("viewer.querySelector('[aria-busy]') === null", 30)
        assert faint_texts(live.page) == []


@pytest.mark.slow
def test_a_special_token_reads_on_every_tone(written_little, opened):
    live = opened(written_little, calm=True).ready()
    shares = set()
    for theme in ("light", "dark"):
        for head in range(12):
            live.page.ask(
                f"viewer.store.set({{ theme: '{theme}', head: {head}, token: {head}, side: '{('query', 'key')[head % 2]}' }})"
            )
            shares |= set(
                live.page.ask(
                    "[...document.querySelectorAll('[data-special]')].map((each) => parseFloat(each.style.getPropertyValue('--share')))"
                )
            )
            assert faint_texts(live.page) == []
    assert min(shares) < 20
    assert max(shares) > 80


@pytest.mark.parametrize(
    "text", [TIRED, "When the bank raised its rates, people who lived by the river bank hardly noticed it, and went on."]
)
@pytest.mark.few_cases(1)
def test_on_a_small_screen_no_arc_crosses_a_word(written_little, opened, text):
    live = opened(written_little, width=400, height=900, calm=True).ready()
    live.type(text)
    for head in (0, 5, 11):
        for token in (1, 8):
            live.page.ask(f"viewer.store.set({{ head: {head}, token: {token} }})")
            assert live.page.ask("document.querySelectorAll('.texts path[data-to]').length") > 0
            assert live.page.ask(CROSSED) == []


def test_on_a_small_screen_the_steps_keep_the_score_and_the_scale(written_little, opened):
    live = opened(written_little, width=400, height=900, calm=True).ready()
    for step in (1, 2, 3, 4, 5):
        live.page.ask(f"viewer.store.set({{ step: {step} }})")
        for column in ("score", "scale", "normalize"):
            assert live.page.ask(f"document.querySelector('.six td[data-column={column}]').offsetWidth") > 20
        assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
        assert live.page.ask(
            "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.steps .scroll'))"
        )


def test_a_strip_says_its_numbers_to_pointer_and_keyboard(written_little, opened):
    live = opened(written_little, calm=True).ready()
    live.page.ask("document.querySelector('.six tr.chosen canvas.strip').focus()")
    live.page.press("ArrowRight", "ArrowRight")
    said = live.page.ask("document.querySelector('.steps .strip-line').textContent").replace("−", "-")
    key = live.page.ask(
        "viewer.recording.heads[viewer.store.get().head].key(Number(document.querySelector('.six tr.chosen').dataset.key))[2]"
    )
    assert f"number 3 of 12: {key:.3f}" in said
    left, top = live.page.ask(
        "(({ left, top }) => [left, top])(document.querySelectorAll('.six tr.chosen canvas.strip')[1].getBoundingClientRect())"
    )
    live.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + 2, y=top + 4)
    assert "value of " in live.page.ask("document.querySelector('.steps .strip-line').textContent")


@pytest.mark.parametrize("width", [400, 1400])
def test_the_keys_fit_their_dialog(written_little, opened, width):
    live = opened(written_little, width=width, height=900, calm=True).ready()
    live.page.press("?")
    inside = "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.help'))"
    assert live.page.ask("document.querySelector('.help').open")
    assert live.page.ask(inside)


def test_the_sentence_stands_once_and_an_unknown_word_is_named_beside_it(written_little, opened):
    live = opened(written_little, calm=True).ready()
    live.type("Two ☃☃ melt today.")
    shown_text = "document.querySelector('main').innerText.replace(/\\s/g, '')"
    assert live.page.ask(f"{shown_text}.split('melttoday').length - 1") == 1
    assert "The vocabulary lacks “☃☃”" in live.page.ask("document.querySelector('.reading .unknown').textContent")


def test_on_paper_is_the_picture_and_nothing_to_press(written_little, opened):
    live = opened(written_little, calm=True, width=794, height=1123).ready()
    live.page.call("Emulation.setEmulatedMedia", media="print")
    for selector in (".asks", ".play", ".tabs", ".sides", ".find", ".bar button", ".steps .linklike", ".cutting p"):
        assert live.page.ask(f"[...document.querySelectorAll('{selector}')].map((element) => element.checkVisibility())")
        assert not live.page.ask(
            f"[...document.querySelectorAll('{selector}')].some((element) => element.checkVisibility())"
        ), selector
    assert live.page.ask("document.querySelector('.six').checkVisibility()")
    assert re.search(r"in L\dH\d", live.page.ask("document.querySelector('.steps h2').textContent"))
    assert live.page.ask("document.documentElement.scrollWidth <= innerWidth")
