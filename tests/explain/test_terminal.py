import io
import math
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

import explanations
from overt.drawing.letters import bar, sparkline, writable
from overt.drawing.numbers import labels
from overt.explain.explanation import choose_rows, stages
from overt.explain.terminal import render as terminal


def printed(*message, width=100, encoding="utf-8", color=False, **changes):
    """What `render` writes to a file of that encoding, or to a colour terminal."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="\n") as file:
        console = Console(file=file, width=width, force_terminal=color, color_system="truecolor" if color else None, **changes)
        terminal.render(list(message), console)
        file.flush()
        return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_no_line_is_wider_than_the_terminal(name, width):
    lines = printed(explanations.EVERY_RECIPE[name](), width=width).splitlines()
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_without_a_terminal_there_is_no_control_character(name):
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\u2028]", printed(explanations.EVERY_RECIPE[name]()))


def test_a_token_cannot_colour_the_terminal():
    assert "\x1b[31mred" not in printed(explanations.nasty(), color=True)
    assert "␛[31mred" in printed(explanations.nasty(), color=True)


def test_a_token_is_not_markup():
    assert "[bold]rich[/bold]" in printed(explanations.nasty())


@pytest.mark.parametrize("name", explanations.EVERY_RECIPE)
def test_where_the_encoding_is_ascii_every_letter_is_ascii(name):
    message = printed(explanations.EVERY_RECIPE[name](), encoding="ascii")
    assert message.isascii()
    assert max(map(len, message.splitlines())) <= 100


def test_every_number_of_the_strongest_row_is_in_the_table():
    explanation = explanations.qkv()
    row = max(explanation.steps, key=lambda row: row.weight)
    line = next(line for line in printed(explanation).splitlines() if "█" * 20 in line and "[" in line)
    for value in (f"{row.score:.2f}", f"{row.scaled:.2f}", f"{row.weight:.3f}", f"{row.weighted[0]:.2f}"):
        assert value.replace("-", "−") in line


def test_the_steps_are_numbered_over_their_columns():
    lines = printed(explanations.qkv()).splitlines()
    names = next(index for index, line in enumerate(lines) if "softmax α" in line)
    assert lines[names - 1].split() == ["2", "3", "4", "5"]
    assert "1  q = [" in lines[names - 2]
    assert any(line.startswith("  6  output = Σ α·v") for line in lines)


def test_the_tokens_that_are_not_shown_are_counted_and_summed():
    explanation = explanations.long()
    choice = choose_rows(explanation, 8)
    assert len(choice.rows) + len(choice.others) == 60
    assert math.isclose(sum(row.weight for row in choice.rows) + choice.weight, 1.0)
    line = next(line for line in printed(explanation).splitlines() if "the other" in line)
    assert f"the other {len(choice.others)} tokens" in line
    assert f"{choice.weight:.3f}" in line


def test_the_word_itself_is_always_a_row():
    explanation = explanations.long()
    assert explanation.word in {row.index for row in choose_rows(explanation, 3).rows}


def test_no_line_is_spent_on_hiding_two_tokens():
    assert choose_rows(explanations.qkv(tokens=[*"abcdefghij"], word=0), 8).others == []


def test_a_token_that_occurs_twice_is_told_apart():
    assert labels(explanations.ANIMAL)[1:3] == ["the:1", "animal"]
    assert labels(explanations.ANIMAL)[7] == "the:2"


def test_the_strongest_links_name_head_token_weight_and_pattern():
    explanation = explanations.qkv()
    lines = printed(explanation).splitlines()
    for link in explanation.links:
        line = next(line for line in lines if line.startswith(f"  L{link.layer}H{link.head} "))
        assert link.token in line
        assert f"{link.weight:.2f}" in line
        assert link.pattern in line


def test_the_shown_head_is_marked_even_where_it_is_no_layers_strongest():
    message = printed(explanations.qkv(shown=(3, 4), why="asked for"))
    assert "  L3H4 is shown: asked for" in message


def test_why_a_head_is_shown_is_told_whole_at_every_width():
    why = "the last layer's strongest link to another word, special tokens apart"
    explanation = explanations.qkv()
    shown = explanation.links[-1].layer, explanation.links[-1].head
    for width in (60, 80, 100, 140):
        message = " ".join(printed(explanations.qkv(shown=shown, why=why), width=width).split())
        assert why in message
        assert "← shown" in message


def test_the_looks_line_counts_special_tokens_the_word_and_the_others():
    from overt.explain.explanation import Looks

    message = printed(explanations.qkv(looks=Looks(72, 53, 1, "[CLS]")))
    assert "53 of 72 heads put their largest weight on [CLS], 1 on “it” itself, 18 on another word" in message


def test_a_residual_within_its_bound_is_ticked_and_one_beyond_it_is_not():
    assert "recomputed vs. model: 4.1e−7 ✓ within the rounding bound 2.3e−6" in printed(explanations.qkv())
    assert "recomputed vs. model: 1.0e−3 ✗ beyond the rounding bound 2.3e−6" in printed(explanations.qkv(residual=1e-3))
    assert "recomputed" not in printed(explanations.qkv(residual=None))


def test_the_hidden_recipe_shows_the_states_the_context_and_the_join():
    message = printed(explanations.hidden())
    for part in (
        "h_4  today",
        "f(h_1, h_j)",
        "softmax a_1j",
        "a_1j h_j",
        "c_1 = Σ a_1j h_j",
        "[h_1, c_1] = [",
        "8 numbers in, 16 out",
    ):
        assert part in message


def test_the_plain_recipe_shows_the_weights_before_and_after_and_y():
    message = printed(explanations.plain(normalizer="sum"))
    for part in ("x_1·x_j", "sum W_1j", "W_1j x_j", "y_1 = Σ W_1j x_j"):
        assert part in message


def test_a_negative_weight_has_a_real_minus_and_a_hatched_bar():
    line = next(line for line in printed(explanations.plain(normalizer="sum")).splitlines() if "−0.178" in line)
    assert "▒▒▒" in line


def test_a_division_is_a_step_only_where_there_is_one():
    assert [stage.key for stage in stages(explanations.qkv())] == ["vectors", "score", "scale", "normalize", "weigh", "sum"]
    assert "scale" not in {stage.key for stage in stages(explanations.hidden())}


def test_two_explanations_stand_beside_each_other_where_the_terminal_is_wide():
    pair = explanations.qkv(), explanations.qkv(seed=1)
    assert sum("Six steps" in line for line in printed(*pair, width=100).splitlines()) == 2
    assert sum("Six steps" in line for line in printed(*pair, width=180).splitlines()) == 1
    assert "The same head, L5H11, in 2 sentences" in printed(*pair)


def test_two_long_texts_are_cut_where_they_are_the_same():
    start = "the animal did not cross the street because " * 3
    message = printed(explanations.qkv(text=f"{start}it was tired"), explanations.qkv(text=f"{start}it was wide"), width=80)
    line = next(line for line in message.splitlines() if "…" in line and "tired" in line)
    assert "wide" in line


def test_attention_to_another_sentence_shows_both():
    message = printed(explanations.EVERY_RECIPE["from one sentence to another"]())
    assert "»it«" in message
    assert "attends to" in message
    assert "itself" not in message


def test_numbers_that_are_not_finite_are_written_as_such():
    steps = explanations.plain().steps
    barred = steps[1].__class__(1, "is", math.nan, -math.inf, 0.0, *[[math.inf, 0.0]] * 3)
    message = printed(explanations.plain(steps=[steps[0], barred, *steps[2:]]))
    assert "nan" in message
    assert "−∞" in message


def test_a_sparkline_rises_with_its_values_and_leaves_a_gap_for_nan():
    assert sparkline([0, 0.5, 1, math.nan, 2, -1], 0, 1) == "▁▅█ █▁"
    assert sparkline([3, 3], 3, 3) == "▅▅"


def test_a_bar_is_drawn_to_an_eighth_and_stops_at_its_width():
    assert bar(0.5, 1, 4) == "██"
    assert bar(1 / 32, 1, 4) == "▏"
    assert bar(7, 1, 4) == "████"
    assert bar(math.nan, 1, 4) == ""


def test_letters_that_an_encoding_has_stay():
    assert writable("α·v √32", "latin-1") == "a·v sqrt32"
