"""Streamed answers: a server's events, joined to the response that it would have written without streaming.

Events are lines `data: {…}`, the last one `data: [DONE]` (HTML Living Standard, section 9.2). An event has only new text
(`delta.content`, `text`, `content`), token ids and log probabilities. SGLang's /generate writes everything so far, or only the new
part if its server was started so; `completion_tokens` distinguishes the two.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from overt.reading import parse_json

_OTHER_LINE = re.compile(r"(event|id|retry)?:")  # lines of an event without a part of the answer
_LISTS = ("content", "tokens", "token_logprobs", "text_offset")
_IDS = ("token_ids", "response_token_ids")


@dataclass(eq=False)
class Streams:
    """Collects events from line `first` of a log on, also of several streams at once if they have names."""

    chunks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    complete: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    broken: list[tuple[int, str]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)

    def add_line(self, line: str, number: int, whole: bool = True) -> bool:
        """Add a line if it belongs to an event. Returns whether it does; its data is lost if the line is not `whole`."""
        line = line.strip()
        if not line.startswith("data:"):
            return _OTHER_LINE.match(line) is not None
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return True
        try:
            if not whole:
                raise ValueError
            self.add(parse_json(data, strict=False), number)
        except ValueError:
            self.broken.append((number, "it is not complete JSON"))
            self._drop(f"an event of its stream, line {number}, is not complete JSON")
        return True

    def add(self, chunk: Any, number: int) -> None:
        """Add the data of an event."""
        if not isinstance(chunk, dict):
            self.broken.append((number, "it is not a JSON object"))
            return
        name = _name(chunk)
        if name in self.dropped:
            if not name and _ends(chunk):
                self.dropped.remove(name)
            return
        self.chunks.setdefault(name, []).append(chunk)
        self.first.setdefault(name, number)
        if chunk.get("stop") is True:  # llama.cpp's last event; its streams have no names
            self._finish(name)

    def finish(self) -> None:
        """Join the events of each stream; streams without their end are broken."""
        for name in [*self.chunks]:
            if any(map(_ends, self.chunks[name])):
                self._finish(name)
        self._drop("its stream has no end")

    def _finish(self, name: str) -> None:
        self.complete.append((self.first.pop(name), joined(self.chunks.pop(name))))

    def _drop(self, why: str) -> None:
        ended = {name for name, chunks in self.chunks.items() if any(map(_ends, chunks))}
        for name in self.chunks.keys() - ended:
            self.broken.append((self.first.pop(name), why))
            self.dropped.add(name)
            del self.chunks[name]


def is_chunk(record: Any) -> bool:
    """Whether a JSON value is an event of a chat's stream, by its `object`."""
    return isinstance(record, dict) and record.get("object") == "chat.completion.chunk"


def unstreamed(response: Any) -> Any:
    """The response that a text or a list of events makes; another value unchanged. Raises ValueError for an incomplete stream."""
    if isinstance(response, str) and response.lstrip().startswith(("data:", "event:", ":")):
        lines: Iterable[str] = response.splitlines()
        streams = Streams()
        for line in lines:
            streams.add_line(line, 1)
    elif isinstance(response, list) and _one_stream(response):
        streams = Streams()
        for chunk in response:
            streams.add(chunk, 1)
    else:
        return response
    streams.finish()
    if streams.broken:
        raise ValueError(streams.broken[-1][1])
    results = [entry for _, entry in streams.complete]
    return results[0] if len(results) == 1 else results


def _one_stream(chunks: Sequence[Any]) -> bool:
    """Whether values are the events of one stream, and not the responses to several requests."""
    if not chunks or not all(isinstance(chunk, dict) for chunk in chunks):
        return False
    if any(is_chunk(chunk) for chunk in chunks) or any(chunk.get("stop") is False for chunk in chunks):
        return True
    names = {_name(chunk) for chunk in chunks}
    return len(chunks) > 1 and len(names) == 1 and names != {""}


def joined(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the events of one stream to one response.

    >>> events = [{"id": "1", "choices": [{"index": 0, "delta": {"content": entry}, "token_ids": [7]}]} for entry in ("a", "b")]
    >>> joined(events)["choices"]
    [{'index': 0, 'token_ids': [7, 7], 'logprobs': None, 'message': {'content': 'ab'}}]
    """
    if any(isinstance(chunk.get("meta_info"), dict) for chunk in chunks):
        return _sglang_response(chunks)
    result = _latest(chunks, ("choices", "content", "tokens"))
    if not any("choices" in chunk for chunk in chunks):
        for key in ("tokens", "completion_probabilities"):
            result[key] = [item for chunk in chunks for item in chunk.get(key) or []]
        return result | {"content": "".join(chunk.get("content") or "" for chunk in chunks)}
    by_index: dict[int, list[dict[str, Any]]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices") or []:
            by_index.setdefault(choice.get("index", 0), []).append(choice)
    return result | {"choices": [_choice(by_index[index]) for index in sorted(by_index)]}


def _choice(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    result = _latest(parts, ("delta", "text", *_IDS))
    for key in _IDS:
        if any(part.get(key) for part in parts):
            result[key] = [number for part in parts for number in part.get(key) or []]
    logprobs = [part["logprobs"] for part in parts if isinstance(part.get("logprobs"), dict)]
    lists = {
        key: [item for logprob in logprobs for item in logprob[key]]
        for key in _LISTS
        if any(logprob.get(key) for logprob in logprobs)
    }
    result["logprobs"] = lists or None
    if any("delta" in part for part in parts):
        return result | {"message": {"content": "".join((part.get("delta") or {}).get("content") or "" for part in parts)}}
    return result | {"text": "".join(part.get("text") or "" for part in parts)}


def _latest(parts: Sequence[dict[str, Any]], without: tuple[str, ...]) -> dict[str, Any]:
    """The last value of each key that is not null, without some keys."""
    result: dict[str, Any] = {}
    for part in parts:
        result |= {key: value for key, value in part.items() if key not in without and (value is not None or key not in result)}
    return result


def _sglang_response(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    last, about = chunks[-1], chunks[-1]["meta_info"]
    prompts = [chunk["meta_info"].get("input_token_logprobs") for chunk in chunks]
    about = about | {"input_token_logprobs": next((prompt for prompt in prompts if prompt), None)}
    items = about.get("output_token_logprobs") or []
    if len(chunks) == 1 or len(items) >= (about.get("completion_tokens") or 0):
        return last | {"meta_info": about}
    about["output_token_logprobs"] = [
        item for chunk in chunks for item in chunk["meta_info"].get("output_token_logprobs") or []
    ]
    ids = [number for chunk in chunks for number in chunk.get("output_ids") or []]
    return last | {"meta_info": about, "text": "".join(chunk.get("text") or "" for chunk in chunks), "output_ids": ids}


def _name(chunk: dict[str, Any]) -> str:
    about = chunk.get("meta_info")
    return str((about if isinstance(about, dict) else chunk).get("id") or "")


def _ends(chunk: dict[str, Any]) -> bool:
    about = chunk.get("meta_info")
    parts = [about] if isinstance(about, dict) else chunk.get("choices") or [chunk]
    return chunk.get("stop") is True or any(isinstance(part, dict) and part.get("finish_reason") is not None for part in parts)
