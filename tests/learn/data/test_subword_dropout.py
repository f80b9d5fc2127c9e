"""BPE-dropout cuts words into other pieces of the same text, the same ones for the same seed and epoch."""

from collections import Counter

import pytest

from overt.errors import InputError
from overt.learn.config.settings import Tokenization
from overt.learn.data.subword_dropout import SubwordSampler
from overt.learn.data.tokenizer import Tokenizer

TEXTS = ["The lowest tower is newer.", "Newer towers, lower towns: 12 of them!", "", "the 山 is low"]


@pytest.fixture(scope="module", params=[False, True])
def tokenizer(request):
    return Tokenizer.learn(TEXTS * 25, merges=60, byte_fallback=request.param)


def test_without_dropout_words_are_cut_as_ever(tokenizer):
    sampler = SubwordSampler(tokenizer, TEXTS, dropout=0.0, seed=1)
    assert sampler.epoch(0) == tokenizer.encode_all(TEXTS) == sampler.epoch(7)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 1.0])
def test_the_text_stays_the_same(tokenizer, dropout):
    sampler = SubwordSampler(tokenizer, TEXTS, dropout=dropout, seed=1)
    for epoch in range(5):
        assert [tokenizer.decode(row) for row in sampler.epoch(epoch)] == [
            tokenizer.decode(row) for row in tokenizer.encode_all(TEXTS)
        ]


def test_with_every_merge_left_out_pieces_are_characters(tokenizer):
    [row] = SubwordSampler(tokenizer, ["lowest"], dropout=1.0, seed=0).epoch(0)
    assert tokenizer.tokens(row) == ["▁", *"lowest"]


def test_epochs_and_seeds_differ_and_repeat(tokenizer):
    first, second, other = (SubwordSampler(tokenizer, TEXTS, dropout=0.3, seed=seed) for seed in (1, 1, 2))
    assert first.epoch(3) == second.epoch(3) != other.epoch(3)
    assert first.epoch(3) != first.epoch(4)


def test_a_merge_is_left_out_as_often_as_asked():
    # One word, one merge: with probability p it is two pieces.
    tokenizer = Tokenizer.learn(["a"], merges=1)
    sampler = SubwordSampler(tokenizer, [" ".join(["a"] * 200)] * 100, dropout=0.25, seed=5)
    pieces = Counter(len(SubwordSampler(tokenizer, ["a"], dropout=0.25, seed=seed).epoch(0)[0]) for seed in range(400))
    assert 0.19 < pieces[2] / 400 < 0.31
    assert len(sampler.epoch(0)) == 100


def test_merges_learned_elsewhere_have_no_dropout():
    with pytest.raises(InputError, match="byte_fallback and dropout only for plain text"):
        Tokenization(dropout=0.1, moses=True)
