"""What a sample of a product of parameters holds, and that what it leaves out is slow."""

from itertools import combinations, product

import pytest

from everyday import covering, everyday, spread

CASES = [dict(zip("abcd", values, strict=True)) for values in product(range(2), range(3), range(4), range(5))]


@pytest.mark.parametrize(("size", "most"), [(1, 5), (2, 24)])
def test_a_sample_has_every_combination_of_so_many_parameters(size, most):
    sample = covering(CASES, size)
    for names in combinations("abcd", size):
        present, all_of_them = (
            {tuple(case[name] for name in names) for case in cases} for cases in (map(CASES.__getitem__, sample), CASES)
        )
        assert present == all_of_them
    assert sample[0] == 0
    assert len(sample) == len({*sample}) <= most


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_slow_completes_the_threes_and_repeats_none(size):
    quick = covering(CASES, size)
    slow = covering(CASES, 3, quick)
    assert not {*quick} & {*slow}
    for names in combinations("abcd", 3):
        present, all_of_them = (
            {tuple(case[name] for name in names) for case in cases}
            for cases in (map(CASES.__getitem__, [*quick, *slow]), CASES)
        )
        assert present == all_of_them
    assert len(quick) + len(slow) < 80 < len(CASES)
    assert covering(CASES, 3, range(len(CASES))) == []


@pytest.mark.each_pair
@pytest.mark.parametrize("d", range(2))
@pytest.mark.parametrize("c", range(2))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("a", range(3))
def test_of_a_product_of_four_what_no_three_need_is_exhaustive(request, a, b, c, d):
    mine = [item for item in request.session.items if item.originalname == request.node.originalname]
    exhaustive = [item for item in mine if item.get_closest_marker("exhaustive")]
    assert all(item.get_closest_marker("slow") for item in exhaustive)
    assert len(mine) < 36 or 36 - len(exhaustive) in range(18, 24)


@pytest.mark.each_value
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("c", range(3))
def test_of_a_product_a_mark_leaves_three_quick(request, a, b, c):
    """Parameters of one mark are one, so each of their three cases is there."""
    mine = [item for item in request.session.items if item.originalname == request.node.originalname]
    quick = [item.callspec.params for item in mine if item.get_closest_marker("slow") is None]
    assert len(quick) in (0, 3)  # none where only slow ones are chosen
    for names in (("a", "b"), ("c",)):
        assert len({tuple(each[name] for name in names) for each in quick}) == len(quick)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("number", range(7))
def test_of_a_list_a_mark_leaves_so_many_quick(request, number):
    mine = [item for item in request.session.items if item.originalname == request.node.originalname]
    quick = [item.callspec.params["number"] for item in mine if item.get_closest_marker("slow") is None]
    assert quick in ([], [0, 2, 4])


def test_few_cases_are_spread_over_all():
    cases = [*range(10)]
    assert [spread(cases, count) for count in (1, 2, 5, 20)] == [[0], [0, 5], [0, 2, 4, 6, 8], cases]


def test_of_a_list_those_that_are_named_are_left_quick():
    first, second, third = everyday(["a", "b", "c"], "b")
    assert second == "b"
    assert [each.marks[0].name for each in (first, third)] == ["slow", "slow"]
    with pytest.raises(AssertionError, match="are not all among"):
        everyday(["a"], "b")
