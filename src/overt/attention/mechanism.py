"""The mechanism: score → mask → normalize → mix."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from overt.attention.kernels.blocked import Block, in_blocks
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat.call import served
from overt.attention.kernels.log_sum_exp import with_log_sum_exp
from overt.attention.kernels.plain import plain
from overt.attention.kernels.plan import FLAT, choose_path
from overt.attention.kernels.sharded.attend import share
from overt.attention.kernels.torch_sdpa import delegated
from overt.attention.typing import Array, BiasLike, MaskLike, NormalizerLike, Refused, ScoreLike, typed

observers: ContextVar[tuple[Callable[[Call, Tensor], None], ...]] = ContextVar("observers", default=())


@typed
def attend(
    query: Float[Array, "... Q D"],
    key: Float[Array, "... K D"],
    value: Float[Array, "... K E"],
    *,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    bias: BiasLike | None = None,
    normalizer: NormalizerLike | None = None,
    dropout: float = 0.0,
    return_lse: bool = False,
    **unknown: Refused,
) -> object:
    """Attend: output_i = Σ_j weights_ij · value_j with weights_ij = normalize_j(mask_ij(f(query_i, key_j) + bias_ij)).

    Vaswani et al. 2017, section 3.2, with any score f (`overt.scores`; None: the scaled dot product), mask (`overt.masks` or a bool
    tensor; True: may attend), bias (`overt.biases` or a tensor) and normalizer (`overt.normalizers`; None: softmax), or its name.
    A query without keys gets zeros. Memory is linear. `return_lse` adds log Σ_j exp(score_ij), (..., Q), by which parts merge; statistics:
    `summarize(…, value=value)`. Query (..., Q, D), key (..., K, D), value (..., K, E) → (..., Q, E): tensors, DTensors or, without
    gradients, arrays of NumPy or DLPack; fewer heads (dimension −3) of key and value are grouped. Raises InputError, KindError.

    >>> import torch, overt
    >>> words = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    >>> overt.attend(words, words, words, score=overt.Dot(scale=1.0), mask="causal")[1]
    tensor([1.8808, 0.0000])
    """
    observing = () if torch.compiler.is_compiling() else observers.get()
    arguments = query, key, value, score, mask, bias, normalizer, dropout
    if not (observing or unknown or return_lse) and (output := plain(*arguments)) is not None:
        return output
    call = Call.checked(*arguments, unknown)
    results = with_log_sum_exp(call, formula) if return_lse else (compute(call),)
    for observe in observing:
        observe(call, results[0])
    return tuple(map(call.returned, results)) if return_lse else call.returned(results[0])


def compute(call: Call) -> Tensor:
    """The output, by the path that the plan chooses; for DTensors, this process's share."""
    if call.sharded:
        return share(call, compute, formula)
    path, recompute = choose_path(call), partial(in_blocks, formula=formula)
    return served(call) if path in FLAT else delegated(call, recompute) if path == "torch" else recompute(call)


def formula(block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, masked scores, weights and output of a block of query rows: the whole of attention in four steps."""
    scores = block.score(block.query, block.key).to(block.value.dtype)  # (..., Q, K)
    masked = scores if block.bias is None else scores + block.bias.to(scores.dtype)  # (..., Q, K)
    masked = masked if block.allowed is None else torch.where(block.allowed, masked, -torch.inf)
    excluded = masked == -torch.inf
    # A row without visible keys is normalised as if all its scores were 0, then zeroed: no NaN, and no gradient.
    weights = block.normalizer(torch.where(excluded.all(-1, keepdim=True), 0, masked), ~excluded)
    weights = torch.where(excluded, 0, weights)  # (..., Q, K)
    output = torch.dropout(weights, block.dropout, train=True) @ block.value  # (..., Q, E)
    return scores, masked, weights, output
