"""The page by axe-core's rules of accessibility: in each of its tabs, light and dark, wide and narrow, with its script and without."""

import json
from importlib import resources

import pytest

import explanations
from overt.explain.html import write
from reading_pages import between

axe = pytest.importorskip("axe_core_python")
RULES = resources.files(axe).joinpath("axe.min.js").read_text(encoding="utf-8")
TABS = ("Steps", "Map", "Links", "Checks", "Save")
SIZES = [pytest.param(1400, False, id="wide, light"), pytest.param(400, True, id="narrow, dark")]
WAYS = [pytest.param(name, id=name, marks=() if name == "qkv" else pytest.mark.slow) for name in explanations.EVERY_RECIPE]


def broken(page):
    """The rules that a page breaks now, with the first element that does."""
    page.ask(
        "window.broken = null, void axe.run(document, { resultTypes: ['violations'] }).then((all) => (window.broken = all.violations))"
    )
    page.until("window.broken !== null", seconds=60)
    return json.loads(page.ask("JSON.stringify(window.broken.map((each) => [each.id, each.impact, each.nodes[0].html]))"))


def broken_by_tab(page):
    page.until("document.querySelector('[role=tab]') !== null")
    page.call("Runtime.evaluate", expression=RULES)  # by the browser's protocol, which the page's policy does not hold back
    result = {}
    for tab in TABS:
        page.ask(f"[...document.querySelectorAll('[role=tab]')].find((each) => each.textContent.trim() === '{tab}')?.click()")
        result[tab] = broken(page)
    return result


@pytest.mark.parametrize(("width", "dark"), SIZES)
@pytest.mark.parametrize("recipe", WAYS)
def test_a_page_breaks_no_rule_in_any_tab(recipe, width, dark, tmp_path, chromium):
    path = tmp_path / "page.html"
    path.write_text(write([explanations.EVERY_RECIPE[recipe]()])[0], encoding="utf-8")
    page = chromium.page().open(path, width=width, dark=dark)
    assert broken_by_tab(page) == {tab: [] for tab in TABS}


@pytest.mark.slow
def test_a_recording_between_two_texts_breaks_no_rule(tmp_path, chromium):
    path = tmp_path / "page.html"
    between()[1].page(path)
    assert broken_by_tab(chromium.page().open(path)) == {tab: [] for tab in TABS}
