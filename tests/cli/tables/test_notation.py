"""Cells as countries write them: numbers, dates, and what could be read in two ways."""

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.cli.shared.tables.dates import is_compact_date, read_dates
from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.numerals import bare, find_decimal, parse_number, read_numbers
from overt.errors import InputError


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
        (["1 200,50 €"], ","),
        (["1\u202f200.5"], "."),
        (["12 3,5"], None),
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
        ("+", ".", None),
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


def test_cells_that_are_no_numbers_are_listed():
    assert read_numbers(["1", "", "n/a", "x"], ".", Notation()).unreadable == (3,)
    np.testing.assert_array_equal(read_numbers(["1,5", "", "2"], ",", Notation()).values, [1.5, np.nan, 2.0])


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
    np.testing.assert_array_equal(read_dates([f"{one:{form}}" for one in moments]).values, np.array(moments, "datetime64[us]"))
    np.testing.assert_array_equal(
        read_dates([f"{one:{form}}" for one in moments], form).values, np.array(moments, "datetime64[us]")
    )


def test_months_alone_and_single_digits_are_dates():
    np.testing.assert_array_equal(read_dates(["2024-01", "2024-11"]).values, np.array(["2024-01-01", "2024-11-01"], "M8[us]"))
    np.testing.assert_array_equal(
        read_dates(["1/2/2024", "1/15/2024"]).values, np.array(["2024-01-02", "2024-01-15"], "M8[us]")
    )
    np.testing.assert_array_equal(read_dates(["1.2.2024"]).values, np.array(["2024-02-01"], "M8[us]"))


def test_a_day_or_a_month_first_is_asked_about_where_no_cell_shows_it():
    with pytest.raises(InputError, match=r"--date-format %d/%m/%Y for a day first, or --date-format %m/%d/%Y"):
        read_dates(["01/02/2024", "03/04/2024"])


@pytest.mark.parametrize(
    "cells", [["2024-01-01", "31.02.2024"], ["01.01.2024", "31.02.2024"], ["01.01.2024", "soon"], ["13/01/2024", "01/13/2024"]]
)
def test_a_cell_that_is_no_date_is_listed(cells):
    assert len(read_dates(cells).unreadable) == 1


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


@pytest.mark.parametrize(
    ("cell", "numeral", "unit"),
    [
        ("45 %", "45", "%"),
        ("$1,234.50", "1,234.50", "$"),
        ("-$5", "-5", "$"),
        ("1.234,50 €", "1.234,50", "€"),
        ("CHF 1'234", "1'234", "CHF"),
        ("20.5°C", "20.5", "°C"),
        ("9.81 m/s²", "9.81", "m/s²"),
        ("(3.2)", "-3.2", ""),
        ("($3.20)", "-3.20", "$"),
        ("\u22123.2", "-3.2", ""),
        ("3.2-", "-3.2", ""),
        ("1e5 Pa", "1e5", "Pa"),
    ],
)
def test_what_is_attached_to_a_number_is_taken_off(cell, numeral, unit):
    assert bare(cell) == (numeral, unit)


@pytest.mark.parametrize("cell", ["soon", "5 of 10", "-(3)", "5 (300)", "3;4", "<0.1", "ca. 5", "5 apples left", "()", "--5"])
def test_a_text_with_a_number_in_it_is_none(cell):
    assert bare(cell) is None


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["25-Jan-2024", "26-Feb-2024"], "2024-01-25"),
        (["25 January 2024", "1 Feb 2024"], "2024-01-25"),
        (["Jan 25, 2024", "Feb 1, 2024"], "2024-01-25"),
        (["Thu, 25 Jan 2024 14:05", "Fri, 26 Jan 2024 14:05"], "2024-01-25T14:05"),
        (["25. Januar 2024", "1. März 2024"], "2024-01-25"),
        (["25-JAN-24", "26-JAN-24"], "2024-01-25"),
        (["2024Q3", "2024Q4"], "2024-07-01"),
        (["Q3 2024", "Q4 2024"], "2024-07-01"),
        (["2024M11", "2024M12"], "2024-11-01"),
        (["2024-W05", "2024-W06"], "2024-01-29"),
        (["Jan 2024", "Feb 2024"], "2024-01-01"),
        (["01.02.2024 24:00", "02.02.2024 01:00"], "2024-02-02"),
    ],
)
def test_dates_with_names_of_months_and_periods_are_read(cells, first):
    dates = read_dates(cells)
    assert dates.unreadable == ()
    assert dates.values[0] == np.datetime64(first)
    assert dates.values[1] > dates.values[0]
