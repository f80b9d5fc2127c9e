"""`overt atlas` writes the page and the survey, goes on, merges parts, and says what it skipped."""

import json
import os
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from overt.cli.main import app
from overt.lens import load_survey
from small_surveys import small_model, texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from overt.learn.run.model_folder import save_model

    folder = tmp_path_factory.mktemp("atlas")
    model, tokenizer = small_model()
    save_model(model, folder / "model", tokenizer)
    (folder / "texts.txt").write_text("\n".join(texts(300)))
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["atlas", *map(str, arguments)])


def test_a_corpus_becomes_a_page_and_a_survey(folder, tmp_path):
    result = run(folder / "model", folder / "texts.txt", "--out", tmp_path / "a.html", "--title", "the heads")
    assert result.exit_code == 0, result.output
    assert "survey of LanguageModel: 4 heads, 300 texts" in result.output
    assert "<title>the heads</title>" in (tmp_path / "a.html").read_text()
    survey = load_survey(tmp_path / "a.survey")
    assert survey.facts.texts == 300
    beside = run(folder / "model", folder / "texts.txt", "--out", tmp_path / "b.html", "--beside", tmp_path / "a.survey")
    assert beside.exit_code == 0, beside.output
    assert '"paired":true' in (tmp_path / "b.html").read_text()


def test_a_second_corpus_in_one_folder_is_refused_with_the_option_that_writes_elsewhere(folder, tmp_path):
    first = folder / "model", folder / "texts.txt", "--out", tmp_path / "a.html"
    assert run(*first).exit_code == 0
    (tmp_path / "other.txt").write_text("\n".join(texts(30)[::-1]))
    other = run(folder / "model", tmp_path / "other.txt", "--out", tmp_path / "a.html")
    assert other.exit_code == 2
    message = "".join(other.stderr.split())  # a wide path goes on below
    assert f"got{tmp_path}/a.survey,withothertexts,oranothershard." in message
    assert f"Fix:writeelsewherewith--outother.html,orremove{tmp_path}/a.survey." in message
    beside = run(folder / "model", tmp_path / "other.txt", "--out", tmp_path / "a.html", "--beside", tmp_path / "a.survey")
    assert beside.exit_code == 2
    message = "".join(beside.stderr.split())
    assert f"got{tmp_path}/a.survey,thesamefileas--beside.Fix:writeelsewherewith--outother.html." in message


@pytest.mark.slow
def test_parts_are_merged_to_the_whole(folder, tmp_path):
    run(folder / "model", folder / "texts.txt", "--out", tmp_path / "whole.html")
    for part in ("0/2", "1/2"):
        result = run(folder / "model", folder / "texts.txt", "--out", tmp_path / "part.html", "--shard", part)
        assert result.exit_code == 0, result.output
        assert not (tmp_path / "part.html").exists()
    parts = sorted(tmp_path.glob("part.*.survey"))
    assert len(parts) == 2
    assert run(folder / "model", *parts, "--out", tmp_path / "merged.html").exit_code == 0
    assert (tmp_path / "merged.survey").read_bytes() == (tmp_path / "whole.survey").read_bytes()
    assert (tmp_path / "merged.html").read_text() == (tmp_path / "whole.html").read_text()


def test_skipped_lines_are_counted_and_named(folder, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps({"text": text}) for text in texts(20)] + ['{"text": "the']))
    result = run(folder / "model", tmp_path / "a.jsonl", "--out", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "skipped 1 of 21 lines" in output
    assert "line 21: it is not complete JSON" in output


def test_bad_arguments_are_sentences(folder, tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "a.survey").write_text("x")
    model = folder / "model"
    for arguments, message in (
        ((model, tmp_path / "empty.txt"), "a corpus of at least one text with tokens, got 2 empty texts"),
        ((model, tmp_path / "none.txt"), "to be a readable file"),
        ((model, folder / "texts.txt", tmp_path / "a.survey"), "texts or surveys as CORPUS, got both"),
        ((model, folder / "texts.txt", "--shard", "2/2"), "--shard as number/how many"),
        ((tmp_path / "no", folder / "texts.txt"), "no such folder"),
        ((model, tmp_path / "a.survey"), "a survey's file"),
    ):
        result = run(*arguments, "--out", tmp_path / "page.html", "--survey", tmp_path / "x.survey")
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.stderr.split())
        assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("option", ["--out", "--survey"])
def test_no_output_is_a_file_of_the_model(folder, option):
    before = (folder / "model" / "config.json").read_bytes()
    result = run(folder / "model", folder / "texts.txt", option, folder / "model" / "config.json")
    assert result.exit_code == 2
    assert "the same file as config.json of the model in" in " ".join(result.stderr.split())
    assert (folder / "model" / "config.json").read_bytes() == before


@pytest.mark.slow
def test_torchruns_processes_make_one_page(folder, tmp_path):
    run(folder / "model", folder / "texts.txt", "--out", tmp_path / "whole.html")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "overt"]
    arguments = ["atlas", folder / "model", folder / "texts.txt", "--out", tmp_path / "a.html"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([*start, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert (tmp_path / "a.survey").read_bytes() == (tmp_path / "whole.survey").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "/dev/full"], "--survey beside a page that is no file, got --out /dev/full"),
        (
            ["--out", "{}/a.html", "--survey", "/dev/full"],
            "--survey as a file, from which a stopped run resumes, got /dev/full",
        ),
        (["--out", "{}/none/a.html", "--survey", "{}/a.survey"], "an output path in an existing folder"),
        (
            ["--out", "{}/a.html", "--beside", "{}/none.survey"],
            "none.survey to be a survey's file, got No such file or directory",
        ),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_survey(folder, tmp_path, options, message):
    result = run(folder / "model", folder / "texts.txt", *(each.format(tmp_path) for each in options))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_a_survey_that_was_killed_goes_on_to_the_same_bits(folder, tmp_path):
    lines = "import overt.lens.analysis.surveys.running as running; running._SECONDS_BETWEEN_FILES = 0; from overt.cli.main import app; app()"
    (tmp_path / "texts.txt").write_text("\n".join((folder / "texts.txt").read_text().split("\n") * 10))
    arguments = ["atlas", folder / "model", tmp_path / "texts.txt", "--out"]
    start = [sys.executable, "-c", lines, *map(str, arguments)]
    process = subprocess.Popen([*start, str(tmp_path / "a.html")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "a.survey").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() != 0
    assert 0 < load_survey(tmp_path / "a.survey").facts.texts < 3_000
    assert not (tmp_path / "a.html").exists()
    for name in ("a.html", "b.html"):
        assert run(*arguments[1:], tmp_path / name).exit_code == 0
    assert (tmp_path / "a.survey").read_bytes() == (tmp_path / "b.survey").read_bytes()
