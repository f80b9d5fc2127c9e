import io

from rich.console import Console

from overt.explain.terminal.weight_map import BlockMap, weight_map


def drawn(asking, source, weights, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(weight_map(asking, source, weights))
    return console.file.getvalue().splitlines()


def test_every_weight_stands_under_its_column_and_beside_its_row():
    head, first, second = drawn(["le", "chat"], ["the", "cat"], [[0.9, 0.1], [0.25, 0.75]], 80)
    assert (head.split(), first.split(), second.split()) == (["the", "cat"], ["le", ".90", ".10"], ["chat", ".25", ".75"])
    assert head.index("cat") - 1 <= second.index(".75") <= head.index("cat") + 1


def test_a_weight_of_nearly_nothing_stays_blank_and_a_whole_one_is_whole():
    assert drawn(["a"], ["x", "y"], [[1.0, 0.0]], 80)[1].split() == ["a", "1.00"]


def test_names_stand_upright_where_they_do_not_fit_side_by_side():
    lines = drawn(["a"], ["one", "two", "three"], [[0.2, 0.3, 0.5]], 14)
    assert ["".join(line[index] for line in lines[:5]).strip() for index in (3, 7, 11)] == ["one", "two", "three"]
    assert lines[5].split() == ["a", ".20", ".30", ".50"]


def test_columns_that_do_not_fit_stand_below_beside_the_names_of_the_rows():
    weights = [[index / 100 for index in range(10, 40)]] * 2
    lines = drawn(["a", "bc"], [f"w{index}" for index in range(30)], weights, 40)
    assert all(len(line) <= 40 for line in lines)
    for name in ("a", "bc"):
        rows = [line.split()[1:] for line in lines if line.split()[:1] == [name] and "." in line]
        assert [len(row) for row in rows] == [8, 8, 8, 6]
        assert [cell for row in rows for cell in row] == [f".{index}" for index in range(10, 40)]


def test_neighbouring_numbers_never_touch():
    [*_, row] = drawn(["a"], ["first", "second", "third"], [[1.0, 1.0, 1.0]], 18)
    assert row.split() == ["a", "1.00", "1.00", "1.00"]


def test_what_a_token_holds_is_no_markup_and_no_command():
    [head, *_] = drawn(["a"], ["[red]x", "\x1b[31m"], [[0.5, 0.5]], 80)
    assert "[red]x" in head
    assert "\x1b" not in head


def picture(weights, width=80, colours="truecolor", encoding="utf-8", asking=None, marked=0, name="L5H11"):
    """The picture's lines, each a list of (letters, colour, background)."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, color_system=colours, force_terminal=colours is not None, legacy_windows=False)
    asking = asking or [f"t{index}" for index in range(len(weights))]
    lines = console.render_lines(BlockMap(asking, weights, marked, name), pad=False)
    return [[(each.text, each.style.color, each.style.bgcolor) for each in line if each.style] for line in lines]


def cells(lines):
    """The colours of the cells, a row of the matrix each, from lines of half blocks."""
    rows = []
    for line in lines:
        halves = [(colour, below) for text, colour, below in line if below and set(text) <= set("▀ ") for _ in text]
        if halves:
            rows += [[upper for upper, _ in halves], [lower for _, lower in halves]]
    return rows


def light(colour):
    red, green, blue = colour.get_truecolor()
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def written(lines):
    return " ".join(" ".join("".join(text for text, *_ in line).split()) for line in lines)


def test_a_picture_grows_lighter_with_the_weight():
    rows = cells(picture([[index / 29 for index in range(30)]] * 30))
    lights = [light(colour) for colour in rows[0]]
    assert lights == sorted(lights)
    assert lights[0] < 40
    assert lights[-1] > 200


def test_each_line_of_a_picture_holds_two_rows():
    weights = [[0.0] * 30 for _ in range(30)]
    weights[4][7], weights[5][8] = 1.0, 1.0
    rows = cells(picture(weights))
    assert len(rows) == 30
    assert [(i, j) for i, row in enumerate(rows) for j, colour in enumerate(row) if light(colour) > 200] == [(4, 7), (5, 8)]


def test_rows_of_a_small_picture_have_a_line_and_a_name_each():
    lines = picture([[1.0, 0.0], [0.0, 1.0]], asking=["le", "chat"], marked=1)
    assert ["".join(text for text, *_ in line).split() for line in lines[2:4]] == [["le"], ["chat»"]]


def test_one_strong_weight_among_many_does_not_vanish():
    weights = [[0.001] * 512 for _ in range(511)]
    weights[300][411] = 0.9
    lines = picture(weights)
    assert "511 queries down, 512 keys across; each cell is the largest of 7 × 7 weights" in written(lines)
    strong = [(i, j) for i, row in enumerate(cells(lines)) for j, colour in enumerate(row) if colour and light(colour) > 200]
    assert strong == [(300 // 7, 411 // 7)]


def test_a_picture_keeps_to_the_terminals_width():
    assert all(sum(len(text) for text, *_ in line) <= 40 for line in picture([[0.5] * 200] * 50, width=40))


def test_sixteen_colours_are_enough():
    rows = cells(picture([[index / 29 for index in range(30)]] * 30, colours="standard"))
    assert [colour.name for colour in dict.fromkeys(rows[0])] == ["black", "blue", "bright_black", "white", "bright_yellow"]


def test_what_is_not_a_number_has_a_colour_of_its_own():
    weights = [[0.5] * 200 for _ in range(200)]
    weights[10][20] = float("nan")
    assert sum(colour is not None and colour.name == "red" for row in cells(picture(weights)) for colour in row) == 1


def test_without_colours_or_half_blocks_there_is_no_picture():
    assert written(picture([[1.0]], colours=None)) == ""
    assert written(picture([[1.0]], encoding="ascii")) == ""
