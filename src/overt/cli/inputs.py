"""What a command reads: its TEXT argument (a text, a file or standard input) and the files of a model."""

import os
import re
import stat
import sys
from pathlib import Path

from overt.errors import InputError
from overt.files import PathLike, reason

# Endings that a text of one word hardly has: of texts, of tables and data, of documents; and the languages of parallel texts.
_FILES = (
    "txt|text|md|rst|csv|tsv|tab|json|jsonl|xml|html|htm|tex|srt|vtt|log|toml|yaml|yml|conllu|src|ref|hyp|tok|bpe|tmx|xliff|po|"
    "gz|zip|bz2|xz|zst|tar|parquet|safetensors|pdf|doc|docx|odt|rtf|epub"
)
_LANGUAGES = "en|fr|de|es|it|pt|nl|pl|cs|ro|ru|uk|tr|ar|hi|zh|ja|ko"
_FILE = re.compile(rf".*[^.]\.({_FILES})", re.IGNORECASE | re.DOTALL)
_IN_A_LANGUAGE = re.compile(rf"(?!www\.)[^@]*[^.@]\.({_LANGUAGES})", re.DOTALL)
_MODEL_FILES = (
    "*config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.safetensors*",
    "*.bin",
    "*.model",
)

_BEGINS = re.compile(r"~?/|\\\\\w|\.\.?[/\\]|[A-Za-z]:[/\\]")


def looks_like_a_path(text: str) -> bool:
    """Whether a text names a place on a disk, whatever stands there: it has a path's beginning, or a file's ending and no blank.

    >>> [each for each in ("notes.txt", "./notes", "and/or", "Hello.", "a/b.gz", "I read notes.txt") if looks_like_a_path(each)]
    ['notes.txt', './notes', 'a/b.gz']
    """
    begins = _BEGINS.match(text) is not None
    ends = bool(_FILE.fullmatch(text) or _IN_A_LANGUAGE.fullmatch(text))
    if "://" in text or "\n" in text:
        return False
    if re.search(r"\s", text):
        return begins and ends
    first, slash, rest = text.partition("/")
    return begins or ends or (bool(slash) and (_is_folder(first) if rest else bool(re.fullmatch(r"[\w.-]+", first))))


def file_of(text: str | None, as_text: bool = False) -> Path | None:
    """The file that a TEXT argument names, standard input for "-" and for none, or None where it is a text itself.

    What is there is read; what looks like a path and is not there, and a folder, are refused; all else is a text, and so is
    everything where `as_text`. Raises InputError.
    """
    if as_text and text is not None:
        return None
    if text is None or text == "-":
        return Path("/dev/stdin")
    try:
        mode = os.stat(text).st_mode if text else None
        why = "which is not there"
    except (OSError, ValueError) as error:
        mode, why = None, "which is not there" if isinstance(error, FileNotFoundError) else reason(error)
    if mode is not None and not stat.S_ISDIR(mode):
        return Path(text)
    if mode is not None or looks_like_a_path(text):
        got = f"the folder {text}" if mode is not None else f"{text}, {why}"
        raise InputError(
            "a TEXT is a text or the name of a file", got=got, fix="check the name, or pass --text if it is a text"
        )
    return None


def read_text(text: str | None, as_text: bool = False) -> list[str]:
    """The lines of a TEXT argument: of the file that it names, of standard input, or its own."""
    from overt.learn.data.text_lines import decode_lines, read_lines

    path = file_of(text, as_text)
    if path is None:
        # What the shell passes that is not UTF-8 comes as lone surrogates.
        return decode_lines("the text", (text or "").encode("utf-8", "surrogateescape"))
    if text is None or text == "-":
        return decode_lines("standard input", sys.stdin.buffer.read())
    return read_lines(path)


def input_of(text: str | None, as_text: bool = False) -> dict[str, PathLike]:
    """The file that a TEXT argument is read from, by the name that `files.separate` gives it in an error."""
    path = file_of(text, as_text)
    if path is None:
        return {}
    return {"standard input" if text is None or text == "-" else "TEXT": path}


def model_files(*models: PathLike | None) -> dict[str, PathLike]:
    """The files in these model folders, which no output may replace, under the names that `files.separate` shows in an error."""
    files: dict[str, PathLike] = {}
    for model in models:
        for folder in [Path(model), Path(model, "model")] if model is not None else []:
            try:
                paths = [path for pattern in _MODEL_FILES for path in folder.glob(pattern)]
            except (OSError, ValueError):
                continue
            files |= {f"{path.name} of the model in {folder}": path for path in paths}
    return files


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False
