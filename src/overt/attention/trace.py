"""Every intermediate of attention for readers: as matrices (`steps`), and one token at a time as plain loops (`loop`)."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from overt.attention import check
from overt.attention.kernels.blocked import blocked, query_block, query_rows
from overt.attention.kernels.call import Call
from overt.attention.kernels.sharded.attend import refuse_whole
from overt.attention.masks import as_mask
from overt.attention.mechanism import formula
from overt.attention.typing import Array, BiasLike, MaskLike, NormalizerLike, Refused, ScoreFunction, ScoreLike
from overt.errors import InputError


class Steps(NamedTuple):
    """The intermediates of attention; printing them shows the step table. Arrays of another library stay arrays of that library.

    `scores` (..., Q, K): f(query, key), scale and softcap included. `masked` (..., Q, K): scores + bias, −inf where masked.
    `weights` (..., Q, K): normalised, before dropout. `output` (..., Q, E): Σ weights · value.

    >>> import torch, overt
    >>> steps = overt.steps(torch.eye(2), torch.eye(2), torch.eye(2), mask=overt.Causal())
    >>> steps.masked[0], steps.weights[0]
    (tensor([0.7071,   -inf]), tensor([1., 0.]))
    """

    scores: Tensor
    masked: Tensor
    weights: Tensor
    output: Tensor

    def __str__(self) -> str:
        return _table(self)

    __repr__ = __str__


def steps(
    query: Float[Array, "... Q D"],
    key: Float[Array, "... K D"],
    value: Float[Array, "... K E"],
    *,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    bias: BiasLike | None = None,
    normalizer: NormalizerLike | None = None,
    dropout: float = 0.0,
    **unknown: Refused,
) -> Steps:
    """Attend, and return every intermediate: scores, masked scores, weights and output.

    The same formula, arguments and errors as `overt.attend`; the results have the size Q × K. Additive scores never store
    Q × K × D numbers. The weights are those before dropout.

    Shapes: query (..., Q, D), key (..., K, D), value (..., K, E) → scores, masked, weights (..., Q, K), output (..., Q, E).

    >>> import torch, overt
    >>> print(overt.steps(torch.eye(2), torch.eye(2), torch.tensor([[1.0], [3.0]]), score=overt.Dot(scale=1.0)))
    query  key    score   masked   weight   output
        0    0    1.000    1.000    0.731    1.538
        0    1    0.000    0.000    0.269
        1    0    0.000    0.000    0.269    2.462
        1    1    1.000    1.000    0.731
    """
    call = Call.checked(query, key, value, score, mask, bias, normalizer, dropout, unknown)
    if call.sharded:
        refuse_whole("the steps, Q × K numbers", "steps")
    *stages, output = blocked(call, formula, every_key=True)
    return Steps(*[call.returned(stage) for stage in (*stages, output.to(call.query.dtype))])


def loop(
    query: Float[Tensor, "Q D"],
    key: Float[Tensor, "K D"],
    value: Float[Tensor, "K E"],
    *,
    score: ScoreFunction | None = None,
    mask: MaskLike | None = None,
) -> Float[Tensor, "Q E"]:
    """Attend one token at a time in plain loops, for reading: the same result as `attend`, which uses matrices.

    Shapes: query (Q, D), key (K, D), value (K, E) → (Q, E). `score` takes one query (1, D) and one key (1, D); None is
    their dot product divided by √D. The normaliser is the softmax.

    >>> import overt
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> torch.allclose(loop(x, x, x), overt.attend(x, x, x))
    True
    """
    check.attention_inputs(query, key, value)
    if (query.ndim, key.ndim, value.ndim) != (2, 2, 2):
        raise InputError(
            "one sequence and one head, (length, features), in the loop form",
            got=check.shapes(query=query, key=key, value=value),
            fix="index the batch and the head first",
        )
    allowed = _allowed(mask, query, key)
    outputs = []
    for i in range(len(query)):
        scores = {}
        for j in range(len(key)):  # score the query against each key that it may attend to
            if allowed[i][j]:
                scores[j] = (
                    _scaled_dot(query[i], key[j]) if score is None else score(query[i : i + 1], key[j : j + 1]).reshape(())
                )

        highest = max((float(s) for s in scores.values()), default=0.0)
        exponentials = {j: torch.exp(s - highest) for j, s in scores.items()}  # the softmax: exponentials …
        total = sum(exponentials.values())  # … divided by their sum

        output = torch.zeros_like(value[0])
        for j, exponential in exponentials.items():  # multiply each value by its weight, and add up
            output = output + exponential / total * value[j]
        outputs.append(output)
    return torch.stack(outputs)


def _scaled_dot(query: Tensor, key: Tensor) -> Tensor:
    product = query.new_zeros(())
    for q, k in zip(query, key, strict=True):  # multiply feature by feature, and add up
        product = product + q * k
    return product / math.sqrt(len(query))


def _allowed(mask, query: Tensor, key: Tensor) -> list[list[bool]]:
    if mask is None:
        return [[True] * len(key) for _ in query]
    call = Call.checked(query, key, key, mask=as_mask(mask), score=lambda q, k: q @ k.mT)
    block = query_block(call, query_rows(call, 0, len(query)), every_key=True, careful=False).allowed
    return block.expand(len(query), len(key)).tolist()  # type: ignore[union-attr]


def _table(steps: Steps, max_pairs: int = 24) -> str:
    """The pairs of one head, one on each line; for larger results the shapes, and the first pairs of the first head."""
    scores, masked, weights, output = (torch.as_tensor(step).detach() for step in steps)
    lead = scores.shape[:-2]
    header = f"{'query':>5}{'key':>5}{'score':>9}{'masked':>9}{'weight':>9}{'output':>9}".rstrip()
    lines = []
    if lead:
        sizes = f"{tuple(scores.shape)}, output {tuple(output.shape)}"
        lines.append(f"scores, masked, weights {sizes}; the first of {math.prod(lead)}:")
    lines.append(header)
    first = tuple(0 for _ in lead)
    if 0 in scores.shape:
        return "\n".join([*lines, "(empty)"])
    pairs = [(i, j) for i in range(scores.shape[-2]) for j in range(scores.shape[-1])]
    for i, j in pairs[:max_pairs]:
        numbers = "".join(f"{float(tensor[(*first, i, j)]):9.3f}" for tensor in (scores, masked, weights))
        lines.append(f"{i:5}{j:5}{numbers}" + (f"  {_vector(output[(*first, i)])}" if j == 0 else ""))
    if len(pairs) > max_pairs:
        lines.append(f"… and {len(pairs) - max_pairs} more pairs")
    return "\n".join(lines)


def _vector(vector: Tensor, max_numbers: int = 4) -> str:
    numbers = " ".join(f"{float(number):7.3f}" for number in vector[:max_numbers])
    return numbers if len(vector) <= max_numbers else f"{numbers} … ({len(vector)})"
