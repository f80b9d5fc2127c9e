import io

from rich.console import Console

from overt.lens.weight_map import weight_map


def drawn(asking, asked, weights, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(weight_map(asking, asked, weights))
    return console.file.getvalue().splitlines()


def test_every_weight_stands_under_its_column_and_beside_its_row():
    head, first, second = drawn(["le", "chat"], ["the", "cat"], [[0.9, 0.1], [0.25, 0.75]], 80)
    assert (head.split(), first.split(), second.split()) == (["the", "cat"], ["le", ".90", ".10"], ["chat", ".25", ".75"])
    assert head.index("cat") - 1 <= second.index(".75") <= head.index("cat") + 1


def test_a_weight_of_nearly_nothing_stays_blank_and_a_whole_one_is_whole():
    assert drawn(["a"], ["x", "y"], [[1.0, 0.0]], 80)[1].split() == ["a", "1.00"]


def test_names_stand_upright_where_they_do_not_fit_side_by_side():
    lines = drawn(["a"], ["one", "two", "three"], [[0.2, 0.3, 0.5]], 14)
    assert ["".join(line[place] for line in lines[:5]).strip() for place in (3, 6, 9)] == ["one", "two", "three"]
    assert lines[5].split() == ["a", ".2", ".3", ".5"]


def test_columns_that_do_not_fit_are_left_out_and_that_is_said():
    lines = drawn(["a"], ["b"] * 30, [[1 / 30] * 30], 40)
    assert all(len(line) <= 40 for line in lines)
    assert "(the first 12 of 30 columns; all need" in " ".join(lines)


def test_what_a_token_holds_is_no_markup_and_no_command():
    [head, *_] = drawn(["a"], ["[red]x", "\x1b[31m"], [[0.5, 0.5]], 80)
    assert "[red]x" in head
    assert "\x1b" not in head
