"""Assign a server's log probabilities to the tokens of its answer.

llama.cpp writes no entry for a token that ends inside a character: the entry of the token that completes the character represents all
of its tokens, with their bytes together. It also omits the tokens of a stopping word. (tools/server: process_token, send_final_response)
"""

from overt.errors import InputError
from overt.lens.analysis.replay.dialects import LoggedAnswer
from overt.lens.text.vocabulary import Vocabulary

_FIX = (
    "log token ids: return_token_ids for vLLM, return_logprob for SGLang, return_tokens for llama.cpp, with verbose at /v1/ endpoints, "
    "where a stream leaves out some"
)


def aligned(answer: LoggedAnswer, ids: list[int], vocabulary: Vocabulary) -> list[float | None]:
    """The log probability of each token of the answer, None if the server gave none.

    Raises InputError if the number of log probabilities differs and their tokens cannot be determined.
    """
    entry_ids = answer.logprob_ids
    if entry_ids is None:
        if answer.logprobs and len(answer.logprobs) != len(ids):
            raise _unequal(len(answer.logprobs), len(ids))
        return answer.logprobs
    if entry_ids == ids:
        if answer.count is not None and answer.count > len(ids) and _left_out(answer, vocabulary):
            raise _unequal(len(ids), answer.count)
        return answer.logprobs
    written = [index for index, cut in enumerate(cuts(ids, vocabulary)) if not cut]
    if [ids[index] for index in written[: len(entry_ids)]] != entry_ids:
        raise _unequal(len(entry_ids), len(ids))
    values: list[float | None] = [None] * len(ids)
    for index, value in zip(written, answer.logprobs, strict=False):
        values[index] = value
    return values


def cuts(ids: list[int], vocabulary: Vocabulary) -> list[bool]:
    """Whether the text ends inside a UTF-8 character after each token."""
    result, text = list[bool](), b""
    for number in ids:
        text = (text + _spelled(number, vocabulary))[-4:]
        result.append(_incomplete(text))
    return result


def _incomplete(text: bytes) -> bool:
    """Whether the last bytes begin a character of two, three or four bytes without completing it."""
    lengths = ((0xE0, 0xC0, 2), (0xF0, 0xE0, 3), (0xF8, 0xF0, 4))
    return any(
        byte & mask == lead and behind < length
        for behind, byte in enumerate(reversed(text), 1)
        for mask, lead, length in lengths
    )


def _left_out(answer: LoggedAnswer, vocabulary: Vocabulary) -> bool:
    """Whether the entries have bytes that their tokens do not spell, which belong to tokens without an entry."""
    texts = answer.texts or []
    if any(text is None for text in texts):
        return True
    spelled = b"".join(_spelled(number, vocabulary) for number in answer.logprob_ids or [])
    return not spelled.startswith(b"".join(text for text in texts if text is not None))


def _spelled(number: int, vocabulary: Vocabulary) -> bytes:
    entry = vocabulary.entry(number)
    return b"" if entry.special else entry.text


def _unequal(have: int, wanted: int) -> InputError:
    return InputError("a log probability for each token of the answer", got=f"{have} of {wanted} tokens", fix=_FIX)
