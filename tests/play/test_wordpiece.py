"""The page's tokenizer beside Hugging Face's, on sentences of all kinds and on every character."""

import json
import sys

import pytest
from odd_sentences import sentences

from overt.drawing.html import bundle
from overt.errors import InputError
from overt.play.wordpiece import wordpiece_options

MARKS = ["[SEP]", "[CLS]", "[MASK]", "[UNK]", "##s", "[sep]", "[SEP"]


@pytest.fixture(scope="module")
def tokenizers(minilm):
    """Hugging Face's tokenizer, and the words that it knows."""
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(tokenizer_file=str(minilm.folder / "tokenizer.json"))
    return tokenizer, sorted(word for word in tokenizer.get_vocab() if word.isalpha())


@pytest.fixture(scope="module")
def page(chromium, minilm, tmp_path_factory):
    """A page that has the tokenizer and nothing else; `compare` gives the texts whose tokens or places differ."""
    path = tmp_path_factory.mktemp("wordpiece") / "page.html"
    script = bundle("play/web/worker/wordpiece.js")
    options = json.dumps(wordpiece_options(minilm.folder)).replace("<", "\\u003c")
    compare = """
    const tokenize = $play_worker_wordpiece.createWordPiece(OPTIONS);
    globalThis.compare = (texts, ids, spans) => texts.filter((text, i) => {
      const tokens = tokenize(text, 512);
      return String(tokens.ids) !== String(ids[i]) || String(tokens.spans) !== String(spans[i]);
    });"""
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}{compare.replace('OPTIONS', options)}</script>")
    return chromium.page().open(path)


def in_code_units(text, spans):
    """The same places as JavaScript counts them, where a character beyond U+FFFF counts twice."""
    units = [0]
    for letter in text:
        units.append(units[-1] + 1 + (ord(letter) > 0xFFFF))
    return [[units[start], units[stop]] for start, stop in spans]


def different(page, tokenizer, texts):
    """The texts whose tokens differ."""
    encoded = tokenizer(texts, truncation=True, max_length=512, return_offsets_mapping=True)
    spans = [in_code_units(text, offsets) for text, offsets in zip(texts, encoded["offset_mapping"], strict=True)]
    arguments = [texts, encoded["input_ids"], spans]
    return page.ask(f"compare(...{json.dumps(arguments)})")


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_sentences_of_all_kinds_have_the_same_tokens(page, tokenizers, count):
    tokenizer, words = tokenizers
    texts = list(sentences(words, MARKS, count, seed=0))
    assert [
        text for start in range(0, len(texts), 500) for text in different(page, tokenizer, texts[start : start + 500])
    ] == []


# Planes 4 to 13 have no characters, and 15 and 16 private ones: of these all are left to test-all, and ends and a sample are slow.
EMPTY = [*range(0x40000, 0xE0000), *range(0xF0000, sys.maxunicode + 1)]
ENDS = [code for code in EMPTY if (code & 0xFFFF) + 128 & 0xFFFF < 256 or code % 61 == 0]


@pytest.mark.slow
@pytest.mark.parametrize("empty", [ENDS, pytest.param(EMPTY, marks=pytest.mark.exhaustive)], ids=["some", "all"])
def test_every_character_is_cut_as_bert_cuts_it(page, tokenizers, empty):
    codes = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xF0000), *empty]
    characters = [chr(code) for code in codes]
    groups = [characters[start : start + 8] for start in range(0, len(characters), 8)]
    texts = [" ".join(f"a{each}b {each}" for each in group) for group in groups]
    for start in range(0, len(texts), 2000):
        assert different(page, tokenizers[0], texts[start : start + 2000]) == []


@pytest.mark.parametrize("text", ["", " ", "a" * 100, "a" * 101, "é" * 100, "a" * 5000 + " b", "word " * 700, "[SEP]" * 600])
def test_ends_and_long_words_are_cut_alike(page, tokenizers, text):
    assert different(page, tokenizers[0], [text]) == []


@pytest.mark.parametrize(("change", "said"), [
    ({"pre_tokenizer": {"type": "ByteLevel"}}, "pre-tokenizer: ByteLevel"),
    ({"normalizer": None}, "normalizer: None"),
    ({"added_tokens": None}, "is missing or wrong"),
])  # fmt: skip
def test_another_tokenizer_is_refused_with_the_way_out(minilm, tmp_path, change, said):
    tokenizer = json.loads((minilm.folder / "tokenizer.json").read_text(encoding="utf-8")) | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError) as caught:
        wordpiece_options(tmp_path)
    assert said in str(caught.value)
    assert "overt play FOLDER --serve" in str(caught.value)
