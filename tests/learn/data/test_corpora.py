"""Files become examples, and files that do not fit say where."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from overt.errors import InputError
from overt.learn.config.settings import Data
from overt.learn.data.corpora import (
    CorpusExample,
    hold_out,
    join_neighbours,
    read_corpus,
    spread_sample,
    without_contractions,
)
from overt.learn.data.text_lines import read_lines

DATA = Path(os.environ.get("OVERT_DATA", Path(__file__).parents[4] / "shared" / "data"))
on_data = pytest.mark.skipif(not (DATA / "tatoeba").is_dir(), reason=f"needs the public data sets, which are not in {DATA}")


def two_files(folder, source: str, target: str, **options) -> Data:
    (folder / "a.en").write_text(source)
    (folder / "a.de").write_text(target)
    return Data(folder=str(folder), train=("a.en", "a.de"), **options)


def one_file(folder, text: str, **options) -> Data:
    (folder / "a.txt").write_text(text)
    return Data(folder=str(folder), train=("a.txt",), **options)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.zip"])
def test_lines_are_the_same_whatever_the_file_is_packed_in(tmp_path, name):
    path, content = tmp_path / name, b"eins\r\nzwei\n"
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("_about.txt", "no text of ours")
            archive.writestr("a.txt", content)
    else:
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_lines(path) == ["eins", "zwei"]


def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "a.txt").write_bytes("gut\nschön\n".encode() + b"caf\xe9\n")
    with pytest.raises(InputError) as result:
        read_lines(tmp_path / "a.txt")
    assert str(result.value) == (
        f"Expected {tmp_path}/a.txt to be UTF-8 text, got the byte 0xe9 on line 3, byte 4 of the line. Fix: convert it, or name "
        'its encoding: encoding = "latin-1".'
    )


def test_another_encoding_is_read_when_it_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9\n")
    assert read_lines(tmp_path / "a.txt", "latin-1") == ["café"]


@pytest.mark.parametrize("name", ["a.gz", "a.zip"])
def test_a_packed_file_that_is_cut_short_says_so(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"one line\n" * 100)[:-12])
    with pytest.raises(InputError, match=f"{name} to be a complete {name[1:]} file"):
        read_lines(tmp_path / name)


def test_unequal_line_counts_name_both_files(tmp_path):
    with pytest.raises(InputError) as result:
        read_corpus(two_files(tmp_path, "one\ntwo\nthree\n", "eins\nzwei\n"))
    assert f"got {tmp_path}/a.en with 3 and {tmp_path}/a.de with 2 lines" in str(result.value)


def test_lines_with_an_empty_side_are_left_out_and_counted_and_the_others_stay_aligned(tmp_path):
    corpus = read_corpus(two_files(tmp_path, "one\n\nthree\nfour\n", "eins\nzwei\n  \nvier\n"))
    assert corpus.train == [CorpusExample("one", "eins"), CorpusExample("four", "vier")]
    assert corpus.notes == ["train: 2 of 4 lines left out: one side is empty"]


def test_a_line_ends_at_a_newline_only(tmp_path):
    corpus = read_corpus(two_files(tmp_path, "one\u2028half\x85\ntwo\n", "eins\nzwei\n"))
    assert [example.target for example in corpus.train] == ["eins", "zwei"]


def test_a_split_without_examples_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"at least one example for train, got none in a\.en, a\.de"):
        read_corpus(two_files(tmp_path, "\n\n", "\n\n"))


def test_lines_want_two_files(tmp_path):
    with pytest.raises(InputError, match=r'two files, source and target, in train for the format "lines", got a\.txt'):
        read_corpus(one_file(tmp_path, "one\n"))


def test_a_pair_without_a_tab_names_its_line(tmp_path):
    with pytest.raises(InputError, match=r"source TAB target, got 'Go' \(.*a\.txt, line 2\)"):
        read_corpus(one_file(tmp_path, "Run!\tCours !\nGo\n", format="pairs"))


def test_of_pairs_the_columns_after_the_second_are_not_read(tmp_path):
    corpus = read_corpus(one_file(tmp_path, "Go.\tVa !\tCC-BY by someone\n", format="pairs"))
    assert corpus.train == [CorpusExample("Go.", "Va !")]


def test_tagged_words_are_read_without_contractions_comments_and_words_left_out(tmp_path):
    rest = "\t_" * 6
    text = f"# text = Don't go\n1-2\tDon't\t_\t_{rest}\n1\tDo\tdo\tAUX{rest}\n2\tn't\tnot\tPART{rest}\n2.1\tx\tx\tX{rest}\n3\tgo\tgo\tVERB{rest}\n\n"
    corpus = read_corpus(one_file(tmp_path, text, format="conllu"))
    assert corpus.train == [CorpusExample(["Do", "n't", "go"], ["AUX", "PART", "VERB"])]


def test_tagged_words_without_ten_columns_name_the_line(tmp_path):
    with pytest.raises(InputError, match=r"ten columns, got 2 \(.*a\.txt, line 2\)"):
        read_corpus(one_file(tmp_path, "# x\n1\tDo\n", format="conllu"))


def test_of_a_label_the_coarse_part_is_taken(tmp_path):
    corpus = read_corpus(one_file(tmp_path, "HUM:ind Who was he ?\n1 fine\n", format="labels"))
    assert corpus.train == [CorpusExample(["Who", "was", "he", "?"], "HUM"), CorpusExample(["fine"], "1")]


def test_no_source_that_is_held_out_is_left_in_training_in_other_case_or_punctuation():
    variants = [f"Word {number}{end}" for number in range(30) for end in (".", "!", "")]
    examples = [
        CorpusExample(text, f"{text} {version}") for text in [*variants, *map(str.upper, variants)] for version in (1, 2)
    ]
    train, valid, test = hold_out(examples, 5, 7)
    numbers = [{example.source.split()[1].strip(".!") for example in part} for part in (train, valid, test)]
    assert [len(part) for part in numbers] == [18, 5, 7]
    assert len(set.union(*numbers)) == 30
    assert len(train) + len(valid) + len(test) == len(examples)


def test_what_is_held_out_does_not_follow_from_the_order_of_the_file():
    examples = [CorpusExample(f"word {number}", "x") for number in range(50)]
    forward, backward = hold_out(examples, 3, 4), hold_out(examples[::-1], 3, 4)
    assert [set(part) for part in forward] == [set(part) for part in backward]


def test_holding_out_everything_is_refused():
    with pytest.raises(InputError, match=r"got held_out = \[1, 1\] of 2 different sources"):
        hold_out([CorpusExample("a", "1"), CorpusExample("A!", "1"), CorpusExample("b", "2")], 1, 1)


def test_joined_lines_hold_every_line_at_every_length():
    examples = [CorpusExample(f"s{number}", f"t{number}") for number in range(12)]
    result = join_neighbours(examples, 4, shuffle=True)
    assert [len(example.source.split()) for example in result] == [1] * 12 + [2] * 6 + [3] * 4 + [4] * 3
    for count in range(1, 5):
        rows = [example for example in result if len(example.source.split()) == count]
        assert sorted(word for example in rows for word in example.source.split()) == sorted(
            example.source for example in examples
        )
        assert all(example.target == example.source.replace("s", "t") for example in rows)


def test_texts_have_nothing_to_answer_and_empty_ones_are_left_out(tmp_path):
    corpus = read_corpus(one_file(tmp_path, "one two\n\n three \n", format="text"))
    assert corpus.train == [CorpusExample("one two", ""), CorpusExample("three", "")]
    assert corpus.notes == ["train: 1 of 3 lines left out: one side is empty"]


def test_join_is_for_training_and_test(tmp_path):
    for split in ("valid", "test"):
        (tmp_path / f"{split}.en").write_text("one\ntwo\n")
        (tmp_path / f"{split}.de").write_text("eins\nzwei\n")
    files = {"valid": ("valid.en", "valid.de"), "test": ("test.en", "test.de")}
    corpus = read_corpus(two_files(tmp_path, "one\ntwo\n", "eins\nzwei\n", join=2, **files))
    assert [len(part) for part in corpus[:3]] == [3, 2, 3]
    assert corpus.test[2] == CorpusExample("one two", "eins zwei")


def test_a_limit_takes_training_examples_from_all_over_the_file(tmp_path):
    text = "".join(f"s{number}\tt\n" for number in range(10))
    corpus = read_corpus(one_file(tmp_path, text, format="pairs", limit=5))
    assert [example.source for example in corpus.train] == ["s0", "s2", "s4", "s6", "s8"]


def test_spread_takes_all_where_there_are_fewer():
    assert spread_sample([CorpusExample("a", "")], 5) == [CorpusExample("a", "")]


@pytest.mark.slow
@on_data
def test_no_english_sentence_of_tatoebas_test_is_in_training(monkeypatch):
    monkeypatch.setenv("OVERT_DATA", str(DATA))
    corpus = read_corpus(Data(format="pairs", folder="tatoeba", train=("fra-eng.zip",), held_out=(1000, 2000)))

    def sources(part):
        return {"".join(filter(str.isalnum, example.source.casefold())) for example in part}

    assert [len(sources(part)) for part in corpus[:3]] == [95540, 1000, 2000]
    assert not sources(corpus.train) & (sources(corpus.test) | sources(corpus.valid))
    assert sum(len(part) for part in corpus[:3]) == 142787


@on_data
@pytest.mark.parametrize(
    ("data", "sizes", "labels"),
    [
        (Data(format="conllu", folder="ud-ewt", train=("en_ewt-ud-test.conllu.gz",)), 2077, 17),
        (Data(format="labels", folder="trec", train=("TREC.train",), encoding="latin-1"), 5452, 6),
        (Data(format="labels", folder="sst2", train=("stsa.binary.train",)), 6920, 2),
    ],
    ids=["ud-ewt", "trec", "sst2"],
)
def test_the_public_corpora_have_their_published_sizes(monkeypatch, data, sizes, labels):
    monkeypatch.setenv("OVERT_DATA", str(DATA))
    examples = read_corpus(data).train
    result = {
        label for example in examples for label in ([example.target] if isinstance(example.target, str) else example.target)
    }
    assert (len(examples), len(result)) == (sizes, labels)


CONTRACTED = [
    ("I'm late.", "I am late!"),
    ("They can't swim.", "They cannot swim."),
    ("She won’t come, will she?", "She will not come, will she?"),
    ("He'd seen it.", "He had seen it."),
    ("We've lost; they're glad.", "We have lost. They are glad."),
    ("Let's go", "Let us go!"),
]


@pytest.mark.parametrize(("contracted", "full"), CONTRACTED)
def test_a_sentence_with_contractions_is_the_one_without(contracted, full):
    assert without_contractions(contracted) == without_contractions(full)


def test_other_sentences_stay_different():
    sentences = {"I'm late.", "I'm not late.", "You're late.", "I was late.", "I'll be late.", "Am I late?"}
    assert len({without_contractions(each) for each in sentences}) == len(sentences)


def test_no_english_source_is_in_two_splits_with_and_without_contractions(tmp_path):
    lines = [f"{side}\tsatz {number}" for number, pair in enumerate(CONTRACTED * 30) for side in pair]
    lines = [
        line.replace(".", f" {number // 12}.") if "." in line else f"{number // 12} {line}" for number, line in enumerate(lines)
    ]
    corpus = read_corpus(one_file(tmp_path, "\n".join(lines), format="pairs", held_out=(20, 20), languages=("en", "de")))
    keys = [{without_contractions(row.source) for row in split} for split in corpus[:3]]
    assert all(keys)
    assert not (keys[0] & keys[2])
    assert not (keys[0] & keys[1])
    assert not (keys[1] & keys[2])
    assert len(corpus.test) == 20
    assert "with or without contractions" in corpus.notes[-1]
    other = read_corpus(one_file(tmp_path, "\n".join(lines), format="pairs", held_out=(20, 20), languages=("nl", "de")))
    assert len(other.train) > len(corpus.train)
    assert other.notes == []


@pytest.mark.slow
@on_data
def test_the_held_out_sources_are_those_written_down():
    data = Data(
        format="pairs", folder=str(DATA / "tatoeba"), train=("fra-eng.zip",), held_out=(1000, 2000), languages=("en", "fr")
    )
    corpus = read_corpus(data)
    written = (Path(__file__).parents[3] / "docs" / "results" / "tatoeba-held-out.tsv").read_text().splitlines()
    sources = {f"{split}\t{row.source}" for split in ("valid", "test") for row in getattr(corpus, split)}
    assert sources == set(written)
    assert not {without_contractions(row.source) for row in corpus.train} & {
        without_contractions(line.partition("\t")[2]) for line in written
    }


def added(folder, **options):
    """English and French with two sentences held out, and added pairs of which one source is held out with a contraction."""
    lines = ["I am here.\tJe suis là.", "I'm here.\tJe suis ici.", "Go.\tVa.", "Run!\tCours !", "They sleep.\tIls dorment."]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    held_out = read_corpus(
        Data(format="pairs", folder=str(folder), train=("pairs.tsv",), held_out=(1, 1), languages=("en", "fr"))
    )
    sources = [*(example.source.upper() for example in [*held_out.valid, *held_out.test]), "New.", "Go away."]
    (folder / "added.tsv").write_text("".join(f"{source}\tx\n" for source in sources))
    data = Data(
        format="pairs", folder=str(folder), train=("pairs.tsv",), added=(str(folder / "added.tsv"),), held_out=(1, 1),
        languages=("en", "fr"), **options,
    )  # fmt: skip
    return held_out, read_corpus(data)


def test_added_pairs_are_beside_the_training_pairs_without_held_out_sources(tmp_path):
    before, after = added(tmp_path)
    assert after[:3] == before[:3]
    assert [tuple(each) for each in after.added] == [("New.", "x"), ("Go away.", "x")]
    assert "2 pairs added from" in after.notes[-1]


def test_a_reversed_corpus_holds_out_the_same_sentences(tmp_path):
    before, after = added(tmp_path, reversed=True)
    for split, other in zip(before[:3], after[:3], strict=True):
        assert [(each.target, each.source) for each in split] == [tuple(each) for each in other]
    assert [tuple(each) for each in after.added] == [("x", "New."), ("x", "Go away.")]


def test_added_pairs_are_for_translation_alone():
    with pytest.raises(InputError, match=r"added only for translated lines, got format 'text'. Fix: leave added out"):
        Data(format="text", train=("a",), added=("b",))
