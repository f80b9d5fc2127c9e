"""The parts of a prompt as sets of tokens: named ranges of its text, or the text between two markers."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from overt.drawing.numbers import shorten, visible
from overt.errors import InputError, KindError
from overt.lens.analysis.replay.dialects import LoggedAnswer
from overt.lens.analysis.replay.sequences import TokenSequence

ANSWER, OTHER = "answer so far", "other"
FIX = "write a range of characters as (0, 120), or the markers around the span as ('<doc>', '</doc>')"


def span_members(answer: LoggedAnswer, sequence: TokenSequence, spans: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Whether each token (N,) is in each span. "answer so far" has the answer's tokens, "other" all tokens in no other span.

    A token belongs to the span of its first letter; special tokens belong to none. Without `spans`, each message of a chat is a span,
    and another prompt is one span. Raises InputError for spans that overlap, leave the text, or have no token.
    """
    wanted = spans if spans is not None else answer.spans
    ranges = (
        _default(answer, sequence)
        if wanted is None
        else {str(name): _range(str(name), item, answer, sequence) for name, item in wanted.items()}
    )
    for (one, first), (other, second) in pairwise(sorted(ranges.items(), key=lambda item: item[1])):
        if second[0] < first[1]:
            raise InputError(
                "spans that do not overlap, so that their masses add up",
                got=f"{one!r} to character {first[1]} and {other!r} from {second[0]}",
                fix="cut them at one character",
            )
    length = len(sequence.ids)
    members: dict[str, np.ndarray] = {}
    plain = ~sequence.special[: sequence.prompt]
    for name, (start, stop) in ranges.items():
        if name in (ANSWER, OTHER) or not name.strip():
            what = f"span names other than {ANSWER!r} and {OTHER!r}, which every replay has, and other than spaces"
            raise InputError(what, got=repr(name), fix="choose another name")
        inside = np.zeros(length, bool)
        inside[: sequence.prompt] = (sequence.starts >= start) & (sequence.starts < stop) & plain
        if not inside.any():
            raise InputError("spans of at least one token", got=f"{name!r}, characters {start} to {stop}", fix="make it longer")
        members[name] = inside
    members[ANSWER] = np.arange(length) >= sequence.prompt
    members[OTHER] = ~np.any([*members.values()], axis=0)
    return members


def _range(name: str, value: Any, answer: LoggedAnswer, sequence: TokenSequence) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(part) in (int, str) for part in value):
        raise KindError(f"span {name!r} as two numbers or two texts", got=repr(value), fix=FIX)
    if all(isinstance(part, str) for part in value):
        return _between(name, str(value[0]), str(value[1]), sequence.text)
    # Ranges count characters of the prompt as it was sent, which tokens may spell after a space, or inside a template.
    text = sequence.text
    shift = text.find(answer.prompt) if answer.prompt else 0
    if shift < 0:
        raise InputError(
            "a prompt that its tokens spell, for spans in characters",
            got=f"other letters, as in {shorten(visible(text), 60)!r}",
            fix="name the span by markers, as the tokens spell them",
        )
    length = len(answer.prompt) if answer.prompt else len(text)
    start, stop = int(value[0]), int(value[1])
    if not 0 <= start < stop <= length:
        raise InputError(f"span {name!r} inside of the prompt, characters 0 to {length}", got=f"{start} to {stop}", fix=FIX)
    return start + shift, stop + shift


def _between(name: str, first: str, last: str, text: str) -> tuple[int, int]:
    """The range from the first marker to the last one, including both."""
    counts = text.count(first) if first else 0
    start = text.find(first)
    stop = text.find(last, start + len(first)) if counts == 1 and last else -1
    if stop < 0:
        what = f"{first!r} {counts} times" if counts != 1 else f"no {last!r} after {first!r}"
        shown = shorten(visible(text), 80)
        raise InputError(
            f"markers of span {name!r} that are in the prompt, the first one exactly once", got=f"{what} in {shown!r}", fix=FIX
        )
    return start, stop + len(last)


def _default(answer: LoggedAnswer, sequence: TokenSequence) -> dict[str, tuple[int, int]]:
    text, ranges, at = sequence.text, dict[str, tuple[int, int]](), 0
    messages = [
        message for message in answer.messages or [] if isinstance(message.get("content"), str) and message["content"].strip()
    ]
    for message in messages:
        content = message["content"].strip()
        start = text.find(content, at)
        if start < 0:
            return {"prompt": (0, len(text))}
        at = start + len(content)
        role = str(message.get("role", "message"))
        number = sum(1 for name in ranges if name == role or name.startswith(f"{role} ")) + 1
        ranges[role if number == 1 else f"{role} {number}"] = start, at
    return ranges or {"prompt": (0, len(text))}
