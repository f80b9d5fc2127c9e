"""A file is written whole or not at all."""

import os
import resource
import stat

import pytest

from overt.errors import InputError
from overt.files import whole


def write_half(temporary, error):
    temporary.write_text("half")
    raise error


def test_a_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "out.txt"
    with whole(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("all of it")
    assert target.read_text() == "all of it"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stays_and_nothing_half_written(tmp_path, error):
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(error), whole(target) as temporary:
        write_half(temporary, error)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_finished_file_replaces_the_old_one(tmp_path):
    (tmp_path / "out.txt").write_text("old and longer")
    with whole(str(tmp_path / "out.txt")) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "out.txt").read_text() == "new"


def test_the_ending_is_kept_for_writers_that_choose_their_format_by_it(tmp_path):
    with whole(tmp_path / "picture.png") as temporary:
        temporary.touch()
        assert temporary.suffix == ".png"


def test_a_written_file_has_the_rights_that_any_new_file_gets(tmp_path):
    before = os.umask(0o027)
    try:
        with whole(tmp_path / "out.txt") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"an output file needs a file's name; got the folder .*\. To mend it, name a file in it\."),
        ("no/out.txt", r"an output file goes into a folder that exists; got .*out.txt\. To mend it, make .*no first\."),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path, name, message):
    with pytest.raises(InputError, match=message), whole(tmp_path / name):
        raise AssertionError("the block must not run")


def test_a_folder_that_takes_no_file_is_an_error_that_says_why(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    message = r"out.txt cannot be written; got No space left on device\. To mend it, choose another folder"
    with pytest.raises(InputError, match=message), whole(tmp_path / "out.txt"):
        raise AssertionError("the block must not run")


@pytest.fixture
def little_room():
    """Files of this process end after 4,096 bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_an_error_that_says_so_and_leaves_the_old_file(tmp_path, little_room):
    target = tmp_path / "out.txt"
    target.write_text("old")
    message = r"out.txt cannot be written whole; got File too large\. To mend it, make room, or choose another folder\."
    with pytest.raises(InputError, match=message), whole(target) as temporary:
        temporary.write_text("x" * 10_000)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
