"""Logs as servers write them, from a model's own log probabilities: the documented fields of vLLM, SGLang and llama.cpp."""

import torch

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


DIALECTS = {
    "vLLM": vllm_completion,
    "vLLM chat": vllm_chat,
    "SGLang": sglang_generate,
    "llama.cpp": llama_cpp_completion,
    "llama.cpp chat": llama_cpp_chat,
    "OpenAI": openai_completion,
}
