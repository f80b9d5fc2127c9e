"""What a real llama.cpp server answers to a few requests, each with the request beside it.

    python tests/lens/replay/llama_cpp_answers.py tests/lens/replay/llama_cpp.json

writes down what the small Llama of gguf_models.py, served in single precision, answers on this machine.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import Any

SECONDS = 60  # that a server may run, and that an answer may take
PROMPT = "the cat sat on the mat. the dog ran under the tree. the cat sat on"
SAMPLING = {"temperature": 1.0, "seed": 3}
MESSAGES = [{"role": "system", "content": "the tree"}, {"role": "user", "content": "the cat sat on?"}]
VERBOSE = {"verbose": True, "return_tokens": True}
CHAT = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1, **VERBOSE}
REQUESTS = {
    "tokens": ("/completion", {"prompt": PROMPT, "n_predict": 12, "n_probs": 1, "return_tokens": True, **SAMPLING}),
    "OpenAI's completions": ("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "logprobs": 1, **VERBOSE, **SAMPLING}),
    "chat": ("/v1/chat/completions", {**CHAT, "max_tokens": 12, **SAMPLING}),
    # A character of four bytes is four tokens of this tokenizer, and has one log probability.
    "a character in four tokens": (
        "/v1/chat/completions",
        {**CHAT, "grammar": 'root ::= " the 😀 mat"', **SAMPLING},
    ),
    "a stopping word": (
        "/completion",
        {
            "prompt": PROMPT,
            "grammar": 'root ::= " the mat. the"',
            "stop": [". the"],
            "n_probs": 1,
            "return_tokens": True,
            **SAMPLING,
        },
    ),
    "a stream": (
        "/completion",
        {"prompt": PROMPT, "n_predict": 12, "n_probs": 1, "return_tokens": True, "stream": True, **SAMPLING},
    ),
    "a chat's stream": (
        "/v1/chat/completions",
        {**CHAT, "grammar": 'root ::= " the cat"', "stream": True, **SAMPLING},
    ),
}
CUT_STREAM = (REQUESTS["a character in four tokens"][0], {**REQUESTS["a character in four tokens"][1], "stream": True})


@contextmanager
def served(path):
    """A function that asks a llama.cpp server with this GGUF file, on 127.0.0.1, until the block ends, or a minute has passed."""
    program = [sys.executable, str(Path(__file__).with_name("llama_cpp_program.py").absolute()), path.name]
    with tempfile.TemporaryFile("w+") as log:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        server = subprocess.Popen(program, **pipes, text=True, cwd=path.parent)
        assert server.stdin is not None
        assert server.stdout is not None
        limit = Timer(SECONDS, server.kill)
        limit.start()
        try:
            address = server.stdout.readline().strip()
            if not address.startswith("http://127.0.0.1:"):
                log.seek(0)
                raise RuntimeError(f"no server: {log.read()[-2000:]}")
            yield lambda endpoint, request: _answer(address + endpoint, request)
        finally:
            server.stdin.close()
            server.wait()
            limit.cancel()
            server.stdout.close()


def _answer(address, request):
    requested = urllib.request.Request(address, json.dumps(request).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(requested, timeout=SECONDS) as answer:
        return answer.read().decode() if request.get("stream") else json.loads(answer.read())


def answers(path):
    """The request and the server's answer, by the names of the requests."""
    with served(path) as ask:
        return {name: {"request": request, "response": ask(where, request)} for name, (where, request) in REQUESTS.items()}


def main():
    from gguf_models import small_llama, write_gguf

    with tempfile.TemporaryDirectory() as folder:
        write_gguf(*small_llama(), Path(folder, "small.gguf"))
        recorded = answers(Path(folder, "small.gguf"))
    about = {
        "server": f"llama.cpp of xllamacpp {version('xllamacpp')}",
        "command": "python tests/lens/replay/llama_cpp_answers.py FILE",
    }
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in (about | recorded).items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
