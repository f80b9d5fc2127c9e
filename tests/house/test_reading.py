"""What comes from outside is refused in a sentence that names its true cause, whatever a library raises for it."""

import errno
import gzip
import os

import pytest

from overt.errors import InputError
from overt.files import remedy, unwritable
from overt.reading import check_text, check_unpacked, gunzip, parse_json, reading


class Panic(BaseException):
    """As Rust's panics come to Python."""


@pytest.mark.parametrize(
    "error", [KeyError("xl"), RuntimeError(""), NotImplementedError("no"), Panic("index"), UnicodeError("x")]
)
def test_whatever_a_library_raises_is_one_error_with_the_fix_for_the_content(error):
    with (
        pytest.raises(InputError, match=r"a\.xlsx to be a workbook, got .+\. Fix: export it again\."),
        reading("a.xlsx", "a workbook", "export it again"),
    ):
        raise error


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOENT, "check its name"),
        (errno.EACCES, "change its permissions"),
        (errno.EISDIR, "name a file in it"),
        (errno.ELOOP, "remove the links that point to each other"),
        (errno.EIO, "copy the file to another disk: this one reports errors"),
    ],
)
def test_the_systems_own_error_has_its_own_fix(number, fix):
    with pytest.raises(InputError, match=f"got {os.strerror(number)}. Fix: {fix}"), reading("a", "a file", "export it again"):
        raise OSError(number, os.strerror(number))


def test_too_little_memory_is_said():
    with (
        pytest.raises(InputError, match="got content that needs more memory than there is. Fix: free memory"),
        reading("a", "b", "c"),
    ):
        raise MemoryError


def test_errors_of_overt_and_interrupts_pass():
    for error in (InputError("ours"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)) as caught, reading("a", "b", "c"):
            raise error
        assert caught.value is error


def test_a_message_of_another_library_is_one_short_line():
    with pytest.raises(InputError) as caught, reading("a", "b", "c"):
        raise ValueError("a\x1b[31m\nb\udce9" + "x" * 10_000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "free disk space, or choose another folder"),
        (errno.EDQUOT, "free disk space of your quota, or choose another folder"),
        (errno.EFBIG, r"raise the limit of a file's size \(ulimit -f\), or choose another folder"),
        (errno.EROFS, "make its disk writable, which is read-only, or choose another folder"),
        (errno.EACCES, "change its permissions, or choose another folder"),
        (errno.ENOENT, "create its folder, or choose another folder"),
        (errno.EISDIR, "name a file in it"),
        (errno.ELOOP, "remove the links"),
        (errno.ENOTEMPTY, "end the other program that writes there"),
        (errno.EIO, "check its disk, which reports an error"),
        (9999, "choose another folder"),
    ],
)
def test_only_a_full_disk_advises_to_free_disk_space(number, fix):
    with pytest.raises(InputError, match=rf"x to be writable, got .*\. Fix: {fix}"):
        raise unwritable("x", OSError(number, os.strerror(number)))
    assert ("free disk space" in remedy(OSError(number, ""))) == (number in (errno.ENOSPC, errno.EDQUOT))


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("caf\udce9", "the byte 0xe9 at character 4. Fix: write it in UTF-8"),
        ("\udcff", "the byte 0xff at character 1"),
        ("a\ud83d", "half of a surrogate pair, U\\+D83D, at character 2. Fix: write the whole character"),
        ("\udc00a", "half of a surrogate pair, U\\+DC00, at character 1"),
    ],
)
def test_text_that_is_not_unicode_is_refused_at_the_character(text, got):
    with pytest.raises(InputError, match=f"the text to be Unicode, got {got}"):
        check_text(text, "the text")


@pytest.mark.parametrize("text", ["", "é", "😀", "\0", "\ufffd\ufffe", "a\nb"])
def test_text_that_is_unicode_passes(text):
    assert check_text(text, "the text") == text


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, b"[" * 100_000, "{", b"\xff\xfe", b"caf\xe9", "9" * 5000, ""]
)
def test_json_that_cannot_be_read_is_a_value_error(text):
    for strict in (True, False):
        with pytest.raises(ValueError, match="."):
            parse_json(text, strict=strict)


def test_what_servers_write_into_logs_is_read_if_it_is_not_strict():
    assert parse_json('{"a": 1, "a": -Infinity}', strict=False) == {"a": float("-inf")}
    with pytest.raises(ValueError, match="the key 'a' is repeated"):
        parse_json('{"a": 1, "a": 2}')


def test_a_small_file_that_unpacks_to_something_enormous_is_refused():
    packed = gzip.compress(bytes(150 * 2**20))
    with pytest.raises(
        InputError, match=r"a\.gz to unpack to at most 100 times its size, got at least .* Fix: pass it unpacked"
    ):
        gunzip("a.gz", packed)
    small = gzip.compress(bytes(2**20))
    assert gunzip("a.gz", small) == bytes(2**20)
    check_unpacked("a.xlsx", 2**30, 50 * 2**30)
