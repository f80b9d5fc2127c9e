"""Every part of a JSON document, and the document with one of them replaced: what the tests of damaged files try one by one."""

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def parts(document: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every part, with those of lists and dictionaries."""
    if path:
        yield path
    entries = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, each in entries:
        yield from parts(each, (*path, key))


def changed(document: Any, path: Path, value: Any) -> Any:
    """A copy of the document with another value at this path."""
    document = copy.deepcopy(document)
    part = document
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return document
