"""What a log has wrong costs the line that has it, and is a sentence."""

import json
import math
from dataclasses import replace

import pytest

from overt.errors import InputError
from overt.lens import read_log, replay
from server_logs import DIALECTS, PROMPT, logged


def test_broken_lines_are_counted_and_named(tokens, tmp_path):
    good = DIALECTS["SGLang"](*tokens)
    lines = [
        good,
        "",
        json.dumps(good)[:50],
        '{"error": {"message": "busy"}}',
        "3",
        '{"choices": 1}',
        {"request": {}, "response": good},
    ]
    log = logged(tmp_path, *lines)
    assert [answer.line for answer in log.answers] == [1, 7]
    assert log.skipped == [
        (3, "it is not complete JSON"),
        (4, "the server answered with an error"),
        (5, "it is not a JSON object"),
        (6, "it has no answer of a server: no choices, meta_info or content"),
    ]
    with pytest.raises(InputError, match="a log with at least one answer, got line 1: it is not complete JSON"):
        logged(tmp_path, "{")
    with pytest.raises(InputError, match="No such file"):
        read_log(tmp_path / "none")


def test_lines_that_are_no_utf8_cost_themselves_alone(tokens, tmp_path):
    good = json.dumps(DIALECTS["SGLang"](*tokens)).encode()
    path = tmp_path / "log.jsonl"
    path.write_bytes(good + b"\n\xff\xfe\n" + good + b'\n{"text": "' + "é".encode()[:1])
    log = read_log(path)
    assert [answer.line for answer in log.answers] == [1, 3]
    assert log.skipped == [(2, "it is not UTF-8"), (4, "it is not UTF-8")]


def test_a_record_without_an_answer_is_named(tokens, tmp_path):
    log = logged(tmp_path, DIALECTS["SGLang"](*tokens), "[]", '{"choices": []}', '{"choices": [null]}')
    assert log.skipped == [(line, "it has no answer of a server") for line in (2, 3, 4)]


@pytest.mark.parametrize("dialect", ["vLLM", "SGLang", "llama.cpp"])
def test_numbers_that_are_no_log_probabilities_are_told_of(dialect, model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, words, values, text = tokens

    def answers(*changed):
        records = [DIALECTS[dialect](prompt, ids, words, [each, *values[1:]], text) for each in changed]
        return logged(tmp_path, *({"request": {"prompt": PROMPT}, "response": each} for each in records))

    log = answers(math.nan, -math.inf, 0.2)
    assert log.skipped == [(3, "its log probabilities are above 0, up to 0.2: the logarithm of a probability is not")]
    unknown, impossible = (replay(model, each, tokenizer=tokenizer) for each in log.answers)
    assert f"log probabilities of {len(ids) - 1} of {len(ids)} tokens differ by" in str(unknown)
    assert not unknown.refused
    assert "got inf on average" in impossible.refused
    assert impossible.data()["check"]["holds"] is False


def test_ids_that_are_no_whole_numbers_are_told_of(tokens, tmp_path):
    prompt, ids, *rest = tokens
    with pytest.raises(InputError, match="line 1: its token ids are not whole numbers"):
        logged(tmp_path, DIALECTS["vLLM"](prompt, [str(each) for each in ids], *rest))


def test_halves_of_characters_and_control_characters_reach_no_terminal(model_and_tokenizer, tokens, tmp_path):
    response = DIALECTS["vLLM"](*tokens) | {"id": "\x1b[31m\ud800"}
    log = logged(tmp_path, {"request": {"prompt": "\ud800"}, "response": response, "spans": {"\x1b\ud83d": [0, 1]}})
    assert log.answers[0].prompt == "\ufffd"
    spans = {"\x1b\ufffd": (0, 9)}
    result = replay(model_and_tokenizer[0], replace(log.answers[0], prompt=None), tokenizer=model_and_tokenizer[1], spans=spans)
    assert "\x1b" not in str(result)
    assert str(result).encode()


def test_an_answer_without_ids_and_log_probabilities_is_not_tokenized(model_and_tokenizer, tokens, tmp_path):
    answer = logged(tmp_path, {"request": {"prompt": PROMPT}, "response": {"content": "the cat " * 9}}).answers[0]
    with pytest.raises(InputError, match="token ids of the answer in the log, or log probabilities of its tokens, got none"):
        replay(model_and_tokenizer[0], answer, tokenizer=model_and_tokenizer[1])
