"""The learning rate rises to its height and comes down by its formula."""

import math

import pytest

from overt.learn import Training
from overt.learn.config.settings import SCHEDULES
from overt.learn.loop.schedule import learning_rate


def rates(schedule, updates=100, warmup=20):
    settings = Training(updates=updates, warmup=warmup, learning_rate=0.5, schedule=schedule)
    return [learning_rate(update, settings) for update in range(1, updates + 1)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_rises_in_a_line_to_its_height(schedule):
    assert rates(schedule)[:20] == pytest.approx([0.5 * update / 20 for update in range(1, 21)])


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        ("inverse_sqrt", lambda update: 0.5 * math.sqrt(20 / update)),
        ("linear", lambda update: 0.5 * (101 - update) / 81),
        ("cosine", lambda update: 0.25 * (1 + math.cos(math.pi * (update - 20) / 81))),
        ("constant", lambda update: 0.5),
        ("trapezoid", lambda update: 0.5 if update <= 81 else 0.5 * (101 - update) / 20),
    ],
)
def test_each_comes_down_by_its_formula(schedule, formula):
    assert rates(schedule)[20:] == pytest.approx([formula(update) for update in range(21, 101)])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_update_is_without_a_learning_rate(schedule):
    assert min(rates(schedule)) > 0
    assert min(rates(schedule, warmup=0)) > 0


def test_without_warmup_the_first_update_has_the_full_rate():
    assert rates("linear", warmup=0)[0] == 0.5
