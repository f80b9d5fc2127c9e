"""`overt replay` explains the answers of a log, says which it did not, and exits with a status for pipelines."""

import json

import pytest
from typer.testing import CliRunner

from json_schemas import validated
from overt.cli.main import app
from server_logs import ANSWER, DIALECTS, PROMPT, log_probabilities
from small_surveys import small_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from overt.learn.run.model_folder import save_model

    folder = tmp_path_factory.mktemp("replay")
    model, tokenizer = small_model()
    save_model(model, folder / "model", tokenizer)
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(ANSWER)
    values = log_probabilities(model, prompt, ids)
    words = [tokenizer.pieces.id_to_token(number) for number in ids]
    request = {"prompt": PROMPT, "text": PROMPT}
    good = [{"request": request, "response": DIALECTS[name](prompt, ids, words, values, ANSWER)} for name in ("vLLM", "SGLang")]
    other = DIALECTS["SGLang"](prompt, ids, words, [value - 1 for value in values], ANSWER)
    (folder / "good.jsonl").write_text("\n".join(map(json.dumps, good)))
    (folder / "mixed.jsonl").write_text("\n".join([json.dumps(good[0]), json.dumps(other), json.dumps(good[1])[:99]]))
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def test_a_log_is_explained_as_table_page_and_json(folder, tmp_path):
    span = ["--span", f"question={PROMPT.index('the cat sat on', 40)}:{len(PROMPT)}", "--span", "cat=a cat...mat ."]
    result = run(
        folder / "good.jsonl", "--model", folder / "model", *span, "--html", tmp_path / "a.html", "--json", tmp_path / "a.json"
    )
    assert result.exit_code == 0, result.output
    assert "2 of 2 answers explained, 0 skipped" in result.output
    assert "span           tokens    mass  change by knock-out" in result.output
    data = validated(tmp_path / "a.json", "replay")
    assert data["format"] == "overt replay 1"
    assert [[span["name"] for span in answer["spans"]] for answer in data["answers"]] == [
        ["question", "cat", "answer so far", "other"]
    ] * 2
    assert sum(span["mass"] for span in data["answers"][0]["spans"]) == pytest.approx(1, abs=1e-4)
    assert all(answer["check"]["holds"] for answer in data["answers"])
    assert "2 replayed answers" in (tmp_path / "a.html").read_text()
    full = run(folder / "good.jsonl", "--model", folder / "model", "--json", "/dev/full")
    assert full.exit_code == 2
    assert "/dev/full to be writable, got No space left on device" in " ".join(full.stderr.split())


def test_a_span_that_the_prompt_has_not_is_refused_with_the_option_that_names_one(folder):
    result = run(folder / "good.jsonl", "--model", folder / "model", "--span", "document=<dog>...</doc>")
    assert result.exit_code == 1
    assert "markers of span 'document' that are in the prompt" in result.output
    fix = 'Fix: write --span NAME=0:120, in characters, or --span "document=<doc>...</doc>", by the markers around it.'
    assert fix in " ".join(result.output.split())


def test_an_encoder_is_refused_by_every_name_that_it_has(folder):
    for name in ("minilm", "all-MiniLM-L6-v2"):
        result = run(folder / "good.jsonl", "--model", name)
        assert result.exit_code == 2
        assert "a model that predicts the next token, got all-MiniLM-L6-v2, an encoder" in " ".join(result.stderr.split())


def test_one_replayed_answer_is_one(folder, tmp_path):
    (tmp_path / "one.jsonl").write_text((folder / "good.jsonl").read_text().split("\n")[0])
    assert run(tmp_path / "one.jsonl", "--model", folder / "model", "--html", tmp_path / "a.html").exit_code == 0
    assert "<title>1 replayed answer</title>" in (tmp_path / "a.html").read_text()


def test_what_is_not_explained_is_named_and_the_status_is_1(folder, tmp_path):
    result = run(
        folder / "mixed.jsonl", "--model", folder / "model", "--json", tmp_path / "a.json", "--html", tmp_path / "a.html"
    )
    assert result.exit_code == 1
    assert "1 of 2 answers explained, 1 skipped" in result.output
    assert "line 3 was skipped: it is not complete JSON" in result.output
    data = validated(tmp_path / "a.json", "replay")
    assert data["skipped"] == [{"line": 3, "why": "it is not complete JSON"}]
    assert data["answers"][1]["spans"] == []
    assert "got 1 on average" in data["answers"][1]["refused"]
    assert run(folder / "mixed.jsonl", "--model", folder / "model", "--unchecked").output.count("change by knock-out") == 2


def test_a_stopped_replay_writes_the_answers_it_has(folder, tmp_path, monkeypatch):
    from overt import lens

    replay, answers = lens.replay, []

    def stopped(*arguments, **options):
        if answers:
            raise KeyboardInterrupt
        answers.append(replay(*arguments, **options))
        return answers[0]

    monkeypatch.setattr(lens, "replay", stopped)
    files = ["--json", tmp_path / "a.json", "--html", tmp_path / "a.html"]
    result = run(folder / "good.jsonl", "--model", folder / "model", *files)
    assert result.exit_code not in (0, 2)
    data = validated(tmp_path / "a.json", "replay")
    assert len(data["answers"]) == 1
    assert data["skipped"] == [{"line": 2, "why": "the replay was stopped before it"}]
    assert "the replay was stopped before it" in (tmp_path / "a.html").read_text()


def test_bad_arguments_are_sentences(folder, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    log, model = folder / "good.jsonl", folder / "model"
    for arguments, message in (
        ((tmp_path / "empty.jsonl", "--model", model), "a log with at least one answer, got an empty file"),
        ((tmp_path / "none", "--model", model), "a server's log in UTF-8"),
        ((log, "--model", model, "--span", "x"), "--span as NAME=0:120 or NAME=FROM...TO"),
        ((log, "--model", tmp_path / "none"), "no such folder"),
        ((log, "--model", model, "--span", "a=0:3", "--span", "a=4:6"), "spans of different names, got --span a=… twice"),
        ((log, "--model", model, "--bound", "nan"), "a bound above 0 nats"),
        ((log, "--model", model, "--html", tmp_path / "no" / "a.html"), "an output path in an existing folder"),
        ((log, "--model", model, "--json", model / "config.json"), "the same file as config.json of the model"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert message in " ".join(result.stderr.split())
        assert "change by knock-out" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(400, False), (1400, True)])
def test_the_page_works_in_a_browser(chromium, folder, tmp_path, width, dark):
    lines = (folder / "mixed.jsonl").read_text().split("\n")
    hostile = json.loads(lines[0])
    hostile["response"]["id"] = "</script><script>alert(1)</script>"
    (tmp_path / "log.jsonl").write_text("\n".join([json.dumps(hostile), *lines[1:]]))
    run(tmp_path / "log.jsonl", "--model", folder / "model", "--span", "cat=a cat...mat .", "--html", tmp_path / "a.html")
    page = chromium.page().open(tmp_path / "a.html", width=width, dark=dark)
    page.until("document.documentElement.className === 'live'")
    assert page.ask("document.querySelectorAll('.card tbody')[0].children.length") == 3
    page.ask("document.querySelectorAll('tbody tr')[2].click()")
    assert page.ask("document.querySelectorAll('.card h2')[1].textContent") == "The answer and “other”"
    page.ask(
        "(() => { const one = document.querySelector('select'); one.value = '1'; one.dispatchEvent(new Event('change')); })()"
    )
    assert "Expected replayed log probabilities" in page.ask("document.querySelector('.card .bad').textContent")
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.broken_rules() == []
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
