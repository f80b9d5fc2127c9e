"""Logs as servers write them, from a model's own log probabilities: the documented fields of vLLM, SGLang and llama.cpp."""

import json

import torch

from overt.lens import read_log

ANSWER = "the mat . and then"
PROMPT = "<doc> a cat sat on the mat . </doc> <doc> the dog ran under a tree . </doc> the cat sat on"


def log_probabilities(model, prompt, ids, temperature=1.0):
    """The log probability of each answer token, from the plain forward pass."""
    with torch.no_grad():
        output = model(torch.tensor([[*prompt, *ids]]))
    logits = getattr(output, "logits", output)[0] / temperature
    return logits.log_softmax(-1)[range(len(prompt) - 1, len(prompt) + len(ids) - 1), ids].tolist()


def vllm_completion(prompt, ids, words, values, text):
    logprobs = {"text_offset": [0] * len(ids), "token_logprobs": values, "tokens": words, "top_logprobs": [None] * len(ids)}
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "length", "stop_reason": None}
    choice |= {"token_ids": ids, "prompt_logprobs": None, "prompt_token_ids": prompt}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def vllm_chat(prompt, ids, words, values, text):
    content = [
        {"token": f"token_id:{number}", "logprob": value, "bytes": [*word.encode()], "top_logprobs": []}
        for number, word, value in zip(ids, words, values, strict=True)
    ]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "stop", "token_ids": None}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "prompt_token_ids": prompt}


def sglang_generate(prompt, ids, words, values, text):
    about = {"id": "a1", "finish_reason": {"type": "length", "length": len(ids)}, "prompt_tokens": len(prompt)}
    about |= {"input_token_logprobs": [[None if not at else -1.0, number, None] for at, number in enumerate(prompt)]}
    about |= {"output_token_logprobs": [[value, number, None] for number, value in zip(ids, values, strict=True)]}
    return {"text": text, "output_ids": ids, "meta_info": about | {"completion_tokens": len(ids), "cached_tokens": 0}}


def llama_cpp_completion(prompt, ids, words, values, text):
    items = [
        {"id": number, "token": word, "bytes": [*word.encode()], "logprob": value, "top_logprobs": []}
        for number, word, value in zip(ids, words, values, strict=True)
    ]
    settings = {"temperature": 0.8, "n_probs": 1, "post_sampling_probs": False}
    about = {"index": 0, "content": text, "tokens": ids, "id_slot": 0, "stop": True, "tokens_evaluated": len(prompt)}
    return about | {"generation_settings": settings, "prompt": PROMPT, "completion_probabilities": items}


def llama_cpp_chat(prompt, ids, words, values, text):
    content = [
        {"id": number, "token": word, "bytes": [*word.encode()], "logprob": value, "top_logprobs": []}
        for number, word, value in zip(ids, words, values, strict=True)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": {"content": content},
        "finish_reason": "stop",
    }
    return {"id": "chatcmpl-2", "choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}}


def openai_completion(prompt, ids, words, values, text):
    logprobs = {"tokens": words, "token_logprobs": values, "top_logprobs": None, "text_offset": None}
    return {"id": "cmpl-3", "choices": [{"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "stop"}]}


def sglang_completion(prompt, ids, words, values, text):
    """With `return_token_ids`, as its pull request 30917 describes it."""
    logprobs = {"text_offset": [-1] * len(ids), "token_logprobs": values, "tokens": words, "top_logprobs": []}
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "length", "matched_stop": None}
    choice |= {"token_ids": ids, "prompt_token_ids": prompt}
    return {"id": "c4", "object": "text_completion", "choices": [choice], "usage": {"prompt_tokens": len(prompt)}}


def sglang_chat(prompt, ids, words, values, text):
    """With `return_input_ids` and `return_output_ids`, as its pull request 34488 describes it."""
    content = [
        {"token": word, "logprob": value, "bytes": [*word.encode()], "top_logprobs": []}
        for word, value in zip(words, values, strict=True)
    ]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": content}}
    choice |= {"finish_reason": "stop", "matched_stop": None}
    return {"id": "c5", "object": "chat.completion", "choices": [choice], "sglext": {"input_ids": prompt, "output_ids": [ids]}}


DIALECTS = {
    "vLLM": vllm_completion,
    "vLLM chat": vllm_chat,
    "SGLang": sglang_generate,
    "SGLang completions": sglang_completion,
    "SGLang chat": sglang_chat,
    "llama.cpp": llama_cpp_completion,
    "llama.cpp chat": llama_cpp_chat,
    "OpenAI": openai_completion,
}


def streamed(dialect, response, cumulative=True):
    """The events in which a server streams this response, a token each, as its sources and documentation have it."""
    if "meta_info" in response:
        return _streamed_sglang(response, cumulative)
    if "content" in response:
        items, ids = response["completion_probabilities"], response["tokens"]
        chunks = [
            {"index": 0, "content": item["token"], "tokens": [number], "stop": False, "completion_probabilities": [item]}
            for item, number in zip(items, ids, strict=True)
        ]
        last = {key: value for key, value in response.items() if key != "completion_probabilities"}
        return [*chunks, last | {"content": "", "tokens": []}]
    (choice,) = response["choices"]
    about = {key: value for key, value in response.items() if key not in ("choices", "usage", "prompt_token_ids", "sglext")}
    chat, chunks = "message" in choice, []
    logprobs = choice["logprobs"]
    for at in range(len(logprobs["content"] if chat else logprobs["tokens"])):
        one = {key: values[at : at + 1] for key, values in logprobs.items() if values}
        word = one["content"][0]["token"] if chat else one["tokens"][0]
        part = {"index": 0, "logprobs": one, "finish_reason": None}
        part |= {"delta": {"content": word}} if chat else {"text": word}
        part |= {"token_ids": choice["token_ids"][at : at + 1]} if choice.get("token_ids") else {}
        part |= {"matched_stop": None} if "matched_stop" in choice else {}
        if at == 0 and choice.get("prompt_token_ids"):
            part["prompt_token_ids"] = choice["prompt_token_ids"]
        chunks.append(about | {"choices": [part]})
    if chat:
        first = about | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        first |= {key: response[key] for key in ("prompt_token_ids",) if key in response}
        chunks = [{**each, "object": "chat.completion.chunk"} for each in (first, *chunks)]
    chunks[-1]["choices"][0]["finish_reason"] = choice["finish_reason"]
    after = {key: response[key] for key in ("usage", "sglext") if key in response}
    return [*chunks, about | {"choices": []} | after | ({"object": "chat.completion.chunk"} if chat else {})]


def _streamed_sglang(response, cumulative):
    about, chunks = response["meta_info"], []
    for at in range(1, len(response["output_ids"]) + 1):
        part = slice(0 if cumulative else at - 1, at)
        so_far = about | {"completion_tokens": at, "output_token_logprobs": about["output_token_logprobs"][part]}
        so_far["finish_reason"] = about["finish_reason"] if at == len(response["output_ids"]) else None
        chunks.append({"text": "", "output_ids": response["output_ids"][part], "meta_info": so_far})
    return chunks


def logged(tmp_path, *records):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(record if isinstance(record, str) else json.dumps(record) for record in records))
    return read_log(path)


def answered(tmp_path, dialect, tokens, **request):
    response = DIALECTS[dialect](*tokens)
    return logged(tmp_path, {"request": {"prompt": PROMPT, "text": PROMPT, **request}, "response": response}).answers[0]
