"""Masks of every kind and combination, for two entries of three heads, Q queries and K keys."""

import sys

import torch

import overt

Q, K = 37, 70
VISIBLE = torch.rand(K, generator=torch.Generator().manual_seed(1)) < 0.7
PAIRS = torch.rand(2, 3, Q, K, generator=torch.Generator().manual_seed(2)) < 0.6
IDS = torch.arange(K) // 9 - 1
SHIFTS = torch.tensor([2, 40])

MASKS = {
    "causal": overt.Causal(),
    "causal from the start": overt.Causal(offset=0),
    "causal by entry": overt.Causal(offset=SHIFTS),
    "window": overt.Window(5, 2),
    "window without a past": overt.Window(0, None),
    "window without an end": overt.Window(None, 3, offset=SHIFTS),
    "everything": overt.Window(None, None),
    "everything that has a number": overt.Window(sys.maxsize, sys.maxsize),
    "everything by entry": overt.Window(sys.maxsize, sys.maxsize, offset=SHIFTS),
    "nothing": overt.Window(0, 0, offset=1000),
    "length": overt.Lengths(40),
    "lengths": overt.Lengths(torch.tensor([0, 65], dtype=torch.int32)),
    "lengths of queries": overt.Lengths(torch.tensor([70, 64]), queries=torch.tensor([5, 37])),
    "keys": overt.masks.Keys(VISIBLE),
    "keys by entry": overt.masks.Keys(torch.stack([VISIBLE, ~VISIBLE])),
    "documents": overt.Documents(IDS, query_ids=IDS[:Q]),
    "documents by entry": overt.Documents(torch.stack([IDS, IDS.flip(0)]), query_ids=IDS[:Q].int()),
    "pairs": overt.masks.Dense(PAIRS),
    "pairs for all": overt.masks.Dense(PAIRS[0, 0]),
    "rows": overt.masks.Dense(PAIRS[..., :1]),
    "keys by head": overt.masks.Dense(PAIRS[:, :, :1]),
    "transposed pairs": overt.masks.Dense(torch.ones(K, Q).tril().bool().T),
    "blocks": overt.masks.Blocks(torch.tensor([[0, 2, 0], [3, -1, -1], [1, 4, -1]]), size=16),
    "blocks by head": overt.masks.Blocks.from_topk(torch.rand(3, Q, 5, generator=torch.Generator().manual_seed(3)), 2, (1, 16)),
    "blocks that cross tiles and causal": overt.masks.Blocks(torch.tensor([[0, 1], [1, 2]]), size=(19, 27)) & overt.Causal(),
    "not blocks": ~overt.masks.Blocks(torch.tensor([[0], [-1]]), size=(32, 64)),
    "padded and causal": overt.Lengths(torch.tensor([30, 65])) & overt.Causal() & overt.Window(20, None),
    "pairs and causal": overt.masks.Dense(PAIRS) & overt.Causal() & overt.masks.Keys(VISIBLE),
    "global tokens": overt.Window(3, 3) | overt.Lengths(2) | overt.Documents(IDS, query_ids=IDS[:Q]),
    "not causal": ~overt.Causal(),
    "neither": ~(overt.Causal() | overt.masks.Dense(PAIRS)) & overt.Lengths(60),
    "not a length": ~overt.Lengths(torch.tensor([0, 65])),
}
# The kernels for GPUs know no masks by blocks.
ON_GPUS = [name for name in MASKS if "blocks" not in name]
