"""A file is written whole or not at all."""

import stat

import pytest

from overt.errors import InputError
from overt.files import whole


def test_a_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "out.txt"
    with whole(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("all of it")
    assert target.read_text() == "all of it"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o400


def test_after_an_error_the_old_file_stays_and_nothing_half_written(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), whole(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_the_ending_is_kept_for_writers_that_choose_their_format_by_it(tmp_path):
    with whole(tmp_path / "picture.png") as temporary:
        assert temporary.suffix == ".png"


@pytest.mark.parametrize(("name", "text"), [("", "an output file needs a file's name"), ("no/out.txt", "a folder that exists")])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path, name, text):
    with pytest.raises(InputError, match=text), whole(tmp_path / name):
        raise AssertionError("the block must not run")
