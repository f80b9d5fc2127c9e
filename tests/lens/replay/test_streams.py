"""A streamed answer is read as the one that the server would have written at once."""

import json

import pytest

from overt.errors import InputError
from overt.lens import read_log
from server_logs import ANSWER, DIALECTS, PROMPT, streamed

PROMPT_IDS, IDS, WORDS = [3, 1, 4], [1, 5, 9, 2], ["the", " mat", " .", " and"]
VALUES = [-0.5, -1.25, -0.125, -3.0]
TOKENS = PROMPT_IDS, IDS, WORDS, VALUES, ANSWER
FORMS = [(dialect, True) for dialect in DIALECTS] + [("SGLang", False)]


def lines(chunks):
    return "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)


def read(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    return read_log(path)


def compared(answer):
    return (answer.dialect, answer.prompt_ids, answer.ids, answer.logprobs, answer.logprob_ids, answer.texts)


@pytest.mark.parametrize(("dialect", "cumulative"), FORMS)
def test_a_stream_is_the_answer_at_once(dialect, cumulative, tmp_path):
    response = DIALECTS[dialect](*TOKENS)
    request = {"prompt": PROMPT, "text": PROMPT}
    (whole,) = read(tmp_path, json.dumps({"request": request, "response": response})).answers
    chunks = streamed(dialect, response, cumulative)
    text = ": comment\nevent: message\n" + lines(chunks) + "data: [DONE]\n"
    for written in (chunks, text):
        (answer,) = read(tmp_path, json.dumps({"request": request, "response": written})).answers
        assert compared(answer) == compared(whole)
        assert (answer.prompt, answer.line) == (PROMPT, 1)
    log = read(tmp_path, text)
    assert log.skipped == []
    assert compared(log.answers[0]) == compared(whole)
    assert log.answers[0].logprobs == VALUES


def test_streams_of_several_requests_are_told_apart_by_their_names(tmp_path):
    first = streamed("vLLM", DIALECTS["vLLM"](*TOKENS))
    second = [
        {**each, "id": "cmpl-2"} for each in streamed("vLLM", DIALECTS["vLLM"](PROMPT_IDS, IDS[::-1], WORDS, VALUES, ANSWER))
    ]
    mixed = [each for pair in zip(first, second, strict=True) for each in pair]
    log = read(tmp_path, lines(mixed) + json.dumps(DIALECTS["SGLang"](*TOKENS)))
    assert [(each.name, each.ids, each.line) for each in log.answers] == [
        ("cmpl-1", IDS, 1),
        ("cmpl-2", IDS[::-1], 3),
        ("a1", IDS, 2 * len(mixed) + 1),
    ]


def test_choices_of_one_stream_are_several_answers(tmp_path):
    chunks = streamed("vLLM", DIALECTS["vLLM"](*TOKENS))
    other = [{**each, "choices": [{**part, "index": 1} for part in each["choices"]]} for each in chunks]
    log = read(tmp_path, lines([*other, *chunks]))
    assert [(each.name, each.ids) for each in log.answers] == [("cmpl-1 choice 0", IDS), ("cmpl-1 choice 1", IDS)]


def test_streams_of_llama_cpp_which_have_no_names_end_with_their_last_event(tmp_path):
    chunks = streamed("llama.cpp", DIALECTS["llama.cpp"](*TOKENS))
    log = read(tmp_path, lines([*chunks, *chunks]))
    assert [each.ids for each in log.answers] == [IDS, IDS]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_without_its_end_is_skipped_and_named(dialect, tmp_path):
    chunks = streamed(dialect, DIALECTS[dialect](*TOKENS))
    ends = next(at for at, each in enumerate(chunks) if "finish_reason\": \"" in json.dumps(each) or each.get("stop") is True
                or (each.get("meta_info") or {}).get("finish_reason"))  # fmt: skip
    whole = json.dumps(DIALECTS["OpenAI"](*TOKENS))
    log = read(tmp_path, whole + "\n" + lines(chunks[:ends]))
    assert log.skipped == [(2, "its stream has no end")]
    assert len(log.answers) == 1
    with pytest.raises(InputError, match="line 1: its stream has no end"):
        read(tmp_path, json.dumps({"request": {"prompt": PROMPT}, "response": lines(chunks[:ends])}))


def test_an_event_that_is_cut_off_costs_its_stream_and_no_other(tmp_path):
    first, second = (streamed("vLLM", DIALECTS["vLLM"](*TOKENS)) for _ in range(2))
    second = [{**each, "id": "cmpl-2"} for each in second]
    text = lines(first) + lines(second[:2]) + 'data: {"id": "cmpl-2", "choi\n' + lines(second[2:])
    log = read(tmp_path, text)
    at = 2 * (len(first) + 2) + 1
    assert [each.name for each in log.answers] == ["cmpl-1"]
    assert (at, "it is not complete JSON") in log.skipped
    assert (2 * len(first) + 1, f"an event of its stream, line {at}, is not complete JSON") in log.skipped
