"""Small files as programs and people write them, with what is to be read from them: a set to develop with and a frozen one."""

from datetime import date, datetime, timedelta
from typing import NamedTuple

import numpy as np

DAYS = [date(2024, 1, 20) + timedelta(days=row) for row in range(24)]
VALUES = np.round(20 + 3 * np.sin(np.arange(24) / 4), 2)
HOURS = [datetime(2024, 3, 30, 22) + timedelta(hours=row) for row in range(24)]


class Messy(NamedTuple):
    """A file, the columns to read, and its values or the words of the error that asks."""

    name: str
    content: bytes
    column: str = "x"
    time: str | None = "day"
    options: dict = {}  # noqa: RUF012
    values: np.ndarray | None = VALUES
    first: str = "2024-01-20"  # the first time
    asks: str = ""
    remark: str = ""  # words of the account


def lines(rows, head="day,x", before="", end="\n"):
    return (before + head + end + end.join(rows) + end).encode()


def of(form, values=VALUES, days=DAYS, number="{:.2f}", comma=False):
    """Rows of a date and a number."""
    numbers = [number.format(value) for value in values]
    numbers = [cell.translate(str.maketrans(".,", ",.")) for cell in numbers] if comma else numbers
    return [form.format(day=day, x=cell) for day, cell in zip(days, numbers, strict=True)]


def with_missing(spelling, rows=(3, 7, 8)):
    cells = of("{day:%Y-%m-%d},{x}")
    values = VALUES.copy()
    for row in rows:
        cells[row] = f"{DAYS[row]:%Y-%m-%d},{spelling}"
        values[row] = np.nan
    return lines(cells), values


ISO = "{day:%Y-%m-%d},{x}"
GERMAN = "{day:%d.%m.%Y};{x}"
THOUSANDS = np.round(VALUES * 1000)


def develop():
    """Files to develop with."""
    for spelling in ("#N/A", "#DIV/0!", "#VALUE!", "-", "--", "?", "n/a", "unavailable", "", "NA", "NaN", "null", "None"):
        content, values = with_missing(spelling)
        yield Messy(f"missing {spelling!r}", content, values=values, remark=f"3 × {spelling or 'empty'}")
    content, values = with_missing("-999")
    yield Messy("a code", content, options={"missing": ("-999",)}, values=values, remark="3 × -999")
    content, values = with_missing("ERR")
    yield Messy("a word", content, asks="--missing 'ERR'")
    yield Messy("a word that is said", content, options={"missing": ("err",)}, values=values, remark="3 × ERR")
    yield Messy("a word that counts", content, options={"errors": "missing"}, values=values, remark="3 cells are no numbers")
    yield Messy("comments", lines(of(ISO), before="# station 12\n# degC\n"), remark="2 comment lines")
    yield Messy("a commented header", lines(of(ISO), head="# day,x"), remark="names the columns")
    yield Messy("units", lines(of(ISO), head="day,x\nyyyy-mm-dd,°C"), remark="units: yyyy-mm-dd, °C")
    yield Messy("units of one column", lines(of(ISO), head="day,x\n,[m/s]"), remark="in m/s")
    yield Messy("sep=", lines(of(GERMAN, comma=True), head="day;x", before="sep=;\n"))
    yield Messy("utf-16", lines(of("{day:%Y-%m-%d}\t{x}"), head="day\tx").decode().encode("utf-16"), remark="UTF-16")
    yield Messy("utf-16-le", lines(of("{day:%Y-%m-%d}\t{x}"), head="day\tx").decode().encode("utf-16-le"), remark="UTF-16")
    yield Messy("no names", lines(of(ISO)[1:], head=of(ISO)[0]), "2", "1", remark="no names")
    clock = [f"{hour:%Y-%m-%d},{hour:%H:%M},{value}" for hour, value in zip(HOURS, VALUES, strict=True)]
    yield Messy("date and clock", lines(clock, head="day,clock,x"), time="day,clock", first="2024-03-30T22:00")
    yield Messy(
        "thousands or decimals", lines(of(GERMAN, THOUSANDS, number="{:,.0f}", comma=True), head="day;x"), asks="--decimal"
    )
    said = {"options": {"decimal": ","}, "values": THOUSANDS}
    yield Messy("thousands", lines(of(GERMAN, THOUSANDS, number="{:,.0f}", comma=True), head="day;x"), **said)
    yield Messy("percent", lines(of(ISO, number="{:.2f}%")), remark="in %")
    yield Messy("dollars", lines(of('{day:%Y-%m-%d},"{x}"', THOUSANDS, number="${:,.2f}")), values=THOUSANDS, remark="in $")
    yield Messy("degrees", lines(of(ISO, number="{:.2f} °C")), remark="in °C")
    yield Messy("accounting", lines(of(ISO, number="({:.2f})")), values=-VALUES)
    yield Messy("minus", lines(of(ISO, number="\u2212{:.2f}")), values=-VALUES)
    yield Messy("names of months", lines(of("{day:%d-%b-%Y},{x}")))
    quarters = [f"{2019 + row // 4}Q{row % 4 + 1},{value}" for row, value in enumerate(VALUES)]
    yield Messy("quarters", lines(quarters), first="2019-01-01")
    serials = [f"{45311 + row},{value}" for row, value in enumerate(VALUES)]
    yield Messy("serial dates", lines(serials), asks="--date-format excel")
    yield Messy("serial dates that are said", lines(serials), options={"date_format": "excel"})
    yield Messy("a bad date", lines([*of(ISO)[:-1], "soon,5"]), asks="'soon' at line 25")
    ragged = lines([*of(ISO), "Total"])
    yield Messy("a last line", ragged, asks="1 at line 26")
    left = {"options": {"errors": "missing"}, "values": np.append(VALUES, np.nan), "remark": "1 row was left out"}
    yield Messy("a last line that is left out", ragged, **left)


def frozen():
    """Files that were written before any of them was read."""
    for spelling in (
        "#REF!",
        "#NAME?",
        "#NUM!",
        "#NULL!",
        "N/A",
        "nan",
        "NULL",
        "—",
        "..",
        ".",
        "n.a.",
        "k.A.",
        "#NV",
        "missing",
        "<NA>",
        "Unavailable",
    ):
        content, values = with_missing(spelling)
        yield Messy(f"missing {spelling!r}", content, values=values, remark=f"3 × {spelling}")
    content, values = with_missing("9999.0")
    yield Messy("a code in another form", content, options={"missing": ("9999",)}, values=values, remark="3 × 9999")
    content, values = with_missing("offline")
    yield Messy("another word", content, asks="--missing 'offline'")
    content, values = with_missing("1.2.3")
    yield Messy("a word of digits", content, options={"errors": "missing"}, values=values, remark="3 cells are no numbers")
    content, values = with_missing("<0.1")
    yield Messy("below the limit", content, asks="'<0.1' at line 5")
    logger = "#Logger 5; Serial 88213\n#\n#Time zone: UTC+1\n"
    yield Messy(
        "comments with separators", lines(of(GERMAN, comma=True), head="day;x", before=logger), remark="3 comment lines"
    )
    export = "Station;12;North\nExported 2024-05-01\n\n"
    yield Messy(
        "a head without marks",
        lines(of(GERMAN + ";ok", comma=True), head="day;x;flag", before=export),
        remark="before the names",
    )
    yield Messy("comments in quotes", lines(of(ISO), before='"# made by a program, version 2"\n'), remark="1 comment line")
    yield Messy("a comment between rows", lines([*of(ISO)[:5], "# sensor moved", *of(ISO)[5:]]), remark="between the rows")
    yield Messy("units in brackets", lines(of(GERMAN, comma=True), head="day;x\n[dd.mm.yyyy];[mm]"), remark="in mm")
    yield Messy("units and a text", lines(of(ISO + ",Ulm"), head="day,x,city\n,kWh,"), remark="in kWh")
    yield Messy("no units but a word", lines(["n/m", *map(str, VALUES)], head="x"), time=None, asks="'n/m' at line 2")
    yield Messy("sep=tab", lines(of("{day:%Y-%m-%d}\t{x}"), head="day\tx", before="sep=\t\n"))
    yield Messy("sep=| and Windows", lines(of("{day:%Y-%m-%d}|{x}"), head="day|x", before="sep=|\r\n", end="\r\n"))
    big = lines(of(GERMAN, comma=True), head="day;x").decode()
    yield Messy("utf-16-be with its mark", b"\xfe\xff" + big.encode("utf-16-be"), remark="UTF-16")
    yield Messy("utf-16-be", big.encode("utf-16-be"), remark="UTF-16")
    yield Messy(
        "no names in a German file",
        lines(of(GERMAN, comma=True)[1:], head=of(GERMAN, comma=True)[0]),
        "2",
        "1",
        remark="no names",
    )
    yield Messy(
        "one column without a name",
        lines([f"{value:.2f}" for value in VALUES[1:]], head=f"{VALUES[0]:.2f}"),
        "1",
        None,
        remark="no names",
    )
    years = [",".join(["5", f"{value}"]) for value in VALUES]
    yield Messy("years as names", lines(years, head="2019,2020"), "2020", None)
    clock = [f"{hour:%d/%m/%Y};{hour:%I:%M %p};{value}".replace(".", ",") for hour, value in zip(HOURS, VALUES, strict=True)]
    yield Messy("date and pm", lines(clock, head="day;clock;x"), time="day,clock", first="2024-03-30T22:00")
    seconds = [f"{hour:%Y%m%d},{hour:%H:%M:%S},{value}" for hour, value in zip(HOURS, VALUES, strict=True)]
    yield Messy("compact date and clock", lines(seconds, head="day,clock,x"), time="day,clock", first="2024-03-30T22:00")
    three = of(GERMAN, VALUES, number="{:.2f}1")
    yield Messy("three decimals in a German file", lines(three, head="day;x"), asks="--decimal .")
    yield Messy(
        "three decimals, said", lines(three, head="day;x"), options={"decimal": "."}, values=np.round(VALUES + 0.001, 3)
    )
    yield Messy(
        "three decimals in an English file", lines(of(ISO, VALUES, number="{:.2f}1")), values=np.round(VALUES + 0.001, 3)
    )
    mixed = lines([*of(GERMAN, THOUSANDS, number="{:,.0f}", comma=True)[:-1], "12.02.2024;20.612,5"], head="day;x")
    yield Messy("a comma elsewhere decides", mixed, values=np.append(THOUSANDS[:-1], 20612.5))
    yield Messy(
        "euros", lines(of(GERMAN, THOUSANDS, number="{:,.2f} €", comma=True), head="day;x"), values=THOUSANDS, remark="in €"
    )
    yield Messy("francs", lines(of(ISO, THOUSANDS, number="CHF {:.2f}")), values=THOUSANDS, remark="in CHF")
    yield Messy("hectopascal", lines(of(ISO, number="{:.2f}hPa")), remark="in hPa")
    two = of(ISO, number="{:.2f} kg")
    two[4] = two[4].replace("kg", "lb")
    yield Messy("two units", lines(two), asks="one unit in column x")
    yield Messy("sums of SAP", lines(of(GERMAN, THOUSANDS, number="{:,.2f}-", comma=True), head="day;x"), values=-THOUSANDS)
    yield Messy("negative dollars", lines(of('{day:%Y-%m-%d},"{x}"', THOUSANDS, number="(${:,.2f})")), values=-THOUSANDS)
    yield Messy("an en dash", lines(of(ISO, number="\u2013{:.2f}")), values=-VALUES)
    yield Messy("months first", lines(of('"{day:%b %d, %Y}",{x}')))
    yield Messy("whole months", lines(of("{day:%d %B %Y},{x}")))
    yield Messy("two digits of a year", lines(of("{day:%d-%b-%y},{x}")))
    yield Messy(
        "quarters in words",
        lines([f"Q{row % 4 + 1} {2019 + row // 4},{value}" for row, value in enumerate(VALUES)]),
        first="2019-01-01",
    )
    yield Messy(
        "half-years",
        lines([f"{2010 + row // 2}H{row % 2 + 1},{value}" for row, value in enumerate(VALUES)]),
        first="2010-01-01",
    )
    yield Messy(
        "times of day", lines([f"{5 + row // 2}:{row % 2 * 30:02},{value}" for row, value in enumerate(VALUES)]), first="5h"
    )
    serials = [f"{45311 + row / 24:.6f},{value}" for row, value in enumerate(VALUES)]
    yield Messy("serial hours", lines(serials), asks="--date-format excel")
    yield Messy("numbers near serials, said", lines(serials), options={"date_format": "number"}, first="45311.0")
    short = lines([*of(ISO)[:9], "2024-01-29", *of(ISO)[10:]])
    values = VALUES.copy()
    values[9] = np.nan
    yield Messy("a short row", short, asks="1 at line 11")
    yield Messy(
        "a short row that counts", short, options={"errors": "missing"}, values=values, remark="another number of cells"
    )
    yield Messy("separators at the ends", lines([f"{row}," for row in of(ISO)]))
    no_time = lines([*of(ISO)[:9], f",{VALUES[9]}", *of(ISO)[10:]])
    yield Messy("a row without a time", no_time, options={"errors": "missing"}, values=VALUES, remark="left out")
    yield Messy("quoted German cells", lines(of('"{day:%d.%m.%Y}","{x}"', comma=True)))
