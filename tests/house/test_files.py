"""A file is written whole or not at all."""

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from full_disk import files_up_to
from overt.errors import InputError
from overt.files import exclusive, is_standard_output, make_folder, separate, whole
from overt.reading import read_json


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
        ("", r"the path of an output file, got the folder .*\. Fix: name a file in it\."),
        ("no/out.txt", r"an output path in an existing folder, got .*out.txt\. Fix: create .*no first\."),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_done(tmp_path, name, message):
    with pytest.raises(InputError, match=message), whole(tmp_path / name):
        raise AssertionError("the block must not run")


def test_a_folder_that_takes_no_file_is_an_error_that_says_why(tmp_path, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    message = r"out.txt to be writable, got No space left on device\. Fix: free disk space, or choose another folder"
    with pytest.raises(InputError, match=message), whole(tmp_path / "out.txt"):
        raise AssertionError("the block must not run")


@pytest.fixture
def small_disk():
    """Files of this process end after 4,096 bytes, as on a disk that is full."""
    with files_up_to(4096):
        yield


def test_a_disk_that_is_full_is_an_error_that_says_so_and_leaves_the_old_file(tmp_path, small_disk):
    target = tmp_path / "out.txt"
    target.write_text("old")
    message = r"out.txt to be writable, got File too large\. Fix: raise the limit of a file.s size .ulimit -f., or choose another folder"
    with pytest.raises(InputError, match=message), whole(target) as temporary:
        temporary.write_text("x" * 10_000)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def write(path, text="new"):
    with whole(path) as temporary:
        temporary.write_text(text)


def test_a_writer_that_covers_the_error_of_a_full_disk_is_seen_through(tmp_path):
    def covered(path):
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise ValueError("inconsistent stream state")

    with (
        pytest.raises(InputError, match=r"out.pdf to be writable, got No space left on device\."),
        whole(tmp_path / "out.pdf"),
    ):
        covered(tmp_path)


def test_a_full_disk_of_another_file_is_not_said_of_this_one(tmp_path):
    with pytest.raises(OSError, match="No space left"), whole(tmp_path / "out.txt"):
        raise OSError(28, "No space left on device", "/cache/weights")
    with pytest.raises(InputError, match="other.txt cannot be written"), whole(tmp_path / "out.txt"):
        raise InputError("other.txt cannot be written") from OSError(28, "No space left on device")


def test_a_link_is_followed_and_the_file_at_its_end_is_replaced_whole(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.txt").write_text("old")
    (tmp_path / "middle").symlink_to(Path("far", "real.txt"))
    (tmp_path / "link.txt").symlink_to("middle")
    with whole(tmp_path / "link.txt") as temporary:
        assert temporary.parent == (tmp_path / "far").resolve()
        temporary.write_text("new")
        assert (tmp_path / "far" / "real.txt").read_text() == "old"
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "far" / "real.txt").read_text() == "new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real.txt"]


def test_a_link_to_nothing_makes_its_file(tmp_path):
    (tmp_path / "link.txt").symlink_to("real.txt")
    write(tmp_path / "link.txt")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_link_into_a_folder_that_is_not_there_names_it(tmp_path):
    (tmp_path / "link.txt").symlink_to(Path("no", "real.txt"))
    with pytest.raises(InputError, match=r"an existing folder, got .*link.txt\. Fix: create .*no first\."):
        write(tmp_path / "link.txt")


def test_links_that_lead_to_each_other_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match=r"a to be writable, got Too many levels of symbolic links\. Fix: remove the links"):
        write(tmp_path / "a")


def test_the_permissions_and_the_owner_of_a_file_stay(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    target.chmod(0o640)
    if os.getuid() == 0:
        os.chown(target, 65534, 65534)
    owner = target.stat().st_uid
    write(target)
    assert (stat.S_IMODE(target.stat().st_mode), target.stat().st_uid) == (0o640, owner)


def test_a_file_that_may_not_be_written_is_refused_and_stays(tmp_path, monkeypatch):
    (tmp_path / "out.txt").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do everything
    with pytest.raises(InputError, match=r"out.txt to be writable, got Permission denied\. Fix: change its permissions"):
        write(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "old"


def test_another_hard_link_keeps_the_old_content(tmp_path):
    (tmp_path / "out.txt").write_text("old")
    os.link(tmp_path / "out.txt", tmp_path / "other.txt")
    write(tmp_path / "out.txt")
    assert ((tmp_path / "out.txt").read_text(), (tmp_path / "other.txt").read_text()) == ("new", "old")


def test_a_fifo_is_written_into_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe", "all of it" * 100_000)
    reader.join()
    assert read == [b"all of it" * 100_000]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_after_an_error_the_reader_of_a_fifo_gets_nothing_and_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with pytest.raises(ZeroDivisionError), whole(tmp_path / "pipe") as temporary:
        write_half(temporary, ZeroDivisionError)
    reader.join()
    assert read == [b""]


def test_a_character_device_is_written_into_and_stays(tmp_path):
    before = os.stat("/dev/null")
    write("/dev/null")
    (tmp_path / "link").symlink_to("/dev/null")
    write(tmp_path / "link")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev, after.st_mode) == (before.st_ino, before.st_rdev, before.st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_device_that_is_full_is_an_error_that_names_it():
    with pytest.raises(InputError, match=r"/dev/full to be writable, got No space left on device\."):
        write("/dev/full")


def test_a_socket_and_a_folder_are_refused_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(InputError, match=r"a file, a pipe or a character device, got the socket socket\."), whole("socket"):
            raise AssertionError("the block must not run")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="got the folder link"), whole("link"):
        raise AssertionError("the block must not run")


TO_STDOUT = "import sys\nfrom overt.files import whole\nprint('before')\nwith whole(sys.argv[1]) as path: path.write_text('new')\nprint('after')"


@pytest.mark.parametrize("way", ["pipe", "file"])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_into_at_its_place(name, way, tmp_path):
    command = [sys.executable, "-c", TO_STDOUT, name]
    if way == "pipe":
        assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "before\nnewafter\n"
        return
    with (tmp_path / "out").open("w") as file:
        subprocess.run(command, stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "before\nnewafter\n"


def test_standard_output_is_known_by_its_names(tmp_path):
    (tmp_path / "link").symlink_to("/dev/stdout")
    assert [is_standard_output(path) for path in ("/dev/stdout", tmp_path / "link", "/dev/stderr", tmp_path, None)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_an_open_file_that_can_only_be_read_is_refused(tmp_path):
    (tmp_path / "in.txt").write_text("old")
    with (tmp_path / "in.txt").open() as file, pytest.raises(InputError, match="to be writable, got Bad file descriptor"):
        write(f"/dev/fd/{file.fileno()}")


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "a." + "b" * 250, "a" * 251 + ".txt"])
def test_a_name_as_long_as_a_name_may_be_can_be_written(name, tmp_path):
    write(tmp_path / name)
    assert (tmp_path / name).read_text() == "new"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a" * 256, r"to be writable, got File name too long\. Fix: shorten the name\."),
        ("a/" * 3000 + "b", r"to be writable, got File name too long\. Fix: shorten the name\."),
        (
            "in.txt/out.txt",
            r"to be writable, got Not a directory\. Fix: choose a folder: a part of the path is a file\.",
        ),
        ("out\0.txt", r"to be writable, got .*embedded null (byte|character)"),
    ],
    ids=["name", "path", "file as folder", "zero"],
)
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(name, message, tmp_path):
    (tmp_path / "in.txt").write_text("old")
    with pytest.raises(InputError, match=message), whole(tmp_path / name):
        raise AssertionError("the block must not run")


def test_a_temporary_that_is_being_written_is_not_written_beside_itself(tmp_path):
    with whole(tmp_path / "out.txt") as temporary:
        write(temporary)
        assert temporary.read_text() == "new"
        assert [path.name for path in tmp_path.iterdir()] == [temporary.name]
    assert (tmp_path / "out.txt").read_text() == "new"


def test_a_full_disk_within_names_the_file_that_was_asked_for(tmp_path, small_disk):
    with (
        pytest.raises(InputError, match=r"/out.txt to be writable, got File too large"),
        whole(tmp_path / "out.txt") as temporary,
    ):
        write(temporary, "x" * 10_000)
    assert list(tmp_path.iterdir()) == []


def test_devices_may_be_read_and_written_at_once():
    separate({"--out": "/dev/null", "--plot": "/dev/null"}, {"FILE": "/dev/null"})


def test_files_that_are_not_there_are_told_apart_by_their_place(tmp_path):
    (tmp_path / "link").symlink_to("new.txt")
    separate({"--out": tmp_path / "new.txt", "--plot": tmp_path / "other.txt"}, {"FILE": tmp_path / "in.txt"})
    with pytest.raises(InputError, match=r"a different file for each output, got --out and --plot, both .*new.txt"):
        separate({"--out": tmp_path / "link", "--plot": tmp_path / "new.txt"})


def test_a_folder_is_made_or_refused_in_a_sentence(tmp_path):
    assert make_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        InputError, match=r"file to be writable, got File exists\. Fix: choose another name: a file of this name"
    ):
        make_folder(tmp_path / "file")
    with pytest.raises(InputError, match=r"got Not a directory"):
        make_folder(tmp_path / "file" / "b")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"{", "got Expecting property name"),
        (b"[1]", "a JSON object, got a list"),
        (b"\xff\xfe", "got 'utf-8' codec can't decode"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "got content that is nested too deeply"),
        (b'{"a": ' + b"1" * 5001 + b"}", "got Exceeds the limit"),
        (b'{"a": NaN}', "got NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "got the key 'a' is repeated"),
    ],
)
def test_json_that_is_none_is_refused_in_a_sentence(content, got, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(tmp_path / "a.json", "a configuration", "copy it again")
    assert f"{tmp_path / 'a.json'} to be a configuration" in str(caught.value)
    assert got in str(caught.value)
    with pytest.raises(InputError, match=r"got Is a directory\. Fix: copy it again\."):
        read_json(tmp_path, "a configuration", "copy it again")


def written_after_its_folder_is_gone(folder):
    with whole(folder / "out.txt") as temporary:
        temporary.unlink()
        folder.rmdir()
        temporary.write_text("x")


def test_a_folder_that_goes_away_during_the_work_is_said(tmp_path):
    (tmp_path / "gone").mkdir()
    with pytest.raises(InputError, match=r"out\.txt to be writable, got No such file .*\. Fix: create its folder"):
        written_after_its_folder_is_gone(tmp_path / "gone")


LOCKS = """
import sys, time
from overt.files import exclusive
with exclusive(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_written_by_one_program_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path):
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", LOCKS, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        message = r"run to be written by one run, got another run that writes there\. Fix: wait until it ends, or choose another folder"
        with pytest.raises(InputError, match=message), exclusive(folder):
            raise AssertionError("the block must not run")
        other.kill()
    assert (folder / "run.lock").exists()
    with exclusive(folder), exclusive(folder):
        pass
    assert not (folder / "run.lock").exists()


def test_a_folder_that_was_made_for_a_block_that_wrote_nothing_is_removed(tmp_path):
    with exclusive(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()
    (tmp_path / "old").mkdir()
    with exclusive(tmp_path / "old"):
        pass
    assert (tmp_path / "old").is_dir()


def test_a_disk_without_locks_takes_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(95, "Operation not supported")))
    with exclusive(tmp_path / "run"):
        (tmp_path / "run" / "a.txt").write_text("x")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["a.txt"]
