"""FlexAttention's signature and meaning, on the kernels of `overt.attend`, with a backward pass on the CPU."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.expressions.expression import Expression, traced
from overt.attention.kernels.blocked import Block, blocked
from overt.attention.kernels.call import Call
from overt.attention.kernels.plan import Plan, plan
from overt.attention.mechanism import attend, formula
from overt.attention.scores import Dot
from overt.errors import InputError, KindError
from overt.integrations.flex.block_mask import mask_of_block_mask
from overt.integrations.flex.masks import expression_mask
from overt.integrations.flex.pairs import Pairs
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY, SCORE
from overt.integrations.flex.scores import added_bias, mod_score, scaled_dot, score_form, with_indices
from overt.integrations.flex.sizes import Sizes, within_tables

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class Lowered(NamedTuple):
    """The arguments of `overt.attend` for a call of FlexAttention."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    mask: Any
    bias: Any

    def arguments(self) -> tuple[tuple[Tensor, Tensor, Tensor], dict[str, Any]]:
        """The tensors, and the pieces by name."""
        return (self.query, self.key, self.value), {"score": self.score, "mask": self.mask, "bias": self.bias}


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """FlexAttention (Dong et al. 2024) on overt's kernels: scores score_mod(scale · q_i · k_j, b, h, i, j), −∞ outside of the block mask.

    The signature and the meaning are those of `torch.nn.attention.flex_attention.flex_attention`. Here it also has a backward pass on the
    CPU, to query, key, value and every tensor that the mods capture, and gradients are identical in every run.

    The mods are traced once. Comparisons of positions become causal masks, windows, lengths and documents, added numbers become a
    bias, and a scale or a soft cap belongs to the score: then the call runs in the native core. Other functions of the score run there as
    traced programs over pairs. Every other mod runs in blocks, in memory linear in the length; `flex_attention_plan` reports which. A mask
    with one range of keys in each row is computed as ranges.

    Shapes: query (B, Hq, Q, D), key (B, Hkv, K, D), value (B, Hkv, K, E) → (B, Hq, Q, E), and with `return_lse` the log-sum-exp of the
    scores, (B, Hq, Q), float32 at least; `return_aux` is torch's AuxRequest. `enable_gqa` allows fewer heads of key and value.
    `kernel_options` tune torch's own kernels, and have no effect. Raises InputError and KindError for invalid arguments.

    >>> query, key, value = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(3))
    >>> slope = torch.tensor([0.5, 0.25], requires_grad=True)
    >>> output = flex_attention(query, key, value, lambda score, b, h, i, j: score + slope[h] * (j - i))
    >>> output.sum().backward()
    >>> output.shape, slope.grad.shape
    (torch.Size([1, 2, 5, 8]), torch.Size([2]))
    """
    auxiliary_output = None if return_aux is None else _auxiliary_output()
    wants_lse = return_lse or getattr(return_aux, "lse", False)
    wants_largest = getattr(return_aux, "max_scores", False)
    with _as_autocast(query, key, value) as inputs:
        lowered = _lower_eagerly(*inputs, score_mod, block_mask, scale, enable_gqa)
        tensors, pieces = lowered.arguments()
        output = attend(*tensors, **pieces).to(query.dtype)
        if not wants_lse and not wants_largest and return_aux is None:
            return output
        lse, largest = _row_statistics(lowered) if wants_lse or wants_largest else (None, None)
    if auxiliary_output is None:
        return output, lse
    return output, auxiliary_output(lse=lse if wants_lse else None, max_scores=largest if wants_largest else None)


def _auxiliary_output() -> Callable[..., Any]:
    try:
        from torch.nn.attention.flex_attention import AuxOutput
    except ImportError:
        raise KindError(
            "return_aux with a torch that has AuxRequest",
            got=f"torch {torch.__version__}",
            fix="pass return_lse=True, or update torch",
        ) from None
    return AuxOutput


def flex_attention_plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Plan:
    """The path of `flex_attention` with these arguments, and the reason, without computing anything.

    >>> query = torch.randn(1, 2, 5, 8)
    >>> flex_attention_plan(query, query, query, lambda score, b, h, i, j: score * (i + j)).path
    'blocked'
    """
    with _as_autocast(query, key, value) as inputs:
        tensors, pieces = _lower_eagerly(*inputs, score_mod, block_mask, scale, enable_gqa).arguments()
        return plan(*tensors, **pieces)


@contextmanager
def _as_autocast(*inputs: Any) -> Iterator[tuple[Any, ...]]:
    """The inputs in autocast's dtype, like `attend`'s, with autocast off: half precision would round the indices of a mod."""
    device = inputs[0].device.type if isinstance(inputs[0], Tensor) and not inputs[0].is_meta else None
    if device is None or not torch.is_autocast_enabled(device):
        yield inputs
        return
    if torch.float64 not in [getattr(tensor, "dtype", None) for tensor in inputs]:
        dtype = torch.get_autocast_dtype(device)
        inputs = tuple(
            tensor.to(dtype) if isinstance(tensor, Tensor) and tensor.is_floating_point() else tensor for tensor in inputs
        )
    with torch.autocast(device, enabled=False):
        yield inputs


def _lower(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None,
    block_mask: Any,
    scale: float | None,
    enable_gqa: bool,
) -> Lowered:
    _check(query, key, value, enable_gqa)
    sizes = Sizes(query.shape[0], query.shape[1], query.shape[2], key.shape[2], query.device)
    mask = None
    if block_mask is not None:
        with within_tables(_named("mask_mod", getattr(block_mask, "mask_mod", None)), sizes):
            mask = mask_of_block_mask(block_mask, sizes)
    scale = (1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0) if scale is None else scale
    expression = None if score_mod is None else traced(score_mod, SCORE, BATCH, HEAD, QUERY, KEY)
    form = score_form(expression, torch.promote_types(query.dtype, torch.float32))
    if score_mod is None:
        return Lowered(query, key, value, Dot(scale), mask, None)
    name = _named("score_mod", score_mod)
    if form is not None:
        with within_tables(name, sizes):
            allowed = None if form.allowed is None else expression_mask(form.allowed, sizes)
        mask = allowed if mask is None else mask if allowed is None else mask & allowed
        pairs = Pairs(sizes, mask, name)
        if (dot := scaled_dot(form, scale, pairs)) is not None:
            return Lowered(query, key, value, dot, mask, added_bias(form.bias, pairs, query.dtype))
    mod = expression if isinstance(expression, Expression) else score_mod
    score = mod_score(mod, scale, Pairs(sizes, mask, name), query, key)
    query, key = with_indices(query, key)
    return Lowered(query, key, value.to(query.dtype), score, mask, None)


def _named(kind: str, mod: Any) -> str:
    """A mod in messages, as in: the score_mod "alibi"."""
    return f'the {kind} "{getattr(mod, "__name__", type(mod).__name__)}"'


_lower_eagerly: Any = torch.compiler.disable(_lower)  # mods are traced here, not by torch.compile


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise KindError(f"{name} to be a tensor", got=type(tensor).__name__, fix="pass tensors of torch")
        if tensor.ndim != 4:
            raise InputError(
                f"{name} of shape (B, H, length, features)", got=f"{tuple(tensor.shape)}", fix="add or join dimensions"
            )
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise InputError(
            "as many heads of key and value as of query",
            got=f"{query.shape[1]} of query and {key.shape[1]} of key",
            fix="pass enable_gqa=True for grouped heads",
        )


def _row_statistics(lowered: Lowered) -> tuple[Tensor, Tensor]:
    """The log-sum-exp and the largest of each row's scores, differentiable; −∞ if a query has no visible key."""

    def block_statistics(block: Block) -> tuple[Tensor, ...]:
        masked = formula(block)[1]  # (..., rows, K)
        empty = (masked == -torch.inf).all(-1, keepdim=True)
        scores = torch.where(empty, 0, masked)
        statistics = torch.logsumexp(scores, -1, keepdim=True), scores.amax(-1, keepdim=True)
        return tuple(torch.where(empty, -torch.inf, statistic) for statistic in statistics)

    tensors, pieces = lowered.arguments()
    lse, largest = blocked(Call.checked(*tensors, **pieces), block_statistics)
    return lse.squeeze(-1), largest.squeeze(-1)
