"""Which cases of a test run every day: the others are slow, and run by `make test-slow`.

Of a list of cases, `everyday` keeps those that are named, and the mark `few_cases` so many, spread over all of them from the first. Of
a product of several lists, the mark `each_value` keeps as few cases as hold each value of each parameter once, and `each_pair` as few as
hold each pair of values of two parameters; see conftest.py. With the slow ones, each combination of values of three parameters of such a
product is run, or of any of its parameters where there are three at most; what is then left is marked `exhaustive`, and run by
`make test-all` alone. Of the tests in a browser those run every day that compare numbers, refuse what is hostile, and go the main way through a page.
"""

import os
from itertools import combinations

import pytest

# Derivatives beside finite differences: every day along one random direction, with the slow tests along that of each number.
DIRECTIONS = pytest.mark.parametrize(
    "fast", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["a random direction", "each number"]
)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def everyday(cases, *quick):
    """The cases of a parameter, of which those that are quick run every day and all others are slow."""
    cases = [*cases]
    assert all(case in cases for case in quick), f"{quick} are not all among {cases}"
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def everyday_where_interpreted(cases, *quick):
    """The same in Triton's interpreter, which takes seconds for each; elsewhere all run every day."""
    return everyday(cases, *quick) if INTERPRETED else [*cases]


def covering(cases, size, chosen=()):
    """The places of cases, dictionaries, that with those chosen hold each combination of as many entries; without any, the first is among them."""
    parts = [{*combinations(sorted(case.items()), min(size, len(case)))} for case in cases]
    missing, added = set().union(*parts).difference(*(parts[index] for index in chosen)), []
    counts = [len(part & missing) for part in parts]
    while missing:
        # A count only falls, so it is counted again where it is the largest.
        while counts[best := counts.index(max(counts))] != (count := len(parts[best] & missing)):
            counts[best] = count
        added.append(best)
        missing -= parts[best]
    return added


def values_of(item):
    """The value that a test has of each parameter, by identity; parameters of one mark are one."""
    groups = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [tuple(each.replace(" ", "").split(",")) if isinstance(each, str) else tuple(each) for each in groups]
    groups += [(name,) for name in item.callspec.params.keys() - {name for group in groups for name in group}]
    return {group: tuple(id(item.callspec.params[name]) for name in group) for group in groups}


def spread(cases, count):
    """The places of so many cases, spread evenly over all; the first is among them."""
    count = min(count, len(cases))
    return [number * len(cases) // count for number in range(count)]


def leave_to_slow(items):
    """Mark as slow what `each_pair`, `each_value` and `few_cases` leave of the collected tests, and as exhaustive what threes need not."""
    of_test = {}
    for item in items:
        sampled = next(filter(None, map(item.get_closest_marker, ("each_pair", "each_value", "few_cases"))), None)
        if sampled and hasattr(item, "callspec") and item.get_closest_marker("slow") is None:
            of_test.setdefault((item.path, item.originalname, sampled.name, sampled.args), []).append(item)
    for (_, _, name, counts), cases in of_test.items():
        size, values = {"each_pair": 2, "each_value": 1}.get(name), [values_of(case) for case in cases]
        quick = {*(spread(cases, *counts) if size is None else covering(values, size))}
        slow = {*range(len(cases))} if len(values[0]) < 4 else {*covering(values, 3, quick)}
        for index, case in enumerate(cases):
            if index not in quick:
                case.add_marker(pytest.mark.slow)
                if index not in slow:
                    case.add_marker(pytest.mark.exhaustive)
