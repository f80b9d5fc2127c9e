"""Batches hold every example once, keep their budget, and follow from seed and epoch alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.errors import InputError
from overt.learn.data.batches import Batches

PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


@given(lengths=PAIRS, epoch=st.integers(0, 3))
def test_an_epoch_has_every_example_once(lengths, epoch):
    batches = Batches(lengths, tokens_per_batch=64, seed=1).epoch(epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))


@given(lengths=PAIRS)
def test_a_batch_of_several_examples_keeps_within_its_budget_with_padding_and_the_larger_side(lengths):
    for batch in Batches(lengths, tokens_per_batch=64, seed=1).epoch(0):
        longest = max(max(lengths[index]) for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= 64


def test_an_example_longer_than_the_budget_is_a_batch_of_its_own():
    batches = Batches([3, 100, 3], tokens_per_batch=10, seed=0).epoch(0)
    assert sorted(sorted(batch) for batch in batches) == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("budget", "sizes"), [(12, [1, 3, 3, 3]), (11, [2, 2, 2, 2, 2]), (40, [10]), (39, [1, 9]), (1, [1] * 10)]
)
def test_batches_are_as_full_as_their_budget_allows(budget, sizes):
    assert sorted(map(len, Batches([4] * 10, tokens_per_batch=budget, seed=0).epoch(0))) == sizes


@pytest.mark.parametrize("changed", [{"seed": 2}, {"epoch": 1}])
def test_batches_follow_from_seed_and_epoch(changed):
    lengths = [1 + number % 7 for number in range(100)]

    def made(seed=1, epoch=0):
        return Batches(lengths, tokens_per_batch=20, seed=seed).epoch(epoch)

    assert made() == made()
    assert made(**changed) != made()


def test_an_epoch_does_not_depend_on_those_before_it():
    lengths = [1 + number % 7 for number in range(100)]
    read = Batches(lengths, tokens_per_batch=20, seed=1)
    _, second = read.epoch(0), read.epoch(1)
    assert Batches(lengths, tokens_per_batch=20, seed=1).epoch(1) == second


def test_sorting_by_length_leaves_little_padding():
    lengths = [(1 + number % 30, 1 + number % 29) for number in range(3000)]
    batches = Batches(lengths, tokens_per_batch=500, seed=0).epoch(0)
    padded = sum(len(batch) * max(lengths[index][0] for index in batch) for batch in batches)
    assert sum(source for source, _ in lengths) / padded > 0.7


def test_no_examples_are_refused():
    with pytest.raises(InputError, match="at least one example, got none"):
        Batches([], tokens_per_batch=10, seed=0)
