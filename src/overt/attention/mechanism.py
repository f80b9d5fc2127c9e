"""The mechanism: score → mask → normalize → mix."""

from collections.abc import Callable
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from overt.attention.kernels.blocked import blocked
from overt.attention.kernels.call import Block, Call
from overt.attention.kernels.flat.call import served
from overt.attention.kernels.plan import path_of
from overt.attention.kernels.torch_sdpa import delegated
from overt.attention.typing import BiasLike, MaskLike, NormalizerLike, ScoreLike

observers: ContextVar[tuple[Callable[[Call, Tensor], None], ...]] = ContextVar("observers", default=())


def attend(
    query: Float[Tensor, "... Q D"],
    key: Float[Tensor, "... K D"],
    value: Float[Tensor, "... K E"],
    *,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    bias: BiasLike | None = None,
    normalizer: NormalizerLike | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "... Q E"]:
    """Attend: output_i = Σ_j weights_ij · value_j with weights_ij = normalize_j(mask_ij(f(query_i, key_j) + bias_ij)).

    Vaswani et al. 2017, section 3.2, with any score f (`overt.scores`; None: the scaled dot product), mask (`overt.masks` or a bool
    tensor; True: may attend), bias (`overt.biases` or a tensor) and normalizer (`overt.normalizers`; None: softmax). Heads are a
    batch dimension; fewer heads of key and value, as many of both, than of query, at dimension −3, is grouped-query attention.
    `dropout` zeroes weights with this probability and scales the rest. A query that may attend to nothing gets zeros.

    Shapes: query (..., Q, D), key (..., K, D), value (..., K, E) → (..., Q, E). Memory is linear in the inputs on every path.
    Raises InputError for shapes that do not fit, KindError for wrong dtypes, devices and types.

    >>> import torch, overt
    >>> words = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    >>> overt.attend(words, words, words, score=overt.Dot(scale=1.0), mask=overt.Causal())
    tensor([[1.0000, 0.0000],
            [0.2689, 0.7311],
            [1.8509, 0.0159]])
    """
    call = Call.of(query, key, value, score, mask, bias, normalizer, dropout)
    output = compute(call)
    for observe in () if torch.compiler.is_compiling() else observers.get():
        observe(call, output)
    return output


def compute(call: Call) -> Tensor:
    """The output, by the path that the plan chooses."""
    chosen = path_of(call)
    return served(call) if chosen == "native" else delegated(call, in_blocks) if chosen == "torch" else in_blocks(call)


def in_blocks(call: Call) -> Tensor:
    """The output, by the formula below, a block of query rows at a time."""
    return blocked(call, lambda block: formula(block)[3:])[0].to(call.query.dtype)


def formula(block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, masked scores, weights and output of a block of query rows: the whole of attention in four steps."""
    scores = block.score(block.query, block.key).to(block.value.dtype)  # (..., Q, K)

    masked = scores if block.bias is None else scores + block.bias.to(scores.dtype)  # (..., Q, K)
    masked = masked if block.allowed is None else torch.where(block.allowed, masked, -torch.inf)

    barred = masked == -torch.inf
    # A row with nothing to attend to is normalised as if all its scores were 0, then zeroed: no NaN, and no gradient.
    weights = block.normalizer(torch.where(barred.all(-1, keepdim=True), 0, masked), ~barred)
    weights = torch.where(barred, 0, weights)  # (..., Q, K)

    output = functional.dropout(weights, block.dropout) @ block.value  # (..., Q, E)
    return scores, masked, weights, output
