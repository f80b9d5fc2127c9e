"""What the chapters say of their outputs is so: where a page quotes a model's words, or chooses one of its heads."""

import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

import overt

MAKING = Path(__file__).parents[1] / "docs" / "making"
CHAPTERS = MAKING.parent / "chapters"
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def pictures():
    """The module that the chapters import for their pictures, as they find it."""
    spec = importlib.util.spec_from_file_location("pictures", MAKING / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with matplotlib.rc_context(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pictures", module)
        yield module


def run(chapter, part, **names):
    """Run the block of a chapter that holds `part`: what it printed, its names, and the text behind it up to the next block."""
    text = (CHAPTERS / f"{chapter}.md").read_text(encoding="utf-8")
    [block] = [block for block in BLOCK.finditer(text) if part in block[1]]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(block[1], names)
    return printed.getvalue(), names, text[block.end() :].partition("```")[0].strip()


def test_chapter_3_explains_each_pronoun_that_the_translator_writes():
    printed, _, prose = run("3-six-steps", "The table is in the kitchen")
    explained = {word.lower() for word in re.findall(r"\*([^*]+)\*", prose.partition("\n\n")[0])}
    pronouns = [set(re.findall(r"\b(?:elle|il|c'est)\b", line.lower())) for line in printed.splitlines()]
    assert [len(each) for each in pronouns] == [1, 1], printed
    assert set.union(*pronouns) <= explained


@pytest.fixture(scope="module")
def chosen_heads(pictures):
    """The names of chapter 2's block that chooses heads, and the prose behind it."""
    _, names, prose = run(
        "2-encoder-decoder", "strongest(", heatmap=pictures.heatmap, sheet=pictures.sheet, picture=pictures.picture
    )
    return names, prose


def test_the_head_that_chapter_2_shows_between_two_languages_is_nearly_an_alignment(chosen_heads):
    names, prose = chosen_heads
    largest = names["chosen"]["between"][0].argmax(-1).tolist()
    right = [i for i, j in names["pairs"] if largest[i] == j]
    assert len(names["pairs"]) >= 4, "words of the sentence that the page's dictionary has"
    assert 2 * len(right) > len(names["pairs"])
    assert "most French\nwords have their largest weight on the English word that they come from" in prose


def test_where_chapter_2_says_that_the_order_turns_the_weights_do_too(chosen_heads):
    names, prose = chosen_heads
    largest = names["chosen"]["between"][0].argmax(-1).tolist()
    verb = names["writes"].index("voir")
    assert [names["reads"][largest[i]] for i in (verb - 1, verb)] == ["you", "see"]
    assert "the pronoun before *voir*" in prose


def test_the_row_that_chapter_1_quotes_has_the_softmax_of_its_dot_products():
    words, h = (
        ["she", "saw", "the", "river", "bank"],
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 2.0], [1.0, 1.0]]),
    )
    steps = overt.steps(h, h, h, score=overt.Dot(scale=1.0))
    printed, *_ = run("1-hidden-states", "A long state gets much", words=words, steps=steps)
    of_saw = np.exp([0, 1, 0, 2, 1]) / np.exp([0, 1, 0, 2, 1]).sum()
    assert f"*river* {of_saw[3]:.2f} and itself, in the same direction, {of_saw[1]:.2f}" in printed
