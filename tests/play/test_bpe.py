"""The page's byte-pair encoding beside the package tokenizers', on sentences of all kinds and on tokenizers of all forms that recipes make."""

import json

import pytest
import tokenizers as package
from odd_sentences import sentences

from overt.drawing.html import bundle
from overt.errors import InputError
from overt.learn.data.moses import Moses
from overt.learn.data.tokenizer import Tokenizer
from overt.learn.translator import bundled_folder
from overt.play.bpe import bpe_options

TEXTS = [
    "the cat's old house, l'homme est là — 12 chats !",
    "My brother doesn't know; il ne sait pas où aller.",
    "aaaa banana abababab",
]
MARKS = ["</s>", "<unk>", "<s>", "▁", "▁▁a", "</w>", "<0x41>", "  ", "\n", "'", "’"]


def with_bytes(tokenizer, present):
    """The tokenizer with a piece for each of these bytes, for letters that it lacks, as the package has it."""
    content = json.loads(tokenizer.pieces.to_str())
    vocabulary = content["model"]["vocab"]
    for byte in present:
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    content["model"]["byte_fallback"] = True
    content["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, content["decoder"]]}
    pieces = package.Tokenizer.from_str(json.dumps(content))
    return Tokenizer(pieces)


def merges_file(folder):
    path = folder / "codes.txt"
    path.write_text("#version: 0.2\nt h\nth e</w>\no u\na n\nan a</w>\n", encoding="utf-8")
    return path


FORMS = {
    "bundled": lambda folder: Tokenizer.load(bundled_folder() / "tokenizer.json"),
    "lower": lambda folder: Tokenizer.learn(TEXTS * 3, merges=60, lower=True),
    "letters": lambda folder: Tokenizer.learn(TEXTS, merges=0),
    "spaced": lambda folder: Tokenizer.from_merges(merges_file(folder), TEXTS),
    "learned bytes": lambda folder: Tokenizer.learn(TEXTS * 7, merges=60, byte_fallback=True),
    "bytes": lambda folder: with_bytes(Tokenizer.learn(TEXTS * 3, merges=60), range(256)),
    "some bytes": lambda folder: with_bytes(Tokenizer.learn(TEXTS * 3, merges=60), range(0x80, 0xE0)),
}  # fmt: skip


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """A page that has the tokenizer's code and nothing else; `use` takes a tokenizer, `differ` gives the texts whose ids or whose way back differ."""
    path = tmp_path_factory.mktemp("bpe") / "page.html"
    script = bundle("play/web/translator/bpe.js")
    ask = """
    globalThis.use = (options) => { globalThis.bpe = $play_translator_bpe.createBpe(options); };
    globalThis.differ = (texts, ids, back) => texts.filter((text, i) => String(bpe.encode(text).ids) !== String(ids[i]) || bpe.decode(ids[i]) !== back[i]);"""
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}{ask}</script>")
    return chromium.page().open(path)


def differing(page, tokenizer, texts):
    ids = [tokenizer.encode(text) for text in texts]
    back = [tokenizer.decode(each) for each in ids]
    return page.ask(f"differ({json.dumps(texts)}, {json.dumps(ids)}, {json.dumps(back)})")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.few_cases(1)
def test_it_gives_the_pieces_and_texts_of_the_package(page, tmp_path, form):
    tokenizer = FORMS[form](tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    page.ask(f"use({json.dumps(bpe_options(tmp_path))})")
    words = sorted(
        {piece.strip("▁").removesuffix("</w>") for piece in tokenizer.pieces.get_vocab() if len(piece) > 3} | {"the", "où"}
    )
    count = 10_000 if form == "bundled" else 1500
    for start in range(0, count, 500):
        texts = list(sentences(words, MARKS, 500, start))
        assert differing(page, tokenizer, texts)[:3] == []


@pytest.mark.parametrize(
    "text", ["", " ", "▁", "a" * 3000, "ab" * 2000, "\ud83d", "é\u0301\u0327", "\x85a\u2028b", "ΑΣ ΌΣΟΣ İ"]
)
def test_corners_are_the_packages_too(page, tmp_path, text):
    tokenizer = FORMS["bytes"](tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    page.ask(f"use({json.dumps(bpe_options(tmp_path))})")
    wellformed = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    ids = tokenizer.encode(wellformed)
    assert page.ask(f"bpe.encode({json.dumps(text)}).ids") == ids
    assert page.ask(f"bpe.decode({json.dumps(ids)})") == tokenizer.decode(ids)


def test_bytes_that_are_no_text_come_back_as_marks(page, tmp_path):
    tokenizer = FORMS["bytes"](tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    page.ask(f"use({json.dumps(bpe_options(tmp_path))})")
    vocabulary = tokenizer.pieces.get_vocab()
    for pieces in (
        ["<0xE2>", "<0x82>", "▁a"],
        ["<0xE2>", "<0x82>", "<0xAC>"],
        ["▁a", "<0xFF>", "<0xC3>", "<0xA9>", "a"],
        ["</s>", "▁a", "<unk>"],
    ):
        ids = [vocabulary.get(piece, 3) for piece in pieces]
        assert page.ask(f"bpe.decode({json.dumps(ids)})") == tokenizer.decode(ids)


def test_what_works_in_another_way_is_refused_with_the_way_out(tmp_path):
    Tokenizer.learn(TEXTS, merges=10, moses=Moses(("en", "fr"))).save(tmp_path / "tokenizer.json")
    with pytest.raises(
        InputError, match="^Expected a tokenizer of plain text, got one that splits text into the words of Moses first"
    ):
        bpe_options(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="--serve"):
        bpe_options(tmp_path)
