"""The functions of torch that are linear in tensors from the residual stream, and other properties of functions."""

import re
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# MOVES: functions that move numbers without changing them.
MOVES = _names(
    "view reshape transpose permute expand expand_as flatten unflatten squeeze unsqueeze contiguous clone split chunk unbind narrow select "
    "getitem index_select gather take_along_dim repeat repeat_interleave flip roll movedim moveaxis swapaxes swapdims t view_as reshape_as "
    "broadcast_to tensor_split split_with_sizes diagonal as_strided unfold dropout identity detach hsplit vsplit dsplit adjoint tile "
    "unsafe_chunk unsafe_split masked_select broadcast_tensors requires_grad_ cuda cpu"
)
CASTS = _names("to float double half bfloat16 type type_as")
# JOINS, SUMS: affine functions, which may add tensors that do not come from the stream. MEANS: means over windows of one tensor.
JOINS = _names(
    "cat concat concatenate stack hstack vstack where setitem copy index_put index_copy scatter masked_scatter slice_scatter "
    "select_scatter pad masked_fill index_fill tril triu"
)
SUMS = _names("add sub subtract rsub neg negative sum mean cumsum index_add scatter_add")
MEANS = _names("avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d")
PRODUCTS = _names("mul div")
MATRICES = _names(
    "linear matmul mm bmm mv addmm baddbmm addbmm einsum tensordot conv1d conv2d conv_transpose1d inner outer grouped_mm"
)
# SCALES: functions that compute the scale of a norm.
SCALES = _names("rsqrt sqrt norm vector_norm linalg_norm linalg_vector_norm reciprocal std")
# GATES: elementwise functions with f(0) = 0, which multiply their argument x by the gate f(x)/x.
GATES = _names("gelu relu silu tanh leaky_relu relu6 mish hardswish elu selu celu softsign hardtanh prelu GeLUFunction")

_DUNDER = re.compile(r"^__(?:i|r)?(add|sub|mul|truediv|div|matmul|getitem|setitem|neg)__$")
_SAME = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "_grouped_mm": "grouped_mm",
}


def plain(name: str) -> str:
    """A function's name without the marks of operators and of in-place functions.

    >>> plain("__radd__"), plain("mul_"), plain("__getitem__"), plain("true_divide")
    ('add', 'mul', 'getitem', 'div')
    """
    match = _DUNDER.match(name)
    name = match[1] if match else name if name.startswith("__") else name.rstrip("_")
    return _SAME.get(name, name)


def reversed_operands(name: str) -> bool:
    """Whether an operator takes its second operand as the first argument."""
    return name in ("__rsub__", "__rtruediv__", "__rdiv__", "__rmatmul__", "rsub")


def writes(name: str) -> bool:
    """Whether a function writes to its first argument.

    >>> writes("add_"), writes("__imul__"), writes("__setitem__"), writes("add")
    (True, True, True, False)
    """
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors among arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def tracked(tree: Any) -> list[Tensor]:
    """The tensors of a tree that come from a writer."""
    return [tensor for tensor in tensors(tree) if tensor.requires_grad]


def detached(tree: Any) -> Any:
    """Arguments detached from the graph."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def without_parameters(tree: Any) -> Any:
    """Arguments with parameters replaced by constants."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.nn.Parameter) else leaf, tree)


def zeros(tree: Any) -> Any:
    """Arguments with zeros in the place of tensors that come from writers."""
    return tree_map(lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, Tensor) and leaf.requires_grad else leaf, tree)


def adds_constants(base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function may add tensors that come from no writer."""
    if base in ("add", "sub", "rsub"):
        operands = [*args, *(kwargs[key] for key in ("input", "other") if key in kwargs)][:2]
        return not all(isinstance(operand, Tensor) and operand.requires_grad for operand in operands)
    if base in ("cat", "concat", "concatenate", "stack", "hstack", "vstack"):
        return not all(tensor.requires_grad for tensor in tensors((args, kwargs)))
    return base not in ("neg", "negative", "sum", "mean", "cumsum", "tril", "triu")


class Joined(torch.autograd.Function):
    """A sum that includes a constant: the gradient of the sum is also the gradient of the constant."""

    @staticmethod
    def forward(ctx, linear, constant):
        """The sum, which includes the constant."""
        return linear.clone()

    @staticmethod
    def backward(ctx, *gradients):
        """The gradient of the sum and of the constant."""
        return gradients[0], gradients[0]


class Valued(torch.autograd.Function):
    """Numbers as the model computed them, with the gradient of a linear function that gives the same numbers to rounding."""

    @staticmethod
    def forward(ctx, linear, value):
        """The numbers of the model."""
        ctx.dtype = linear.dtype
        return value.clone()

    @staticmethod
    def backward(ctx, *gradients):
        """The gradient of the linear function."""
        return gradients[0].to(ctx.dtype), None
