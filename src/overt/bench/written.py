"""What was measured, as a file that people read too."""

import json
import re
from typing import Any


def lines(told: Any) -> str:
    """JSON in which a list of plain values stands on one line.

    >>> print(lines({"runs": [[1, 2], [3, 4]]}))
    {
     "runs": [
      [1, 2],
      [3, 4]
     ]
    }
    """
    written = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda row: "[" + " ".join(row[1].split()) + "]", written)
