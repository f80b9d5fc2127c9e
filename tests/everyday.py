"""Which cases of a test run every day: the others are slow, and run by `make test-slow`.

Of a list of cases, `everyday` keeps those that are named. Of a product of several lists, the mark `each_value` keeps as few cases
as hold each value of each parameter once, `each_pair` as few as hold each pair of values of two parameters, and `one_case` the first;
see conftest.py. Of the tests in a browser those run every day that compare numbers, refuse what is hostile, and go the main way through a page.
"""

import os
from itertools import combinations

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def everyday(cases, *quick):
    """The cases of a parameter, of which those that are quick run every day and all others are slow."""
    cases = [*cases]
    assert all(case in cases for case in quick), f"{quick} are not all among {cases}"
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def everyday_where_interpreted(cases, *quick):
    """The same in Triton's interpreter, which takes seconds for each; elsewhere all run every day."""
    return everyday(cases, *quick) if INTERPRETED else [*cases]


def covering(cases, size):
    """The places of cases, dictionaries, that together hold each combination of as many of their entries; the first is among them."""
    parts = [{*combinations(sorted(case.items()), min(size, len(case)))} for case in cases]
    missing, chosen = set().union(*parts), []
    while missing:
        best = max(range(len(cases)), key=lambda index: len(parts[index] & missing))
        chosen.append(best)
        missing -= parts[best]
    return chosen


def values_of(item):
    """The value that a test has of each parameter, by identity; parameters of one mark are one."""
    groups = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [tuple(each.replace(" ", "").split(",")) if isinstance(each, str) else tuple(each) for each in groups]
    groups += [(name,) for name in item.callspec.params.keys() - {name for group in groups for name in group}]
    return {group: tuple(id(item.callspec.params[name]) for name in group) for group in groups}


def leave_to_slow(items):
    """Mark as slow what `each_pair`, `each_value` and `one_case` leave of the collected tests."""
    of_test, sizes = {}, {"each_pair": 2, "each_value": 1, "one_case": 0}
    for item in items:
        sampled = next(filter(None, map(item.get_closest_marker, sizes)), None)
        if sampled and hasattr(item, "callspec") and item.get_closest_marker("slow") is None:
            of_test.setdefault((item.path, item.originalname, sizes[sampled.name]), []).append(item)
    for (_, _, size), cases in of_test.items():
        quick = {*covering([values_of(case) for case in cases], size)}
        for index, case in enumerate(cases):
            if index not in quick:
                case.add_marker(pytest.mark.slow)
