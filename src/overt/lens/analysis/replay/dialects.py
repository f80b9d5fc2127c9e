"""One answer of a server in any dialect: token ids, log probabilities, and the prompt.

vLLM      /v1/completions and /v1/chat/completions with `logprobs` and `return_token_ids` (or `return_tokens_as_token_ids`)
SGLang    /generate with `return_logprob`: meta_info.output_token_logprobs has [log probability, id, text] of each token; its /v1/ endpoints
          with `return_token_ids` and `return_prompt_token_ids`, or `return_input_ids` and `return_output_ids`, which fill sglext
llama.cpp /completion with `n_probs` and `return_tokens`, and its /v1/ endpoints: each token has its id and its log probability;
          with `verbose` and `return_tokens`, __verbose has the prompt as the model read it, and all ids
OpenAI    the same endpoints without ids: tokens are text
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from overt.lens.analysis.replay.echo import SCORES_ONLY, TOKEN_ID, EchoedTokens, Exchange, prompt_length
from overt.lens.analysis.replay.streams import unstreamed
from overt.lens.text.spelling import well_formed

_ROUNDING = 1e-3  # largest log probability above 0 that is accepted as rounding
_ID_KEYS = ("prompt_token_ids", "token_ids", "response_token_ids")
_LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict")


@dataclass(frozen=True)
class LoggedAnswer:
    """An answer as a log has it, with None for everything missing. `line` is its line in the log, `name` the server's id of it.

    `logprobs` has a number, or None, for each token of the answer; `texts` has the tokens' text as bytes. If a server omits tokens
    (llama.cpp does while a character is incomplete), `logprob_ids` are the tokens with a number, and `count` is the number of all tokens.
    `spelled` is the prompt as its tokens spell it, special tokens by their names; `prompt_texts` are their texts if the server
    repeated them before the answer. `continued` means that the answer continues the last of the `messages`. `temperature` is the requested
    one, and `after_sampling` means that the numbers are log probabilities after sampling, which no model returns.
    """

    line: int
    name: str
    dialect: str
    text: str
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt_ids: list[int] | None = None
    prompt_count: int | None = None
    spelled: str | None = None
    prompt_texts: list[bytes | None] | None = None
    continued: bool = False
    ids: list[int] | None = None
    texts: list[bytes | None] | None = None
    logprobs: list[float | None] = field(default_factory=list)
    logprob_ids: list[int] | None = None
    count: int | None = None
    temperature: float | None = None
    after_sampling: bool = False
    spans: dict[str, Any] | None = None


def parse_answers(record: Any, line: int) -> list[LoggedAnswer]:
    """The answers of one record: a response, or {"request": …, "response": …} as in a batch file.

    Raises ValueError, with the reason, for a record without an answer.
    """
    record = unstreamed(record)
    if isinstance(record, list):
        return [answer for field in record for answer in parse_answers(field, line)]
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    request, response = record.get("request", record), unstreamed(record.get("response", record))
    if isinstance(request, dict) and isinstance(request.get("body"), dict):
        request = request["body"]
    if isinstance(response, list):
        size = len(response)
        pairs = [{"request": _single_prompt(request, at, size), "response": entry} for at, entry in enumerate(response)]
        return [answer for pair in pairs for answer in parse_answers(record | pair, line)]
    if isinstance(response, dict) and isinstance(response.get("body"), dict | list | str):
        response = unstreamed(response["body"])
    if not isinstance(request, dict) or not isinstance(response, dict):
        raise ValueError("its request or response is not a JSON object")
    if "error" in response and not any(key in response for key in ("choices", "meta_info", "content")):
        raise ValueError("the server answered with an error")
    spans = record.get("spans")
    if spans is not None and not isinstance(spans, dict):
        raise ValueError("its spans are not a JSON object")
    answers = _answers(request, response, line)
    if answers and _limit(request) == 0 and not any(answer.ids or answer.logprobs for answer in answers):
        raise ValueError(SCORES_ONLY)
    return [replace(answer, spans=_well_formed(spans)) for answer in answers]


def _single_prompt(request: Any, at: int, size: int) -> Any:
    """The request with only the prompt of answer `at` of `size`, if it lists several. Raises ValueError if that prompt is unclear."""
    if not isinstance(request, dict):
        return request
    for key in ("prompt", "text", "input_ids"):
        prompts = request.get(key)
        if isinstance(prompts, list) and prompts and all(isinstance(prompt, list | str) for prompt in prompts):
            if size % len(prompts) or not 0 <= at < size:
                raise ValueError(f"it has {size} answers to {len(prompts)} prompts, and does not say which is to which")
            request = request | {key: prompts[at * len(prompts) // size]}
    return request


def _limit(request: dict[str, Any]) -> int | None:
    """The largest number of tokens that the answer may have; None if the request has no limit."""
    parameters = request.get("sampling_params")
    settings = request | parameters if isinstance(parameters, dict) else request
    return next((limit for key in _LIMITS if (limit := _whole(settings.get(key))) is not None), None)


def _well_formed(value: Any) -> Any:
    """A JSON value whose strings can be encoded in UTF-8."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [*map(_well_formed, value)]
    if isinstance(value, dict):
        return {well_formed(key): _well_formed(entry) for key, entry in value.items()}
    return value


def _answers(request: dict[str, Any], response: dict[str, Any], line: int) -> list[LoggedAnswer]:
    beside = request is not response
    response = _well_formed(response)
    request = _well_formed(request) if beside else response
    if isinstance(response.get("meta_info"), dict):
        return [_sglang_answer(request, response, line)]
    if isinstance(response.get("choices"), list):
        return [_choice_answer(request, response, choice, line) for choice in response["choices"] if isinstance(choice, dict)]
    if isinstance(response.get("content"), str):
        return [_llama_cpp_answer(request, response, line)]
    raise ValueError("it has no answer of a server: no choices, meta_info or content")


def _sglang_answer(request: dict[str, Any], response: dict[str, Any], line: int) -> LoggedAnswer:
    about = response["meta_info"]
    output, prompt = _triples(about.get("output_token_logprobs")), _triples(about.get("input_token_logprobs"))
    count = about.get("prompt_tokens")
    whole = prompt is not None and len(prompt) == count
    parameters = request.get("sampling_params")
    return LoggedAnswer(
        line,
        str(about.get("id", "")),
        "SGLang",
        _text(response.get("text")),
        prompt=_text_or_none(request.get("text")),
        prompt_ids=_ids(request.get("input_ids")) or ([number for _, number in prompt or []] if whole else None),
        prompt_count=_whole(count),
        ids=[number for _, number in output] if output is not None else _ids(response.get("output_ids")),
        logprobs=_logprobs([value for value, _ in output or []]),
        temperature=_float(parameters.get("temperature")) if isinstance(parameters, dict) else None,
    )


def _triples(values: Any) -> list[tuple[Any, int]] | None:
    if not isinstance(values, list):
        return None
    if not all(isinstance(value, list) and len(value) >= 2 and isinstance(value[1], int) for value in values):
        raise ValueError("its token_logprobs are not lists of [log probability, id, text]")
    return [(value[0], value[1]) for value in values]


def _llama_cpp_answer(request: dict[str, Any], response: dict[str, Any], line: int) -> LoggedAnswer:
    tokens = response.get("completion_probabilities")
    items = [token for token in tokens if isinstance(token, dict)] if isinstance(tokens, list) else []
    settings = response.get("generation_settings")
    prompt = request.get("prompt") if request is not response else None
    item_ids = _ids([item.get("id") for item in items])
    return LoggedAnswer(
        line,
        "",
        "llama.cpp",
        response["content"],
        prompt=_text_or_none(prompt),
        prompt_ids=_ids(prompt),
        prompt_count=_whole(response.get("tokens_evaluated")),
        spelled=_text_or_none(response.get("prompt")),
        ids=_ids(response.get("tokens")) or item_ids,
        texts=[_bytes(item.get("bytes"), item.get("token", item.get("content"))) for item in items] or None,
        logprobs=_logprobs([item["logprob"] if "logprob" in item else _log(item.get("prob")) for item in items]),
        logprob_ids=item_ids,
        count=_whole(response.get("tokens_predicted")),
        temperature=_float((settings if isinstance(settings, dict) else request).get("temperature")),
        after_sampling=any("prob" in item for item in items),
    )


def _choice_answer(request: dict[str, Any], response: dict[str, Any], choice: dict[str, Any], line: int) -> LoggedAnswer:
    message, choices = choice.get("message"), response["choices"]
    text = _text(message.get("content") if isinstance(message, dict) else choice.get("text"))
    usage: Any = response.get("usage") if isinstance(response.get("usage"), dict) else {}
    one, number = len(choices) == 1, choice.get("index", 0)
    batch = isinstance(request.get("prompt"), list) and len(request["prompt"]) > 1 and _ids(request["prompt"]) is None
    position = number if type(number) is int and number < len(choices) else choices.index(choice)
    request = _single_prompt(request, position, len(choices)) if request is not response else request
    verbose = response.get("__verbose") if one else None
    verbose = verbose if isinstance(verbose, dict) else {}
    prompt_ids, answer_ids = _choice_ids(request, response, choice)
    messages = request.get("messages")
    messages = messages if isinstance(messages, list) and all(isinstance(message, dict) for message in messages) else None
    counts = None if batch else _whole(usage.get("prompt_tokens")), _predicted(usage, verbose, response) if one else None
    echo = bool(request.get("echo")) if request is not response or "echo" in request else None
    prompt = _text_or_none(request.get("prompt"))
    limit = _limit(request) if choice.get("finish_reason") == "length" or not _limit(request) else None
    exchange = Exchange(echo, isinstance(message, dict), text, prompt, prompt_ids, answer_ids, *counts, limit)
    tokens, prompt_tokens, answer_ids = _without_prompt(_tokens(choice.get("logprobs")), exchange)
    server = _server(choice, response, tokens.names, tokens.ids)
    return LoggedAnswer(
        line,
        f"{response.get('id', '')}" + ("" if one else f" choice {number}"),
        server,
        text.removeprefix(_repeated(prompt, messages)) if echo or prompt_tokens else text,
        prompt=prompt,
        messages=messages,
        prompt_ids=prompt_ids or prompt_tokens.ids or None,
        prompt_count=len(prompt_tokens) or counts[0],
        spelled=_text_or_none(verbose.get("prompt")),
        prompt_texts=prompt_tokens.texts or None,
        continued=request.get("continue_final_message") is True,
        ids=answer_ids or _ids(verbose.get("tokens")) or tokens.ids,
        texts=tokens.texts,
        logprobs=[*tokens.logprobs],
        logprob_ids=tokens.ids if server == "llama.cpp" else None,
        count=counts[1],
        temperature=_float(request.get("temperature")),
    )


def _without_prompt(tokens: EchoedTokens, exchange: Exchange) -> tuple[EchoedTokens, EchoedTokens, list[int] | None]:
    """The tokens of the answer, the tokens of the prompt if the server repeated them, and the ids of the answer."""
    prompt_ids, ids = exchange.prompt_ids, exchange.answer_ids
    listed = tokens if len(tokens) else EchoedTokens(ids=ids)
    count = prompt_length(listed, exchange)
    before, after = listed[:count], tokens[count:]
    if ids is not None and len(ids) == len(listed):
        ids = ids[count:]
    elif ids is not None and prompt_ids is not None and ids == [*prompt_ids, *ids[-len(after) :]]:
        ids = ids[len(prompt_ids) :]
    return after, before, ids


def _repeated(prompt: str | None, messages: list[dict[str, Any]] | None) -> str:
    """The text that `echo` writes before the answer: the prompt, or the beginning of the message that the answer continues."""
    return prompt or (_text(messages[-1].get("content")) if messages else "")


def _predicted(usage: dict[str, Any], verbose: dict[str, Any], response: dict[str, Any]) -> int | None:
    """The number of tokens of the answer; for streams, llama.cpp gives it only next to its timings."""
    timings: Any = response.get("timings") if isinstance(response.get("timings"), dict) else {}
    counts = usage.get("completion_tokens"), verbose.get("tokens_predicted"), timings.get("predicted_n")
    return next((item for item in map(_whole, counts) if item is not None), None)


def _choice_ids(request: Any, response: Any, choice: dict[str, Any]) -> tuple[list[int] | None, list[int] | None]:
    """The ids of the prompt and of the answer, from any field in which a server writes them."""
    extra: Any = response.get("sglext") if isinstance(response.get("sglext"), dict) else {}
    output_ids = dict(enumerate(extra.get("output_ids") or []))
    stated_ids = (*(choice.get(key) for key in _ID_KEYS), response.get("prompt_token_ids"))
    if any(isinstance(item, list) and item and _ids(item) is None for item in stated_ids):
        raise ValueError("its token ids are not whole numbers")
    prompts = choice.get("prompt_token_ids"), response.get("prompt_token_ids"), extra.get("input_ids"), request.get("prompt")
    answers = choice.get("token_ids"), choice.get("response_token_ids"), output_ids.get(response["choices"].index(choice))
    first = [next(filter(None, map(_ids, part)), None) for part in (prompts, answers)]
    return first[0], first[1]


def _server(choice: dict[str, Any], response: dict[str, Any], names: Sequence[str], ids: list[int] | None) -> str:
    if "matched_stop" in choice or "response_token_ids" in choice or "sglext" in response:
        return "SGLang"
    if "token_ids" in choice or "prompt_token_ids" in response or any(map(TOKEN_ID.fullmatch, names)):
        return "vLLM"
    return "llama.cpp" if ids is not None else "OpenAI"


def _tokens(logprobs: Any) -> EchoedTokens:
    """The tokens of either form of a choice's `logprobs`."""
    if not isinstance(logprobs, dict):
        return EchoedTokens()
    if isinstance(logprobs.get("content"), list):
        items = [item for item in logprobs["content"] if isinstance(item, dict)]
        names = [_text(item.get("token")) for item in items]
        texts = [_bytes(item.get("bytes"), item.get("token")) for item in items]
        values = _logprobs([item.get("logprob") for item in items])
        ids, offsets = _ids([item.get("id", item.get("token_id")) for item in items]), None
    else:
        tokens = logprobs.get("tokens")
        names = [_text(token) for token in tokens] if isinstance(tokens, list) else []
        texts = [_bytes(None, name) for name in names]
        values, ids, offsets = _logprobs(logprobs.get("token_logprobs")), None, _ids(logprobs.get("text_offset"))
    matches = [TOKEN_ID.fullmatch(name) for name in names]
    if names and all(matches):
        return EchoedTokens(names, [int(match[1]) for match in matches if match], None, values, offsets or ())
    return EchoedTokens(names, ids, texts or None, values, offsets or ())


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and value and all(type(part) is int for part in value) else None


def _bytes(value: Any, text: Any) -> bytes | None:
    if isinstance(value, list) and all(type(part) is int and 0 <= part < 256 for part in value):
        return bytes(value)
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) and "\ufffd" not in text else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _logprobs(values: Any) -> list[float | None]:
    """Log probabilities, with None for values that are not numbers. Raises ValueError for numbers above 0."""
    if not isinstance(values, list):
        return []
    numbers = [-math.inf if value == -math.inf else _float(value) for value in values]
    largest = max((number for number in numbers if number is not None), default=0.0)
    if largest > _ROUNDING:
        raise ValueError(f"its log probabilities are above 0, up to {largest:g}: the logarithm of a probability is not")
    return numbers


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def _log(probability: Any) -> float | None:
    value = _float(probability)
    return math.log(value) if value is not None and value > 0 else None
