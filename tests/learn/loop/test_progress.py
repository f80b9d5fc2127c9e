"""The bar of a training run: nothing before there is something to tell, and no number cut at any width."""

import io
import re

import pytest
from rich.console import Console

from overt.learn.run.progress import ProgressDisplay

WIDTHS = [30, 40, 60, 80, 120]


def lines(width, updates=100_000):
    """The bar before the first update, and after one."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    message = []
    with ProgressDisplay(console, updates, 0) as shown:
        for update in (None, 12_345):
            if update is not None:
                shown.show_update(update, 3.14159, 1_234_567.8)
            page = Console(file=io.StringIO(), width=width, record=True)
            page.print(shown._bar.get_renderable())
            message.append(page.export_text())
    return message


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_line_tells_no_loss_and_no_speed(width):
    before, _ = lines(width)
    assert "nan" not in before
    assert "loss" not in before
    assert "tokens/s" not in before


@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_of_a_narrow_bar_is_a_whole_number_of_the_wide_one(width):
    _, after = lines(width)
    assert len(after.splitlines()) == 1
    assert "…" not in after
    assert set(re.findall(r"[\d.,]+", after)) <= {"12345", "100000", "3.142", "1,234,568"}
    assert "12345/100000 loss 3.142" in re.sub(" +", " ", after)


def test_a_wide_bar_tells_the_speed_and_the_time():
    assert "1,234,568 tokens/s" in lines(80)[1]
    assert "-:--:--" in lines(80)[1]
