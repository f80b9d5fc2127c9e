"""Measurements as a JSON file that people can read."""

import json
import re
from typing import Any


def compact_json(data: Any) -> str:
    """JSON in which a list of plain values is on one line.

    >>> print(compact_json({"runs": [[1, 2], [3, 4]]}))
    {
     "runs": [
      [1, 2],
      [3, 4]
     ]
    }
    """
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda row: "[" + " ".join(row[1].split()) + "]", text)
