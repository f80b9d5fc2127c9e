"""The documentation holds what it must: every public name explained, with an example, in the reference; every block of code run."""

import importlib
import importlib.util
import pkgutil
import re
import types
from pathlib import Path

import pytest

import overt

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

# Plain data that a function returns, whose example is that function's.
SHOWN_ELSEWHERE = {
    "overt.learn.TrainingResult",
    "overt.lens.Log",
    "overt.lens.Replay",
    "overt.lens.Survey",
    "overt.lens.SurveyDifferences",
    "overt.learn.Translation",
    "overt.explain.Explanation",
    "overt.explain.Link",
    "overt.explain.Looks",
    "overt.explain.StepRow",
    "overt.explain.Timing",
    "overt.smoothing.Demonstration",
    "overt.smoothing.Smoothing",
}


def defined_names(module: types.ModuleType) -> list[str]:
    """What a module offers: its `__all__`, or where it has none the functions and classes that it defines itself."""
    defined = [name for name, result in vars(module).items() if getattr(result, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", defined)
    return [name for name in names if not name.startswith("_") and callable(getattr(module, name))]


def public() -> dict[str, object]:
    """Every public name with what it names, each thing once: by the shortest of its names."""
    homes = [overt, *(getattr(overt, name) for name in overt.__all__ if isinstance(getattr(overt, name), types.ModuleType))]
    result: dict[int, tuple[str, object]] = {}
    for home in homes:
        for name in defined_names(home):
            result.setdefault(id(getattr(home, name)), (f"{home.__name__}.{name}", getattr(home, name)))
    return dict(result.values())


def referred() -> set[int]:
    """What the pages of the reference describe."""
    names = re.findall(r"^::: (\S+)$", "\n".join(page.read_text() for page in PAGES), flags=re.MULTILINE)
    return {id(pkgutil.resolve_name(name)) for name in names}


PUBLIC = public()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_with_an_example(name):
    message = PUBLIC[name].__doc__
    assert message, f"{name} has no docstring"
    assert ">>>" in message or name in SHOWN_ELSEWHERE, f"the docstring of {name} has no example"


@pytest.mark.parametrize("name", sorted(SHOWN_ELSEWHERE))
def test_what_is_excused_from_an_example_is_public_and_has_none(name):
    assert ">>>" not in (PUBLIC[name].__doc__ or "")


def test_every_public_name_is_in_the_reference():
    there = referred()
    assert not {name for name, result in PUBLIC.items() if id(result) not in there}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_block_of_python_on_a_page_is_run(page):
    fences = re.findall(r"^```(\w+)(.*)$", page.read_text(), flags=re.MULTILINE)
    still = [kind + message for kind, message in fences if kind in {"python", "bash", "pycon"} and 'exec="1"' not in message]
    assert not still


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_keeps_its_names_to_itself(page):
    others = "\n".join(other.read_text() for other in PAGES if other != page)
    shared = {name for name in re.findall(r'session="([^"]+)"', page.read_text()) if f'session="{name}"' in others}
    assert not shared, f"another page has the session {shared}"


@pytest.fixture(scope="module")
def links():
    spec = importlib.util.spec_from_file_location("links", DOCS / "making" / "links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_check_of_the_site_finds_what_is_not_there_or_elsewhere(links, tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="here">A</h1><a href="b.html#there">b</a><a href="#here">a</a><a href="https://example.org">a reader may go</a>'
        '<script src="https://example.org/x.js"></script><img src="data:image/png;base64,">'
    )
    (tmp_path / "b.html").write_text('<a href="c.html">c</a><a href="a.html#here">a</a>')
    (tmp_path / "style.css").write_text("@font-face { src: url(https://example.org/font.woff) }")
    assert list(links.faults(tmp_path)) == [
        "a.html: b.html#there names no place of that page",
        "a.html: <script> fetches https://example.org/x.js",
        "b.html: c.html is no file of the site",
        "style.css: fetches from elsewhere",
    ]


def test_the_check_of_the_site_is_content_with_what_is_whole(links, tmp_path):
    (tmp_path / "a.html").write_text('<p id="ä b">x</p><a href="a.html#%C3%A4%20b">here</a>')
    assert not list(links.faults(tmp_path))
