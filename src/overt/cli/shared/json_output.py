"""The output of `--json`: one object according to a JSON Schema in `schemas`, with the command and its version as `format`."""

import json
import math
from typing import Any

from overt.files import PathLike, whole


def write_json(path: PathLike, command: str, content: dict[str, Any]) -> None:
    """Write a command's results as JSON; a non-finite number becomes null, and the path - is standard output.

    >>> write_json("-", "doctor", {"findings": []})  # doctest: +SKIP
    {"format": "overt doctor 1", "findings": []}
    """
    text = json.dumps(finite({"format": f"overt {command} 1", **content}), ensure_ascii=False, allow_nan=False, indent=1)
    with whole("/dev/stdout" if str(path) == "-" else path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """The same data with null for NaN and infinity, and lists for arrays.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
