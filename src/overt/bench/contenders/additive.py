"""Contenders for additive attention that need no other library: overt's paths, and PyTorch, eager and compiled."""

import torch
from torch import Tensor

import overt
from overt.bench.cases import Inputs
from overt.bench.contenders.contender import GRADIENTS, Contender, Results, Run, differentiated, memory_shortage, require_path

# _TENSORS, _TENSORS_BACKWARD: tensors of B · Q · K · D numbers in the eager code's memory, forward only and with its backward pass.
_TENSORS, _TENSORS_BACKWARD = 2, 4
_BLOCK, _GPU_BLOCK = 1 << 24, 1 << 28  # _BLOCK, _GPU_BLOCK: the largest number of terms in a block of rows


def overt_path(path: str) -> Contender:
    """One path of overt: native, triton or blocked."""
    return Contender(f"overt {path}", lambda inputs: _overt(inputs, path), ours=True)


def eager() -> Contender:
    """The textbook's code; in blocks of rows if memory is too small for all."""
    return Contender("PyTorch eager", _eager)


def compiled() -> Contender:
    """torch.compile of the same formula."""
    return Contender("torch.compile", _compiled)


def textbook(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """softmax_j(Σ_d w_d tanh(q_id + k_jd)) · v, as most models write it (Bahdanau et al. 2015, appendix A.1.2)."""
    scores = torch.tanh(query[:, :, None] + key[:, None]) @ weight  # (B, Q, K)
    return scores.softmax(-1) @ value  # (B, Q, E)


def fusible(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """The same with a sum in place of the product with w: compilers leave the product to a library, with B · Q · K · D in memory."""
    scores = (torch.tanh(query[:, :, None] + key[:, None]) * weight).sum(-1)  # (B, Q, K)
    return scores.softmax(-1) @ value  # (B, Q, E)


def in_blocks(inputs: Inputs, rows: int) -> Run:
    """The textbook's code for `rows` query rows at a time, each block's backward pass before the next block."""
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
                gradients = torch.autograd.grad(output, leaves, upstream[:, start : start + rows])
                sums = gradients if sums is None else tuple(total.add_(one) for total, one in zip(sums, gradients, strict=True))
        return {"output": torch.cat(outputs, 1), **dict(zip(GRADIENTS, sums or (), strict=False))}

    return run


def _overt(inputs: Inputs, path: str) -> tuple[Run, str]:
    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
        with overt.use_path(path):
            return overt.attend(query, key, value, score=overt.Additive(weight))

    require_path(path, inputs, overt.Additive(inputs.weight))
    return differentiated(attention, inputs.tensors), ""


def _eager(inputs: Inputs) -> tuple[Run, str]:
    shortage = memory_shortage(inputs, _TENSORS if inputs.upstream is None else _TENSORS_BACKWARD)
    if shortage is None:
        return differentiated(textbook, inputs.tensors), ""
    batch, _, features = inputs.query.shape
    terms = _GPU_BLOCK if inputs.query.is_cuda else _BLOCK
    rows = max(1, terms // (batch * inputs.key.shape[-2] * features))
    return in_blocks(inputs, rows), f"in blocks of {rows} rows: {shortage}"


def _compiled(inputs: Inputs) -> tuple[Run, str]:
    # torch compiles only a few shapes of one function, and then runs it eagerly.
    torch.compiler.reset()
    return differentiated(torch.compile(fusible, dynamic=False, fullgraph=True), inputs.tensors), ""
