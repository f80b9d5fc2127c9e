"""The recurrent form: a layer computes hidden states h_1 … h_n; each is scored against all others, and joined with its context."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.normalizers import Softmax, Sum
from overt.attention.scores import Additive, Bilinear, Cosine, Dot
from overt.attention.trace import steps
from overt.errors import InputError
from overt.explain.encoded import Word
from overt.explain.explanation import Explanation, Shown, Timing
from overt.explain.recipes.recorded import recorded
from overt.explain.recipes.timing import timed
from overt.explain.recipes.vectors import Vectors, one_head

LAYERS = {"gru": "GRU", "lstm": "LSTM", "rnn": "plain RNN", "conv": "1-D CNN", "linear": "linear layer"}
RECURRENT: dict[str, type[nn.GRU | nn.LSTM | nn.RNN]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
FORMULAS = {
    "additive": "v · tanh(W h_i + U h_j)",
    "dot": "h_i · h_j",
    "general": "h_i · W h_j",
    "cosine": "h_i · h_j / |h_i| |h_j|",
}
NORMALIZERS: dict[str, type[Softmax | Sum]] = {"softmax": Softmax, "sum": Sum}


@torch.no_grad()
def hidden(
    vectors: Vectors,
    word: Word,
    *,
    other: Vectors | None = None,
    layer: str = "gru",
    score: str = "additive",
    normalizer: str = "softmax",
    width: int = 8,
    seed: int = 0,
    initial: Sequence[float] | None = None,
    loop: bool = False,
) -> Explanation:
    """Explain one word: e_ij = f(h_i, h_j), a_ij = softmax_j(e_ij), c_i = Σ_j a_ij h_j, [h_i, c_i].

    The layer and the parameters of f are untrained, drawn from `seed`. `initial` is h_0, by default zero; only
    recurrent layers have one. With `other`, h_i comes from one sentence and h_j from the other, through the same layer.
    """
    for name, choice, choices in (
        ("layer", layer, LAYERS),
        ("score", score, FORMULAS),
        ("normalizer", normalizer, NORMALIZERS),
    ):
        if choice not in choices:
            raise InputError(f"one of {', '.join(choices)} as the {name}", got=repr(choice), fix="choose one of them")
    start = _initial(initial, layer, width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make_states = _layer(layer, vectors.values.shape[-1], width, start)
        projections, f = _score(score, width)
    states = make_states(torch.from_numpy(vectors.values).float())  # (N, width)
    others = states if other is None else make_states(torch.from_numpy(other.values).float())
    query, key = projections[0](states), projections[1](others)
    options = {"score": f, "normalizer": NORMALIZERS[normalizer]()}
    attention = steps(query, key, others, **options)
    tokens = vectors.encoded.tokens, (other or vectors).encoded.tokens
    return one_head(
        vectors,
        other,
        word,
        recipe="hidden",
        source=f"{LAYERS[layer]}, untrained, seed {seed}, over {vectors.source}",
        score_name="f(h_i, h_j)",
        normalizer=normalizer,
        query=states,
        scores=attention.scores,
        scaled=attention.masked,
        weights=attention.weights,
        keys=others,
        values=others,
        output=attention.output,
        joined=torch.cat([states[word.index], attention.output[word.index]]).tolist(),
        loop=_timed(query, key, others, f, normalizer) if loop else None,
        notes=_notes(layer, score, seed, initial),
        recorded=lambda: Shown(recorded([(query, key, others, options)], *tokens), [[(0, 0)]], states=states),
    )


def _layer(kind: str, features: int, width: int, initial: Tensor | None) -> Callable[[Tensor], Tensor]:
    """From a sequence (N, features) to its hidden states (N, width)."""
    if kind == "linear":
        return nn.Linear(features, width)
    if kind == "conv":
        convolution = nn.Conv1d(features, width, kernel_size=3, padding=1)
        return lambda x: convolution(x.mT).mT
    recurrent = RECURRENT[kind](features, width)
    if initial is None:
        return lambda x: recurrent(x)[0]
    start = (initial[None], torch.zeros_like(initial[None])) if kind == "lstm" else initial[None]
    return lambda x: recurrent(x, start)[0]


def _score(kind: str, width: int) -> tuple[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], Any]:
    """The projections of h_i and of h_j, and f."""
    same = (nn.Identity(), nn.Identity())
    if kind == "additive":
        projections = (nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False))
        return projections, Additive(torch.randn(width))
    if kind == "general":
        return same, Bilinear(torch.randn(width, width) / width**0.5)
    return same, Cosine() if kind == "cosine" else Dot(scale=1.0)


def _initial(initial: Sequence[float] | None, layer: str, width: int) -> Tensor | None:
    if initial is None:
        return None
    if layer not in RECURRENT:
        raise InputError(
            "a GRU, an LSTM or a plain RNN, which start from a state h_0", got=f"h_0 for a {LAYERS[layer]}", fix="leave it out"
        )
    if len(initial) != width:
        raise InputError(
            f"{width} numbers for h_0, one for each dimension of the states", got=f"{len(initial)} numbers", fix=f"give {width}"
        )
    return torch.tensor(initial, dtype=torch.float32)


def _timed(query: Tensor, key: Tensor, value: Tensor, f: Any, normalizer: str) -> Timing:
    if normalizer != "softmax":
        raise InputError("the softmax with the loop form", got=normalizer, fix="leave out --loop or --normalizer")
    return timed(query, key, value, f)


def _notes(layer: str, score: str, seed: int, initial: Sequence[float] | None) -> list[str]:
    drawn = " with weights from the same seed" if score in ("additive", "general") else ""
    began = "" if layer not in RECURRENT else " h_0 is zero." if initial is None else " h_0 is given."
    return [
        f"f(h_i, h_j) = {FORMULAS[score]}{drawn}.{began}",
        f"The {LAYERS[layer]} is untrained (seed {seed}): the steps are real, but the weights carry no meaning.",
    ]
