"""The word that a page opens with: its strongest link leads to another content word."""

import re
from importlib.resources import files

import numpy as np
import pytest
import torch

from overt.explain.encoded import Encoded, named
from overt.explain.opening import FUNCTION, PRONOUNS, Opening, opening


class Weights:
    """A head with these weights, each row filled up to 1 on its first key."""

    def __init__(self, count, keys=None, **rows):
        self.matrix = torch.zeros(count, keys or count)
        for row, (key, weight) in rows.items():
            self.matrix[int(row[1:]), key] = weight
        self.matrix[:, 0] += 1 - self.matrix.sum(1)

    def weights(self):
        return self.matrix[None]


def first_of(heads, source, target) -> Opening:
    result = opening(heads, source, target)
    assert result is not None
    return result


def marked(*words):
    """Words between two special tokens."""
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = [(0, 0), *((start, start + len(word)) for start, word in zip(starts, words, strict=False)), (0, 0)]
    count = len(words) + 2
    return Encoded.from_pieces(text, ["[CLS]", *words, "[SEP]"], range(count), spans, [0, count - 1])


def test_a_word_is_passed_over_whose_largest_weight_is_on_a_special_token_itself_or_a_function_word():
    text = marked("cats", "and", "dogs", "sleep", ",", "she", "said")  # tokens 1 to 7
    head = Weights(9, t1=(4, 0.4), t3=(3, 0.9), t4=(2, 0.8), t6=(1, 0.55), t7=(6, 0.95))
    best = first_of([head], text, text)
    assert (best.word.index, best.head) == (6, 0)  # she → cats; the others lead to [CLS], themselves, and, she


def test_the_strongest_of_all_heads_is_taken_and_none_is_an_answer():
    text = marked("cats", "chase", "mice")
    heads = [Weights(5, t1=(2, 0.6)), Weights(5, t3=(1, 0.7)), Weights(5)]
    assert first_of(heads, text, text).head == 1
    assert opening(heads[2:], text, text) is None


def test_of_two_texts_a_word_that_is_only_copied_is_passed_over():
    source, target = named(["Je", "vois", "Paris"]), named(["I", "see", "Paris"])
    head = Weights(3, t0=(0, 1.0), t1=(1, 0.7), t2=(2, 0.99))
    assert first_of([head], source, target).word.index == 1


def test_pieces_are_chosen_only_if_no_whole_word_has_a_link():
    text = Encoded.from_pieces(
        "unseen red fox", ["un", "##seen", "red", "fox"], range(4), [(0, 2), (2, 6), (7, 10), (11, 14)], []
    )
    assert first_of([Weights(4, t1=(3, 0.9), t2=(3, 0.6))], text, text).word.index == 2
    assert first_of([Weights(4, t1=(3, 0.9))], text, text).word.index == 1


@pytest.mark.parametrize(("name", "words"), [("FUNCTION", FUNCTION), ("PRONOUN", PRONOUNS)])
def test_the_page_has_the_same_words(name, words):
    script = files("overt").joinpath("lens/viewer/web/data/content.js").read_text(encoding="utf-8")
    [listed] = re.findall(rf"{name} = /\^\((.*)\)\$/iu", script)
    assert set(listed.split("|")) == words


@pytest.mark.parametrize("text", ["Two poets wrote to each other for years.", "Where does the river meet the sea?"])
def test_a_page_of_an_encoder_opens_with_such_a_word(minilm, text):
    from overt.explain.recipes.qkv import qkv

    explanation = qkv(minilm, text, page=True)
    row = explanation.matrix[explanation.word]
    key = int(np.argmax(row))
    assert key not in {*explanation.special, explanation.word}
    assert explanation.tokens[key] not in FUNCTION | PRONOUNS
    assert explanation.tokens[key].isalpha()
    assert explanation.why.startswith("the strongest link between content words in layer ")
    assert qkv(minilm, text).word == len(explanation.tokens) - 3  # elsewhere the last word
