"""Whether a head follows a plain rule of position, measured over all the words of the sentence. No torch."""

from collections.abc import Sequence

import numpy as np

# Mean weight of the words on their neighbour from which a head is said to follow it. "Always" also asks it of every single word.
ALWAYS, MOSTLY = 0.9, 0.5
_NEIGHBOURS = {"the previous word": -1, "the next word": 1}


def pattern(weights: np.ndarray, places: Sequence[int]) -> str:
    """Name the rule that the weights (N, N) follow at these places, the words without special tokens; empty where none.

    >>> shifted = np.eye(4, k=-1)
    >>> pattern(shifted, [0, 1, 2, 3]), pattern(0.6 * shifted + 0.1, [0, 1, 2, 3]), pattern(np.full((4, 4), 0.25), range(4))
    ('always the previous word', 'mostly the previous word', '')
    """
    among = set(places)
    for name, step in _NEIGHBOURS.items():
        shares = [float(weights[place, place + step]) for place in places if place + step in among]
        if len(shares) < 2 or np.mean(shares) < MOSTLY:
            continue
        always = np.mean(shares) >= ALWAYS and min(shares) >= MOSTLY
        return f"{'always' if always else 'mostly'} {name}"
    return ""
