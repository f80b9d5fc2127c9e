"""A TEXT is a text, or a file where it names one; a file's name is never taken for a text."""

import os
from pathlib import Path

import pytest

from overt.cli.shared.inputs import looks_like_a_path, named_file, named_input, read_text
from overt.errors import InputError

SENTENCES = """
Hello.
Hello!
Is it 3.5?
3.5
1/2
24/7
and/or
either/or
he/she
km/h
TCP/IP
I/O
w/o
N/A
e.g.
i.e.
Mr.
U.S.A.
a.m.
...
.
..
?
-5
--
Node.js
ASP.NET
v2.0.1
St.Petersburg
amazon.com
www.example.de
someone@example.de
https://example.org/index.html
Wait...what?
Yes.No.Maybe.
Stop.It
I read notes.txt
Open the file data/notes.txt and read it.
What is in /etc/passwd?
/etc/passwd is a file.
C:\\Windows is a folder
She said: "../.." and left.
Is README.md a file?
Je m'appelle Jean-Luc.
这是一个句子。
Она сказала: да/нет
l'eau/le vin
∀x∈ℝ
#hashtag
$100
100%
:-)
:/
\\o/
</s>
a
A.
""".strip().split("\n")

PATHS = """
notes.txt
NOTES.TXT
english.en
test.fr
train.de
test_2016_flickr.en.gz
notes.md
data.csv
data/notes.txt
data/notes.en
./notes
../notes
./my notes.txt
/etc/no/such/file
/tmp/my notes.txt
~/notes
~/my notes.txt
notes/
C:\\notes
C:\\my documents\\notes.txt
C:/notes
data\\notes.txt
*.txt
a.b.c.txt
recording.safetensors
paper.pdf
corpus.tok.bpe.fr
""".strip().split("\n")


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", [each for each in SENTENCES if each not in (".", "..")])
def test_a_sentence_stays_a_sentence(text):
    assert not looks_like_a_path(text)
    assert named_file(text) is None
    assert read_text(text) == [text]


@pytest.mark.parametrize("text", PATHS)
def test_the_name_of_a_file_that_is_not_there_is_refused(text):
    with pytest.raises(InputError) as caught:
        read_text(text)
    message = f"Expected a text or the name of a file, got {text}, which does not exist. Fix: check the name, or pass --text"
    assert str(caught.value).startswith(message)
    assert read_text(text, as_text=True) == [text]


@pytest.mark.parametrize("name", ["notes.txt", "notes", "Hello.", "my notes", "and-or", "a line", "!", "(1)"])
def test_a_file_that_is_there_is_read_whatever_its_name(name, tmp_path):
    (tmp_path / name).write_bytes(b"one\r\n\ntwo\n")
    assert read_text(name) == ["one", "", "two"]
    assert read_text(name, as_text=True) == [name]
    (tmp_path / "link").symlink_to(name)
    assert read_text("link") == ["one", "", "two"]


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("texts", "texts/", ".", ".."):
        with pytest.raises(InputError, match=f"got the folder {name}"):
            read_text(name)
    with pytest.raises(InputError, match=r"got texts/one, which does not exist"):
        read_text("texts/one")
    assert read_text("and/or") == ["and/or"]
    assert read_text("texts", as_text=True) == ["texts"]


def test_a_dash_and_nothing_are_standard_input(monkeypatch, tmp_path):
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    for text in ("-", None):
        with (tmp_path / "in").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            assert read_text(text) == ["one", "two"]
    assert read_text("-", as_text=True) == ["-"]


def test_an_input_is_called_what_the_command_line_calls_it(tmp_path):
    (tmp_path / "notes").write_text("one\n")
    assert named_input(None) == named_input("-") == {"standard input": Path("/dev/stdin")}
    assert named_input("notes") == {"TEXT": Path("notes")}
    assert named_input("Hello.") == named_input("notes", as_text=True) == {}


@pytest.mark.parametrize(
    "text", ["", "a\nb", "a\nb.txt", "x" * 10_000, "x" * 300, "x" * 300 + "/y", "a\0b", "\udcff", "/" * 5000 + "a b"]
)
def test_what_no_file_can_be_called_is_a_text(text):
    assert named_file(text) is None


@pytest.mark.parametrize("text", ["./" + "x" * 300, "x" * 300 + ".txt"])
def test_a_path_that_is_too_long_is_refused_with_the_systems_word(text):
    with pytest.raises(InputError, match=r"got .*, File name too long"):
        named_file(text)


def test_a_file_that_may_not_be_looked_at_says_so(monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(InputError, match=r"got \./notes, Permission denied"):
        named_file("./notes")
    assert named_file("Hello.") is None
