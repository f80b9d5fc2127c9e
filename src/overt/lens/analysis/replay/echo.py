"""The number of tokens before the answer in a response that may repeat its prompt (a request with `echo`).

vLLM, SGLang, OpenAI and llama-cpp-python write a completion's prompt before its answer: in the text, and among the tokens, where the
first log probability is null. Some write it in the text only, and chats repeat the beginning of the last message there. Each sign below
is a number of prompt tokens. Signs that disagree are an error, because a wrong number would replay other tokens than the server ran.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

TOKEN_ID = re.compile(r"token_id:(\d+)")
SCORES_ONLY = "it has no answer, only its prompt was scored, as max_tokens: 0 asks for"


@dataclass(frozen=True)
class EchoedTokens:
    """The tokens that a choice lists with its log probabilities: their names, ids, bytes, and positions in the text."""

    names: Sequence[str] = ()
    ids: list[int] | None = None
    texts: list[bytes | None] | None = None
    logprobs: Sequence[float | None] = ()
    offsets: Sequence[int] = ()

    def __len__(self) -> int:
        return max(len(self.names), len(self.logprobs), len(self.ids or ()))

    def __getitem__(self, part: slice) -> "EchoedTokens":
        ids, texts = self.ids and self.ids[part], self.texts and self.texts[part]
        return EchoedTokens(self.names[part], ids, texts, self.logprobs[part], self.offsets[part])


@dataclass(frozen=True)
class Exchange:
    """The facts of a choice and its request that show where the answer begins.

    `echo` is None without a request; `limit` is the requested number of tokens.
    """

    echo: bool | None
    chat: bool
    text: str
    prompt: str | None
    prompt_ids: list[int] | None
    answer_ids: list[int] | None
    prompt_count: int | None
    answer_count: int | None
    limit: int | None


def prompt_length(tokens: EchoedTokens, exchange: Exchange) -> int:
    """The number of tokens that repeat the prompt, or 0. Raises ValueError if it is unclear, or if all tokens do."""
    null_first = (
        len(tokens.logprobs) > 1 and tokens.logprobs[0] is None and any(logprob is not None for logprob in tokens.logprobs)
    )
    size, answer_count = len(tokens), exchange.answer_count
    more = answer_count is not None and size == answer_count + (exchange.prompt_count or 0) > answer_count
    by_ids = _by_ids(tokens, exchange, null_first)
    if not size or not (exchange.echo or null_first or more or (exchange.echo is None and by_ids)):
        return 0
    signs = {
        "its token ids": by_ids,
        "its usage": _by_usage(size, exchange),
        "its text": _by_text(tokens, exchange, null_first),
        "its text_offset": _by_offsets(tokens, exchange),
    }
    signs = {name: count for name, count in signs.items() if count is not None}
    if not signs and exchange.limit is not None and size > exchange.limit and null_first:
        signs = {"its max_tokens": size - exchange.limit}
    if exchange.echo is False and "its usage" not in signs:
        signs["its request, which has no echo"] = 0
    if len({*signs.values()}) > 1:
        claims = ", ".join(f"{count} by {name}" for name, count in signs.items())
        raise ValueError(f"which of its {size} tokens repeat the prompt is unclear: {claims}")
    if not signs or (max(signs.values()) and not null_first and "its usage" not in signs):
        if exchange.chat:
            return 0
        raise ValueError(
            f"it repeats its prompt, and nothing says how many of its {size} tokens: log usage or prompt_token_ids"
        )
    count = next(iter(signs.values()))
    if count == size:
        raise ValueError(SCORES_ONLY)
    return count


def _by_ids(tokens: EchoedTokens, exchange: Exchange, null_first: bool) -> int | None:
    prompt, answer, size = exchange.prompt_ids, exchange.answer_ids, len(tokens)
    ids = tokens.ids if tokens.ids is not None else answer if answer is not None and len(answer) == size else None
    if prompt is not None and ids is not None:
        return len(prompt) if ids[: len(prompt)] == prompt else 0
    if answer is not None and len(answer) < size:
        return size - len(answer)
    return len(prompt) if prompt is not None and null_first and len(prompt) <= size else None


def _by_usage(size: int, exchange: Exchange) -> int | None:
    prompt, answer = exchange.prompt_count, exchange.answer_count
    if prompt is None:
        return size - answer if answer is not None and answer <= size else None
    if answer == size and prompt:
        return 0
    return prompt if prompt <= size and (answer is None or size <= prompt + answer) else None


def _by_text(tokens: EchoedTokens, exchange: Exchange, null_first: bool) -> int | None:
    """The number of tokens that spell the prompt, after an optional first token missing from its text; spaces count unless nothing fits."""
    if exchange.prompt is None or not tokens.names or any(map(TOKEN_ID.fullmatch, tokens.names)):
        return None
    for spelled in (str, _without_spaces):
        prompt, text, names = spelled(exchange.prompt), spelled(exchange.text), [*map(spelled, tokens.names)]
        whole = "".join(names)
        if not null_first and text and whole == text.removeprefix(prompt) and (whole != text or not text.startswith(prompt)):
            return 0
        for first in (0, 1):
            if prompt and "".join(names[first:]).startswith(prompt) and text.startswith(prompt):
                lengths = accumulate(map(len, names[first:]), initial=0)
                ends = [at for at, length in enumerate(lengths, first) if length == len(prompt)]
                if len(ends) == 1:
                    return ends[0]
    return None


def _by_offsets(tokens: EchoedTokens, exchange: Exchange) -> int | None:
    """The number of tokens that begin inside the prompt, if `offsets` are positions of letters in the text."""
    offsets, prompt, text = [*tokens.offsets], exchange.prompt, exchange.text
    if offsets and offsets[0] > 0:
        return 0  # offsets count from the first letter of the prompt, which is not repeated
    if not prompt or len(offsets) != len(tokens):
        return None
    named = [*map(len, tokens.names)]
    steps = [after - before for before, after in pairwise(offsets)]
    if any(map(TOKEN_ID.fullmatch, tokens.names)):
        if steps == named[:-1]:
            return None  # vLLM adds up the lengths of names such as "token_id:7"
    elif named and offsets[-1] + named[-1] != len(text):
        return None
    if min(offsets[0], *steps, 0) < 0 or offsets[-1] > len(text) or not text.startswith(prompt):
        return None
    count = sum(offset < len(prompt) for offset in offsets)
    if count < len(offsets) and text[len(prompt) : offsets[count]].strip():
        return None
    return count


def _without_spaces(text: str) -> str:
    return "".join(text.split())
