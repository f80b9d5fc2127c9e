"""A server's log: the answers of a file of JSON lines, or of one JSON document; `dialects` reads each response."""

import codecs
import os
from dataclasses import dataclass, field
from pathlib import Path

from overt.errors import InputError
from overt.lens.analysis.replay.dialects import LoggedAnswer, parse_answers
from overt.lens.analysis.replay.streams import Streams, is_chunk
from overt.reading import parse_json, reading, reason


@dataclass(frozen=True)
class Log:
    """The answers of a log, and the skipped lines, each with its number and the reason."""

    answers: list[LoggedAnswer] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)


def read_log(path: str | os.PathLike[str]) -> Log:
    """Read a log of vLLM, SGLang, llama.cpp, or another server with OpenAI's endpoints: one response a line, or one document.

    A line is a response, or {"request": …, "response": …} with the prompt and optional "spans". A streamed response is its lines
    `data: {…}`, also of several streams at once, or their text or a list of their JSON as "response". Lines that cannot be read, and
    streams without their end, are skipped and listed. Raises InputError for a file without any answer.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> line = '{"text": "mat", "meta_info": {"prompt_tokens": 2, "output_token_logprobs": [[-0.5, 7, null]]}}'
    >>> _ = path.write_text(line + "\\n" + line[:40])
    >>> log = read_log(path)
    >>> log.answers[0].dialect, log.answers[0].ids, log.skipped
    ('SGLang', [7], [(2, 'it is not complete JSON')])
    """
    with reading(path, "a server's log in UTF-8", "check its name"):
        data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    log = Log()
    try:
        _add(log, parse_json(data.decode(), strict=False), 1)
    except ValueError:
        _add_lines(log, data.split(b"\n"))
    if not log.answers:
        why = "; ".join(f"line {number}: {why}" for number, why in log.skipped[:5]) or "an empty file"
        raise InputError("a log with at least one answer", got=why, fix="pass responses of a server as JSON, one a line")
    return log


def _add_lines(log: Log, lines: list[bytes]) -> None:
    streams = Streams()
    for number, data in enumerate(lines, 1):
        try:
            line = data.decode()
        except UnicodeDecodeError:  # a line that is cut off may end inside a character
            if not streams.add_line(data.decode(errors="replace"), number, whole=False):
                log.skipped.append((number, "it is not UTF-8"))
            continue
        if not line.strip() or streams.add_line(line, number):
            continue
        try:
            record = parse_json(line, strict=False)
        except ValueError:
            log.skipped.append((number, "it is not complete JSON"))
            continue
        if is_chunk(record):
            streams.add(record, number)
        else:
            _add(log, record, number)
    streams.finish()
    for number, response in streams.complete:
        _add(log, response, number)
    log.skipped.extend(streams.broken)
    log.skipped.sort()
    log.answers.sort(key=lambda answer: answer.line)


def _add(log: Log, record: object, number: int) -> None:
    try:
        answers = parse_answers(record, number)
        if not answers:
            raise ValueError("it has no answer of a server")
        log.answers.extend(answers)
    except ValueError as error:
        log.skipped.append((number, str(error)))
    except (KeyError, TypeError, AttributeError) as error:
        log.skipped.append((number, f"its fields are not those of a server's answer ({reason(error)})"))
