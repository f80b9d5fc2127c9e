"""The handlers that record torch functions, by the functions' names."""

from collections.abc import Callable
from typing import Any

from overt.attention.expressions.pair_functions import (
    BINARY,
    UNARY,
    WITH_OPTIONS,
    cdist,
    clamp,
    cosine_similarity,
    elementwise,
    filled,
    layer_norm,
    normalize,
    pairwise_distance,
    reduction,
    softmax,
    vector_norm,
    where,
    with_options,
)
from overt.attention.expressions.pair_products import cat, einsum, linear, matmul
from overt.attention.expressions.pair_views import dropout, expand, unchanged, view

HANDLERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(UNARY | BINARY, elementwise),
    **dict.fromkeys(WITH_OPTIONS, with_options),
    **dict.fromkeys(("where", "masked_fill"), where),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), clamp),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), filled),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "maximum", "minimum"), reduction),
    **dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm", "linalg_norm"), vector_norm),
    "cosine_similarity": cosine_similarity,
    "pairwise_distance": pairwise_distance,
    "cdist": cdist,
    "normalize": normalize,
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp"), softmax),
    "layer_norm": layer_norm,
    **dict.fromkeys(("matmul", "bmm"), matmul),
    "linear": linear,
    **dict.fromkeys(("cat", "concat", "concatenate"), cat),
    "einsum": einsum,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to", "broadcast_tensors", "repeat", "tile"), expand),
    **dict.fromkeys(
        ("unsqueeze", "squeeze", "getitem", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis"), view
    ),
    **dict.fromkeys(("view", "reshape", "adjoint", "view_as", "reshape_as", "flatten"), view),
    **dict.fromkeys(
        ("clone", "contiguous", "to", "float", "double", "type", "type_as", "half", "bfloat16", "int", "long", "bool"),
        unchanged,
    ),
    **dict.fromkeys(("dropout", "alpha_dropout"), dropout),
}
