"""The page by axe-core's rules of accessibility: in each of its tabs, light and dark, wide and narrow, with its script and without."""

import pytest

import explanations
from overt.explain.html import write
from reading_pages import between

TABS = ("Steps", "Map", "Links", "Checks", "Save")
SIZES = [pytest.param(1400, False, id="wide, light", marks=pytest.mark.slow), pytest.param(400, True, id="narrow, dark")]
WAYS = [pytest.param(name, id=name, marks=() if name == "qkv" else pytest.mark.slow) for name in explanations.EVERY_RECIPE]


def broken_by_tab(page):
    page.until("document.querySelector('[role=tab]') !== null")
    result = {}
    for tab in TABS:
        page.ask(f"[...document.querySelectorAll('[role=tab]')].find((each) => each.textContent.trim() === '{tab}')?.click()")
        result[tab] = page.broken_rules()
    return result


@pytest.mark.slow
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
