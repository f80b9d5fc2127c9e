"""The output with each row's log-sum-exp, both differentiable, so that attention to disjoint sets of keys can be merged.

With the weights p of a row, their gradients dp, δ = Σ_j p_j dp_j and the log-sum-exp's gradient d, the gradients of the scores are

    ds_j = p_j (dp_j − δ) + p_j d = p_j (dp_j − (δ − d))

A kernel that computes δ as Σ_e output_e · upstream_e returns them if output and upstream get one more column, −d and 1, and the values
one column of zeros, which does not change dp.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from overt.attention.kernels.blocked import Block, blocked
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat import derivatives
from overt.attention.kernels.flat.derivatives import Flat, TensorIndices
from overt.attention.kernels.flat.dot import dot
from overt.attention.kernels.flat.formula import log_sum_exp
from overt.attention.kernels.flat.operator import sum_shared
from overt.attention.kernels.flat.recomputed import pullback
from overt.attention.kernels.plan import Table, first_able
from overt.attention.normalizers import Softmax
from overt.errors import InputError, KindError

# TABLE: as in `attend`, the refusal of each path, in order of preference.
TABLE: Table = {
    "native": lambda call: flat_call.refusal(call) or _transformed(call),
    "torch": lambda call: "torch's kernels return no log-sum-exp that has gradients",
    "triton": lambda call: flat_call.gpu_refusal(call) or _transformed(call),
    "blocked": lambda call: None,
}


def with_log_sum_exp(call: Call, formula: Callable[[Block], tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
    """The output (..., Q, E) of a checked call, and log Σ_j exp(score_ij) of each row (..., Q), in float32 or float64."""
    if type(call.normalizer) is not Softmax:
        raise KindError(
            "a softmax with return_lse=True, since other weights have no log-sum-exp",
            got=f"the normalizer {getattr(call.normalizer, '__name__', type(call.normalizer).__name__)}",
            fix="leave return_lse out, or normalizer=",
        )
    if call.sharded:
        raise InputError(
            "tensors of one process with return_lse=True",
            got="DTensors, whose parts overt.attend merges itself",
            fix="leave return_lse out, or pass each process's own part, as tensor.to_local() gives it",
        )
    if first_able(TABLE, call)[0] == "blocked":
        output, lse = blocked(call, lambda block: _output_and_lse(call, formula(block)))
        return output.to(call.query.dtype), lse.squeeze(-1)
    flat, tensors = Flat.split(*flat_call.flattened(call))
    recorded = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    output, lse = _WithLogSumExp.apply(flat, *tensors) if recorded else _computed(flat, tensors)[:2]  # pyright: ignore[reportGeneralTypeIssues]
    return output.to(call.query.dtype), lse


def _transformed(call: Call) -> str | None:
    """Why the gradients of a kernel's log-sum-exp cannot be traced here; None if they can."""
    if torch.compiler.is_compiling() or call.transformed:
        return "log-sum-exps of kernels have no gradients under torch.compile and torch.func's transforms"
    return "log-sum-exps of kernels have no forward-mode derivative" if forward_ad._current_level >= 0 else None


def _output_and_lse(call: Call, stages: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exps (..., rows, 1) of a block, from its four stages."""
    _, masked, _, output = stages
    return output, log_sum_exp(call.normalizer, masked)[..., None]


def _computed(flat: Flat, tensors: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exps and the tensors saved for the backward pass, by the kernel."""
    output, sums = flat.attention.outputs(flat.inputs(tensors))
    return output, flat.attention.lse(sums), sums


class _WithLogSumExp(torch.autograd.Function):
    """(call, *tensors) → the output and each row's log-sum-exp."""

    @staticmethod
    def forward(ctx, flat, *tensors):  # type: ignore[override]
        output, lse, sums = _computed(flat, tensors)
        ctx.flat = flat
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, output, lse, sums)
        return output, lse

    @staticmethod
    def backward(ctx, upstream, d_lse):  # type: ignore[override]
        *tensors, output, lse, sums = ctx.saved_tensors
        flat, which = ctx.flat, TensorIndices(index for index, need in enumerate(ctx.needs_input_grad[1:]) if need)
        if d_lse is None:
            return None, *derivatives.gradients(flat, which, (output, sums), upstream, tensors)
        upstream = torch.zeros_like(output) if upstream is None else upstream
        d_lse = torch.where(lse == -torch.inf, 0, d_lse)  # a row without keys has no gradients
        if torch.is_grad_enabled() or flat.attention is not dot:
            # Kernels of other scores may compute δ from dp, and derivatives of gradients have no kernel here.
            gradients = pullback(lambda *arguments: _by_formula(flat, arguments), which, flat.count)
            result = gradients(*tensors, upstream, d_lse[..., None])
        else:
            result = _gradients(flat, which, (output, sums), (upstream, d_lse), tensors)
        by_index = dict(zip(which, result, strict=True))
        return None, *(by_index.get(index) for index in range(flat.count))


def _by_formula(flat: Flat, tensors: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exps (..., Q, 1) as functions of the tensors, differentiable to any order."""
    return flat.attention.formula(flat.inputs(tensors), with_lse=True)


def _gradients(
    flat: Flat, which: TensorIndices, saved: tuple[Tensor, Tensor], upstream: tuple[Tensor, Tensor], tensors: list[Any]
) -> list[Tensor]:
    """The gradients of the tensors `which`, by the kernel with one more column."""
    (output, sums), (d_output, d_lse), inputs = saved, upstream, flat.inputs(tensors)
    value = torch.cat([inputs.value, inputs.value.new_zeros(*inputs.value.shape[:-1], 1)], dim=-1)
    output = torch.cat([output, -d_lse[..., None].to(output.dtype)], dim=-1)
    d_output = torch.cat([d_output, torch.ones_like(d_output[..., :1])], dim=-1)
    by_index = flat.attention.gradients(inputs._replace(value=value), (output, sums), d_output, which)
    by_index[2] = None if by_index[2] is None else by_index[2][..., :-1]
    if inputs.bias_of_queries is not None:  # the log-sum-exp depends on all scores of a row
        times = 1 if inputs.inverse_temperature is None else inputs.inverse_temperature[..., None]
        by_index[3] = by_index[3] + sum_shared((times * d_lse).double(), inputs.bias_of_queries)
    return [by_index[index] for index in which]
