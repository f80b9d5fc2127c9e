"""A target that is text is one token, by one rule for every tokenizer, which the recording has from its own."""

import numpy as np
import pytest
import tokenizers
import torch

import overt
from overt.errors import InputError
from overt.lens.text.one_token import token_id
from overt.lens.text.vocabulary import read_vocabulary
from overt.models import LanguageModel
from tokenizers_of_all_kinds import byte_level, fast, metaspace, numbered, ours, word_piece, words

IDS = torch.tensor([[5, 9, 31, 9, 44]])


def model_of(words: int) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(words, width=16, heads=2, layers=1, feed_forward=16).eval()


def recorded(model, **options):
    with overt.lens.record(model, **options) as recording:
        model(IDS)
    return recording


@pytest.mark.parametrize("later", [False, True])
def test_text_is_read_by_the_tokenizer_of_the_recording(later):
    model = model_of(60)
    recording = recorded(model, **({} if later else {"tokenizer": numbered()}))
    if later:
        recording.tokenizer(numbered())
    added = overt.lens.contributions(recording, model, ("w7", "w11"))
    assert added.target.tokens == (7, 11)
    assert str(added).startswith("“w7” rather than “w11”")
    assert added.by_head == overt.lens.contributions(recording, model, (7, 11)).by_head


def test_a_tokenizer_that_is_passed_reads_the_target_and_the_recording_keeps_its_own():
    model, other = model_of(60), tokenizers.Tokenizer(tokenizers.models.WordLevel({f"v{n}": n for n in range(60)}, "v0"))
    recording = recorded(model, tokenizer=numbered())
    assert overt.lens.contributions(recording, model, "v7", tokenizer=other).target == ((7,), ("v7",), 4)
    assert recording.tokens == ["w5", "w9", "w31", "w9", "w44"]
    with pytest.raises(
        InputError, match="a tokenizer of about 60 ids, the rows of the model's table of embeddings, got one of 900"
    ):
        overt.lens.contributions(recording, model, "w7", tokenizer=numbered(900))
    with pytest.raises(InputError, match="token ids of the tokenizer, which has 20, got id 31"):
        overt.lens.contributions(recorded(model), model, "w7", tokenizer=numbered(20))


# The pieces of " street" and "the" of each spelling of spaces.
SPELLINGS = {
    "bytes": (byte_level, "Ġstreet", "Ġthe"),
    "word pieces": (word_piece, "the", "the"),
    "a sign for the space": (metaspace, "▁t", "▁t"),
    "words": (words, "street", "the"),
    "overt's own": (ours, "▁the", "▁the"),
}


@pytest.mark.parametrize("case", SPELLINGS)
@pytest.mark.parametrize("of", ["tokenizers", "transformers"])
def test_a_text_with_its_space_is_the_same_token_in_every_spelling(case, of):
    make, *pieces = SPELLINGS[case]
    tokenizer, inner = make(), getattr(make(), "pieces", make())
    vocabulary = read_vocabulary(fast(inner) if of == "transformers" else tokenizer)
    for piece in pieces:
        number = inner.token_to_id(piece)
        assert token_id(piece, vocabulary) == number
        assert token_id(" " + piece.strip("Ġ▁"), vocabulary) == number
        assert vocabulary.text(number).strip() == piece.strip("Ġ▁")
    assert not vocabulary.entries.keys() - set(map(inner.token_to_id, pieces))


def test_a_text_without_its_space_is_another_token_where_there_is_one():
    vocabulary = read_vocabulary(fast(byte_level()))
    assert token_id("t", vocabulary) != token_id(" t", vocabulary)


def test_text_that_is_several_tokens_is_refused_with_the_tokens_and_what_to_write():
    vocabulary = read_vocabulary(fast(byte_level()))
    first = byte_level().token_to_id("Ġstreet")
    with pytest.raises(InputError) as refused:
        token_id(" streetx", vocabulary)
    assert f"' streetx', which is 2 tokens: ' street' ({first}), 'x' (" in str(refused.value)
    assert f"target={first} for the first" in str(refused.value)


def test_a_word_that_is_one_token_behind_a_space_alone_is_refused_with_that_one():
    vocabulary = read_vocabulary(fast(byte_level()))
    with pytest.raises(
        InputError, match=r"'street', which is 2 tokens: .* Fix: write ' street', with the space before it, token"
    ):
        token_id("street", vocabulary)


@pytest.mark.parametrize("number", [torch.tensor(7), np.int64(7), np.argmax([0] * 7 + [1])])
def test_a_number_may_be_what_argmax_returns(number):
    model = model_of(60)
    assert overt.lens.contributions(recorded(model), model, number, position=np.int64(-1)).target.tokens == (7,)


def test_text_that_is_no_token_is_refused():
    vocabulary = read_vocabulary(numbered())
    with pytest.raises(InputError, match="one token of the vocabulary, got 'cat', which is not in it"):
        token_id("cat", vocabulary)
    with pytest.raises(InputError, match="got '', which is not in it"):
        token_id("", vocabulary)
    with pytest.raises(InputError, match=r"got 'cat w3', which is not in it"):
        token_id("cat w3", vocabulary)
    with pytest.raises(
        InputError, match="a tokenizer, to read a target that is text, got target='cat' without one. Fix: call recording.tok"
    ):
        token_id("cat", None)


def test_a_word_beyond_the_models_logits_is_refused():
    model, recording = model_of(60), recorded(model_of(60), tokenizer=numbered(70))
    with pytest.raises(InputError, match="a token of the model's 60 words, got 'w65', token 65 of the tokenizer"):
        overt.lens.contributions(recording, model, "w65")


def test_a_recording_from_a_file_has_the_words_of_its_text(tmp_path):
    model, path = model_of(60), tmp_path / "recording.safetensors"
    recorded(model, tokenizer=numbered(mask_token="w9")).save(path)
    loaded = overt.lens.load(path)
    assert loaded.strings.texts.vocabulary.mask == 9
    assert overt.lens.contributions(loaded, model, "w31").target.tokens == (31,)
    with pytest.raises(
        InputError, match="not among the tokens that the model read, got 'w7', and a file, .* Fix: call recording.tok"
    ):
        overt.lens.contributions(loaded, model, "w7")
    loaded.tokenizer(numbered())
    assert overt.lens.contributions(loaded, model, "w7").target.tokens == (7,)
