"""The guide's pictures: SVG in the page's own colours, many of them on one page."""

import importlib.util
import re
from pathlib import Path

import matplotlib
import pytest
import torch

FILE = Path(__file__).parents[3] / "docs" / "making" / "pictures.py"


@pytest.fixture
def pictures():
    spec = importlib.util.spec_from_file_location("pictures", FILE)
    assert spec is not None
    assert spec.loader is not None
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    with matplotlib.rc_context():
        yield result


def test_ink_is_the_pages_own_and_paper_is_left_out(pictures):
    figure, axes = pictures.sheet(3, 2)
    axes.plot([0, 1], label="a line")
    axes.legend()
    drawn = pictures.picture(figure, "A line & its legend")
    assert 'aria-label="A line &amp; its legend"' in drawn
    assert "var(--quiet" in drawn
    assert "var(--blue" in drawn
    assert "#000000" not in drawn
    assert "#ffffff" not in re.sub(r"var\([^)]*\)", "", drawn)


def test_two_pictures_on_a_page_share_no_names(pictures):
    names = []
    for height in (1, 2):
        figure, axes = pictures.sheet(2, height)
        axes.plot([0, height], "o-")
        names.append(set(re.findall(r' id="([^"]+)"', pictures.picture(figure, "a line"))))
    assert names[0]
    assert not names[0] & names[1]


def test_weights_are_drawn_as_they_come_from_a_layer(pictures):
    weights = torch.eye(3, requires_grad=True).softmax(-1)
    drawn = pictures.picture(pictures.heats({"few": weights, "many": weights.repeat(9, 9)}, list("abc")), "weights")
    assert drawn.count("<image") == 1


def test_arcs_leave_the_asking_word_and_nothing_for_no_weight(pictures):
    figure = pictures.arcs(["it", "was", "late"], torch.tensor([0.0, 0.0, 1.0]), 0)
    assert len(figure.axes[0].patches) == 1


def test_a_table_is_markdown(pictures):
    assert pictures.table([("a", 1)], ("name", "number"), "lr") == "| name | number |\n| --- | ---: |\n| a | 1 |"
