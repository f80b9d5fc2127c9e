import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

import explanations
from overt.drawing.html import escape_text, formula, script_json
from overt.explain.explanation import choose_rows
from overt.explain.page import html

PAIR = [explanations.qkv(), explanations.qkv(seed=1)]


class Tree(HTMLParser):
    """The page as a browser without its script reads it: tags with attributes, and the text of each kind of tag."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], {}
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in {"meta", "img", "br", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        for tag in set(self.open):
            self.text[tag] = self.text.get(tag, "") + data


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_every_tag_is_closed_in_order(name):
    assert Tree(html([explanations.EVERY_RECIPE[name]()])).open == []


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_no_tag_or_attribute_comes_from_a_token(name):
    tree = Tree(html([explanations.EVERY_RECIPE[name]()]))
    assert not [tag for tag, _ in tree.tags if tag in {"img", "iframe", "link", "object", "embed", "base", "form"}]
    assert not [
        name for _, attributes in tree.tags for name in attributes if name.startswith("on") or name in {"src", "href", "style"}
    ]
    assert [tag for tag, _ in tree.tags].count("script") == 2


def test_the_data_survives_the_way_into_the_page():
    explanation = explanations.nasty()
    (found,) = data_of(html([explanation]))
    assert found["tokens"] == explanations.NASTY
    assert found["word"] == explanation.word
    assert len(found["rows"]) == 2
    assert found["rows"][1][2] == pytest.approx(explanation.rows[1][2], rel=1e-6)


def test_embedded_data_cannot_end_its_element():
    assert not re.search("[<>&\u2028\u2029]", script_json(explanations.NASTY))


def test_numbers_that_are_not_finite_are_embedded_as_text():
    assert script_json([float("nan"), float("inf"), -float("inf"), 1.5]) == '["NaN","Infinity","-Infinity",1.5]'


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else():
    page = html([explanations.qkv()])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = lambda text: f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"  # noqa: E731
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == digest(re.search(r"<style>(.*?)</style>", page, re.S)[1])
    assert rules["script-src"] == digest(re.search(r"<script>(.*?)</script>", page, re.S)[1])


def test_the_page_names_no_address_but_svgs_own_name():
    assert set(re.findall(r"\w+://[^\s\"']*", html(PAIR))) == {"http://www.w3.org/2000/svg"}


def test_without_its_script_the_page_still_has_every_number_in_a_table():
    explanation = explanations.qkv()
    told = Tree(html([explanation])).text["table"]
    for row in explanation.steps:
        for value in (f"{row.score:.2f}", f"{row.scaled:.2f}", f"{row.weight:.3f}"):
            assert value.replace("-", "−") in told
    for link in explanation.links:
        assert f"L{link.layer}H{link.head}" in told


@pytest.mark.parametrize(
    ("name", "parts"),
    {
        "qkv": ["key", "value", "q·k", "÷ √32", "softmax α", "α·v", "output = Σ α·v"],
        "hidden": ["hj", "f(h1, hj)", "softmax a1j", "a1j hj", "c1 = Σ a1j hj", "[h1, c1]"],
        "plain, by the sum": ["xj", "x1·xj", "plain sum W1j", "W1j xj", "y1 = Σ W1j xj"],
    }.items(),
)
def test_each_recipe_has_its_own_words(name, parts):
    told = Tree(html([explanations.EVERY_RECIPE[name]()])).text["table"]
    for part in parts:
        assert part in told


def test_the_notes_and_the_residual_are_on_the_page():
    told = Tree(html([explanations.qkv()])).text
    assert "they are not a reason for what it says" in told["li"]
    assert "recomputed vs. model: 4.1e−7 ✓ within the rounding bound 2.3e−6" in told["p"]


def test_two_explanations_stand_on_one_page():
    page = html(PAIR)
    assert page.count("<article") == 2
    assert '<main class="pair">' in page
    assert len(data_of(page)) == 2


def test_what_is_put_into_the_template_is_not_looked_at_again():
    page = html([explanations.qkv(text="{{script}} {{data}}", source="{{style}}")])
    assert "<title>“it” in {{script}} {{data}}</title>" in page
    assert "<span>{{style}}</span>" in page


def test_only_the_indices_of_a_formula_are_set_low():
    assert formula("c_1 = Σ a_1j h_j") == "c<sub>1</sub> = Σ a<sub>1j</sub> h<sub>j</sub>"
    assert formula("snake_case") == "snake_case"
    assert escape_text("\x00<") == "␀&lt;"


@pytest.fixture
def opened(chromium, tmp_path):
    """Writes explanations to a page and opens it in the browser."""

    pages = []

    def open_page(*told, **how):
        path = tmp_path / "page.html"
        path.write_text(html(list(told)), encoding="utf-8")
        page = chromium.page()
        pages.append(page)
        page.open(path, **how)
        assert page.complaints == []
        return page

    yield open_page
    for page in pages:
        page.call("Page.close")


STEP = "document.querySelector('.stages .now').textContent"
ROW = "document.querySelector('.steps tr.chosen').dataset.row"


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_in_a_browser_the_page_loads_itself_only_and_complains_of_nothing(opened, name):
    page = opened(explanations.EVERY_RECIPE[name]())
    page.press(*["ArrowLeft"] * 7, *["ArrowRight"] * 7, "ArrowDown", "ArrowUp")
    assert [url for url in page.requests if not url.startswith("file://")] == []
    assert page.complaints == []
    assert page.ask("document.documentElement.className") == "live"


def test_in_a_browser_nasty_tokens_do_not_run(opened):
    page = opened(explanations.nasty())
    page.press("ArrowLeft", "ArrowDown", "ArrowDown")
    assert page.ask("document.images.length") == 0
    assert page.ask("document.scripts.length") == 2
    assert page.ask("document.querySelector('.word').textContent") == explanations.NASTY[1]
    assert page.complaints == []


def test_in_a_browser_the_policy_stops_a_script_that_was_slipped_in(opened):
    page = opened(explanations.qkv())
    page.ask(
        "void document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.slipped = true'}))"
    )
    assert page.ask("window.slipped === undefined")


def test_in_a_browser_the_arrows_choose_the_step(opened):
    page = opened(explanations.qkv())
    assert page.ask(STEP) == "6sum"
    page.press("ArrowLeft", "ArrowLeft")
    assert page.ask(STEP) == "4softmax"
    page.until("getComputedStyle(document.querySelector('td[data-column=weigh] canvas')).opacity === '0'")
    page.press("ArrowRight")
    assert page.ask(STEP) == "5weight"


def test_in_a_browser_one_asking_word_is_shown_at_a_time_and_leads_to_the_others(opened):
    words = ["le", "chat", "dort"]
    told = [explanations.qkv(tokens=words, word=place, other=["the", "cat", "sleeps"]) for place in range(3)]
    page = opened(*told)
    shown = "[...document.querySelectorAll('article')].filter((each) => each.offsetParent).map((each) => each.querySelector('.asks.word').textContent).join()"
    assert page.ask(shown) == "le"
    page.ask("void document.querySelector('article:not([hidden]) .asks:nth-child(3)').click()")
    assert page.ask(shown) == "dort"
    page.ask("void document.querySelector('article:not([hidden]) .asks.word').focus()")
    page.press("ArrowUp")
    assert page.ask(shown) == "chat"
    assert page.ask("document.activeElement.textContent") == "chat"
    assert page.complaints == []


def test_in_a_browser_the_arrows_choose_the_token_and_its_numbers_are_told(opened):
    explanation = explanations.qkv()
    ranked = sorted(explanation.steps, key=lambda row: -row.weight)
    page = opened(explanation)
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowDown")
    assert page.ask(ROW) == str(ranked[1].index)
    told = page.ask("document.querySelector('.working').textContent")
    assert f"{ranked[1].score:.2f} ÷ √32 = {ranked[1].scaled:.2f}".replace("-", "−") in told


def test_in_a_browser_the_space_bar_plays_and_pauses(opened):
    page = opened(explanations.qkv())
    page.press(" ")
    assert page.ask(STEP) == "1query, key, value"
    assert page.ask("document.getElementById('play').textContent") == "Pause"
    page.until(f"{STEP} === '2score'")
    page.press(" ")
    assert page.ask("document.getElementById('play').textContent") == "Play"


def test_in_a_browser_a_button_keeps_its_space_bar(opened):
    page = opened(explanations.qkv())
    page.ask("document.getElementById('theme').focus()")
    page.press(" ")
    assert page.ask("document.documentElement.dataset.theme") == "dark"
    assert page.ask(STEP) == "6sum"


def test_in_a_browser_another_head_shows_its_row(opened):
    explanation = explanations.qkv()
    page = opened(explanation)
    page.ask("document.querySelector('.cells button[aria-pressed=true]').focus()")
    page.press("ArrowUp", "ArrowLeft")
    strongest = max(explanation.rows[4][10])
    assert page.ask("document.querySelector('.chosen-head b').textContent") == "L4H10"
    assert page.ask("document.querySelector('.row .number').textContent") == f"{strongest:.3f}"
    assert page.ask("document.activeElement.getAttribute('aria-label')").startswith("layer 4 head 10: strongest ")


def test_in_a_browser_the_matrix_is_read_by_keyboard(opened):
    explanation = explanations.qkv()
    page = opened(explanation)
    page.ask("document.querySelector('.matrix canvas').focus()")
    page.press("ArrowUp", "ArrowLeft")
    start = max(explanation.steps, key=lambda row: row.weight).index
    weight = explanation.matrix[explanation.word - 1][max(start - 1, 0)]
    assert page.ask("document.querySelector('.readout').textContent").endswith(f"{weight:.3f}")


def test_in_a_browser_the_page_follows_the_readers_theme_and_can_leave_it(opened):
    dark = opened(explanations.qkv(), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert dark.ask(ground) == "rgb(16, 19, 24)"
    dark.ask("document.getElementById('theme').click()")
    assert dark.ask(ground) == "rgb(251, 250, 246)"
    assert opened(explanations.qkv()).ask(ground) == "rgb(251, 250, 246)"


@pytest.mark.parametrize("name", ["qkv", "hidden", "plain", "nasty", "long"])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_nothing_is_wider_than_the_window(opened, name, width):
    page = opened(explanations.EVERY_RECIPE[name](), width=width, height=844)
    for _ in range(7):
        assert page.ask("document.documentElement.scrollWidth") <= width
        assert page.ask(
            "[...document.querySelectorAll('.steps .scroll')].every((box) => box.scrollWidth <= box.clientWidth + 1)"
        )
        page.press("ArrowLeft")


def test_in_a_browser_the_weaker_tokens_are_counted_and_can_be_shown(opened):
    page = opened(explanations.long())
    shown = "[...document.querySelectorAll('.steps tbody tr')].filter((row) => row.offsetParent).length"
    assert page.ask(shown) == 9
    assert "the other 51 tokens" in page.ask("document.querySelector('.others').textContent")
    page.ask("document.querySelector('.others button').click()")
    assert page.ask(shown) == 60


def test_in_a_browser_hundreds_of_tokens_still_have_a_page(opened):
    explanation = explanations.long(300, layers=2, heads=2)
    page = opened(explanation)
    assert page.ask("document.querySelector('.sentence').clientHeight") < 400
    assert f"the other {len(choose_rows(explanation).others)} tokens" in page.ask(
        "document.querySelector('.others').textContent"
    )
    assert page.complaints == []


def test_in_a_browser_a_row_that_looks_everywhere_stays_pale(opened):
    page = opened(explanations.long())
    luminance = "[...document.querySelectorAll('.token')].map((each) => Number(getComputedStyle(each).backgroundColor.match(/\\d+/)[0]))"
    page.until(f"Math.min(...{luminance}) > 100")


def test_in_a_browser_two_sentences_move_step_by_step_together(opened):
    page = opened(*PAIR, width=1400)
    page.press("ArrowLeft", "ArrowLeft")
    assert page.ask("[...document.querySelectorAll('.says b')].map((each) => each.textContent)") == ["4 · α", "4 · α"]
    left, right = page.ask("[...document.querySelectorAll('article')].map((each) => each.getBoundingClientRect().left)")
    assert right > left + 600


def test_in_a_browser_without_script_the_table_is_in_sight(opened):
    page = opened(explanations.long(), script=False)
    assert page.ask("document.documentElement.className") == "static"
    assert page.ask("[...document.querySelectorAll('.steps tbody tr')].filter((row) => row.offsetParent).length") == 60
    assert page.ask("document.getElementById('player').offsetParent") is None


def test_in_a_browser_who_wants_no_motion_gets_none(opened):
    page = opened(explanations.qkv(), calm=True)
    page.press(" ")
    assert page.ask("document.getAnimations().length") == 0
