"""What a real llama.cpp server answers is replayed, and what another model would have answered is told of."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gguf_models import small_llama, write_gguf
from llama_cpp_answers import CUT_STREAM, REQUESTS, answers, served
from overt.cli.main import app
from overt.errors import InputError
from overt.lens import read_log, replay

# Nats in the mean. Weights are float32 on both sides; llama.cpp computes parts of a layer in half precision.
CLOSE = 0.01
RECORDED = json.loads(Path(__file__).with_name("llama_cpp.json").read_text())


@pytest.fixture(scope="module")
def llama():
    return small_llama()


@pytest.fixture(scope="module")
def folder(llama, tmp_path_factory):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason="there is no llama.cpp server: on Linux, the extra slow brings one")
    folder = tmp_path_factory.mktemp("llama")
    for each in llama:
        each.save_pretrained(folder / "model")
    for kind in ("F32", "Q4_0"):
        write_gguf(*llama, folder / f"{kind}.gguf", kind)
    return folder


def logged(tmp_path, *records):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return read_log(path).answers


def test_the_recorded_server_is_the_one_that_the_tests_drive():
    assert list(RECORDED) == ["server", "command", *REQUESTS]


@pytest.mark.parametrize("name", REQUESTS)
def test_recorded_answers_are_replayed(name, llama, tmp_path):
    (answer,) = logged(tmp_path, RECORDED[name])
    assert answer.dialect == "llama.cpp"
    result = replay(llama[0], answer, tokenizer=llama[1])
    assert result.check.holds, result.check
    assert result.check.mean < CLOSE
    assert not any("the server counted" in note for note in result.notes)
    assert np.allclose(sum(span.mass for span in result.spans), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["tokens", "chat"])
def test_without_its_request_the_server_s_own_spelling_of_the_prompt_is_read(name, llama, tmp_path):
    (answer,) = logged(tmp_path, RECORDED[name]["response"])
    result = replay(llama[0], answer, tokenizer=llama[1])
    assert result.words[0] == "<s>"
    assert result.words[1] != "<s>"
    assert result.check.mean < CLOSE


def test_tokens_without_a_log_probability_are_left_out_of_the_check(llama, tmp_path):
    (answer,) = logged(tmp_path, RECORDED["a character in four tokens"])
    result = replay(llama[0], answer, tokenizer=llama[1])
    spelled = "".join(result.words[result.prompt :])
    assert spelled == " the 😀[1/4]😀[2/4]😀[3/4]😀[4/4] mat</s>"
    compared = np.isfinite(result.check.server)
    assert compared.tolist() == ["/4]" not in word or "[4/4]" in word for word in result.words[result.prompt :]]
    (stopped,) = logged(tmp_path, RECORDED["a stopping word"])
    result = replay(llama[0], stopped, tokenizer=llama[1])
    assert result.check.compared == len(stopped.logprobs) == len(result.words) - result.prompt - 2


def test_a_chat_that_hides_tokens_and_does_not_name_them_is_a_sentence(llama, tmp_path):
    record = json.loads(json.dumps(RECORDED["a character in four tokens"]))
    del record["response"]["__verbose"]
    (answer,) = logged(tmp_path, record)
    with pytest.raises(
        InputError, match="a log probability for each token of the answer, got 7 of 10 tokens.*with verbose at /v1/"
    ):
        replay(llama[0], answer, tokenizer=llama[1])
    whole = json.loads(json.dumps(RECORDED["OpenAI's completions"]))
    del whole["response"]["__verbose"]
    assert replay(llama[0], logged(tmp_path, whole)[0], tokenizer=llama[1]).check.compared == 12


def run(log, model, *arguments):
    return CliRunner().invoke(app, ["replay", str(log), "--model", str(model), *map(str, arguments)])


@pytest.mark.slow
def test_a_real_server_s_answers_are_explained(folder, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, answers(folder / "F32.gguf").values())))
    result = run(log, folder / "model", "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.output
    assert f"{len(REQUESTS)} of {len(REQUESTS)} answers explained, 0 skipped" in result.output
    for answer in json.loads((tmp_path / "out.json").read_text())["answers"]:
        assert answer["check"]["mean"] < CLOSE
        assert len(answer["spans"]) >= 3


@pytest.mark.slow
def test_a_chat_s_stream_that_hides_tokens_is_a_sentence(folder, llama, tmp_path):
    where, request = CUT_STREAM
    with served(folder / "F32.gguf") as ask:
        (answer,) = logged(tmp_path, {"request": request, "response": ask(where, request)})
    with pytest.raises(InputError, match="got 6 of 10 tokens.*where a stream leaves out some"):
        replay(llama[0], answer, tokenizer=llama[1])


@pytest.mark.slow
def test_a_server_with_rounded_weights_is_told_of(folder, tmp_path):
    where, request = REQUESTS["tokens"]
    with served(folder / "Q4_0.gguf") as ask:
        record = {"request": request, "response": ask(where, request)}
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(record))
    result = run(log, folder / "model")
    assert result.exit_code == 1
    output = " ".join(result.output.split())
    assert "Expected replayed log probabilities within 0.05 nats of the server's, 0.5 at most, got" in output
    assert "0 of 1 answers explained, 0 skipped" in output
    assert "change by knock-out" in run(log, folder / "model", "--unchecked").output
