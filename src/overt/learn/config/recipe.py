"""Recipes: TOML files that say what to train, on what data and how; errors name the line."""

import difflib
import inspect
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import torch

from overt.errors import InputError, KindError, OvertError
from overt.learn.config.settings import Data, Decoding, Recipe, Tokenization, Training
from overt.learn.data.corpora import data_paths
from overt.models.building import KINDS, from_config
from overt.reading import reason

TABLES: dict[str, type[Data | Tokenization | Training | Decoding]] = {
    "data": Data,
    "tokens": Tokenization,
    "training": Training,
    "decoding": Decoding,
}
# MODELS: the models for each task; the first is the default.
MODELS: dict[str, tuple[str, ...]] = {
    "translate": ("Transformer", "Seq2Seq"),
    "tag": ("Tagger",),
    "classify": ("Classifier",),
    "language": ("LanguageModel",),
}
# SIZES: arguments that depend on the data; small values here, with which a recipe's model is built as a check.
SIZES = {
    "translate": {"source_words": 8, "target_words": 8},
    "tag": {"words": 8, "tags": 8},
    "classify": {"words": 8, "classes": 8},
    "language": {"words": 8},
}

_LARGEST = 2**63 - 1
# _MOVED: removed keys of recipes, and their replacement.
_MOVED = {"variants": "write altered copies to a file with python -m recipes.variants and name that file in added"}


def read_recipe(path: str | Path, *, files: bool = True) -> Recipe:
    """Read a recipe; a missing key has the default of `overt.learn.config.settings` or of the model, and "none" is None.

    Raises InputError, with the file and the line, for a file that is not TOML, an unknown key (with the known one it resembles), a
    value of a wrong type or out of range, and, with `files`, a data file that does not exist.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "recipe.toml"
    >>> _ = path.write_text('[model]\\nkind = "Transformer"\\n[training]\\nupdates = 10\\nwarmpu = 5\\n')
    >>> try:
    ...     read_recipe(path)
    ... except InputError as error:
    ...     print(str(error).replace(str(path), "recipe.toml"))
    Expected a key of [training], got 'warmpu' (recipe.toml, line 5). Fix: write 'warmup'.
    """
    return _Reader(Path(path)).recipe(files)


class _Reader:
    """A recipe's file, with the line of each key."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.text = path.read_bytes().decode()
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            got = f"the byte 0x{error.object[error.start]:02x}"
            raise self._error(line, "a recipe in UTF-8", got, "save it in UTF-8") from error
        except (OSError, ValueError) as error:
            raise InputError(f"{path} to be a recipe", got=reason(error), fix="check its name") from error
        try:
            self.content = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            match = re.search(r"at line (\d+)", str(error))
            line = int(match[1]) if match else self.text.count("\n") + 1
            raise self._error(line, "a recipe in TOML", str(error), 'write key = value, and strings in "quotes"') from error
        except RecursionError as error:
            raise self._error(None, "a recipe in TOML", reason(error), "write lists of numbers and strings only") from error
        except ValueError as error:  # Python refuses to parse numbers with too many digits
            long = re.search(r"\d{1000}", self.text)
            line = self.text[: long.start()].count("\n") + 1 if long else None
            got = "a number with too many digits"
            raise self._error(line, "numbers of at most 64 bits", got, "write a smaller number") from error
        self.lines = _lines(self.text)

    def recipe(self, files: bool) -> Recipe:
        task = self.content.get("task", Recipe.task)
        for key in self.content:
            self._known("", key, ["task", *TABLES, "model"])
        if task not in list(SIZES):
            raise self._at(("", "task"), f"task to be one of {', '.join(map(repr, SIZES))}", repr(task), _near(task, SIZES))
        tables = {name: self._table(name, kind) for name, kind in TABLES.items()}
        model = self._model(task)
        try:
            recipe = Recipe(task=task, model=model, **tables)
        except InputError as error:
            raise self._located("tokens", error) from error
        if files:
            self._check_files(recipe)
        return recipe

    def _table(self, name: str, kind: type) -> Any:
        """One table as its dataclass."""
        table = self._mapping(name)
        hints = get_type_hints(kind)
        values = {}
        for key, value in table.items():
            self._known(name, key, [field.name for field in fields(kind)])
            values[key] = self._value(name, key, value, hints[key])
        try:
            return kind(**values)
        except OvertError as error:
            raise self._located(name, error) from error

    def _model(self, task: str) -> dict[str, Any]:
        """The model's table, checked by building the model with a small vocabulary on the meta device, which needs no memory."""
        table = self._mapping("model")
        kind = table.get("kind", MODELS[task][0])
        if kind not in MODELS[task]:
            names = " or ".join(map(repr, MODELS[task]))
            raise self._at(
                ("model", "kind"), f"a model of kind {names} for the task {task!r}", repr(kind), _near(kind, MODELS[task])
            )
        constructor = KINDS[kind].__init__
        hints = get_type_hints(constructor)
        known = [name for name in inspect.signature(constructor).parameters if name not in {"self", *SIZES[task]}]
        values = {"kind": kind}
        for key, value in table.items():
            self._known("model", key, ["kind", *known])
            if key != "kind":
                values[key] = self._value("model", key, value, hints[key])
        try:
            with torch.device("meta"):
                from_config({**values, **SIZES[task]})
        except OvertError as error:
            raise self._located("model", error) from error
        return values

    def _check_files(self, recipe: Recipe) -> None:
        named = [("data", key, list(getattr(recipe.data, key))) for key in ("train", "valid", "test")]
        named.append(("tokens", "merges_file", [recipe.tokens.merges_file] if recipe.tokens.merges_file else []))
        if not recipe.data.train:
            raise self._at(("data", "train"), "train to name the training files", "none", "add it to [data]")
        for table, key, names in named:
            for path in data_paths(recipe.data, names):
                if not os.path.isfile(path):  # a Path raises if a name is too long
                    origin = f", from {recipe.data.origin}" if recipe.data.origin else ""
                    fix = f"set OVERT_DATA to the folder that holds {recipe.data.folder}/, or put the file there{origin}"
                    raise self._at((table, key), f"{key} to name existing files", f"{path}, which does not exist", fix)
        for name in recipe.data.added:
            if not os.path.isfile(name):
                fix = "start overt train in the folder that the name begins in, or make the file (recipes/synthetic_pairs.py)"
                raise self._at(("data", "added"), "added to name existing files", f"{name}, which does not exist", fix)

    def _mapping(self, name: str) -> Mapping[str, Any]:
        table = self.content.get(name, {})
        if not isinstance(table, Mapping):
            raise self._at(("", name), f"{name} to be a table", repr(table), f"write its keys below [{name}]")
        return table

    def _known(self, table: str, key: str, known: list[str]) -> None:
        if key not in known:
            owner = f"[{table}]" if table else "a recipe"
            fix = _MOVED.get(key) or _near(key, known)
            raise self._at((table, key), f"a key of {owner}", repr(key), fix)

    def _value(self, table: str, key: str, value: Any, hint: Any) -> Any:
        """Convert a value to the type in the dataclass or the model's constructor; a list becomes a tuple."""
        if type(value) is int and abs(value) > _LARGEST:
            raise self._at(
                (table, key), f"{key} to be a number of at most 64 bits", f"{len(str(value))} digits", "write a smaller number"
            )
        choices = get_args(hint) if get_origin(hint) is not tuple and get_args(hint) else (hint,)
        if value == "none" and type(None) in choices:
            return None
        for choice in choices:
            if _has_type(value, choice):
                return tuple(value) if isinstance(value, list) else float(value) if choice is float else value
        expected, example = " or ".join(map(_in_words, choices)), _EXAMPLES.get(choices[0], "it in [brackets]")
        raise self._at((table, key), f"{key} to be {expected}", f"{value!r}", f"write {example}")

    def _located(self, table: str, error: OvertError) -> InputError:
        """Convert an error from a table's object to one with the line of the first key that its message names."""
        named = [(match.start(), key) for key in self._mapping(table) if (match := re.search(rf"\b{key}\b", str(error)))]
        location = (table, min(named)[1] if named else "")
        if isinstance(error, InputError | KindError):
            return self._at(location, error.expected, error.got, error.fix)
        return self._at(location, "a model that can be built", str(error).rstrip("."), f"change a key of [{table}]")

    def _at(self, location: tuple[str, str], expected: str, got: str = "", fix: str = "") -> InputError:
        """An error with the line of a key, or of its table if the key is not in the file."""
        table, key = location
        lines = [self.lines[spot] for spot in (location, (table or key, ""), ("", table)) if spot in self.lines]
        return self._error(lines[0] if lines else None, expected, got, fix)

    def _error(self, line: int | None, expected: str, got: str = "", fix: str = "") -> InputError:
        where = f" ({self.path}, line {line})" if line else f" ({self.path})"
        return InputError(expected, f"{got}{where}", fix) if got else InputError(f"{expected}{where}", fix=fix)


def _lines(text: str) -> dict[tuple[str, str], int]:
    """The line of each (table, key), and of each table's header as (table, "")."""
    lines: dict[tuple[str, str], int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if head := re.match(r"\s*\[\s*\"?([\w-]+)\"?\s*\]", line):
            table = head[1]
            lines.setdefault((table, ""), number)
        elif key := re.match(r"\s*(?:([\w-]+)\s*\.\s*)?\"?([\w-]+)\"?\s*=", line):
            lines.setdefault((key[1] or table, key[2]), number)
    return lines


def _near(name: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"write {near[0]!r}" if near else f"choose one of {', '.join(known)}"


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a TOML value has an annotated type; a whole number counts as a number, true does not."""
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        item_hint = inner[0] if inner[-1] is Ellipsis else None
        if not isinstance(value, list):
            return False
        if item_hint is not None:
            return all(_has_type(item, item_hint) for item in value)
        return len(value) == len(inner) and all(_has_type(item, kind) for item, kind in zip(value, inner, strict=True))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", type(None): '"none"'}
_EXAMPLES = {int: "digits only, as in 12", float: "a number, as in 0.1", str: 'it in "quotes"', bool: "true or false"}


def _in_words(hint: Any) -> str:
    if get_origin(hint) is not tuple:
        return _WORDS[hint]
    inner = get_args(hint)
    return f"a list of {_WORDS[inner[0]].removeprefix('a ')}s" if inner[-1] is Ellipsis else f"a list of {len(inner)} numbers"
