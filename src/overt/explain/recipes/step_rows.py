"""The rows of an explanation's steps, one a token. No torch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from overt.explain.explanation import StepRow


def step_rows(tokens: Sequence[str], scores: Any, scaled: Any, weights: Any, keys: Any, values: Any) -> list[StepRow]:
    """What each step makes of each token: scores, scaled and weights (K,), keys (K, D), values (K, E), arrays or CPU tensors.

    >>> step_rows(["sky"], [2.0], [1.0], [0.5], [[1.0, 0.0]], [[4.0]])[0].weighted
    [2.0]
    """
    scores, scaled, weights, keys, values = (np.asarray(given) for given in (scores, scaled, weights, keys, values))
    weighted = weights[:, None] * values  # (K, E)
    columns = (given.tolist() for given in (scores, scaled, weights, keys, values, weighted))
    return [StepRow(place, token, *rest) for place, (token, *rest) in enumerate(zip(tokens, *columns, strict=True))]
