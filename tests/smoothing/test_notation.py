"""Cells as countries write them: numbers, dates, and what could be read in two ways."""

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.errors import InputError
from overt.smoothing.data.notation import Notation, find_decimal, is_compact_date, parse_dates, parse_number, parse_numbers


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["1", "20"], None),
        (["0,5"], ","),
        (["12,75", "1.000"], ","),
        (["1.234,5"], ","),
        (["1.234.567"], ","),
        (["1,234.5"], "."),
        (["1,234,567"], "."),
        (["1234,567"], ","),
        (["0,123"], ","),
        (["1,234", "12,500"], None),
        (["1.5", "1,234"], "."),
        (["2024-01-02", "a,b", "3,4,5"], None),
        (["-3,25"], ","),
        (["1,5e3"], ","),
    ],
)
def test_the_decimal_mark_is_the_one_that_is_beyond_doubt(cells, mark):
    assert find_decimal(cells) == mark


def test_two_marks_in_one_file_are_asked_about():
    with pytest.raises(InputError, match=r"one decimal mark in a file, got '1\.5' and '2,5'\. Fix: pass --decimal"):
        find_decimal(["1.5", "2,5"])


@pytest.mark.parametrize(
    ("cell", "decimal", "number"),
    [
        ("1.234,5", ",", 1234.5),
        ("1 234,5", ",", 1234.5),
        ("1\u202f234\u00a0567,5", ",", 1234567.5),
        ("1'234.5", ".", 1234.5),
        ("1,234,567", ".", 1234567.0),
        ("-0,5", ",", -0.5),
        (",5", ",", 0.5),
        ("1,5e-3", ",", 0.0015),
        ("1,23,456", ".", None),
        ("1.23.456", ",", None),
        ("1,2,3", ",", None),
        ("12 34", ".", None),
        ("-", ".", None),
        (".", ".", None),
        ("5%", ".", None),
        ("1e999", ".", None),
        ("inf", ".", None),
    ],
)
def test_numbers_have_whole_groups_of_thousands_or_are_none(cell, decimal, number):
    assert parse_number(cell, decimal) == number


@given(st.floats(-1e12, 1e12), st.integers(0, 6))
def test_what_either_country_writes_is_read_back(value, positions):
    english = f"{value:,.{positions}f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert parse_number(english, ".") == parse_number(german, ",") == float(f"{value:.{positions}f}")


def test_the_first_cell_that_is_no_number_is_named():
    assert parse_numbers(["1", "", "n/a", "x"], ".") == 3
    np.testing.assert_array_equal(parse_numbers(["1,5", "", "2"], ","), [1.5, np.nan, 2.0])


MOMENT = datetime(2024, 12, 31, 17, 5, 9)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d %H:%M:%S",
        "%Y/%m/%d %H:%M:%S",
        "%d.%m.%Y %H:%M:%S",
        "%d.%m.%Y, %H:%M:%S",
        "%d/%m/%Y %H:%M:%S",
        "%m/%d/%Y %I:%M:%S %p",
        "%d-%m-%YT%H:%M:%S",
        "%Y%m%dT%H%M%S",
    ],
)
def test_dates_of_many_countries_are_read(form):
    moments = [MOMENT, datetime(2025, 2, 3, 0, 0, 1), datetime(2025, 2, 3, 12, 0, 0)]
    np.testing.assert_array_equal(
        parse_dates([f"{one:{form}}" for one in moments], Notation()), np.array(moments, "datetime64[us]")
    )
    np.testing.assert_array_equal(
        parse_dates([f"{one:{form}}" for one in moments], Notation(date_format=form)), np.array(moments, "datetime64[us]")
    )


def test_months_alone_and_single_digits_are_dates():
    np.testing.assert_array_equal(
        parse_dates(["2024-01", "2024-11"], Notation()), np.array(["2024-01-01", "2024-11-01"], "M8[us]")
    )
    np.testing.assert_array_equal(
        parse_dates(["1/2/2024", "1/15/2024"], Notation()), np.array(["2024-01-02", "2024-01-15"], "M8[us]")
    )
    np.testing.assert_array_equal(parse_dates(["1.2.2024"], Notation()), np.array(["2024-02-01"], "M8[us]"))


def test_a_day_or_a_month_first_is_asked_about_where_no_cell_shows_it():
    with pytest.raises(InputError, match=r"--date-format %d/%m/%Y for a day first, or --date-format %m/%d/%Y"):
        parse_dates(["01/02/2024", "03/04/2024"], Notation())


@pytest.mark.parametrize(
    "cells", [["2024-01-01", "31.02.2024"], ["01.01.2024", "31.02.2024"], ["01.01.2024", "soon"], ["13/01/2024", "01/13/2024"]]
)
def test_the_first_cell_that_is_no_date_is_named(cells):
    assert parse_dates(cells, Notation()) in (0, 1)


def test_eight_digits_are_dates_only_if_all_can_be():
    assert is_compact_date(["20240101", "20241231"])
    assert not is_compact_date(["20240101", "20241301"])
    assert not is_compact_date(["20240101", "20240101"])
    assert not is_compact_date(["10000000", "10000001"])


@pytest.mark.parametrize(
    ("way", "message"),
    [({"separator": "::"}, "one character between cells, got '::'"), ({"decimal": ";"}, "a decimal point or comma, got ';'")],
)
def test_a_notation_that_cannot_be_is_refused(way, message):
    with pytest.raises(InputError, match=message):
        Notation(**way)
