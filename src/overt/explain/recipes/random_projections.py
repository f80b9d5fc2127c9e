"""Query, key and value of a reader's own vectors, through random projections: the steps of the trained recipe without a model."""

import torch
from torch import nn

import overt
from overt.explain.explanation import Explanation, step_rows
from overt.explain.recipes.find_word import Word
from overt.explain.recipes.timing import timed
from overt.explain.recipes.vectors import Vectors


@torch.no_grad()
def projected(vectors: Vectors, word: Word, *, other: Vectors | None = None, seed: int = 0, loop: bool = False) -> Explanation:
    """Explain one vector: q = W_q x, k = W_k x, v = W_v x with matrices drawn from `seed`, then the steps of a trained head."""
    against = other or vectors
    x, y = (torch.from_numpy(each.values).float() for each in (vectors, against))
    width, i = x.shape[-1], word.index
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        of_query, of_key, of_value = (nn.Linear(width, width, bias=False) for _ in range(3))
    query, key, value = of_query(x), of_key(y), of_value(y)
    attention = overt.steps(query, key, value)
    return Explanation(
        recipe="qkv",
        text=vectors.encoded.text,
        other=other.encoded.text if other else None,
        tokens=against.encoded.tokens,
        query_tokens=vectors.encoded.tokens,
        word=i,
        special=[],
        source=f"{vectors.source}, random projections, seed {seed}",
        rows=[[attention.weights[i].tolist()]],
        shown=(0, 0),
        why="there is nothing to choose: one layer, one head",
        score_name="q·k",
        scale_name=f"√{width}" if width > 1 else "",
        normalizer="softmax",
        query=query[i].tolist(),
        steps=step_rows(against.encoded.tokens, query[i] @ key.mT, attention.masked[i], attention.weights[i], key, value),
        output=attention.output[i].tolist(),
        matrix=attention.weights.tolist(),
        loop=timed(query, key, value, overt.Dot()) if loop else None,
        notes=[
            *filter(None, [word.note, *vectors.notes]),
            f"The three matrices are drawn at random (seed {seed}): the steps are real, the weights mean nothing yet.",
        ],
    )
