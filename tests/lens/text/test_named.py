"""Queries and keys are named by their words, and what is not one token of the text is refused with what is there."""

import pytest
import torch

import overt
from overt.errors import InputError, KindError
from overt.lens.analysis.editing.words import word_positions
from overt.lens.text.named import occurrences, position_named
from overt.lens.text.tokens_of_text import Token

WORDS = ["[CLS]", "The", "animal", "saw", "the", "street", "cross", "##ing", "it", "[SEP]"]


def test_words_are_found_by_case_first_and_pieces_by_what_they_spell():
    assert position_named("query", "it", [WORDS], 10) == 8
    assert position_named("query", "The", [WORDS], 10) == 1
    assert position_named("query", "the", [WORDS], 10) == 4
    assert occurrences("THE", WORDS) == [(1,), (4,)]
    assert occurrences("crossing", WORDS) == [(6, 7)]
    assert position_named("key", "THE:2", [WORDS], 10) == 4
    assert position_named("key", -1, None, 10) == 9


def test_a_piece_inside_of_another_word_is_no_occurrence_of_the_word():
    pieces = [("the", 0), ("o", 4), ("the", 5), ("r", 8)]
    sentence = [Token(text, piece=text, id=0, span=(start, start + len(text))) for text, start in pieces]
    assert occurrences("the", sentence) == occurrences("THE", sentence) == [(0,)]
    assert occurrences("other", sentence) == [(1, 2, 3)]
    assert occurrences("r", sentence) == [(3,)]  # no word of the text, but a token
    assert word_positions("the", sentence, "query") == [0]


def test_tokens_without_letters_do_not_make_a_word_occur_twice():
    assert occurrences("otter", ["", "ot", "ter", "", "."]) == [(1, 2)]


def test_a_word_in_a_batch_says_in_which_text_it_is_not_there_once():
    texts = [["the", "cat", "saw", "it"], ["the", "dog", "ate", "it"], ["it", "saw", "the", "it"]]
    assert position_named("row", "it", texts[:2], 4) == 3
    with pytest.raises(InputError, match=r"got 'it', at 0 and 3 in text 2 of 3. Fix: read one text, as head.of_text\(0\)"):
        position_named("row", "it", texts, 4)
    with pytest.raises(InputError, match="got 'cat' in text 1 of 3"):
        position_named("row", "cat", texts, 4)
    with pytest.raises(InputError, match="at the same position in every text, got 'saw', at 2, 1"):
        position_named("row", "saw", [texts[0], texts[2]], 4)


BAD = {
    "twice": ("THE", InputError, "a key that occurs once, got 'THE', at 1 and 4. Fix: write key='THE:2' for the second"),
    "third": ("THE:3", InputError, "an occurrence of 'THE', 1 to 2, got 'THE:3'"),
    "pieces": ("crossing", InputError, "got 'crossing', which is 2: 6 'cross', 7 '##ing'. Fix: .* key=7 for the last"),
    "near": ("animals", InputError, "got 'animals'. Fix: near it are: animal"),
    "absent": ("zebra", InputError, "got 'zebra'. Fix: choose one of them: .*CLS"),
    "number": (10, InputError, "a key of this head, 0 to 9, got key 10"),
    "neither": (1.5, KindError, "a key as a word or a number, got 1.5"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_one_token_is_refused_with_what_is_there(case):
    name, error, message = BAD[case]
    with pytest.raises(error, match=message):
        position_named("key", name, [WORDS], 10)


def test_a_heads_rows_and_keys_may_be_words():
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 10, 8)
    with torch.no_grad(), overt.lens.record(attention) as recording:
        attention(x, x, x)
    head = recording[0, 1]
    with pytest.raises(InputError, match="a recording with tokens, to find a row by its word, got 'it' without them"):
        head.weights(rows="it")
    recording.tokens = WORDS
    head = recording[0, 1]
    assert head.name == "L0H1"
    assert torch.equal(head.weights(rows="it", keys=["animal", "street"]), head.weights(8, [2, 5]))
    assert torch.equal(head.top("it").keys, head.top(8).keys)
    assert torch.equal(head.steps("it").scores, head.steps(8).scores)
