"""Whole words and their parts to ids."""

import pytest

from overt.errors import InputError
from overt.learn.data.corpora import CorpusExample
from overt.learn.data.tokenizer import UNKNOWN, Tokenizer
from overt.learn.data.vocabulary import WordVocabulary, read_tokenizer, word_parts

EXAMPLES = [CorpusExample(["The", "cat", "sat"], ["DET", "NOUN", "VERB"]), CorpusExample(["the", "cat"], ["DET", "NOUN"])]


def test_the_commonest_words_come_first():
    assert WordVocabulary.learn(EXAMPLES, lower=True).word_list == ["cat", "the", "sat"]


def test_rare_words_are_unknown():
    vocabulary = WordVocabulary.learn(EXAMPLES, minimum_count=2, lower=True)
    assert vocabulary.encode(["The", "cat", "sat", "down"]) == [5, 4, UNKNOWN, UNKNOWN]


def test_case_is_kept_unless_asked():
    assert WordVocabulary.learn(EXAMPLES).encode(["the"]) != WordVocabulary.learn(EXAMPLES).encode(["The"])


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("Paris", ["Paris", "…s", "…is", "…ris", "…aris", "Xx"]),
        ("12.50", ["12.50", "…0", "…50", "….50", "…2.50", "d.d"]),
        ("a", ["a", "…a", "…a", "…a", "…a", "x"]),
    ],
)
def test_a_word_has_endings_and_a_shape(word, parts):
    assert word_parts(word) == parts


def test_a_word_never_seen_is_told_by_its_ending_and_its_shape():
    vocabulary = WordVocabulary.learn([CorpusExample(["walking"], ["VERB"])], parts=True)
    [walking], [talking] = vocabulary.encode(["walking"]), vocabulary.encode(["Hiking"])
    assert talking == [UNKNOWN, *walking[1:5], UNKNOWN]


def test_lower_case_leaves_the_shape_its_capitals():
    vocabulary = WordVocabulary.learn(
        [CorpusExample(["Go"], ["VERB"]), CorpusExample(["go"], ["VERB"])], lower=True, parts=True
    )
    [first], [second] = vocabulary.encode(["Go"]), vocabulary.encode(["go"])
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


def test_labels_have_numbers_and_one_never_seen_has_none():
    vocabulary = WordVocabulary.learn(EXAMPLES)
    assert [vocabulary.label_id(label) for label in ("DET", "NOUN", "VERB", "ADJ")] == [0, 1, 2, -1]


def test_a_word_that_is_spelled_like_a_special_token_is_unknown_or_unused():
    vocabulary = WordVocabulary.learn([CorpusExample(["<pad>", "x"], ["A", "A"])])
    assert vocabulary.words == 5


@pytest.mark.parametrize("parts", [False, True])
def test_a_vocabulary_that_is_saved_and_read_gives_the_same(tmp_path, parts):
    vocabulary = WordVocabulary.learn(EXAMPLES, lower=True, parts=parts)
    vocabulary.save(tmp_path / "tokenizer.json")
    reloaded = read_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(reloaded, WordVocabulary)
    assert reloaded.encode(["The", "dog"]) == vocabulary.encode(["The", "dog"])
    assert (reloaded.labels, reloaded.words) == (vocabulary.labels, vocabulary.words)


def test_a_tokenizer_of_pieces_is_read_as_one(tmp_path):
    Tokenizer.learn(["a b"], merges=0).save(tmp_path / "tokenizer.json")
    assert isinstance(read_tokenizer(tmp_path / "tokenizer.json"), Tokenizer)


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"words": [')
    with pytest.raises(InputError, match=r"tokenizer\.json to be a tokenizer, got Expecting value"):
        read_tokenizer(tmp_path / "tokenizer.json")
