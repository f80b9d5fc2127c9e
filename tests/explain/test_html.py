import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

import explanations
from overt.drawing.html import escape_text, formula, script_json
from overt.drawing.numbers import INDEX
from overt.errors import InputError
from overt.explain.explanation import choose_rows, stages
from overt.explain.html import write


def html(message):
    return write(message)[0]


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
    return json.loads(re.search(r'<script type="application/json" id="header">(.*?)</script>', page, re.S)[1])


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_every_tag_is_closed_in_order(name):
    assert Tree(html([explanations.EVERY_RECIPE[name]()])).open == []


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_no_tag_or_attribute_comes_from_a_token(name):
    tree = Tree(html([explanations.EVERY_RECIPE[name]()]))
    tree.tags.remove(("link", {"rel": "icon", "href": "data:,"}))  # the page's own: no icon is asked for
    assert not [tag for tag, _ in tree.tags if tag in {"iframe", "link", "object", "embed", "base", "form"}]
    assert all(message["src"].startswith("data:image/png;base64,") for tag, message in tree.tags if tag == "img")
    assert not [
        name
        for tag, attributes in tree.tags
        for name in attributes
        if name.startswith("on") or name in {"href", "style"} or (name == "src" and tag != "img")
    ]
    kinds = [attributes["type"] for tag, attributes in tree.tags if tag == "script"]
    assert kinds.count("module") == kinds.count("application/json") == 1
    assert set(kinds) <= {"module", "application/json", "application/octet-stream"}


def test_the_data_survives_the_way_into_the_page():
    header = data_of(html([explanations.nasty()]))
    assert header["words"] == [explanations.NASTY]
    assert (header["opened"], header["story"]["words"]) == ({"token": 1}, [1])
    assert len(header["heads"]) == 6


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
    assert rules["script-src"] == digest(re.search(r'<script type="module">(.*?)</script>', page, re.S)[1])


def test_the_page_names_no_address_but_svgs_own_name():
    assert set(re.findall(r"\w+://[^\s\"']*", html(PAIR))) == {"http://www.w3.org/2000/svg"}


def test_without_its_script_the_page_still_has_every_number_in_a_table():
    explanation = explanations.qkv()
    message = Tree(html([explanation])).text["table"]
    for row in explanation.steps:
        for value in (f"{row.score:.2f}", f"{row.scaled:.2f}", f"{row.weight:.3f}"):
            assert value.replace("-", "−") in message
    for link in explanation.links:
        assert f"L{link.layer}H{link.head}" in message


@pytest.mark.parametrize(
    ("name", "parts"),
    {
        "qkv": ["key", "value", "q·k", "÷ √32", "softmax α", "α·v", "output = Σ α·v"],
        "hidden": ["hj", "f(h1, hj)", "softmax a1j", "a1j hj", "c1 = Σ a1j hj", "[h1, c1]"],
        "plain, by the sum": ["xj", "x1·xj", "plain sum W1j", "W1j xj", "y1 = Σ W1j xj"],
    }.items(),
)
def test_each_recipe_has_its_own_words(name, parts):
    message = Tree(html([explanations.EVERY_RECIPE[name]()])).text["table"]
    for part in parts:
        assert part in message


def test_the_notes_and_the_residual_are_on_the_page():
    message = Tree(html([explanations.qkv()])).text
    assert "they are not a reason for what it says" in message["li"]
    assert "recomputed vs. model: 4.1e−7 ✓ within the rounding bound 2.3e−6" in message["p"]


def test_two_explanations_stand_on_one_page():
    page = html(PAIR)
    header = data_of(page)
    assert page.count("<article") == 2
    assert header["story"]["compared"]
    assert {each["batch"] for each in header["heads"]} == {0, 1}
    assert len(header["heads"]) == 2 * 72


def test_what_is_put_into_the_template_is_not_looked_at_again():
    page = html([explanations.qkv(text="{{script}} {{data}}", source="{{style}}")])
    assert "<title>{{script}} {{data}}</title>" in page
    assert "</b> {{style}}</p>" in page


def test_only_the_indices_of_a_formula_are_set_low():
    assert formula("c_1 = Σ a_1j h_j") == "c<sub>1</sub> = Σ a<sub>1j</sub> h<sub>j</sub>"
    assert formula("snake_case") == "snake_case"
    assert escape_text("\x00<") == "␀&lt;"


@pytest.fixture
def opened(chromium, tmp_path):
    """Writes explanations to a page and opens it in the browser."""

    pages = []

    def open_page(*message, script=True, **how):
        path = tmp_path / "page.html"
        path.write_text(html(list(message)), encoding="utf-8")
        page = chromium.page()
        pages.append(page)
        page.open(path, script=script, **how)
        if script:
            page.until("document.documentElement.className === 'live'")
        assert page.complaints == []
        return page

    yield open_page
    for page in pages:
        page.call("Page.close")


STEP = "document.querySelector('.stages .now').textContent"
ROW = "document.querySelector('.six tr.chosen').dataset.key"
WORKING = "document.querySelector('.working').textContent"
STATE = "viewer.store.get()"
HEAD = f"viewer.recording.heads[{STATE}.head].name"
SIZES = [(400, False), (400, True), (1400, False), (1400, True)]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_in_a_browser_the_page_loads_itself_only_and_complains_of_nothing(opened, name, width, dark):
    page = opened(explanations.EVERY_RECIPE[name](), width=width, height=900, dark=dark)
    page.press(*["ArrowLeft"] * 7, *["ArrowRight"] * 7, "ArrowDown", "ArrowUp", ".", ",", "a", "a")
    for tab in ("map", "links", "checks", "save", "steps"):
        page.ask(f"void document.getElementById('tab-{tab}').click()")
        assert page.ask("document.documentElement.scrollWidth") <= width, tab
    assert [url for url in page.requests if not url.startswith(("file://", "data:", "blob:"))] == []
    assert page.complaints == []


def flat(text):
    """A formula as it reads where its indices are set low."""
    return re.sub(INDEX, r"\1", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_in_a_browser_the_steps_are_named_and_told_as_everywhere(opened, name):
    explanation = explanations.EVERY_RECIPE[name]()
    page = opened(explanation)
    message = stages(explanation)
    assert page.ask("[...document.querySelectorAll('.stages button')].map((each) => each.title)") == [
        stage.title for stage in message
    ]
    for index, stage in enumerate(message):
        page.ask(f"void document.querySelectorAll('.stages button')[{index}].click()")
        says = page.ask("document.querySelector('.says').textContent")
        expected = flat(f"{stage.number} · {stage.formula} {stage.sentence}")
        assert says == (expected if name != "nasty" else says)


@pytest.mark.parametrize("name", [name for name in explanations.EVERY_RECIPE if name != "nasty"])
@pytest.mark.few_cases(3)
def test_in_a_browser_the_numbers_are_those_of_the_explanation(opened, name):
    explanation = explanations.EVERY_RECIPE[name]()
    page = opened(explanation)
    rows = page.ask("""[...document.querySelectorAll('.six tbody tr')].map((row) =>
      [Number(row.dataset.key), ...[...row.querySelectorAll('td.number')].map((each) => each.textContent)])""")
    shown = choose_rows(explanation)
    assert {row[0] for row in rows} == {row.index for row in shown.rows}
    for key, *numbers in rows:
        step = explanation.steps[key]
        expected = [step.score, *([step.scaled] if explanation.scale_name else []), step.weight]
        assert [float(each.replace("−", "-")) for each in numbers] == pytest.approx(expected, abs=6e-3, rel=0.06)
    output = page.ask("document.querySelector('.six tfoot .output td.vector canvas').title").replace("−", "-")
    first = [float(each) for each in re.findall(r"-?\d+\.\d+", output)][:3]
    assert first == pytest.approx(explanation.output[: len(first)], abs=6e-3)


def test_in_a_browser_nasty_tokens_do_not_run(opened):
    page = opened(explanations.nasty())
    page.press("ArrowLeft", "ArrowDown", "ArrowDown")
    page.ask("void (document.querySelector('.find input').value = '</script>')")
    page.ask("void document.querySelector('.find input').dispatchEvent(new Event('input'))")
    for tab in ("map", "links", "checks", "save", "steps"):
        page.ask(f"void document.getElementById('tab-{tab}').click()")
    assert page.ask("document.images.length") == 0
    assert page.ask("document.querySelector('.own').textContent") == explanations.NASTY[1]
    assert page.ask("document.querySelector('.match').textContent") == explanations.NASTY[1]
    assert page.complaints == []


def test_in_a_browser_the_policy_stops_a_script_that_was_slipped_in(opened):
    page = opened(explanations.qkv())
    page.ask(
        "void document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.slipped = true'}))"
    )
    assert page.ask("window.slipped === undefined")


@pytest.mark.slow
def test_in_a_browser_the_arrows_choose_the_step(opened):
    page = opened(explanations.qkv())
    assert page.ask(STEP) == "6sum"
    page.press("ArrowLeft", "ArrowLeft")
    assert page.ask(STEP) == "4softmax"
    page.until("getComputedStyle(document.querySelector('td[data-column=weigh] canvas')).opacity === '0'")
    page.press("ArrowRight")
    assert page.ask(STEP) == "5weight"


@pytest.mark.slow
def test_in_a_browser_every_query_of_two_texts_is_a_click_away(opened):
    words, others = ["le", "chat", "dort"], ["the", "cat", "sleeps"]
    page = opened(explanations.qkv(tokens=words, word=0, other=others, seed=2))
    shown = "document.querySelector('.steps h2 bdi').textContent"
    assert page.ask(shown) == "“le”"
    page.ask("void document.querySelectorAll('.text')[0].querySelector('[data-token=\"2\"]').click()")
    assert page.ask(shown) == "“dort”"
    page.ask("void document.querySelector('.own').focus()")
    page.press("ArrowLeft")
    assert page.ask(shown) == "“chat”"
    assert page.ask("document.activeElement.textContent") == "chat"
    expected = explanations.qkv(tokens=words, word=1, other=others, seed=2)
    for index, weight in enumerate(expected.rows[5][11]):
        text = page.ask(f"document.querySelectorAll('.text')[1].querySelector('[data-token=\"{index}\"]').ariaLabel")
        assert text == f"{others[index]}, {index}, weight {weight:.3f}"
    assert page.complaints == []


@pytest.mark.slow
def test_in_a_browser_the_arrows_choose_the_token_and_its_numbers_are_told(opened):
    explanation = explanations.qkv()
    ranked = sorted(explanation.steps, key=lambda row: -row.weight)
    page = opened(explanation)
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowDown")
    assert page.ask(ROW) == str(ranked[1].index)
    assert f"{ranked[1].score:.2f} ÷ √32 = {ranked[1].scaled:.3f}".replace("-", "−") in page.ask(WORKING)


@pytest.mark.slow
def test_in_a_browser_the_space_bar_plays_and_pauses(opened):
    page = opened(explanations.qkv())
    page.press(" ")
    assert page.ask(STEP) == "1query, key, value"
    assert page.ask("document.querySelector('.play span').textContent") == "Pause"
    page.until(f"{STEP} === '2score'")
    page.press(" ")
    assert page.ask("document.querySelector('.play span').textContent") == "Play"


@pytest.mark.slow
def test_in_a_browser_a_button_keeps_its_space_bar(opened):
    page = opened(explanations.qkv())
    page.ask("document.getElementById('theme').focus()")
    page.press(" ")
    assert page.ask("document.documentElement.dataset.theme") == "dark"
    assert page.ask(STEP) == "6sum"


@pytest.mark.slow
def test_in_a_browser_a_head_that_is_clicked_is_the_head_everywhere(opened):
    explanation = explanations.qkv()
    page = opened(explanation)
    page.until("document.querySelectorAll('.cells button[aria-label]').length === 72")
    page.ask("document.querySelector('.cells button[aria-pressed=true]').focus()")
    page.press("ArrowUp", "ArrowLeft")
    strongest = max(explanation.rows[4][10])
    assert page.ask(HEAD) == "L4H10"
    assert page.ask("document.querySelector('.chosen-head b').textContent") == "L4H10"
    assert page.ask("document.querySelector('.six tbody td.number:nth-last-child(2)').textContent") == f"{strongest:.3f}"
    focused = "document.activeElement.getAttribute('aria-label')?.startsWith('layer 4 head 10: strongest ')"
    page.until(focused)
    page.ask("void (document.querySelector('.cells').id = 'before')")
    page.ask("void (document.querySelector('.beside').style.width = '250px')")
    page.until("document.getElementById('before') === null")
    page.until(focused)
    page.ask("void document.querySelector('.chosen-head button').click()")
    assert page.ask(HEAD) == "L5H11"
    page.ask("void document.querySelector('.beside tbody button').click()")
    assert page.ask(HEAD) == f"L0H{explanation.links[0].head}"
    page.ask("void document.getElementById('tab-map').click()")
    assert page.ask("document.querySelector('.map-head h2').textContent") == f"L0H{explanation.links[0].head}"


@pytest.mark.slow
def test_in_a_browser_a_word_that_is_clicked_is_the_query_everywhere(opened):
    page = opened(explanations.qkv())
    page.ask("void document.querySelector('.part [data-token=\"2\"]').click()")
    assert page.ask("document.querySelector('.steps h2 bdi').textContent") == "“animal”"
    page.until("document.querySelector('.beside h2').textContent === '“animal” in all 72 heads'")
    page.ask("void document.querySelector('.six tbody tr:nth-child(2) button').click()")
    second = page.ask(f"viewer.recording.heads[0].queries[{STATE}.token]")
    assert page.ask("document.querySelector('.own').textContent") == second
    assert page.ask("document.querySelector('.steps h2 bdi').textContent") == f"“{second}”"


def test_in_a_browser_the_strongest_links_are_those_of_the_explanation(opened):
    explanation = explanations.qkv()
    explanation = explanations.qkv(special=[])
    page = opened(explanation)
    page.until("document.querySelectorAll('.beside tbody tr').length === 6")
    result = page.ask("""[...document.querySelectorAll('.beside tbody tr')].map((row) =>
      [row.querySelector('th').textContent, row.querySelector('.number').textContent])""")
    row = explanation.rows
    for layer, (name, weight) in enumerate(result):
        best = max((row[layer][head][key], head) for head in range(12) for key in range(15) if key != explanation.word)
        assert (name, weight) == (f"L{layer}H{best[1]}", f"{best[0]:.2f}")


@pytest.mark.slow
def test_in_a_browser_the_page_follows_the_readers_theme_and_can_leave_it(opened):
    dark = opened(explanations.qkv(), dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert dark.ask(ground) == "rgb(16, 19, 24)"
    dark.ask("document.getElementById('theme').click()")
    assert dark.ask(ground) == "rgb(251, 250, 246)"
    assert opened(explanations.qkv()).ask(ground) == "rgb(251, 250, 246)"


@pytest.mark.slow
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


@pytest.mark.parametrize("width", [620, 1400])
def test_in_a_browser_a_short_text_has_no_scrollbar(opened, width):
    page = opened(explanations.qkv(), width=width, height=900)
    page.press("ArrowLeft", "ArrowRight")
    high, shown = page.ask("[document.querySelector('.running').scrollHeight, document.querySelector('.running').clientHeight]")
    assert high <= shown


def test_in_a_browser_what_a_head_mostly_does_is_broken_where_the_window_is_narrow(opened):
    page = opened(explanations.qkv(), width=390, height=900)
    cells = "[...document.querySelectorAll('.beside td.quiet')]"
    page.until(f"{cells}.length > 0")
    page.ask(f"void {cells}.forEach((cell) => (cell.textContent = 'mostly previous token'))")
    right = "Math.max(...[...document.querySelectorAll('.beside td')].map((cell) => cell.getBoundingClientRect().right))"
    assert page.ask(right) <= 390


@pytest.mark.slow
def test_in_a_browser_the_weaker_tokens_are_counted_and_can_be_shown(opened):
    page = opened(explanations.long())
    shown = "document.querySelectorAll('.six tbody tr').length"
    assert page.ask(shown) == 9
    assert "the other 51" in page.ask("document.querySelector('.others').textContent")
    page.ask("document.querySelector('.others button').click()")
    assert page.ask(shown) == 60
    page.ask("document.querySelector('.others button').click()")
    assert page.ask(shown) == 9


@pytest.mark.slow
def test_in_a_browser_hundreds_of_tokens_still_have_a_page(opened):
    explanation = explanations.long(300, layers=2, heads=2)
    page = opened(explanation)
    assert page.ask("document.querySelector('.running').clientHeight") < 400
    assert f"the other {len(choose_rows(explanation).others)} " in page.ask("document.querySelector('.others').textContent")
    assert page.complaints == []


@pytest.mark.slow
def test_in_a_browser_a_row_that_looks_everywhere_stays_pale(opened):
    page = opened(explanations.long())
    shares = "[...document.querySelectorAll('[data-token]')].map((each) => parseFloat(each.style.getPropertyValue('--share')))"
    assert max(page.ask(shares)) < 60


@pytest.mark.slow
def test_in_a_browser_two_sentences_move_step_by_step_together(opened):
    page = opened(*PAIR, width=1400)
    page.press("ArrowLeft", "ArrowLeft")
    assert page.ask("[...document.querySelectorAll('.says b')].map((each) => each.textContent)") == ["4 · α", "4 · α"]
    left, right = page.ask("[...document.querySelectorAll('.word .steps')].map((each) => each.getBoundingClientRect().left)")
    assert right > left + 600
    weights = page.ask(
        "[...document.querySelectorAll('.word .steps')].map((each) => each.querySelector('td.number:nth-last-child(2)').textContent)"
    )
    assert weights == [f"{max(each.rows[5][11]):.3f}" for each in PAIR]
    page.ask("void document.querySelectorAll('.reading')[1].querySelector('[data-token=\"2\"]').click()")
    assert page.ask("[...document.querySelectorAll('.steps h2 bdi')].map((each) => each.textContent)") == ["“animal”"] * 2


@pytest.mark.few_cases(1)
def test_in_a_browser_without_script_the_table_is_in_sight(opened):
    page = opened(explanations.long(), script=False)
    assert page.ask("document.documentElement.className") == "static"
    assert page.ask("[...document.querySelectorAll('.steps tbody tr')].filter((row) => row.offsetParent).length") == 60
    assert page.ask("document.querySelector('.player')") is None


@pytest.mark.slow
def test_in_a_browser_who_wants_no_motion_gets_none(opened):
    page = opened(explanations.qkv(), calm=True)
    page.press(" ")
    assert page.ask("document.getAnimations().length") == 0


@pytest.mark.parametrize("name", ["plain", "hidden", "qkv", "from one sentence to another"])
def test_a_page_of_every_recipe_keeps_its_limit(name):
    with pytest.raises(
        InputError, match=r"a page of at most 0\.0 MB, which browsers open quickly, got .* Fix: pass a shorter text"
    ):
        write([explanations.EVERY_RECIPE[name]()], limit=1000)
