"""Checkpoints are whole or not there, and whatever was done to one of them is found."""

import json

import pytest
import torch

from full_disk import files_up_to
from overt.errors import InputError
from overt.learn.loop.averaging import average_checkpoints
from overt.learn.run import checkpoint as checkpoints
from overt.learn.run.checkpoint import Checkpoint


def some(value=1.0, **state):
    return Checkpoint({"weight": torch.full((3, 2), value)}, {"weight/step": torch.tensor(7.0)}, {"update": 1, **state})


def test_what_is_read_is_what_was_written(tmp_path):
    path = checkpoints.write(tmp_path, 500, some(best=0.1, best_update=None))
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    result = checkpoints.read(path)
    assert torch.equal(result.model["weight"], torch.ones(3, 2))
    assert result.optimizer["weight/step"] == 7
    assert (result.state["best"], result.state["best_update"]) == (0.1, None)


def test_checkpoints_are_listed_in_the_order_of_their_updates(tmp_path):
    for update in (999_999, 1_000_000, 5):
        checkpoints.write(tmp_path, update, some())
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["000005", "999999", "1000000"]


def test_the_latest_are_kept_and_the_best_besides(tmp_path):
    for update in range(6):
        checkpoints.write(tmp_path, update, some())
    checkpoints.remove_old(tmp_path, 2, best=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001", "000004", "000005"]


def test_checkpoints_behind_links_are_left_where_they_are_and_stop_nothing(tmp_path):
    for update in range(3):
        checkpoints.write(tmp_path, update, some())
    (tmp_path / "000000").rename(tmp_path / "elsewhere")
    for link in ("000000", ".000007"):
        (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    checkpoints.remove_old(tmp_path, 1)
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["000002"]
    assert len(list((tmp_path / "elsewhere").iterdir())) == 3


def test_a_checkpoint_where_no_folder_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"000004 to be writable, got Not a directory\. Fix: .* resumes from the beginning\."):
        checkpoints.write(tmp_path / "file", 4, some())


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def change(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", [cut, change, lambda path: path.unlink(), lambda path: path.write_bytes(b"")], ids=range(4))
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, name, harm):
    for update in (1, 2, 4):
        checkpoints.write(tmp_path, update, some())
    path = checkpoints.write(tmp_path, 8, some())
    harm(path / name)
    message = rf"000008/{name} to be undamaged, got .*\. Fix: remove the folder .*000008; training resumes from 000004\."
    with pytest.raises(InputError, match=message):
        checkpoints.read(path)


def test_the_only_checkpoint_damaged_means_from_the_beginning(tmp_path):
    path = checkpoints.write(tmp_path, 8, some())
    cut(path / "model.safetensors")
    with pytest.raises(InputError, match="remove the folder .*; training starts from the beginning"):
        checkpoints.read(path)


def test_a_changed_number_in_the_state_is_found(tmp_path):
    path = checkpoints.write(tmp_path, 8, some())
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "update": 2}))
    with pytest.raises(InputError, match="state.json to be undamaged, got changed content"):
        checkpoints.read(path)


def test_a_checkpoint_of_a_newer_overt_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    path = checkpoints.write(tmp_path, 8, some())
    monkeypatch.setattr(checkpoints, "FORMAT", 1)
    with pytest.raises(InputError, match=r"a checkpoint of format 1, got format 2 in .*\. Fix: update overt"):
        checkpoints.read(path)


@pytest.fixture
def small_disk():
    """Files of this process end after 4,096 bytes, as on a disk that is full."""
    with files_up_to(4096):
        yield


def test_a_full_disk_is_said_and_leaves_the_last_checkpoint_alone(tmp_path, small_disk):
    path = checkpoints.write(tmp_path, 4, some())
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    large = Checkpoint({"weight": torch.ones(2000)}, {}, {"update": 8})
    message = (
        r"000008 to be writable, got File too large\. Fix: raise the limit of a file's size .*: it resumes from update 4\."
    )
    with pytest.raises(InputError, match=message):
        checkpoints.write(tmp_path, 8, large)
    assert [path.name for path in tmp_path.iterdir()] == ["000004"]
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_an_average_is_the_mean_of_the_weights(tmp_path):
    paths = [checkpoints.write(tmp_path, update, some(value)) for update, value in ((1, 0.0), (2, 1.0), (3, 5.0))]
    result = average_checkpoints(paths)["weight"]
    assert result.dtype == torch.float32
    assert torch.equal(result, torch.full((3, 2), 2.0))


def test_an_average_takes_counters_from_the_last(tmp_path):
    saved = [Checkpoint({"seen": torch.tensor(count)}, {}, {"update": count}) for count in (3, 8)]
    paths = [checkpoints.write(tmp_path, each.state["update"], each) for each in saved]
    assert average_checkpoints(paths)["seen"] == 8


def test_an_average_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one checkpoint to average, got none"):
        average_checkpoints([])
