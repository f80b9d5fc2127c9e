"""Contenders for additive attention that need no other library: overt's own paths, and PyTorch, eager and compiled."""

import torch
from torch import Tensor

import overt
from overt.bench.cases import Inputs
from overt.bench.contenders.contender import GRADIENTS, Contender, Results, Run, Unable, differentiated, too_much
from overt.errors import OvertError

# How many tensors of B · Q · K · D numbers the eager code holds at once, forward alone and with its backward pass.
_HELD, _HELD_BACKWARD = 2, 4
_BLOCK, _GPU_BLOCK = 1 << 24, 1 << 28  # terms that a block of rows has at most


def native() -> Contender:
    """overt's native kernels."""
    return Contender("overt native", lambda inputs: _ours(inputs, "native"), ours=True)


def triton() -> Contender:
    """overt's kernels for GPUs."""
    return Contender("overt triton", lambda inputs: _ours(inputs, "triton"), ours=True)


def blocked() -> Contender:
    """overt's path for anything, in pure PyTorch."""
    return Contender("overt blocked", lambda inputs: _ours(inputs, "blocked"), ours=True)


def eager() -> Contender:
    """The textbook's code; in blocks of rows where memory does not do for the whole."""
    return Contender("PyTorch eager", _eager)


def compiled() -> Contender:
    """torch.compile of the same formula."""
    return Contender("torch.compile", _compiled)


def textbook(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """softmax_j(Σ_d w_d tanh(q_id + k_jd)) · v, as it is written in most models (Bahdanau et al. 2015, appendix A.1.2)."""
    scores = torch.tanh(query[:, :, None] + key[:, None]) @ weight  # (B, Q, K)
    return scores.softmax(-1) @ value  # (B, Q, E)


def fusible(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """The same with a sum in place of the product with w, which a compiler would leave to a library: B · Q · K · D in memory."""
    scores = (torch.tanh(query[:, :, None] + key[:, None]) * weight).sum(-1)  # (B, Q, K)
    return scores.softmax(-1) @ value  # (B, Q, E)


def in_blocks(inputs: Inputs, rows: int) -> Run:
    """The textbook's code for so many query rows at a time, each block's backward pass before the next block."""
    leaves = tuple(tensor.detach().requires_grad_() for tensor in inputs.tensors)
    query, key, value, weight = leaves

    def run(upstream: Tensor | None) -> Results:
        outputs, sums = [], None
        for start in range(0, query.shape[1], rows):
            block = query[:, start : start + rows]
            with torch.set_grad_enabled(upstream is not None):
                output = textbook(block, key, value, weight)
            outputs.append(output.detach())
            if upstream is not None:
                found = torch.autograd.grad(output, leaves, upstream[:, start : start + rows])
                sums = found if sums is None else tuple(total.add_(one) for total, one in zip(sums, found, strict=True))
        return {"output": torch.cat(outputs, 1), **dict(zip(GRADIENTS, sums or (), strict=False))}

    return run


def _ours(inputs: Inputs, path: str) -> tuple[Run, str]:
    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        with overt.use_path(path):
            return overt.attend(query, key, value, score=overt.Additive(weight))

    try:
        with overt.use_path(path):
            overt.plan(inputs.query, inputs.key, inputs.value, score=overt.Additive(inputs.weight))
    except OvertError as error:
        raise Unable(str(error)) from error
    return differentiated(attention, inputs.tensors), ""


def _eager(inputs: Inputs) -> tuple[Run, str]:
    short = too_much(inputs, _HELD if inputs.upstream is None else _HELD_BACKWARD)
    if short is None:
        return differentiated(textbook, inputs.tensors), ""
    batch, _, features = inputs.query.shape
    terms = _GPU_BLOCK if inputs.query.is_cuda else _BLOCK
    rows = max(1, terms // (batch * inputs.key.shape[-2] * features))
    return in_blocks(inputs, rows), f"in blocks of {rows} rows: {short}"


def _compiled(inputs: Inputs) -> tuple[Run, str]:
    # Of one function only so many shapes are compiled before torch goes back to running it eagerly.
    torch.compiler.reset()
    return differentiated(torch.compile(fusible, dynamic=False, fullgraph=True), inputs.tensors), ""
