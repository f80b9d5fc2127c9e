"""Self-attention without trained weights: every vector is its own query, key and value. NumPy only, no torch."""

import math
import time

import numpy as np

from overt.errors import InputError
from overt.explain.encoded import Word
from overt.explain.explanation import Explanation, Shown, Timing
from overt.explain.recipes.vectors import Vectors, one_head

NORMALIZERS = ("softmax", "sum")


def attend(queries: np.ndarray, keys: np.ndarray, normalizer: str = "softmax") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores before normalising, weights after it, and the outputs, in three lines.

    >>> x = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> attend(x, x, "sum")[2]
    array([[1., 0.],
           [0., 2.]])
    """
    scores = queries @ keys.T
    weights = _softmax(scores) if normalizer == "softmax" else scores / _sums(scores)
    return scores, weights, weights @ keys


def plain(
    vectors: Vectors, word: Word, *, other: Vectors | None = None, normalizer: str = "softmax", loop: bool = False
) -> Explanation:
    """Explain one word: W_ij = normalize_j(x_i · x_j), y_i = Σ_j W_ij x_j, over its own sentence or another one."""
    if normalizer not in NORMALIZERS:
        raise InputError("softmax or sum as the normalizer", got=repr(normalizer), fix="choose one of them")
    keys = (other or vectors).values
    scores, weights, output = attend(vectors.values, keys, normalizer)
    return one_head(
        vectors,
        other,
        word,
        recipe="plain",
        source=vectors.source,
        score_name="x_i·x_j",
        normalizer=normalizer,
        query=vectors.values,
        scores=scores,
        scaled=scores,
        weights=weights,
        keys=keys,
        values=keys,
        output=output,
        loop=_timed(vectors.values, keys, normalizer) if loop else None,
        notes=_notes(normalizer),
        recorded=lambda: _recorded(vectors, other or vectors, normalizer),
    )


def _recorded(vectors: Vectors, others: Vectors, normalizer: str) -> Shown:
    """Record the same attention by torch, for the page."""
    import torch

    from overt.attention.normalizers import Softmax, Sum
    from overt.attention.scores import Dot
    from overt.explain.recipes.recorded import recorded

    x, y = torch.from_numpy(vectors.values), torch.from_numpy(others.values)
    options = {"score": Dot(scale=1.0), "normalizer": Softmax() if normalizer == "softmax" else Sum()}
    recording = recorded([(x, y, y, options)], vectors.encoded.tokens, others.encoded.tokens)
    return Shown(recording, [[(0, 0)]], states=None if others is vectors else x)


def attend_one_by_one(queries: list[list[float]], keys: list[list[float]], normalizer: str = "softmax") -> list[list[float]]:
    """The same attention in plain loops over plain numbers, for reading.

    >>> attend_one_by_one([[1.0, 0.0]], [[1.0, 0.0], [3.0, 5.0]], "sum")
    [[2.5, 3.75]]
    """
    outputs = []
    for query in queries:
        scores = []
        for key in keys:
            score = 0.0
            for q, k in zip(query, key, strict=True):
                score += q * k
            scores.append(score)
        if normalizer == "softmax":
            highest = max(scores)
            scores = [math.exp(score - highest) for score in scores]
        total = sum(scores)
        output = [0.0] * len(keys[0])
        for score, key in zip(scores, keys, strict=True):
            for feature, k in enumerate(key):
                output[feature] += score / total * k
        outputs.append(output)
    return outputs


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _sums(scores: np.ndarray) -> np.ndarray:
    sums = scores.sum(axis=-1, keepdims=True)
    if bool((sums == 0).any()):
        raise InputError(
            "scores that do not sum to 0, to divide them by their sum",
            got=f"a sum of 0 for row {int(np.flatnonzero(sums[:, 0] == 0)[0]) + 1}",
            fix="use the softmax",
        )
    return sums


def _timed(queries: np.ndarray, keys: np.ndarray, normalizer: str) -> Timing:
    lists = queries.tolist(), keys.tolist()
    start = time.perf_counter()
    loops = attend_one_by_one(*lists, normalizer)
    middle = time.perf_counter()
    matrices = attend(queries, keys, normalizer)[2]
    end = time.perf_counter()
    return Timing(middle - start, end - middle, float(np.abs(np.array(loops) - matrices).max()))


def _notes(normalizer: str) -> list[str]:
    notes = ["Nothing here was trained, and order has no influence: the weights say which vectors have similar directions."]
    if normalizer == "sum":
        notes.append("Divided by their plain sum, weights may be negative or larger than 1.")
    return notes
