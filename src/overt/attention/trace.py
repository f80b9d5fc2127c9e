"""Every intermediate of attention, for people: as matrices (`steps`), and one token at a time as plain loops (`loop`)."""

import math
from typing import Generic, NamedTuple, Never

import torch
from jaxtyping import Float
from torch import Tensor

from overt.attention import check
from overt.attention.kernels.blocked import blocked
from overt.attention.kernels.call import Call
from overt.attention.masks import as_mask
from overt.attention.mechanism import formula
from overt.attention.typing import Array, BiasLike, MaskLike, NormalizerLike, ScoreFunction, ScoreLike
from overt.errors import InputError


class Steps(NamedTuple, Generic[Array]):
    """What attention computes on its way; printed, it is the step table.

    `scores` (..., Q, K): f(query, key), scale and softcap included. `masked` (..., Q, K): scores + bias, −inf where barred.
    `weights` (..., Q, K): normalised, before dropout. `output` (..., Q, E): Σ weights · value.

    >>> import torch, overt
    >>> found = overt.steps(torch.eye(2), torch.eye(2), torch.eye(2), mask=overt.Causal())
    >>> found.masked[0], found.weights[0]
    (tensor([0.7071,   -inf]), tensor([1., 0.]))
    """

    scores: Array
    masked: Array
    weights: Array
    output: Array

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
    **unknown: Never,
) -> Steps[Array]:
    """Attend, and keep every intermediate: scores, masked scores, weights and output.

    The same formula, arguments and errors as `overt.attend`; the results of size Q × K are this call's purpose. Additive scores
    take no Q × K × D on the way. Weights are given before dropout.

    Shapes: query (..., Q, D), key (..., K, D), value (..., K, E) → scores, masked, weights (..., Q, K), output (..., Q, E).

    >>> import torch, overt
    >>> print(overt.steps(torch.eye(2), torch.eye(2), torch.tensor([[1.0], [3.0]]), score=overt.Dot(scale=1.0)))
    query  key    score   masked   weight   output
        0    0    1.000    1.000    0.731    1.538
        0    1    0.000    0.000    0.269
        1    0    0.000    0.000    0.269    2.462
        1    1    1.000    1.000    0.731
    """
    call = Call.of(query, key, value, score, mask, bias, normalizer, dropout, unknown)
    *stages, output = blocked(call, formula, every_key=True)
    return Steps(*[call.returned(each) for each in (*stages, output.to(call.query.dtype))])


def loop(
    query: Float[Tensor, "Q D"],
    key: Float[Tensor, "K D"],
    value: Float[Tensor, "K E"],
    *,
    score: ScoreFunction | None = None,
    mask: MaskLike | None = None,
) -> Float[Tensor, "Q E"]:
    """Attend one token at a time, as plain loops: what `attend` computes in matrices, to read.

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
            "the loop form takes one sequence and one head, (length, features)",
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
        for j, exponential in exponentials.items():  # weigh each value, and add up
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
    call = Call.of(query, key, key, mask=as_mask(mask), score=lambda q, k: q @ k.mT)
    block = call.block(call.rows(0, len(query)), every_key=True).allowed
    return block.expand(len(query), len(key)).tolist()  # type: ignore[union-attr]


def _table(steps: Steps, most: int = 24) -> str:
    """One head's pairs, a line each; larger results say their shapes and show the first pairs of the first head."""
    scores, masked, weights, output = (torch.as_tensor(each).detach() for each in steps)
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
    for i, j in pairs[:most]:
        numbers = "".join(f"{float(tensor[(*first, i, j)]):9.3f}" for tensor in (scores, masked, weights))
        lines.append(f"{i:5}{j:5}{numbers}" + (f"  {_vector(output[(*first, i)])}" if j == 0 else ""))
    if len(pairs) > most:
        lines.append(f"… and {len(pairs) - most} more pairs")
    return "\n".join(lines)


def _vector(vector: Tensor, most: int = 4) -> str:
    numbers = " ".join(f"{float(number):7.3f}" for number in vector[:most])
    return numbers if len(vector) <= most else f"{numbers} … ({len(vector)})"
