import json

import pytest
import torch
from typer.testing import CliRunner

import overt
from overt.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, ["view", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path):
    """A recording of two layers with four heads each, as a file."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(overt.layers.MultiHeadAttention(8, heads=4) for _ in range(2)))
    with torch.no_grad(), overt.lens.record(model, key_tokens=["the", "cat", "sat"]) as recording:
        model(torch.randn(1, 3, 8))
    path = tmp_path / "seen.safetensors"
    recording.save(path)
    return path


def header(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="header">')[1].split("</script>")[0])


def test_a_recording_becomes_a_page_beside_it(saved):
    result = run(saved)
    assert result.exit_code == 0, result.output
    page = saved.with_suffix(".html")
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    assert f"{page.name}, {size}".replace(" ", "") in "".join(result.output.split())  # a wide path goes on below
    assert len(header(page)["heads"]) == 8


def test_heads_title_and_place_are_as_asked(saved, tmp_path):
    out = tmp_path / "other.html"
    assert run(saved, "--out", out, "--heads", "1.3,0.2", "--title", "two heads").exit_code == 0
    actual = header(out)
    assert actual["title"] == "two heads"
    assert [(actual["calls"][each["call"]]["number"], each["head"]) for each in actual["heads"]] == [(1, 3), (0, 2)]


def test_the_sharpest_heads_can_be_asked_for(saved):
    assert run(saved, "--heads", "top 3").exit_code == 0
    assert len(header(saved.with_suffix(".html"))["heads"]) == 3


def test_a_page_holds_the_vectors_of_its_heads_and_a_summary_none(saved):
    assert run(saved).exit_code == 0
    assert all("query" in each for each in header(saved.with_suffix(".html"))["heads"])
    assert run(saved, "--summary").exit_code == 0
    assert all("query" not in each for each in header(saved.with_suffix(".html"))["heads"])


def test_the_page_is_opened_on_asking(saved, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run(saved)
    assert opened == []
    run(saved, "--open")
    assert opened == [saved.with_suffix(".html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heads", "5,11"], "write --heads 5.11,0.3"),
        (["--heads", "7.0"], "one of the recorded calls, 0, 1"),
        (["--heads", "0.9"], "0 to 3, got 9"),
        (["--heads", "top"], "top 16"),
        (["--limit", "0.01"], "Fix: pass --limit 1."),
        (["--limit", "0"], "above 0"),
    ],
)
def test_what_cannot_be_shown_is_said_and_nothing_is_written(saved, arguments, message):
    result = run(saved, *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not saved.with_suffix(".html").exists()


def test_a_truncated_recording_is_said_to_be_damaged(saved):
    saved.write_bytes(saved.read_bytes()[:-100])
    result = run(saved)
    assert result.exit_code == 2
    assert "damaged" in result.stderr
    assert not saved.with_suffix(".html").exists()


def test_a_recording_by_a_newer_overt_is_said_to_be_one(saved, monkeypatch):
    monkeypatch.setattr("overt.lens.storage.read.FORMAT", 0)
    monkeypatch.setattr("overt.lens.storage.read._READABLE", (0,))
    result = run(saved)
    assert result.exit_code == 2
    assert "written by a newer overt" in result.stderr


def test_a_recording_that_is_not_there_is_said_to_be_missing(tmp_path):
    result = run(tmp_path / "none.safetensors")
    assert result.exit_code == 2
    assert "check the path" in result.stderr


def test_a_page_does_not_take_its_recordings_place(saved):
    result = run(saved, "--out", saved)
    assert result.exit_code == 2
    assert "name another" in result.stderr


def test_a_page_that_is_too_large_is_refused_with_the_options_of_the_command(saved):
    result = run(saved, "--limit", "0.295")
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert 'Fix: show fewer heads with --heads "top 5", leave out single weights with --summary, or pass --limit 1.' in message
    assert "exact=False" not in message
