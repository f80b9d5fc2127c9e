"""A response that repeats its prompt is replayed as prompt and answer, once; where it cannot be known which is which, a sentence says so."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from overt.errors import InputError
from overt.lens import replay
from overt.lens.analysis.replay.sequences import token_sequence
from server_logs import PROMPT, log_probabilities, logged

WORDS = ["[UNK]", "<s>", *(f"w{number}" for number in range(20))]
P, A = [5, 9, 5, 7], [9, 11, 7, 3]
L, PROMPT_L = [-0.5, -1.5, -2.5, -3.5], [None, -4.5, -5.5, -6.5]
TEXT, REPLY = "w3 w7 w3 w5", " w7 w9 w5 w1"
NAMES = ["w3", " w7", " w3", " w5", " w7", " w9", " w5", " w1"]
IDS = [f"token_id:{number}" for number in P + A]
OFFSETS = [0, 2, 5, 8, 11, 14, 17, 20]
USAGE = {"prompt_tokens": 4, "completion_tokens": 4}
ASKED = {"prompt": TEXT, "echo": True, "max_tokens": 4, "logprobs": 1}


@pytest.fixture(scope="module")
def tokenizer():
    result = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    result.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return result


def choice(names=NAMES, values=(*PROMPT_L, *L), text=TEXT + REPLY, index=0, finish="length", **more):
    logprobs = {"tokens": [*names], "token_logprobs": [*values], "text_offset": more.pop("offsets", None)}
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish} | more


def record(*choices, request=ASKED, **more):
    response = {"id": "c", "object": "text_completion", "choices": [*choices]} | more
    return response if request is None else {"request": request, "response": response}


def chunk(start, stop, text="", **more):
    part = choice(NAMES[start:stop], [*PROMPT_L, *L][start:stop], text, finish=None, offsets=OFFSETS[start:stop], **more)
    return {"id": "c", "object": "text_completion", "choices": [part]}


LAST = {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
CHAT = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "w3 w7"}]


def chat(names, values, text, **more):
    content = [{"token": name, "logprob": value, "bytes": [*name.encode()]} for name, value in zip(names, values, strict=True)]
    return {"index": 0, "message": {"content": text}, "logprobs": {"content": content}, "finish_reason": "stop"} | more


ONCE = {
    "texts of the tokens": record(choice()),
    "texts without spaces": record(choice([name.strip() for name in NAMES])),
    "positions in the text": record(choice(IDS, offsets=OFFSETS)),
    "usage": record(choice(IDS), usage=USAGE),
    "usage, no request": record(choice(IDS), request=None, usage=USAGE),
    "ids of the prompt": record(choice(IDS, prompt_token_ids=P)),
    "ids of the prompt, no request": record(choice(prompt_token_ids=P), request=None),
    "ids of the answer": record(choice(IDS, token_ids=A)),
    "ids of both": record(choice(token_ids=P + A, prompt_token_ids=P)),
    "ids of both, above the choices": record(choice(IDS), prompt_token_ids=P),
    "a prompt as ids": record(choice(), request={**ASKED, "prompt": P}),
    "positions that count names": record(choice(IDS, offsets=[10 * at for at in range(8)]), usage=USAGE),
    "positions that a server does not know": record(choice(offsets=[-1] * 8)),
    "the number that was asked for": record(choice(IDS)),
    "a first number": record(choice(values=[-0.1, *PROMPT_L[1:], *L]), usage=USAGE),
    "no such request": record(choice(), request={"prompt": TEXT, "max_tokens": 4}, usage=USAGE),
    "only in the text": record(choice(NAMES[4:], L), usage=USAGE),
    "only in the text, no usage": record(choice(NAMES[4:], L)),
    "not done by the server": record(choice(NAMES[4:], L, REPLY)),
    "a stream": {"request": ASKED, "response": [chunk(0, 5, TEXT + " w7"), chunk(5, 7), chunk(7, 8), LAST]},
    "a stream of ids": {"request": {**ASKED, "prompt": P}, "response": [chunk(0, 5, token_ids=A[:1]), chunk(5, 8, token_ids=A[1:]), LAST]},
    "a first token that the text lacks": record(
        choice(["<s>", *NAMES], [None, -9.5, *PROMPT_L[1:], *L]), request=ASKED, prompt_token_ids=[1, *P]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_prompt_and_answer_are_read_once(name, tokenizer, tmp_path):
    (answer,) = logged(tmp_path, ONCE[name]).answers
    sequence = token_sequence(answer, tokenizer)
    prompt = [1, *P] if "lacks" in name else P
    assert (sequence.ids, sequence.prompt) == ([*prompt, *A], len(prompt))
    assert [*sequence.logprobs] == L


@pytest.mark.parametrize("name", ["texts of the tokens", "usage", "only in the text", "not done by the server"])
def test_the_text_of_the_answer_is_without_the_prompt(name, tmp_path):
    (answer,) = logged(tmp_path, ONCE[name]).answers
    assert answer.text == REPLY


@pytest.mark.parametrize("wide", [1, 2])
@pytest.mark.parametrize("form", ["texts", "ids", "single"])
def test_each_choice_of_several_prompts_is_of_its_own(form, wide, tokenizer, tmp_path):
    other, other_text = [5, 6, 8], "w3 w4 w6"
    second = choice(
        ["w3", " w4", " w6", *NAMES[4:]],
        [None, -1.0, -2.0, *L],
        other_text + REPLY,
        **({} if form == "texts" else {"token_ids": A}),
    )
    first = choice(**({} if form == "texts" else {"token_ids": A}))
    prompts = {"texts": [TEXT, other_text], "ids": [P, other], "single": [TEXT]}[form]
    groups = [first] if form == "single" else [first, second]
    choices = [{**each, "index": at * wide + copy} for at, each in enumerate(groups) for copy in range(wide)]
    log = logged(
        tmp_path,
        record(
            *reversed(choices),
            request={**ASKED, "prompt": prompts, "n": wide},
            usage={"prompt_tokens": 4 if form == "single" else 7},
        ),
    )
    read = [token_sequence(answer, tokenizer) for answer in log.answers]
    wanted = [(P if at == 0 else other) for at in range(len(groups)) for _ in range(wide)]
    assert [(each.ids[: each.prompt], each.ids[each.prompt :]) for each in reversed(read)] == [(prompt, A) for prompt in wanted]
    assert all([*each.logprobs] == L for each in read)


def test_a_list_of_answers_to_a_list_of_prompts_is_read_in_order(tokenizer, tmp_path):
    def sglang(name):
        items = [[value, number, None] for value, number in zip(L, A, strict=True)]
        return {"text": REPLY, "meta_info": {"id": name, "prompt_tokens": 4, "output_token_logprobs": items}}

    log = logged(tmp_path, {"request": {"text": [TEXT, "w1 w1 w2 w2"]}, "response": [sglang("a"), sglang("b")]})
    assert [token_sequence(answer, tokenizer).ids for answer in log.answers] == [P + A, [3, 3, 4, 4, *A]]


@pytest.mark.parametrize(
    ("names", "values", "count"),
    [(NAMES[4:], L, 3), (NAMES[4:], L, None), (["w3", " w7", *NAMES[4:]], [None, -1.0, *L], 2)],
)
def test_a_chat_repeats_the_message_that_it_continues(names, values, count, tokenizer, tmp_path):
    request = {"messages": CHAT, "echo": True, "continue_final_message": True, "add_generation_prompt": False}
    usage = {} if count is None else {"usage": {"prompt_tokens": count, "completion_tokens": 4}}
    response = {"id": "c", "choices": [chat(names, values, "w3 w7" + REPLY)]} | usage
    (answer,) = logged(tmp_path, {"request": request, "response": response}).answers
    assert (answer.text, answer.logprobs, answer.continued) == (REPLY, L, True)


SCORED = {
    "asked for no token": record(choice(NAMES[:4], PROMPT_L, TEXT), request={**ASKED, "max_tokens": 0}),
    "its ids": record(choice(NAMES[:4], PROMPT_L, TEXT, prompt_token_ids=P), request=None),
    "its usage": record(choice(IDS[:4], PROMPT_L, TEXT), request=None, usage={"prompt_tokens": 4, "completion_tokens": 0}),
    "SGLang": {
        "request": {"text": TEXT, "sampling_params": {"max_new_tokens": 0}},
        "response": {"text": "", "meta_info": {"prompt_tokens": 4, "output_token_logprobs": []}},
    },
}


@pytest.mark.parametrize("name", SCORED)
def test_a_prompt_that_was_only_scored_is_skipped_in_a_sentence(name, tmp_path):
    log = logged(tmp_path, record(choice()), SCORED[name])
    assert log.skipped == [(2, "it has no answer, only its prompt was scored, as max_tokens: 0 asks for")]


UNKNOWN = {
    "nothing but a null": (record(choice(IDS), request=None), "nothing says how many of its 8 tokens"),
    "another number": (record(choice(IDS, finish="stop"), request={**ASKED, "prompt": P[:0]}), "nothing says how many"),
    "counts that differ": (
        record(choice(), usage={"prompt_tokens": 3, "completion_tokens": 5}),
        "which of its 8 tokens repeat the prompt is unclear: 3 by its usage, 4 by its text",
    ),
    "an answer that begins as its prompt does": (
        record(choice(["w3", " w3", " w3"], [None, -1.0, -2.0], "w3 w3 w3"), request={"prompt": "w3"}),
        "1 by its text, 0 by its request, which has no echo",
    ),
    "prompts and answers": (record(choice(), request={**ASKED, "prompt": [TEXT, TEXT]}), "1 answers to 2 prompts"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_told_apart_is_skipped_with_the_reason(name, tmp_path):
    line, message = UNKNOWN[name]
    with pytest.raises(InputError, match=message):
        logged(tmp_path, line)


def test_a_prompt_of_which_only_the_tokens_are_known_is_read_or_refused(tokenizer, tmp_path):
    (answer,) = logged(tmp_path, record(choice(), request=None, usage=USAGE)).answers
    assert token_sequence(answer, tokenizer).ids == P + A
    (answer,) = logged(tmp_path, record(choice(["w3", "w7", "w3", "w5", *NAMES[4:]]), request=None, usage=USAGE)).answers
    with pytest.raises(
        InputError, match="as many tokens of the prompt as the server repeated, got 4 repeated before the answer, 1"
    ):
        token_sequence(answer, tokenizer)


def test_an_echo_is_replayed_with_the_servers_log_probabilities(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, words, values, text = tokens
    before = [None, *log_probabilities(model, prompt[:1], prompt[1:])]
    names = [tokenizer.pieces.id_to_token(number).replace("▁", " ") for number in prompt] + words
    for more in ({"prompt_token_ids": prompt}, {}):
        one = choice(names, [*before, *values], f"{PROMPT} {text}", **more)
        request = {**ASKED, "prompt": PROMPT, "max_tokens": len(ids)}
        (answer,) = logged(tmp_path, record(one, request=request)).answers
        result = replay(model, answer, tokenizer=tokenizer)
        assert (result.check.compared, len(result.words)) == (len(ids), len(prompt) + len(ids))
        assert result.check.largest < 1e-5
