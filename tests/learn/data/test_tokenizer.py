"""Text to ids and back, and what text can and cannot say."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Pieces

from overt.errors import InputError
from overt.learn.config.recipe import read_recipe
from overt.learn.data.corpora import read_corpus
from overt.learn.data.moses import Moses
from overt.learn.data.text_lines import read_lines
from overt.learn.data.tokenizer import END, PADDING, SPECIAL, START, UNKNOWN, Tokenizer

DATA = Path(os.environ.get("OVERT_DATA", Path(__file__).parents[4] / "shared" / "data"))
ENGLISH = ["Go on, I can't wait!", "The old man's hat is on the table.", "12.5 men? No: 13 women…"]
FRENCH = ["Vas-y, l’homme n'attend pas !", "Le chapeau du vieil homme est « sur » la table.", "Où es-tu ? À Paris, peut-être."]
ROOT = Path(__file__).parents[3]
LETTERS = "abcdefghijklmnopqrstuvwxyzàéABC.,!?'’- 0123456789"


@pytest.fixture(scope="module")
def plain():
    return Tokenizer.learn([*ENGLISH, *LETTERS], FRENCH, merges=150)


@pytest.fixture(scope="module")
def spaced():
    return Tokenizer.learn(ENGLISH, FRENCH, merges=150, moses=Moses(("en", "fr"), lower=True))


@given(text=st.text(LETTERS, max_size=40))
def test_plain_text_comes_back_with_its_runs_of_spaces_as_one(plain, text):
    assert plain.decode(plain.encode(text)) == " ".join(text.split())


def test_the_four_special_tokens_have_the_first_ids(plain):
    assert plain.tokens([PADDING, START, END, UNKNOWN]) == ["<pad>", "<s>", "</s>", "<unk>"]


def test_special_tokens_are_left_out_of_text(plain):
    assert plain.decode([START, *plain.encode("the man"), END, PADDING]) == "the man"


@pytest.mark.parametrize("text", ["</s>", "<pad><s>", "Go </s> on"])
def test_text_cannot_spell_a_special_token(plain, text):
    assert not {PADDING, START, END} & set(plain.encode(text))


def test_a_letter_never_seen_is_unknown(plain):
    assert plain.encode("the 山")[-1] == UNKNOWN


@pytest.mark.parametrize("merges", [0, 1, 8])
def test_the_vocabulary_is_letters_and_merges(merges):
    texts = ["low lower lowest", "new newer newest"]
    letters = {letter for text in texts for letter in text.replace(" ", "▁")}
    assert Tokenizer.learn(texts, merges=merges).words == 4 + len(letters) + merges


def test_without_merges_text_is_cut_into_letters():
    tokenizer = Tokenizer.learn(["ab ba"], merges=0)
    assert tokenizer.tokens(tokenizer.encode("abba a")) == ["▁", "a", "b", "b", "a", "▁", "a"]


def test_the_first_merge_is_the_commonest_pair_of_neighbours():
    texts = ["ab ab cab", "ab"]
    pairs = Counter(pair for text in texts for word in text.split() for pair in zip("▁" + word, word, strict=False))
    commonest = "".join(pairs.most_common(1)[0][0])
    tokenizer = Tokenizer.learn(texts, merges=1)
    assert tokenizer.tokens([tokenizer.words - 1]) == [commonest]


def test_moses_words_come_back_apart_and_together(spaced):
    ids = spaced.encode(FRENCH[0], target=True)
    assert spaced.decode_words(ids) == "vas-y , l' homme n' attend pas !"
    assert spaced.decode(ids) == "vas-y, l'homme n'attend pas !"


def test_source_and_target_are_split_by_their_own_languages_rules(spaced):
    assert spaced.prepare(["l'homme"], target=True) == ["l' homme"]
    assert spaced.prepare(["l'homme"]) == ["l 'homme"]


@pytest.mark.parametrize("kind", ["plain", "spaced"])
def test_a_tokenizer_that_is_saved_and_read_gives_the_same(kind, tmp_path, request):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    reloaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert reloaded.encode_all(FRENCH, target=True) == tokenizer.encode_all(FRENCH, target=True)
    assert [reloaded.decode(ids) for ids in reloaded.encode_all(FRENCH, target=True)] == [
        tokenizer.decode(ids) for ids in tokenizer.encode_all(FRENCH, target=True)
    ]
    assert not {START, END} & set(reloaded.encode("<s></s>"))


def test_the_package_tokenizers_reads_a_plain_one(plain, tmp_path):
    plain.save(tmp_path / "tokenizer.json")
    other = Pieces.from_file(str(tmp_path / "tokenizer.json"))
    assert other.encode(FRENCH[1]).ids == plain.encode(FRENCH[1])


def test_lower_case_is_asked_for():
    texts = ["A cat", "a cat"]
    assert Tokenizer.learn(texts, merges=0, lower=True).encode("A CAT") == Tokenizer.learn(texts, merges=0, lower=True).encode(
        "a cat"
    )
    assert Tokenizer.learn(texts, merges=0).encode("A cat") != Tokenizer.learn(texts, merges=0).encode("a cat")


@pytest.mark.parametrize("content", ["{", "[]", '{"version": "1.0"}'])
def test_what_is_no_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer\.json to be a tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_merges_as_subword_nmt_writes_them_are_used(tmp_path):
    (tmp_path / "merges").write_text("#version: 0.2\nl o\nlo w</w>\ne r</w>\n")
    tokenizer = Tokenizer.from_merges(tmp_path / "merges", ["low lower"])
    assert tokenizer.tokens(tokenizer.encode("low lower")) == ["low</w>", "lo", "w", "er</w>"]
    assert tokenizer.decode(tokenizer.encode("low lower")) == "low lower"
    pieces = [*SPECIAL, "e", "l", "o", "r", "w", "r</w>", "w</w>", "lo", "low</w>", "er</w>"]
    assert tokenizer.tokens(range(tokenizer.words)) == pieces


def test_merges_that_are_read_keep_capitals_unless_lower_case_is_asked_for(tmp_path):
    (tmp_path / "spaced").write_text("L o</w>\nl o</w>\n")
    (tmp_path / "plain").write_text("▁ L\n▁ l\n")
    for name, retained, lowered in (("spaced", ["Lo</w>"], ["lo</w>"]), ("plain", ["▁L", "o"], ["▁l", "o"])):
        for options, expected in (({}, retained), ({"lower": True}, lowered)):
            tokenizer = Tokenizer.from_merges(tmp_path / name, ["Lo lo"], **options)
            assert tokenizer.tokens(tokenizer.encode("Lo")) == expected


def test_the_letters_of_merges_that_are_read_are_those_of_each_languages_words(tmp_path):
    (tmp_path / "merges").write_text("h o\nm e</w>\n")
    tokenizer = Tokenizer.from_merges(tmp_path / "merges", ["the hat"], ["l'homme"], moses=Moses(("en", "fr")))
    assert tokenizer.tokens(tokenizer.encode("l'homme", target=True)) == ["l", "'</w>", "ho", "m", "me</w>"]


def test_the_merges_that_were_learned_give_the_same_pieces_when_they_are_read(spaced, tmp_path):
    merges = json.loads(spaced.pieces.to_str())["model"]["merges"]
    (tmp_path / "merges").write_text("".join(f"{left} {right}\n" for left, right in merges))
    reloaded = Tokenizer.from_merges(tmp_path / "merges", ENGLISH, FRENCH, moses=Moses(("en", "fr"), lower=True))
    assert [reloaded.tokens(ids) for ids in reloaded.encode_all(ENGLISH)] == [
        spaced.tokens(ids) for ids in spaced.encode_all(ENGLISH)
    ]


def test_merges_with_a_mark_where_a_word_begins_read_plain_text(tmp_path):
    (tmp_path / "merges").write_text("▁ l\n▁l o\n▁lo w\n")
    tokenizer = Tokenizer.from_merges(tmp_path / "merges", ["low lower."])
    assert tokenizer.tokens(tokenizer.encode("low lower.")) == ["▁low", "▁low", "e", "r", "."]


def test_a_merge_of_three_pieces_names_its_line(tmp_path):
    (tmp_path / "merges").write_text("l o</w>\na b c\n")
    with pytest.raises(InputError, match=r"two pieces for a merge, got 'a b c' \(.*merges, line 2\)"):
        Tokenizer.from_merges(tmp_path / "merges", ["low"])


def test_merges_that_do_not_mark_words_are_refused(tmp_path):
    (tmp_path / "merges").write_text("l o\n")
    with pytest.raises(InputError, match=r"merges that mark where words end or begin, got .*merges, which does not"):
        Tokenizer.from_merges(tmp_path / "merges", ["low"])


def test_moses_needs_two_languages():
    with pytest.raises(InputError, match="the languages of source and target for the Moses tokenizer, got 'en'"):
        Moses(("en",))


def corpora():
    """Texts where many pairs of neighbours are equally common, of few letters and of many."""
    draw = random.Random(0)
    for letters, words in (("ab", 20), ("abcd", 60), (LETTERS.replace(" ", ""), 40), (LETTERS.replace(" ", ""), 400)):
        yield [" ".join("".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(words))]


def learned():
    """What `Tokenizer.learn` makes of the corpora: with and without Moses's words, in all their letters and in lower case."""
    forms: list[dict] = [{}, {"lower": True}, {"moses": Moses(("en", "de"))}, {"moses": Moses(("en", "de"), lower=True)}]
    return [Tokenizer.learn(texts, merges=merges, **form) for texts in corpora() for merges in (0, 30, 300) for form in forms]


@pytest.mark.slow
def test_what_is_learned_is_the_same_in_every_process():
    program = "from test_tokenizer import learned\nfor each in learned(): print(each.pieces.to_str())"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    written = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1


def test_ids_are_the_special_tokens_the_letters_those_that_end_words_and_the_merges_in_their_order():
    for tokenizer in learned():
        model = json.loads(tokenizer.pieces.to_str())["model"]
        ends = "</w>" if tokenizer.moses else "\0"
        merged = list(dict.fromkeys("".join(pair) for pair in model["merges"]))
        letters = sorted(set(model["vocab"]) - set(SPECIAL) - set(merged), key=lambda piece: (piece.endswith(ends), piece))
        assert {len(letter.removesuffix(ends)) for letter in letters} == {1}
        assert model["vocab"] == {piece: number for number, piece in enumerate([*SPECIAL, *letters, *merged])}


def test_no_letter_is_a_special_token_of_what_is_learned(spaced):
    special = [each["content"] for each in json.loads(spaced.pieces.to_str())["added_tokens"]]
    assert special == SPECIAL


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "tatoeba").is_dir(), reason="needs tatoeba/fra-eng.zip in the folder that OVERT_DATA names")
def test_the_boxs_recipe_learns_the_boxs_pieces_and_ids(monkeypatch):
    monkeypatch.setenv("OVERT_DATA", str(DATA))
    recipe = read_recipe(ROOT / "recipes" / "tatoeba-en-fr-teacher.toml")
    sources, targets = zip(*read_corpus(recipe.data).train, strict=True)
    learned = Tokenizer.learn(sources, targets, merges=recipe.tokens.merges, byte_fallback=recipe.tokens.byte_fallback)
    box = Tokenizer.load(ROOT / "src" / "overt" / "learn" / "bundled" / "tokenizer.json")
    assert learned.pieces.to_str() == box.pieces.to_str()


@pytest.mark.skipif(not (DATA / "multi30k").is_dir(), reason=f"needs Multi30k, which is not in {DATA}")
def test_multi30ks_reference_has_as_many_words_as_the_published_scores_were_counted_on():
    # reflen=12103 in the score that Wu et al. 2021 print for the test of 2016.
    moses = Moses(("en", "de"), lower=True)
    lines = read_lines(DATA / "multi30k" / "test_2016_flickr.de.gz")
    assert sum(len(moses.tokenize(line, target=True).split()) for line in lines) == 12103


@pytest.fixture(scope="module")
def in_bytes():
    return Tokenizer.learn([*ENGLISH, *LETTERS] * 30, FRENCH * 30, merges=150, byte_fallback=True)


@given(text=st.text(max_size=30))
def test_with_byte_fallback_every_text_comes_back(in_bytes, text):
    ids = in_bytes.encode(text)
    assert not {PADDING, START, END, UNKNOWN} & set(ids)
    prepared = in_bytes.prepare([text])[0]
    # A space and the mark ▁ are one piece, as in any tokenizer that writes spaces as ▁.
    assert in_bytes.decode(ids) == prepared.replace("▁", " ").removeprefix(" ") or "▁" in text


def test_a_character_without_a_piece_is_written_in_its_bytes(in_bytes):
    assert in_bytes.tokens(in_bytes.encode("the 山"))[-3:] == [f"<0x{byte:02X}>" for byte in "山".encode()]
    assert in_bytes.unknown_characters("the 山 ☃ 山") == ["山", "☃"]
    assert in_bytes.tokens([4, 259]) == ["<0x00>", "<0xFF>"]


def test_a_rare_character_of_training_has_no_piece_of_its_own():
    tokenizer = Tokenizer.learn(["ab"] * 20 + ["z"] * 19, merges=2, byte_fallback=True)
    assert tokenizer.words == 4 + 256 + len("▁ab") + 2
    assert tokenizer.unknown_characters("abz") == ["z"]


def test_text_cannot_spell_a_byte(in_bytes):
    assert in_bytes.decode(in_bytes.encode("<0x41>")) == "<0x41>"
    assert not set(range(4, 260)) & set(in_bytes.encode("go on"))


def test_a_tokenizer_with_byte_fallback_is_saved_and_loaded(in_bytes, tmp_path):
    in_bytes.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.byte_fallback
    assert loaded.encode("the 山!") == in_bytes.encode("the 山!")
    assert Pieces.from_file(str(tmp_path / "tokenizer.json")).decode(in_bytes.encode("the 山!")) == "the 山!"
