"""Token ids become the words of the text, whatever library and spelling the tokenizer is of."""

import copy

import pytest
import transformers
from tokenizers import Tokenizer, decoders, models

from overt.errors import InputError, KindError
from overt.lens.text.tokens_of_text import Token, decoded
from overt.lens.text.vocabulary import read_vocabulary
from tokenizers_of_all_kinds import EMOJI, TEXT, byte_level, fast, metaspace, ours, word_piece, words

MARKS = ("Ġ", "▁", "##", "âĢĻ", "</w>", "<0x", "@@")


def read(tokenizer, ids):
    vocabulary = read_vocabulary(tokenizer)
    vocabulary.check_spelling(ids)
    return decoded(ids, vocabulary)


@pytest.mark.parametrize("pieces", [byte_level, metaspace, words, ours])
def test_the_text_is_the_text_and_spans_point_into_it(pieces):
    tokenizer = pieces()
    ids = tokenizer.encode(TEXT)
    text, tokens = read(tokenizer, ids if isinstance(ids, list) else ids.ids)
    assert text == TEXT
    assert [text[slice(*token.span)] for token in tokens] == tokens
    assert all(text[token.span[0] - 1] == " " for token in tokens if token.spaced)
    assert not any(mark in token for token in tokens for mark in MARKS)


def test_word_pieces_are_joined_to_words():
    text, tokens = read(word_piece(), word_piece().encode(TEXT).ids)
    assert text == TEXT.lower().replace("didn’t", "didn ’ t")
    assert any(token.piece.startswith("##") for token in tokens)
    assert [token.piece.removeprefix("##") for token in tokens] == tokens


@pytest.mark.parametrize("pieces", [byte_level, metaspace])
def test_a_character_over_several_tokens_says_which_part_each_is(pieces):
    text, tokens = read(pieces(), pieces().encode(EMOJI).ids)
    assert text == EMOJI
    parts = [token for token in tokens if "😁" in token]
    assert [part[-4:] for part in parts] == [f"{number}/{len(parts)}]" for number in range(1, len(parts) + 1)]
    assert {text[slice(*part.span)] for part in parts} == {"😁"}


def test_an_apostrophe_between_word_pieces_has_no_spaces():
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "didn": 1, "'": 2, "t": 3, "go": 4, ".": 5}, unk_token="[UNK]"))
    pieces.decoder = decoders.WordPiece()
    text, tokens = read(pieces, [1, 2, 3, 4, 5])
    assert text == "didn't go."
    assert [text[slice(*token.span)] for token in tokens] == tokens == ["didn", "'", "t", "go", "."]


def test_a_lone_byte_is_the_mark_of_what_is_no_character():
    half = byte_level().encode("😁").ids[:1]
    assert read(byte_level(), half).tokens == ["�" * len(byte_level().id_to_token(half[0]).lstrip("Ġ"))]


def test_special_tokens_and_padding_are_known_and_no_part_of_the_text():
    tokenizer = fast(byte_level())
    ids = [1, *tokenizer("The street")["input_ids"], 2, 0, 0]
    text, tokens = read(tokenizer, ids)
    assert text == "The street"
    assert [token for token in tokens if token.special] == ["<s>", "</s>", "<pad>", "<pad>"]
    assert [token.padding for token in tokens][-3:] == [False, True, True]


def test_padding_with_the_id_that_ends_texts_leaves_one_end():
    tokenizer = fast(byte_level())
    tokenizer.pad_token = "</s>"
    body = tokenizer("The street")["input_ids"]
    assert [token.padding for token in read(tokenizer, [*body, 2, 2, 2]).tokens][-3:] == [False, True, True]
    assert [token.padding for token in read(tokenizer, [2, 2, 2, *body]).tokens][:3] == [True, True, False]


def test_a_tokenizer_whose_decoder_is_code_is_read_by_the_marks_of_its_pieces(tmp_path):
    (tmp_path / "vocab.json").write_text('{"the": 0, "anim@@": 1, "al": 2, "<unk>": 3}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CTRLTokenizer(tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert read(tokenizer, [0, 1, 2]).text == "the animal"


def test_bytes_as_pieces():
    tokenizer = transformers.ByT5Tokenizer()
    text, tokens = read(tokenizer, tokenizer("l’été")["input_ids"])
    assert text == "l’été"
    assert tokens[:4] == ["l", "’[1/3]", "’[2/3]", "’[3/3]"]
    assert tokens[-1].special


def test_a_processor_passes_its_tokenizer_on():
    class Processor:
        tokenizer = fast(byte_level())

    assert read_vocabulary(Processor()).size == byte_level().get_vocab_size()


def test_other_things_than_tokenizers_are_refused():
    with pytest.raises(KindError, match="Expected a tokenizer: of Hugging Face.*got dict"):
        read_vocabulary({})
    with pytest.raises(KindError, match="patches need no tokenizer"):
        read_vocabulary(transformers.ViTImageProcessor())


def test_ids_beyond_the_vocabulary_are_an_error():
    with pytest.raises(
        InputError, match=r"Expected token ids of the tokenizer, which has \d+, got id 5000, which the model read"
    ):
        read(byte_level(), [5000])


def test_a_token_is_a_string_that_can_be_copied():
    token = Token("animal", piece="Ġanimal", id=5, span=(4, 10), spaced=True)
    second = copy.deepcopy(token)
    assert (second, second.piece, second.id, second.span) == ("animal", "Ġanimal", 5, (4, 10))
