"""The operators `torch.ops.overt.*` where tensors are on a GPU."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from overt.attention.kernels.flat.additive import Given
from overt.attention.kernels.flat.operator import numbers
from overt.attention.kernels.triton import additive as triton_additive
from overt.attention.kernels.triton.launch import bias_of, mask_of, on_its_device, size, steps, table
from overt.attention.kernels.triton.packing import LEAKS, RATES, packed
from overt.attention.kernels.triton.tiles import COLUMNS

KERNELS: Any = triton_additive  # what Triton compiles has no signature that a checker could read

# The sizes of tiles, the warps of a program, and the features of values that it holds at once, in float32: what fits into the shared
# memory of every GPU since compute capability 8.0, 99 KiB a program.
FORWARD = {"rows": 128, "keys": 32, "warps": 8, "widest": 128}
BACKWARD = {"own": 128, "others": 32, "warps": 8, "widest": 32}
SIDE = 64  # of the square tiles that a bias's gradient is made of


class Launch:
    """What every kernel of additive attention is given for one call."""

    def __init__(self, given: Given, widest: int, bare: bool = False):
        self.given, self.number = given, torch.promote_types(given.query.dtype, torch.float32)
        self.entries, self.width = math.prod(given.batch), given.value.shape[-1]
        self.sizes = given.query.shape[-2], given.key.shape[-2]
        self.packed = packed(given.query, given.key, given.weight.to(self.number), given.activation, bare)
        own = {"query": (self.packed.query, 3), "key": (self.packed.key, 3), "weight": (self.packed.weight, 1)}
        own |= {"bare query": (self.packed.bare_query, 3), "bare key": (self.packed.bare_key, 3), "value": (given.value, 2)}
        own |= {"bias": (given.bias, 1 if given.by_distance else 2), "sink": (given.sink, 0), "heat": (given.heat, 0)}
        self.places = table(given.batch, own, given.arrays, given.program)
        self.score = *self.packed, len(self.packed.ways)
        self.mask = mask_of(given.arrays, given.program, self.places)
        self.bias = bias_of(given.bias, given.by_distance)
        self.block = size(self.width, widest * 4 // self.number.itemsize)

    def constants(self) -> dict[str, Any]:
        """What kernels are compiled for."""
        given, (program, firsts, bounds) = self.given, steps(self.given.program)
        kind = {"RATE": RATES[given.activation], "LEAK": LEAKS.get(given.activation, 0.0), "WIDTH": self.block}
        kind |= {"STEPS": program, "FIRSTS": firsts, "BOUNDS": bounds}
        return kind | {"BY_DISTANCE": given.by_distance, "DROPOUT": given.dropout}


@on_its_device
def additive(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Output (..., Q, E) and log-sum-exp (..., Q)."""
    given = Given(*inputs)
    rows = (*given.batch, given.query.shape[-2])
    output, lse = numbers(given.query, *rows, given.value.shape[-1]), numbers(given.query, *rows)
    if lse.numel():
        call = Launch(given, FORWARD["widest"])
        own = size(call.sizes[0], FORWARD["rows"])
        KERNELS.forward[triton.cdiv(call.sizes[0], own), call.entries, triton.cdiv(max(call.width, 1), call.block)](
            call.score, given.value, call.mask, call.bias, given.sink, given.heat, given.seed, call.places, call.sizes, output, lse,
            call.width, given.value.stride()[-2:], **call.constants(), ROWS=own, KEYS=size(call.sizes[1], FORWARD["keys"]),
            num_warps=FORWARD["warps"],
        )  # fmt: skip
    return output, lse


@on_its_device
def additive_gradients(*inputs: Any) -> tuple[Tensor, ...]:
    """Of query, key, value and weight, an entry each; delta, from which a sink's is made; of the bias, or a placeholder."""
    given, (output, lse, upstream, with_bias) = Given(*inputs[:-4]), inputs[-4:]
    upstream = upstream.contiguous()
    delta = (output * upstream).sum(-1)
    bias = given.bias.contiguous() if with_bias and given.bias is not None else None
    call = Launch(given if bias is None else given._replace(bias=bias), BACKWARD["widest"], bare=True)
    return (
        *_gradients(call, lse, upstream, delta),
        delta,
        lse.new_zeros(()) if bias is None else _of_bias(call, lse, upstream, delta),
    )


def _gradients(call: Launch, lse: Tensor, upstream: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given, (queries, keys), groups = call.given, call.sizes, len(call.packed.ways)
    of_rows, of_shares = (lse.new_zeros(*given.batch, groups, queries, 4) for _ in range(2))
    of_keys, of_scores = lse.new_zeros(*given.batch, groups, keys, 4), lse.new_zeros(lse.shape)
    of_values = lse.new_zeros(*given.batch, keys, call.width)
    for own, others, found, of_queries in ((queries, keys, of_rows, True), (keys, queries, of_keys, False)):
        if not (call.entries and queries and keys):
            continue
        block = size(own, BACKWARD["own"])
        widths = 1 if of_queries else triton.cdiv(max(call.width, 1), call.block)
        KERNELS.gradients[triton.cdiv(own, block), call.entries, widths](
            call.score, given.value, upstream, call.mask, call.bias, given.heat, given.seed, lse, delta, call.places, call.sizes,
            call.width, given.value.stride()[-2:], found, of_shares, of_scores, of_values, **call.constants(),
            OWN=block, OTHERS=size(others, BACKWARD["others"]), OF_QUERIES=of_queries, num_warps=BACKWARD["warps"],
        )  # fmt: skip
    return _of_packs(call, of_rows, of_keys, of_shares.sum(-2), of_scores.sum(-1), of_values)


def _of_packs(
    call: Launch, rows: Tensor, keys: Tensor, shares: Tensor, scores: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the sums of the kernels, which lie as packs do, to gradients: of query, key, value and weight."""
    features, rate = call.given.query.shape[-1], RATES[call.given.activation]
    weight = call.given.weight.to(call.number).expand(*call.given.batch, features)
    shares = shares.flatten(-2)[..., :features]
    if rate == 0:
        times, of_weight = weight, shares
    else:
        # f = sum_d w_d (1 - 2 r_d) with r = 1 / (1 + e^x), whose derivative is -r (1 - r), and x = 2 (q + k); a sigmoid has 1 for 2.
        times, of_weight = rate * rate * weight, scores[..., None] - rate * shares
    of_query, of_key = (found.movedim(-3, -2).flatten(-2)[..., :features] * times[..., None, :] for found in (rows, keys))
    return of_query, of_key, values, of_weight


def _of_bias(call: Launch, lse: Tensor, upstream: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the bias: a program owns some of its numbers, and passes over all entries, queries and keys that share them."""
    given, bias = call.given, call.given.bias
    assert bias is not None
    found = lse.new_zeros(bias.shape)
    if not (found.numel() and call.entries and all(call.sizes)):
        return found
    own = bias.shape[-1:] if given.by_distance else bias.shape[-2:]
    biases = found.numel() // math.prod(own)
    sharing = torch.argsort(call.places[0][COLUMNS.index("bias")], stable=True).int()
    known = (
        call.score, given.value, upstream, call.mask, call.bias, given.heat, given.seed, lse, delta, call.places, call.sizes,
        call.width, given.value.stride()[-2:], found, sharing, call.entries // biases,
    )  # fmt: skip
    constants = call.constants() | {"num_warps": BACKWARD["warps"]}
    del constants["BOUNDS"], constants["BY_DISTANCE"]
    if given.by_distance:
        side = size(min(call.sizes), SIDE)
        KERNELS.distance_gradient[triton.cdiv(own[0], side), biases](*known, **constants, SIDE=side)
    else:
        rows, keys = (size(length, SIDE) for length in call.sizes)
        KERNELS.bias_gradient[triton.cdiv(own[0], rows), triton.cdiv(own[1], keys), biases](
            *known, tuple(own), **constants, ROWS=rows, KEYS=keys, ROWWISE=own[0] > 1, KEYWISE=own[1] > 1
        )
    return found
