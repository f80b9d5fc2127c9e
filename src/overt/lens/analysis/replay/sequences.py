"""The tokens of a logged answer: ids from the log, or from its text with a note, and the text that they spell."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from overt.errors import InputError
from overt.lens.analysis.replay.alignment import aligned
from overt.lens.analysis.replay.dialects import LoggedAnswer
from overt.lens.analysis.surveys.reading.encoding import encoder
from overt.lens.text.tokens_of_text import spelled_pieces, spelled_words
from overt.lens.text.vocabulary import Vocabulary, read_vocabulary

_LONGEST = 10**9  # most tokens of a prompt: no limit in practice
_FIX = "log token ids: return_token_ids for vLLM, return_logprob for SGLang, return_tokens for llama.cpp"


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """Prompt and answer as the model reads them: `ids`, the first `prompt` of them the prompt's, and notes for the reader.

    `logprobs` are the server's, one for each token of the answer, None if it gave none for the token; empty if it gave none at all.
    """

    ids: list[int]
    prompt: int
    logprobs: list[float | None]
    vocabulary: Vocabulary
    notes: tuple[str, ...]

    @cached_property
    def words(self) -> list[str]:
        """The text of each token: special tokens by their names, and parts of a character as the character and the part, "😀[1/3]"."""
        return spelled_words(self.ids, self.vocabulary)

    @cached_property
    def special(self) -> np.ndarray:
        """Whether each token is special."""
        return np.array([self.vocabulary.entry(number).special for number in self.ids])

    @cached_property
    def text(self) -> str:
        """The prompt as its tokens spell it, special tokens by their names."""
        return b"".join(self._pieces).decode("utf-8", "replace")

    @cached_property
    def starts(self) -> np.ndarray:
        """The position in `text` of the first letter of each token of the prompt, after spaces."""
        parts = self._pieces
        data = np.frombuffer(b"".join(parts), np.uint8)
        characters = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])  # characters before each byte, and in all
        ends = np.cumsum([len(part) for part in parts])
        blank = np.array([len(part) - len(part.lstrip()) if part.strip() else 0 for part in parts])
        return characters[(ends - [len(part) for part in parts] + blank).astype(int)]

    @cached_property
    def _pieces(self) -> list[bytes]:
        return spelled_pieces(self.ids[: self.prompt], self.vocabulary)


def token_sequence(answer: LoggedAnswer, tokenizer: Any) -> TokenSequence:
    """The tokens of an answer. Raises InputError if neither its ids nor its text determine them."""
    vocabulary, notes = read_vocabulary(tokenizer), list[str]()
    prompt = answer.prompt_ids if answer.prompt_ids is not None else _prompt(answer, tokenizer, vocabulary, notes)
    if answer.prompt_count is not None and answer.prompt_count != len(prompt):
        notes.append(f"the server counted {answer.prompt_count} tokens of the prompt, here it has {len(prompt)}")
    ids = answer.ids if answer.ids is not None else _answer(answer, vocabulary, notes)
    if not prompt or not ids:
        fix = "leave out requests that got no answer"
        raise InputError("a prompt and an answer of at least one token", got=f"{len(prompt)} and {len(ids)}", fix=fix)
    wrong = [number for number in (*prompt, *ids) if not 0 <= number < vocabulary.size]
    if wrong:
        raise InputError(
            f"token ids of the model's tokenizer, 0 to {vocabulary.size - 1}",
            got=f"id {wrong[0]}, of another vocabulary",
            fix="pass the folder of the model that the server ran, with its tokenizer",
        )
    return TokenSequence([*prompt, *ids], len(prompt), aligned(answer, ids, vocabulary), vocabulary, tuple(notes))


def _prompt(answer: LoggedAnswer, tokenizer: Any, vocabulary: Vocabulary, notes: list[str]) -> list[int]:
    if answer.prompt_texts is not None:
        return _repeated_prompt(answer, tokenizer, vocabulary, notes)
    if answer.prompt is not None:
        notes.append("the log has no token ids of the prompt: its text was tokenized anew")
        return encoder(tokenizer, _LONGEST)(answer.prompt)[0]
    if answer.spelled is not None:
        notes.append("the log has no token ids of the prompt: the text that its tokens spell was tokenized anew")
        return _encoded(vocabulary, answer.spelled)
    if answer.messages is not None and getattr(tokenizer, "chat_template", None):
        notes.append(
            "the log has no token ids of the prompt: its messages were put into the tokenizer's template, and tokenized anew"
        )
        ends = {"add_generation_prompt": not answer.continued, "continue_final_message": answer.continued}
        text = tokenizer.apply_chat_template(answer.messages, tokenize=False, **ends)
        return _encoded(vocabulary, text)
    got = "none" if answer.messages is None else "messages, for which the tokenizer has no template"
    raise InputError(
        "a prompt in the log: token ids, a text, or messages",
        got=got,
        fix='log {"request": …, "response": …}, or ask the server for prompt_token_ids (return_token_ids for vLLM)',
    )


def _repeated_prompt(answer: LoggedAnswer, tokenizer: Any, vocabulary: Vocabulary, notes: list[str]) -> list[int]:
    """The ids of a prompt whose tokens the server repeated before the answer, in the same number."""
    texts = answer.prompt_texts or []
    text = answer.prompt if answer.prompt is not None else b"".join(part or b"" for part in texts).decode(errors="replace")
    readings = [encoder(tokenizer, _LONGEST)(text)[0], _encoded(vocabulary, text)]
    ids = next((reading for reading in readings if len(reading) == len(texts)), None)
    if ids is not None:
        notes.append("the log has no token ids of the prompt: its text was tokenized anew")
        return ids
    ids = _by_text(texts, vocabulary)
    if ids is None:
        got = f"{len(texts)} repeated before the answer, {len(readings[0])} of the prompt's text"
        raise InputError("as many tokens of the prompt as the server repeated", got=got, fix=_FIX)
    notes.append("the log has no token ids of the prompt: they follow from its tokens' text")
    return ids


def _answer(answer: LoggedAnswer, vocabulary: Vocabulary, notes: list[str]) -> list[int]:
    by_text = _by_text(answer.texts, vocabulary) if answer.texts is not None else None
    if by_text is not None:
        notes.append("the log has no token ids of the answer: they follow from its tokens' text")
        return by_text
    if not answer.logprobs:
        raise InputError("token ids of the answer in the log, or log probabilities of its tokens", got="none of both", fix=_FIX)
    ids = _encoded(vocabulary, answer.text)
    if len(ids) != len(answer.logprobs):
        raise InputError(
            "token ids in the log, or an answer that the tokenizer cuts into as many tokens as it has log probabilities",
            got=f"no ids, {len(ids)} tokens and {len(answer.logprobs)} log probabilities",
            fix=_FIX,
        )
    notes.append("the log has no token ids of the answer: its text was tokenized anew")
    return ids


def _encoded(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text, in which names of special tokens are read as these tokens."""
    assert vocabulary.encode is not None
    return vocabulary.encode(text)


def _by_text(texts: list[bytes | None], vocabulary: Vocabulary) -> list[int] | None:
    """The ids that spell the token texts, if exactly one id spells each."""
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for number in range(vocabulary.size):
        try:
            entry = vocabulary.entry(number)
        except InputError:
            continue  # ids may have gaps
        numbers[entry.piece.encode() if entry.special else entry.text].append(number)
    ids = [numbers.get(text, []) if text is not None else [] for text in texts]
    return [token[0] for token in ids] if all(len(token) == 1 for token in ids) else None
