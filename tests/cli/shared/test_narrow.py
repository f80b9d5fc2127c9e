"""At no width does a terminal cut a number: every number of a narrow print is a whole number of the wide one, and none is lost."""

import csv
import io
import re

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import explanations
from overt.bench.cases import Case
from overt.bench.ceilings import Ceilings
from overt.bench.comparison import Result
from overt.bench.timing import RunTimes
from overt.bench.works import WORKS
from overt.cli import bench, demo, doctor, evaluate, train
from overt.cli.main import app
from overt.drawing.letters import Ink, Piece, broken
from overt.explain import text_model
from overt.explain.terminal import render as terminal
from overt.explain.terminal.weight_map import weight_map

WIDTHS = [30, 40, 60, 80, 120]
WIDE = 240
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?:·10⁹|e[−+-]?\d+)?%?|[−-]?\.\d+")


def numbers(printed):
    return set(NUMBER.findall(printed))


def printed(message, width, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    for each in message if isinstance(message, list) else [message]:
        console.print(each)
    return console.file.getvalue()


def check(narrow, wide, width, *, all_of_them=True):
    assert numbers(wide), "the case has numbers to lose"
    assert numbers(narrow) <= numbers(wide)
    if all_of_them:
        assert numbers(narrow) == numbers(wide)
    assert max(map(cell_len, narrow.splitlines())) <= width


def case():
    result = Result(Case("additive", (2,), 512, 512, 64), compared="largest difference 1.2e-07")
    result.times = {
        "overt native, additive attention": RunTimes((0.0123456, 0.0123999, 0.0133)),
        "torch.compile": RunTimes((0.123456, 0.1245, 0.1337)),
        "eager": RunTimes((1.23456, 1.245, 1.337)),
    }
    return result


LIMITS = Ceilings(matmul=1.23e11, multiply_adds=4.56e10, divisions=4.78e9, copy=1.23e10, level="avx2")
LENGTHS = [
    {"shortest": 1, "longest": 5, "rows": 1012, "bleu": 41.27},
    {"shortest": 6, "longest": 6, "rows": 312, "bleu": 38.14},
    {"shortest": 7, "longest": 61, "rows": 12_345, "bleu": 20.55},
]
TRAINED = {"test": {"bleu": 41.234, "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"}}
TRAINED |= {"updates": 123_456, "seconds": 4567.8, "seed": 17, "hardware": "AMD EPYC 9654", "processes": 2, "threads": 16}
TOKENS = [f"word{letter}" for letter in "abcdefghijkl"]
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(12), size=12).tolist()
PAGES = {
    "weight map": lambda: weight_map(TOKENS, TOKENS, WEIGHTS),
    "bench": lambda: Piece(lambda ink: bench._case(ink, case(), WORKS["additive"].bound(case().case, torch.float32, LIMITS))),
    "evaluate": lambda: Piece(lambda ink: evaluate._by_length(LENGTHS, ink)),
    "train": lambda: [Piece(lambda ink, line=line: ink.prose(line, lead="")) for line in train.summary_lines(TRAINED)],
    "doctor": lambda: Piece(lambda ink: doctor._page(ink, [*doctor._machine(), *doctor._packages()])),
    "demo, series": lambda: Piece(demo._series),
}
EXPLAINED = {name: lambda make=make: [make()] for name, make in explanations.EVERY_RECIPE.items()}
EXPLAINED["two compared"] = lambda: [explanations.qkv(), explanations.qkv(text="it was too wide", seed=1)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_numbers(name, width):
    check(printed(PAGES[name](), width), printed(PAGES[name](), WIDE), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.few_cases(6)
def test_an_explanation(name, width):
    def shown(width):
        console = Console(file=io.StringIO(), width=width, highlight=False)
        terminal.render(EXPLAINED[name](), console)
        return console.file.getvalue()

    # Of a vector a narrow table shows fewer entries, and says how many there are.
    check(shown(width), shown(149), width, all_of_them=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("narrow") / "series.csv"
    draw = np.random.default_rng(0)
    smooth = np.sin(np.arange(300) / 40) + 0.3 * draw.normal(size=300)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["smooth", "steps", "walk"])
        rows.writerows(zip(smooth, smooth + np.repeat([0, 2.5], 150), draw.normal(size=300).cumsum(), strict=True))
    return path


def run(arguments, width):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("columns", [["smooth"], ["smooth", "steps", "walk"]], ids=["one", "three"])
@pytest.mark.few_cases(4)
def test_smooth(table, columns, width):
    arguments = ["smooth", table, *(part for column in columns for part in ("-c", column))]
    check(run(arguments, width), run(arguments, WIDE), width)


@pytest.mark.few_cases(1)
@pytest.mark.skipif(text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2")
@pytest.mark.parametrize("options", [(), ("--recipe", "hidden"), ("--recipe", "plain")], ids=str)
@pytest.mark.slow
def test_explain_of_real_weights(options):
    text = "The animal didn't cross the street because it was too tired"
    wide = run(["explain", text, *options], 120)
    for width in (30, 40, 60, 80):
        check(run(["explain", text, *options], width), wide, width, all_of_them=False)


@pytest.mark.slow
@pytest.mark.parametrize("width", [30, 40, 60])
def test_the_map_of_a_translation(width):
    command = ["translate", "I am happy to see you.", "--map"]
    check(run(command, width), run(command, WIDE), width)


def test_a_table_that_is_too_wide_goes_on_below_with_its_first_column_again():
    cells = [["token", "score", "weight"], ["animal", "23.43", "0.647"], ["tired", "8.09", "0.043"]]
    ink = Ink(16, "utf-8")
    lines = ink.table([[ink.text(cell) for cell in row] for row in cells], [False, True, True])
    message = ["token   score", "animal  23.43", "tired    8.09", "", "token   weight", "animal   0.647", "tired    0.043"]
    assert [line.plain for line in lines] == message


def test_words_of_a_last_column_are_broken_beside_the_rest():
    ink = Ink(28, "utf-8")
    [first, second] = ink.table([[ink.text("native"), ink.text("avx512 (this runs avx512, avx2)")]], [False, False])
    assert (first.plain, second.plain) == ("native  avx512 (this runs", "        avx512, avx2)")


@pytest.mark.parametrize("width", [9, 20, 30])
def test_prose_of_wide_letters_is_no_wider_than_its_place(width):
    message = "The model reads “猫はマットの上に座った” as 11 pieces, 猫 · は · マ · ッ · ト · の · 上 · に · 座 · っ · た."
    lines = [line.plain for line in Ink(width, "utf-8").prose(message, lead="· ")]
    assert max(map(cell_len, lines)) <= max(width, 10)
    assert "".join(line[2:] for line in lines).replace(" ", "") == message.replace(" ", "")


def test_prose_fills_its_lines_with_words():
    lines = [line.plain for line in Ink(14, "utf-8").prose("one of\nthem is 0.25 %", lead="· ")]
    assert lines == ["· one of them", "  is 0.25 %"]


def test_prose_is_not_broken_at_a_no_break_space():
    assert [line.plain for line in Ink(10, "utf-8").prose("all of 25\u00a0%", lead="")] == ["all of", "25\u00a0%"]


def test_prose_of_nothing_is_an_empty_line():
    assert [line.plain for line in Ink(20, "utf-8").prose("", lead="")] == [""]


def test_a_line_keeps_its_colours_where_it_is_broken():
    line = Text("weights of ", end="").append("0.647", "bold").append(" and of ").append("0.12", "red")
    parts = broken(line, 14)
    assert [part.plain.strip() for part in parts] == ["weights of", "0.647 and of", "0.12"]
    styles = {part.plain[span.start : span.end]: span.style for part in parts for span in part.spans}
    assert styles["0.647"] == "bold"
    assert styles["0.12"] == "red"
