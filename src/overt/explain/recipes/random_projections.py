"""Query, key and value of a reader's own vectors by random projections: the steps of a trained head without a model."""

import torch
from torch import nn

from overt.attention.scores import Dot
from overt.attention.trace import steps
from overt.explain.encoded import Word
from overt.explain.explanation import Explanation, Shown
from overt.explain.recipes.recorded import recorded
from overt.explain.recipes.timing import timed
from overt.explain.recipes.vectors import Vectors, one_head


@torch.no_grad()
def projected(vectors: Vectors, word: Word, *, other: Vectors | None = None, seed: int = 0, loop: bool = False) -> Explanation:
    """Explain one vector: q = W_q x, k = W_k x, v = W_v x with matrices drawn from `seed`, then the steps of a trained head."""
    x, y = (torch.from_numpy(embedded.values).float() for embedded in (vectors, other or vectors))
    width = x.shape[-1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        to_query, to_key, to_value = (nn.Linear(width, width, bias=False) for _ in range(3))
    query, key, value = to_query(x), to_key(y), to_value(y)
    attention = steps(query, key, value)
    return one_head(
        vectors,
        other,
        word,
        recipe="qkv",
        source=f"{vectors.source}, random projections, seed {seed}",
        score_name="q·k",
        scale_name=f"√{width}" if width > 1 else "",
        query=query,
        scores=query @ key.mT,
        scaled=attention.masked,
        weights=attention.weights,
        keys=key,
        values=value,
        output=attention.output,
        loop=timed(query, key, value, Dot()) if loop else None,
        recorded=lambda: Shown(
            recorded([(query, key, value, {})], vectors.encoded.tokens, (other or vectors).encoded.tokens), [[(0, 0)]]
        ),
        notes=[f"The three matrices are drawn at random (seed {seed}): the steps are real, but the weights carry no meaning."],
    )
