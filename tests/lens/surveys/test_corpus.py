"""A corpus reads lines, JSON lines and Parquet, one text after another, and says what it left out."""

import gzip

import pytest

from overt.errors import InputError
from overt.lens.analysis.surveys.reading.corpus import Corpus


def test_lines_gzip_and_several_files_are_read_in_order(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffun\r\n\ndeux\u2028trois".encode())
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("quatre\n")
    corpus = Corpus([tmp_path / "a.txt", tmp_path / "b.txt.gz"])
    assert [*corpus] == ["un", "", "deux\u2028trois", "quatre"]
    assert len(corpus) == 4
    assert [*corpus] == [*corpus]


def test_lines_of_json_that_cannot_be_read_are_counted_with_their_numbers(tmp_path):
    lines = ['{"text": "one"}', "", '"two"', '{"text": 3}', "[1]", '{"text": "th', '{"other": "x", "text": "four"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    corpus = Corpus([tmp_path / "a.jsonl"])
    assert [*corpus] == ["one", "two", "four"]
    assert [skipped[1:] for skipped in corpus.skipped] == [
        (4, "it has no text 'text'"),
        (5, "it has no text 'text'"),
        (6, "it is not complete JSON"),
    ]
    assert [*Corpus([tmp_path / "a.jsonl"], field="other")] == ["two", "x"]


def test_a_column_of_parquet_is_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"text": ["one", None, "two"] * 1000, "n": range(3000)})
    parquet.write_table(table, tmp_path / "a.parquet")
    corpus = Corpus([tmp_path / "a.parquet"])
    assert len(corpus) == 2000
    assert [*corpus][:3] == ["one", "two", "one"]
    assert corpus.skipped[0][1] == 2
    with pytest.raises(InputError, match="to have a column 'words', got columns text, n"):
        len(Corpus([tmp_path / "a.parquet"], field="words"))


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n\xff\n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-9])
    for name, message in (
        ("a.txt", "to be UTF-8 text, got the byte 0xff"),
        ("b.parquet", "to be a Parquet file"),
        ("c.gz", "readable"),
        ("d", "No such"),
    ):
        with pytest.raises(InputError, match=message):
            len(Corpus([tmp_path / name]))


def test_a_line_of_json_that_ends_inside_of_a_character_costs_itself_alone(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"text": "one"}\n{"text": "é'.encode()[:-1] + b'\n{"text": "two"}\n')
    corpus = Corpus([tmp_path / "a.jsonl"])
    assert [*corpus] == ["one", "two"]
    assert [skipped[1:] for skipped in corpus.skipped] == [(2, "it is not complete JSON")]


def test_files_in_which_no_line_has_a_text_name_what_they_have(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "body": "one"}\n' * 3)
    with pytest.raises(
        InputError, match="3 lines without one; .*, line 1: it has no text 'text', but body. Fix: name the field"
    ):
        len(Corpus([tmp_path / "a.jsonl"]))
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": range(5)}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="at least one text, got 5 lines without one"):
        len(Corpus([tmp_path / "a.parquet"]))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.csv.gz"])
def test_a_table_is_not_read_as_lines_of_text(name, tmp_path):
    (tmp_path / name).write_text("id,text\n1,one\n")
    with pytest.raises(InputError, match=r"texts on lines, JSON lines or Parquet, got .*, \.(csv|tsv|json)\. Fix: write its"):
        len(Corpus([tmp_path / name]))


def test_a_folder_is_told_of_its_files(tmp_path):
    with pytest.raises(InputError, match="Is a directory. Fix: name a file in it"):
        len(Corpus([tmp_path]))
