import pytest

from overt.errors import InputError
from overt.explain.encoded import Encoded, choose, named
from overt.explain.recipes.qkv import pattern
from text import TIRED


def test_a_word_is_found_whatever_its_case(minilm):
    encoded = minilm.encode(TIRED)
    assert choose(encoded, "IT").index == encoded.tokens.index("it")
    assert choose(encoded, "Animal").index == 2


def test_without_a_name_the_last_word_asks(minilm):
    encoded = minilm.encode("The cat sat, didn't it electroencephalography?!")
    result = choose(encoded)
    assert encoded.tokens[result.index] == encoded.tokens[-4]
    assert len(result.pieces) > 1
    assert encoded.text[encoded.spans[result.pieces[0]][0] :].startswith("electro")


def test_a_word_that_occurs_twice_is_asked_about(minilm):
    encoded = minilm.encode("it is what it is")
    with pytest.raises(InputError, match=r"got “it”, which occurs twice\. Fix: say which: --word it:1 or --word it:2"):
        choose(encoded, "it")
    assert [choose(encoded, f"it:{count}").index for count in (1, 2)] == [1, 4]
    for count in (0, 3):
        with pytest.raises(InputError, match=f"an occurrence of “it” from 1 to 2, got it:{count}"):
            choose(encoded, f"it:{count}")
    with pytest.raises(InputError, match=r"an occurrence of “what” from 1 to 1, got what:2\. Fix: pass --word what"):
        choose(encoded, "what:2")


def test_a_word_inside_another_does_not_count(minilm):
    assert choose(minilm.encode("without it"), "it").index == 2


def test_an_unknown_word_brings_near_ones(minilm):
    encoded = minilm.encode(TIRED)
    with pytest.raises(InputError, match="a word of the text, got 'anmial'.*near it are: animal"):
        choose(encoded, "anmial")
    with pytest.raises(InputError, match="choose one of its words: The, animal, didn't, cross"):
        choose(encoded, "zzzzz")
    with pytest.raises(InputError, match="a word of the text, got ''"):
        choose(encoded, "")


def test_pieces_and_special_tokens_can_be_named(minilm):
    encoded = minilm.encode("The animal didn't cross")
    assert choose(encoded, "didn't").pieces == (3, 4, 5)
    assert choose(encoded, "didn").pieces == (3,)
    assert choose(encoded, "[CLS]").index == 0
    assert choose(encoded, "animal didn't").index == 5


def test_names_with_a_colon_are_taken_as_they_stand():
    assert choose(named(["a:1", "a"]), "a:1").index == 0


def test_words_without_spaces_between_them_are_found_where_tokens_end():
    encoded = Encoded("猫在这里", ["猫", "在", "这里"], [1, 2, 3], [(0, 1), (1, 2), (2, 4)], [])
    assert choose(encoded, "这里").index == 2
    with pytest.raises(InputError, match="a word of the text"):
        choose(encoded, "里")


def test_a_word_that_was_cut_off_is_not_found(minilm):
    encoded = minilm.encode("a " * 600 + "zebra", truncate=True)
    with pytest.raises(InputError, match="a word of the text, got 'zebra'"):
        choose(encoded, "zebra")


def test_patterns_leave_special_tokens_out():
    import numpy as np

    weights = np.zeros((5, 5))
    weights[[2, 3], [1, 2]] = 1.0
    weights[[0, 1, 4], [4, 0, 0]] = 1.0
    assert pattern(weights, [1, 2, 3]) == "always the previous token"
    weights[3] = [0.8, 0, 0.2, 0, 0]
    assert pattern(weights, [1, 2, 3]) == "usually the previous token"
    weights[2] = [0.4, 0.6, 0, 0, 0]
    assert pattern(weights, [1, 2, 3]) == ""
