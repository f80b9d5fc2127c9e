"""What the site's build adds to its pages: formulas, links to the glossary, and the text for language models."""

import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "making"))

import glossary  # noqa: E402
import llms  # noqa: E402

GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.rglob("*.md"))
GUIDES = [page for page in PAGES if page.parent.name in {"chapters", "how-to"}]


class Loader(yaml.SafeLoader):
    """mkdocs.yml without the tags that mkdocs knows."""


Loader.add_multi_constructor("tag:", lambda *arguments: None)
CONFIG = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_says_first_what_it_needs(page):
    assert re.match(r"# [^\n]+\n\n\*\*You need:\*\* ", page.read_text(encoding="utf-8"))


def prose(page):
    return re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_formulas_become_mathml_without_a_script():
    converter = pytest.importorskip("latex2mathml.converter")
    formulas = [
        part for page in PAGES for part in re.findall(r"\$\$(.+?)\$\$|(?<!\$)\$([^$\s][^$\n]*)\$", prose(page), re.DOTALL)
    ]
    assert len(formulas) >= 12
    for formula in ("".join(part).strip() for part in formulas):
        element = converter.convert(formula)
        left = re.sub("<[^>]+>", "", element)
        assert element.startswith("<math"), formula
        assert "\\" not in left, (formula, left)


def test_arithmatex_marks_are_typeset_and_code_is_left():
    formulas = pytest.importorskip("formulas")
    page = '<div class="arithmatex">\\[a &lt; \\sqrt{d}\\]</div><code>$PATH</code>'
    typeset = formulas.typeset(page)
    assert typeset.startswith("<math")
    assert 'display="block"' in typeset
    assert "<msqrt>" in typeset
    assert typeset.endswith("<code>$PATH</code>")


def test_a_word_is_linked_where_a_page_first_uses_it_and_only_there():
    text = "# Head\n\n$$\nhead\n$$\n\n`head` and a head, two heads.\n\n```\nhead\n```\n\nA head."
    linked = glossary.linked(text, "how-to/a.md", GLOSSARY)
    assert linked == text.replace("a head,", "a [head](../glossary.md#head),")
    assert glossary.linked(text, "reference/a.md", GLOSSARY) == text


def test_words_of_smoothing_are_linked_on_its_pages():
    assert "#risk" in glossary.linked("The risk.", "smoothing.md", GLOSSARY)
    assert "#risk" not in glossary.linked("The risk.", "dot.md", GLOSSARY)


def test_the_glossary_has_the_words_that_readers_asked_for():
    forms = set(glossary.entries(GLOSSARY, smoothing=True).values())
    assert forms >= {"token", "head", "logit", "residual", "key", "value", "bandwidth", "risk", "band"}
    assert forms == set(re.findall(r"\{#([\w-]+)", GLOSSARY))


def test_there_are_twenty_questions_each_short():
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    answers = re.split(r"^### .+\?.*$", prose(DOCS / "faq.md"), flags=re.MULTILINE)[1:]
    assert len(answers) == len(re.findall(r"^### .+\?", text, flags=re.MULTILINE)) == 20
    for answer in answers:
        lines = [line for line in answer.partition("\n## ")[0].splitlines() if line.strip()]
        assert 1 <= len(lines) <= 8, answer


@pytest.mark.parametrize(
    ("words", "page"),
    [("xformers", "from-xformers"), ("rolling mean", "from-pandas"), ("half precision", "joined"), ("BertViz", "from-bertviz"),
     ("LOESS", "from-pandas"), ("STL", "from-pandas"), ("TransformerLens", "from-transformer-lens"), ("varlen", "from-xformers")],
)  # fmt: skip
def test_what_people_search_for_is_in_one_title_alone(words, page):
    titles = {path.stem: path.read_text(encoding="utf-8").partition("\n")[0] for path in PAGES}
    assert [stem for stem, title in titles.items() if words in title] == [page]


@pytest.mark.parametrize(
    ("words", "heading"), [("NaN", "nan-rows"), ("key_padding_mask", "mask-meaning"), ("attn_mask", "mask-meaning")]
)
def test_of_all_questions_one_has_the_words_that_people_search_for(words, heading):
    """The site's search puts headings far before text."""
    questions = re.findall(r"^### (.+) \{#([\w-]+)\}$", (DOCS / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [name for question, name in questions if words in question] == [heading]


def test_llms_txt_lists_every_page_of_the_site():
    text = llms.index(CONFIG["site_name"], CONFIG["site_description"], CONFIG["nav"], DOCS)
    listed = set(re.findall(r"\]\(([\w/.-]+)\.html\)", text))
    assert listed == {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES}
    assert text.startswith("# overt\n\n> ")
    assert not re.search(r"^- \[[^\]]*\]\([^)]*\): *$", text, flags=re.MULTILINE), "a page without a sentence"


def test_llms_full_txt_has_all_shown_code_and_docstrings():
    text = llms.full(CONFIG["nav"], DOCS)
    assert 'exec="1"' not in text
    assert not re.search(r"^::: ", text, flags=re.MULTILINE)
    assert "### overt.attend\n\n" in text
    assert "cu_seqlens = torch.tensor([0, 3, 8, 10])" in text
