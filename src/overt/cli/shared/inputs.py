"""Read a command's input: its TEXT argument (a text, a file or standard input) and a model's files."""

import os
import re
import stat
import sys
from pathlib import Path

from overt.errors import InputError
from overt.files import PathLike
from overt.reading import reason

# _SUFFIXES of file names; a one-word text rarely ends in one. Language codes are suffixes of parallel texts.
_SUFFIXES = (
    "txt|text|md|rst|csv|tsv|tab|json|jsonl|xml|html|htm|tex|srt|vtt|log|toml|yaml|yml|conllu|src|ref|hyp|tok|bpe|tmx|xliff|po|"
    "gz|zip|bz2|xz|zst|tar|parquet|safetensors|pdf|doc|docx|odt|rtf|epub"
)
_LANGUAGES = "en|fr|de|es|it|pt|nl|pl|cs|ro|ru|uk|tr|ar|hi|zh|ja|ko"
_HAS_SUFFIX = re.compile(rf".*[^.]\.({_SUFFIXES})", re.IGNORECASE | re.DOTALL)
_HAS_LANGUAGE = re.compile(rf"(?!www\.)[^@]*[^.@]\.({_LANGUAGES})", re.DOTALL)
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

_PATH_START = re.compile(r"~?/|\\\\\w|\.\.?[/\\]|[A-Za-z]:[/\\]")


def looks_like_a_path(text: str) -> bool:
    """Whether a text looks like a path, existing or not: it starts like a path, or ends like a file name and has no space.

    >>> [each for each in ("notes.txt", "./notes", "and/or", "Hello.", "a/b.gz", "I read notes.txt") if looks_like_a_path(each)]
    ['notes.txt', './notes', 'a/b.gz']
    """
    begins = _PATH_START.match(text) is not None
    ends = bool(_HAS_SUFFIX.fullmatch(text) or _HAS_LANGUAGE.fullmatch(text))
    if "://" in text or "\n" in text:
        return False
    if re.search(r"\s", text):
        return begins and ends
    first, slash, tail = text.partition("/")
    return begins or ends or (bool(slash) and (_is_folder(first) if tail else bool(re.fullmatch(r"[\w.-]+", first))))


def named_file(text: str | None, as_text: bool = False) -> Path | None:
    """The file that a TEXT argument names, standard input for "-" or no argument, or None if the argument is the text itself.

    With `as_text` the argument is always the text. Raises InputError for a folder, and for a text that looks like the path of a file that
    does not exist.
    """
    if as_text and text is not None:
        return None
    if text is None or text == "-":
        return Path("/dev/stdin")
    try:
        mode = os.stat(text).st_mode if text else None
        problem = "which does not exist"
    except (OSError, ValueError) as error:
        mode, problem = None, "which does not exist" if isinstance(error, FileNotFoundError) else reason(error)
    if mode is not None and not stat.S_ISDIR(mode):
        return Path(text)
    if mode is not None or looks_like_a_path(text):
        got = f"the folder {text}" if mode is not None else f"{text}, {problem}"
        raise InputError("a text or the name of a file", got=got, fix="check the name, or pass --text if it is a text")
    return None


def read_text(text: str | None, as_text: bool = False) -> list[str]:
    """The lines of a TEXT argument: from its file, from standard input, or from the text itself."""
    from overt.learn.data.text_lines import decode_lines, read_lines

    path = named_file(text, as_text)
    if path is None:
        # Bytes in the command line that are not UTF-8 arrive as lone surrogates.
        return decode_lines("the text", (text or "").encode("utf-8", "surrogateescape"))
    if text is None or text == "-":
        return decode_lines("standard input", sys.stdin.buffer.read())
    return read_lines(path)


def named_input(text: str | None, as_text: bool = False) -> dict[str, PathLike]:
    """The file that a TEXT argument names, under its name in the errors of `files.separate`."""
    path = named_file(text, as_text)
    if path is None:
        return {}
    return {"standard input" if text is None or text == "-" else "TEXT": path}


def model_files(*models: PathLike | None) -> dict[str, PathLike]:
    """The files in these model folders, which no output may replace, under their names in the errors of `files.separate`."""
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
