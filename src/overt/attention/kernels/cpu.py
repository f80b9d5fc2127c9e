"""Launches of the native core: its functions take PyTorch's inputs, and output tensors that they fill."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from overt import native
from overt.attention.expressions.instructions import assemble, assemble_moving

CODE_KEYS = 16  # keys in a group of woven codes


def additive(inputs: Any, output: Tensor, lse: Tensor) -> None:
    """Compute output (..., Q, E) and log-sum-exp (..., Q) of additive attention."""
    native.module().additive(*_additive_arguments(inputs, inputs.bias), output, lse)


def additive_gradients(inputs: Any, saved: tuple[Tensor, ...], upstream: Tensor, gradients: tuple[Tensor | None, ...]) -> None:
    """Compute the gradients of query, key, value and weight, delta, and the bias's gradient."""
    bias = _bias_for_gradients(inputs, gradients[-1])
    outputs = (array(tensor.contiguous()) for tensor in (*saved, upstream))
    native.module().additive_gradients(*_additive_arguments(inputs, bias), *outputs, *map(array, gradients))


def additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, scores: Tensor) -> None:
    """Compute additive scores (..., Q, K)."""
    native.module().additive_scores(*_score_arguments(query, key, weight, activation), scores)


def additive_scores_gradients(
    query: Tensor, key: Tensor, weight: Tensor, activation: str, upstream: Tensor, gradients: tuple[Tensor, ...]
) -> None:
    """Compute the gradients of query, key and weight."""
    arguments = _score_arguments(query, key, weight, activation)
    native.module().additive_scores_gradients(*arguments, array(upstream.contiguous()), *map(array, gradients))


def dot(inputs: Any, outputs: tuple[Tensor, ...]) -> None:
    """Compute output (..., Q, E) of dot-product attention and, if there is a tensor for them, each row's base and total."""
    nothing = [None] * (2 - len(outputs))
    native.module().dot(*_dot_arguments(inputs, inputs.bias), *outputs, *nothing, *_line_biases(inputs))


def plain_dot(query: Tensor, key: Tensor, value: Tensor, scale: float, outputs: tuple[Tensor, Tensor]) -> None:
    """Compute output (..., Q, E), and each row's base and total, of a softmax without mask and bias."""
    plain = ([], [], None, False, None, None, 0, 1.0, None, 0.0, 0)  # no mask, bias, sink, temperature and dropout; softmax
    native.module().dot(dense(query), dense(key), dense(value), scale, 0.0, *plain, native.threads(), *outputs)


def dot_codes(
    query: Tensor,
    key: Sequence[Tensor],
    value: Sequence[Tensor],
    scale: float,
    outputs: tuple[Tensor, Tensor],
    woven: bool = False,
) -> None:
    """Compute output (..., Q, E), each row's base and total, of up to 8 queries; key and value are int8 (..., K, ·), scales (..., K, 1).

    `woven` codes (`weave_codes`) need bfloat16 queries; see `weaves_codes`.
    """
    native.module().dot_codes(dense(query), *key, *value, woven, scale, native.threads(), *outputs)


def joined(outputs: Tensor, sums: Tensor) -> Tensor:
    """Merge attention to disjoint sets of keys: outputs (parts, ..., Q, E), bases and totals (parts, ..., 2, Q) → (..., Q, E)."""
    output = outputs.new_empty(outputs.shape[1:])
    native.module().join_parts(outputs, sums, output)
    return output


def weaves_codes(dtype: torch.dtype, *widths: int) -> bool:
    """Whether a matrix unit multiplies woven codes of these widths by queries of this dtype."""
    fits = all(width and width % 64 == 0 and width <= 1024 for width in widths)
    plain = dtype == torch.bfloat16 and fits and not torch.compiler.is_compiling()  # torch.compile cannot trace into the core
    return plain and native.available() and native.unit() == "avx512_bf16"


def weave_codes(codes: Tensor, are_keys: bool) -> Tensor:
    """Reorder codes (..., K, ·) as the matrix unit multiplies them; K is a multiple of `CODE_KEYS`.

    For keys, 16 rows (16, D) become (D / 4, 16, 4), with 128 added to each code; for values, four rows (4, E) become (E, 4).
    """
    if are_keys:
        woven = codes.unflatten(-2, (-1, CODE_KEYS)).unflatten(-1, (-1, 4)).transpose(-3, -2)
        return (woven ^ -128).reshape(codes.shape)
    return codes.unflatten(-2, (-1, 4)).mT.reshape(codes.shape)


def unweave_codes(codes: Tensor, are_keys: bool) -> Tensor:
    """Restore rows of codes from woven ones."""
    width = codes.shape[-1]
    if are_keys:
        rows = codes.unflatten(-2, (-1, CODE_KEYS)).flatten(-2).unflatten(-1, (width // 4, CODE_KEYS, 4)).transpose(-3, -2)
        return (rows ^ -128).reshape(codes.shape)
    return codes.unflatten(-2, (-1, 4)).flatten(-2).unflatten(-1, (width, 4)).mT.reshape(codes.shape)


def dot_gradients(inputs: Any, saved: tuple[Tensor, ...], upstream: Tensor, gradients: tuple[Tensor | None, ...]) -> None:
    """Compute the gradients of query, key and value, delta, the bias's gradient, and the gradient of biases of keys."""
    *direct, d_bias, d_key_bias = map(array, gradients)
    bias = _bias_for_gradients(inputs, d_bias)
    outputs = (array(tensor.contiguous()) for tensor in (*saved, upstream))
    native.module().dot_gradients(*_dot_arguments(inputs, bias), *outputs, *direct, d_bias, *_line_biases(inputs, d_key_bias))


def dot_tangent(inputs: Any, directions: Sequence[Tensor | None], results: tuple[Tensor, ...]) -> None:
    """Compute the output, each row's base and total, and the output's tangent in these directions of query, key, value, bias and sink."""
    native.module().dot_tangent(*_softmax_dot_arguments(inputs, inputs.bias), *_directions(directions), *results)


def dot_second(
    inputs: Any,
    saved: tuple[Tensor, ...],
    upstream: Tensor,
    directions: Sequence[Tensor | None],
    results: tuple[Tensor | None, ...],
) -> None:
    """Compute tangents of the gradients of query, key, value and bias, the output's tangent, and each row's mean tangent of its scores."""
    bias = _bias_for_gradients(inputs, results[3])
    outputs = (array(tensor.contiguous()) for tensor in (*saved, upstream))
    native.module().dot_second(*_softmax_dot_arguments(inputs, bias), *_directions(directions), *outputs, *results)


def traced(inputs: Any, outputs: tuple[Tensor, ...]) -> None:
    """Compute output (..., Q, E) for a program's scores and, if there is a tensor for them, each row's base and total."""
    nothing = [None] * (2 - len(outputs))
    native.module().traced(*_traced_arguments(inputs, inputs.bias), *outputs, *nothing)


def traced_gradients(inputs: Any, saved: tuple[Tensor, ...], upstream: Tensor, gradients: tuple[Tensor | None, ...]) -> None:
    """Compute the gradients of query, key, value and constants, delta and the bias's gradient."""
    bias = _bias_for_gradients(inputs, gradients[-1])
    outputs = (array(tensor.contiguous()) for tensor in (*saved, upstream))
    native.module().traced_gradients(*_traced_arguments(inputs, bias), *outputs, *map(array, gradients))


def traced_tangent(inputs: Any, directions: Sequence[Tensor | None], results: tuple[Tensor, ...]) -> None:
    """Compute the output, each row's base and total, and the output's tangent in these directions of the direct tensors, bias and sink."""
    arguments, _ = _moving_arguments(inputs, directions, inputs.bias)
    native.module().traced_tangent(*arguments, *_directions([*directions[2:3], *directions[4:]]), *results)


def traced_second(
    inputs: Any,
    saved: tuple[Tensor, ...],
    upstream: Tensor,
    directions: Sequence[Tensor | None],
    results: tuple[Tensor | None, ...],
    known: bool,
) -> None:
    """Compute tangents of the gradients of query, key, value, constants and bias, of the output, and each row's mean score tangent.

    Output and sums are computed too, unless `known`.
    """
    arguments, columns = _moving_arguments(inputs, directions, _bias_for_gradients(inputs, results[4]))
    outputs = (array(tensor.contiguous()) for tensor in (*saved, upstream))
    direct = [tensor for tensor in results[:4] if tensor is not None]  # all of which are wanted
    wider = [tensor.new_empty(*tensor.shape[:-1], width) for tensor, width in zip(direct, columns, strict=True)]
    native.module().traced_second(
        *arguments, *_directions([*directions[2:3], *directions[4:]]), *outputs, *wider, *results[4:], known
    )
    for tensor, computed in zip(direct, wider, strict=True):
        tensor.copy_(computed[..., : tensor.shape[-1]])


def _directions(directions: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    *matrices, bias, sink = directions
    return *(None if tensor is None else dense(tensor) for tensor in matrices), array(bias), array(sink)


def summary(inputs: Any, outputs: Any) -> None:
    """Compute the statistics of `flat.summary.SummaryOutputs`."""
    weight = None if inputs.weight is None else dense(inputs.weight)
    maps = (None, None) if inputs.row_edges is None else (array(outputs.map_mean), array(outputs.map_max))
    native.module().summary(
        *(dense(inputs.query), dense(inputs.key), dense(inputs.value), weight),
        *(native.ACTIVATIONS.index(inputs.activation), array(inputs.scale), inputs.softcap),
        *_mask_arguments(inputs, inputs.bias),
        *_normalizer_arguments(inputs),
        native.threads(),
        None if inputs.normalizer else array(outputs.lse),
        *map(array, outputs[1:5]),
        *(array(inputs.row_edges), array(inputs.key_edges), *maps, array(outputs.output)),
        *(inputs.have_ids, [array(ids) for ids in inputs.sets], array(outputs.masses) if inputs.have_ids else None),
        array(outputs.support) if inputs.normalizer else None,
        *_line_biases(inputs),
    )


def array(tensor: Tensor | None) -> Tensor | None:
    """The tensor as the core reads it: in memory, with torch's lazy negation resolved."""
    return tensor.resolve_neg() if tensor is not None and tensor.is_neg() else tensor


def dense(tensor: Tensor) -> Tensor | None:
    """The tensor as `array` returns it, with the last dimension contiguous."""
    tensor = tensor if tensor.stride(-1) == 1 or tensor.shape[-1] < 2 else tensor.contiguous()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _additive_arguments(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    scores = (*(dense(tensor) for tensor in inputs[:4]), native.ACTIVATIONS.index(inputs.activation))
    return *scores, *_mask_arguments(inputs, bias), *_normalizer_arguments(inputs), *_run_arguments(inputs)


def _score_arguments(query: Tensor, key: Tensor, weight: Tensor, activation: str) -> tuple[Any, ...]:
    return dense(query), dense(key), dense(weight), native.ACTIVATIONS.index(activation), native.threads()


def _dot_arguments(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    return *_products(inputs, bias), *_normalizer_arguments(inputs), *_run_arguments(inputs)


def _softmax_dot_arguments(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    return *_products(inputs, bias), *_run_arguments(inputs)


def _products(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    scores = dense(inputs.query), dense(inputs.key), dense(inputs.value), inputs.scale, inputs.softcap
    return *scores, *_mask_arguments(inputs, bias)


def _traced_arguments(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    program = assemble(inputs.terms, inputs.numbers)
    tensors = (dense(tensor) for tensor in inputs[:4])
    numbers = [*inputs.numbers, *program.numbers]
    masked = _mask_arguments(inputs, bias)
    return *tensors, program.code, numbers, *masked, *_normalizer_arguments(inputs), *_run_arguments(inputs)


def _moving_arguments(
    inputs: Any, directions: Sequence[Tensor | None], bias: Tensor | None
) -> tuple[tuple[Any, ...], list[int]]:
    """A program with tangents, directions stored in columns after the inputs; and the resulting number of columns of each tensor."""
    query, key, value, constants = inputs[:4]
    to_query, to_key, _, to_constants = directions[:4]
    moving = {"query": (query, to_query), "key": (key, to_key), "constant": (constants, to_constants)}
    columns = {name: tensor.shape[-1] for name, (tensor, direction) in moving.items() if direction is not None}
    query, key, constants = (
        tensor if direction is None else torch.cat(torch.broadcast_tensors(tensor, direction), dim=-1)
        for tensor, direction in moving.values()
    )
    program = assemble_moving(inputs.terms, inputs.numbers, columns)
    tensors, numbers = (query, key, value, constants), [*inputs.numbers, *program.numbers]
    arguments = (*map(dense, tensors), program.code, numbers, *_mask_arguments(inputs, bias), *_run_arguments(inputs))
    return arguments, [tensor.shape[-1] for tensor in tensors]


def _mask_arguments(inputs: Any, bias: Tensor | None) -> tuple[Any, ...]:
    """The arguments of mask, bias and softmax."""
    arrays = [array(tensor) for tensor in inputs.arrays]
    return list(inputs.program), arrays, array(bias), inputs.by_distance, array(inputs.sink), array(inputs.inverse_temperature)


def _line_biases(inputs: Any, *gradient: Tensor | None) -> tuple[Tensor | None, ...]:
    """The biases of queries and of keys, and the gradient of the biases of keys; empty without such biases."""
    return () if inputs.bias_of_keys is None else (array(inputs.bias_of_queries), array(inputs.bias_of_keys), *gradient)


def _normalizer_arguments(inputs: Any) -> tuple[int, float, Tensor | None]:
    """The normalizer's kind and its alpha."""
    return inputs.normalizer, inputs.alpha, array(inputs.alphas)


def _run_arguments(inputs: Any) -> tuple[float, int, int]:
    """The dropout probability, its seed, and the number of threads."""
    return inputs.dropout, 0 if inputs.seed is None else int(inputs.seed), native.threads()


def _bias_for_gradients(inputs: Any, d_bias: Tensor | None) -> Tensor | None:
    """The bias in the layout of its gradient, to whose zeros the kernel adds."""
    if d_bias is None:
        return inputs.bias
    d_bias.zero_()
    return inputs.bias.contiguous()
