"""The operators `torch.ops.overt.*` on GPU tensors."""

import math
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from overt.attention.kernels.flat.operator import empty
from overt.attention.kernels.triton import additive as triton_additive
from overt.attention.kernels.triton.launch import on_its_device, size, steps, strided_bias, strided_mask, table
from overt.attention.kernels.triton.packing import LEAKS, RATES, PackedTensors, packed
from overt.attention.kernels.triton.tiles import COLUMNS

if TYPE_CHECKING:
    from overt.attention.kernels.flat.additive import AdditiveInputs

KERNELS: Any = triton_additive  # untyped: Triton's kernels have no signature for a type checker

# FORWARD, BACKWARD: tile sizes, warps of a program, and the value features that it holds at once, in float32; they fit into the shared
# memory of every GPU since compute capability 8.0, 99 KiB a program.
FORWARD = {"rows": 64, "keys": 32, "warps": 4, "widest": 128}
BACKWARD = {"rows": 64, "others": 64, "warps": 4, "widest": 64}
SIDE = 64  # side of the square tiles of a bias's gradient


class Launch:
    """The arguments common to all additive kernels of one launch."""

    def __init__(self, inputs: "AdditiveInputs", widest: int, bare: bool = False):
        self.inputs = inputs
        self.number: torch.dtype = torch.promote_types(inputs.query.dtype, torch.float32)
        self.entries: int = math.prod(inputs.batch)
        self.width: int = inputs.value.shape[-1]
        self.sizes: tuple[int, int] = inputs.query.shape[-2], inputs.key.shape[-2]
        self.packed: PackedTensors = packed(inputs.query, inputs.key, inputs.weight.to(self.number), inputs.activation, bare)
        trailing = {"query": (self.packed.query, 3), "key": (self.packed.key, 3), "weight": (self.packed.weight, 1)}
        trailing |= {
            "bare query": (self.packed.bare_query, 3),
            "bare key": (self.packed.bare_key, 3),
            "value": (inputs.value, 2),
        }
        trailing |= {
            "bias": (inputs.bias, 1 if inputs.by_distance else 2),
            "sink": (inputs.sink, 0),
            "inverse_temperature": (inputs.inverse_temperature, 0),
        }
        self.offsets: tuple[Tensor, int] = table(inputs.batch, trailing, inputs.arrays, inputs.program)
        self.score: tuple[Any, ...] = *self.packed, len(self.packed.ways)
        self.mask: tuple[Any, ...] = strided_mask(inputs.arrays, inputs.program, self.offsets)
        self.bias: tuple[Tensor, int, int] | None = strided_bias(inputs.bias, inputs.by_distance)
        self.block: int = size(self.width, widest * 4 // self.number.itemsize)

    def constants(self) -> dict[str, Any]:
        """The compile-time constants of the kernels."""
        inputs, (program, firsts, bounds) = self.inputs, steps(self.inputs.program)
        kind = {"RATE": RATES[inputs.activation], "LEAK": LEAKS.get(inputs.activation, 0.0), "WIDTH": self.block}
        kind |= {"STEPS": program, "FIRSTS": firsts, "BOUNDS": bounds}
        return kind | {"BY_DISTANCE": inputs.by_distance, "DROPOUT": inputs.dropout}


@on_its_device
def additive(_: Tensor, inputs: "AdditiveInputs") -> tuple[Tensor, Tensor]:
    """Compute output (..., Q, E) and log-sum-exp (..., Q)."""
    shape = (*inputs.batch, inputs.query.shape[-2])
    output, lse = empty(inputs.query, *shape, inputs.value.shape[-1]), empty(inputs.query, *shape)
    if lse.numel():
        launch = Launch(inputs, FORWARD["widest"])
        rows = size(launch.sizes[0], FORWARD["rows"])
        KERNELS.forward[triton.cdiv(launch.sizes[0], rows), launch.entries, triton.cdiv(max(launch.width, 1), launch.block)](
            launch.score, inputs.value, launch.mask, launch.bias, inputs.sink, inputs.inverse_temperature, inputs.seed,
            launch.offsets, launch.sizes, output, lse,
            launch.width, inputs.value.stride()[-2:], **launch.constants(), ROWS=rows, KEYS=size(launch.sizes[1],
            FORWARD["keys"]),
            num_warps=FORWARD["warps"],
        )  # fmt: skip
    return output, lse


@on_its_device
def additive_gradients(
    upstream: Tensor, inputs: "AdditiveInputs", output: Tensor, lse: Tensor, with_bias: bool
) -> tuple[Tensor, ...]:
    """Compute gradients of query, key, value and weight per entry, delta (for a sink's gradient), and the bias's, or a placeholder."""
    upstream = upstream.contiguous()
    delta = (output * upstream).sum(-1)
    bias = inputs.bias.contiguous() if with_bias and inputs.bias is not None else None
    launch = Launch(inputs if bias is None else inputs._replace(bias=bias), BACKWARD["widest"], bare=True)
    return (
        *_gradients(launch, lse, upstream, delta),
        delta,
        lse.new_zeros(()) if bias is None else _bias_gradient(launch, lse, upstream, delta),
    )


def _gradients(launch: Launch, lse: Tensor, upstream: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs, (queries, keys), groups = launch.inputs, launch.sizes, len(launch.packed.ways)
    row_sums, share_sums = (lse.new_zeros(*inputs.batch, groups, queries, 4) for _ in range(2))
    key_sums, score_sums = lse.new_zeros(*inputs.batch, groups, keys, 4), lse.new_zeros(lse.shape)
    value_sums = lse.new_zeros(*inputs.batch, keys, launch.width)
    for count, other_count, gradient, for_queries in ((queries, keys, row_sums, True), (keys, queries, key_sums, False)):
        if not (launch.entries and queries and keys):
            continue
        block = size(count, BACKWARD["rows"])
        widths = 1 if for_queries else triton.cdiv(max(launch.width, 1), launch.block)
        KERNELS.gradients[triton.cdiv(count, block), launch.entries, widths](
            launch.score, inputs.value, upstream, launch.mask, launch.bias, inputs.inverse_temperature, inputs.seed, lse,
            delta, launch.offsets, launch.sizes,
            launch.width, inputs.value.stride()[-2:], gradient, share_sums, score_sums, value_sums, **launch.constants(),
            ROWS=block, OTHERS=size(other_count, BACKWARD["others"]), FOR_QUERIES=for_queries, num_warps=BACKWARD["warps"],
        )  # fmt: skip
    return _unpacked_gradients(launch, row_sums, key_sums, share_sums.sum(-2), score_sums.sum(-1), value_sums)


def _unpacked_gradients(
    launch: Launch, rows: Tensor, keys: Tensor, shares: Tensor, scores: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Convert the kernels' packed sums to the gradients of query, key, value and weight."""
    features, rate = launch.inputs.query.shape[-1], RATES[launch.inputs.activation]
    weight = launch.inputs.weight.to(launch.number).expand(*launch.inputs.batch, features)
    shares = shares.flatten(-2)[..., :features]
    if rate == 0:
        times, d_weight = weight, shares
    else:
        # f = sum_d w_d (1 - 2 r_d) with r = 1 / (1 + e^x), dr/dx = -r (1 - r), and x = 2 (q + k); a sigmoid has 1 in place of 2.
        times, d_weight = rate * rate * weight, scores[..., None] - rate * shares
    d_query, d_key = (gradient.movedim(-3, -2).flatten(-2)[..., :features] * times[..., None, :] for gradient in (rows, keys))
    return d_query, d_key, values, d_weight


def _bias_gradient(launch: Launch, lse: Tensor, upstream: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the bias: a program owns some of its numbers, and loops over all entries, queries and keys that share them."""
    inputs, bias = launch.inputs, launch.inputs.bias
    assert bias is not None
    gradient = lse.new_zeros(bias.shape)
    if not (gradient.numel() and launch.entries and all(launch.sizes)):
        return gradient
    shape = bias.shape[-1:] if inputs.by_distance else bias.shape[-2:]
    biases = gradient.numel() // math.prod(shape)
    sharing = torch.argsort(launch.offsets[0][COLUMNS.index("bias")], stable=True).int()
    known = (
        launch.score, inputs.value, upstream, launch.mask, launch.bias, inputs.inverse_temperature, inputs.seed, lse, delta,
        launch.offsets, launch.sizes,
        launch.width, inputs.value.stride()[-2:], gradient, sharing, launch.entries // biases,
    )  # fmt: skip
    constants = launch.constants() | {"num_warps": BACKWARD["warps"]}
    del constants["BOUNDS"], constants["BY_DISTANCE"]
    if inputs.by_distance:
        side = size(min(launch.sizes), SIDE)
        KERNELS.distance_gradient[triton.cdiv(shape[0], side), biases](*known, **constants, SIDE=side)
    else:
        rows, keys = (size(length, SIDE) for length in launch.sizes)
        KERNELS.bias_gradient[triton.cdiv(shape[0], rows), triton.cdiv(shape[1], keys), biases](
            *known, tuple(shape), **constants, ROWS=rows, KEYS=keys, ROWWISE=shape[0] > 1, KEYWISE=shape[1] > 1
        )
    return gradient
