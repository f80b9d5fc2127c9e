"""Explanations made of NumPy alone, for the tests of everything that draws one; only a page needs the recording, and torch for it."""

import math

import numpy as np

from overt.explain.explanation import Explanation, Link, Looks, Shown, StepRow, Timing

ANIMAL = ["[CLS]", "the", "animal", "didn", "'", "t", "cross", "the", "street", "because", "it", "was", "too", "tired", "[SEP]"]
NASTY = [
    "[CLS]",
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "$x^$",
    "\\frac{1}",
    "🦊",
    "👩‍👩‍👧",
    "שלום",
    "مرحبا",
    "\u202eevil",
    "nul\x00nul",
    "\x1b[31mred",
    "a\nb",
    "\u2028\u2029",
    "\ud800",
    "&amp;\"'`",
    "",
    " ",
    "[bold]rich[/bold]",
    "漢字かな",
    "internationalization" * 4,
    "[SEP]",
]


def softmax(scores):
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def page_of(layers, query_tokens, key_tokens, states=None):
    """The recording of these calls, (query, key, value, options) a layer, once a page is made of it."""

    def make():
        import torch

        from overt.explain.recipes.recorded import recorded

        tensors = lambda layer: tuple(torch.as_tensor(each).float() for each in layer[:3])  # noqa: E731
        recording = recorded([(*tensors(layer), layer[3]()) for layer in layers], list(query_tokens), list(key_tokens))
        heads = [
            [(index, head) for head in range(len(layer[0]) if layer[0].ndim == 3 else 1)] for index, layer in enumerate(layers)
        ]
        return Shown(recording, heads, states=None if states is None else torch.as_tensor(states).float())

    return make


def step_rows(tokens, score, scaled, weight, key, value):
    return [
        StepRow(j, token, float(score[j]), float(scaled[j]), float(weight[j]), key[j].tolist(), value[j].tolist(),
                (weight[j] * value[j]).tolist())
        for j, token in enumerate(tokens)
    ]  # fmt: skip


def strongest_links(rows, tokens, special, self_index):
    links = []
    for layer, heads in enumerate(rows):
        free = [j for j in range(len(tokens)) if j not in special and j != self_index]
        weight, head, index = max((heads[h][j], h, j) for h in range(len(heads)) for j in free)
        links.append(Link(layer, head, index, tokens[index], weight, "always the previous token" if layer == 0 else ""))
    return links


def qkv(tokens=ANIMAL, word=10, layers=6, heads=12, width=32, seed=0, other=None, **changes):
    """A trained model's explanation in every respect but the training; `other` holds the tokens of a second sentence."""
    draw = np.random.default_rng(seed)
    keys_of = tokens if other is None else other
    query, key = draw.normal(size=(layers, heads, len(tokens), width)), draw.normal(size=(layers, heads, len(keys_of), width))
    value = draw.normal(size=(layers, heads, len(keys_of), width))
    scores = query @ key.swapaxes(-1, -2)
    weights = softmax(scores / math.sqrt(width))
    special = [j for j, token in enumerate(keys_of) if token in {"[CLS]", "[SEP]"}]
    rows, shown = weights[:, :, word].tolist(), (layers - 1, heads - 1)
    self_index = word if other is None else None
    steps = step_rows(keys_of, scores[shown][word], scores[shown][word] / math.sqrt(width), weights[shown][word], key[shown],
                      value[shown])  # fmt: skip
    hardest = weights[:, :, word].argmax(-1).ravel().tolist()
    made = {
        "recipe": "qkv", "text": " ".join(tokens), "other": None if other is None else " ".join(other), "tokens": list(keys_of),
        "query_tokens": list(tokens), "word": word, "special": special, "source": f"random, {layers} layers × {heads} heads",
        "rows": rows, "shown": shown, "why": "the last layer's strongest", "score_name": "q·k", "scale_name": f"√{width}",
        "normalizer": "softmax", "query": query[shown][word].tolist(), "steps": steps,
        "output": (weights[shown][word] @ value[shown]).tolist(), "matrix": weights[shown].tolist(),
        "links": strongest_links(rows, keys_of, special, self_index),
        "looks": Looks(layers * heads, sum(j in special for j in hardest), hardest.count(self_index), "[CLS] or [SEP]"),
        "residual": 4.1e-7, "bound": 2.3e-6, "loop": Timing(2.31e-3, 4.1e-5, 3e-7),
        "notes": ["The numbers are what the model computes; they are not a reason for what it says."],
        "recorded": page_of([(query[layer], key[layer], value[layer], dict) for layer in range(layers)], tokens, keys_of),
    }  # fmt: skip
    return Explanation(**(made | changes))


def hidden(tokens=("Sky", "is", "clear", "today"), word=0, width=8, seed=0, **changes):
    """Additive attention over the states of a layer: c_i = Σ a_ij h_j and [h_i, c_i]."""
    draw = np.random.default_rng(seed)
    states = np.tanh(draw.normal(size=(len(tokens), width)))
    score_weight = draw.normal(size=width)
    scores = np.tanh(states[:, None] + states[None]) @ score_weight
    weights = softmax(scores)
    context = weights[word] @ states
    made = {
        "recipe": "hidden", "text": " ".join(tokens), "other": None, "tokens": list(tokens), "query_tokens": list(tokens),
        "word": word, "special": [], "source": "GRU, untrained, seed 0", "rows": [[weights[word].tolist()]], "shown": (0, 0),
        "why": "the only head", "score_name": "f(h_i, h_j)", "scale_name": "", "normalizer": "softmax",
        "query": states[word].tolist(),
        "steps": step_rows(tokens, scores[word], scores[word], weights[word], states, states),
        "output": context.tolist(), "matrix": weights.tolist(), "joined": [*states[word].tolist(), *context.tolist()],
        "notes": ["The layer is untrained (seed 0): the numbers show the computation, not a meaning."],
        "recorded": page_of([(states, states, states, lambda: additive(score_weight))], tokens, tokens, states),
    }  # fmt: skip
    return Explanation(**(made | changes))


def plain(tokens=("sky", "is", "clear", "today"), word=0, width=5, seed=3, normalizer="softmax", **changes):
    """The vectors themselves: W_ij = normalize(x_i·x_j), y_i = Σ W_ij x_j."""
    vectors = np.random.default_rng(seed).normal(size=(len(tokens), width))
    scores = vectors @ vectors.T
    weights = softmax(scores) if normalizer == "softmax" else scores / scores.sum(-1, keepdims=True)
    made = {
        "recipe": "plain", "text": " ".join(tokens), "other": None, "tokens": list(tokens), "query_tokens": list(tokens),
        "word": word, "special": [], "source": "word vectors", "rows": [[weights[word].tolist()]], "shown": (0, 0),
        "why": "the only head", "score_name": "x_i·x_j", "scale_name": "", "normalizer": normalizer,
        "query": vectors[word].tolist(),
        "steps": step_rows(tokens, scores[word], scores[word], weights[word], vectors, vectors),
        "output": (weights[word] @ vectors).tolist(), "matrix": weights.tolist(),
        "recorded": page_of([(vectors, vectors, vectors, lambda: unscaled(normalizer))], tokens, tokens),
    }  # fmt: skip
    return Explanation(**(made | changes))


def additive(weight):
    import torch

    import overt

    return {"score": overt.Additive(torch.as_tensor(weight).float())}


def unscaled(normalizer):
    import overt

    return {
        "score": overt.Dot(scale=1.0),
        "normalizer": overt.Softmax() if normalizer == "softmax" else overt.normalizers.Sum(),
    }


def nasty(**changes):
    """Tokens that try to break out of wherever they are drawn."""
    evil = NASTY[1]
    message = {"text": evil, "source": evil, "why": evil, "notes": [evil, "$\\frac{$", "\x1b]0;title\x07"]}
    return qkv(NASTY, word=1, layers=2, heads=3, width=4, **(message | changes))


def long(count=60, **changes):
    """A sentence of some sixty tokens, a few of them very long."""
    words = [
        "the",
        "committee",
        "of",
        "hydroxychloroquine",
        "manufacturers",
        "decided",
        "that",
        "electroencephalography",
        "waits",
        ",",
    ]
    tokens = ["[CLS]", *[words[i % len(words)] for i in range(count - 2)], "[SEP]"]
    return qkv(tokens, word=5, **changes)


EVERY_RECIPE = {
    "qkv": qkv,
    "hidden": hidden,
    "plain": plain,
    "plain, by the sum": lambda: plain(normalizer="sum"),
    "from one sentence to another": lambda: qkv(other=["[CLS]", "la", "bestia", "era", "stanca", "[SEP]"]),
    "nasty": nasty,
    "long": long,
    "one token": lambda: plain(tokens=("alone",)),
}
