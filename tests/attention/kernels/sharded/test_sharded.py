"""Tensors that are divided over processes: the same numbers as on one, forward and backward, by the comparison with the oracle."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import overt
from overt.attention.biases import Bias, sum_of
from overt.attention.masks import Mask

PROGRAM = Path(__file__).with_name("sharded_program.py")


def failures(count, folder):
    """Run every case of the program on this many processes: what failed on which of them."""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, PROGRAM]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(count), folder], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for rank in range(count)
    ]
    errors = [process.communicate(timeout=600)[1].decode() for process in processes]
    reports = [folder / f"{rank}.json" for rank in range(count)]
    assert all(report.exists() for report in reports), errors
    results = [json.loads(report.read_text()) for report in reports]
    assert all(len(result) > 10 for result in results), errors
    return {(rank, name): error for rank, result in enumerate(results) for name, error in result.items() if error}


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    assert failures(2, tmp_path) == {}


@pytest.mark.long
@pytest.mark.slow
def test_four_processes_give_what_one_gives(tmp_path):
    assert failures(4, tmp_path) == {}


@pytest.mark.slow
def test_without_them_nothing_distributed_is_imported():
    program = (
        "import sys, torch, overt; x = torch.randn(4, 2, requires_grad=True); overt.attend(x, x, x).sum().backward();"
        "overt.plan(x, x, x); print('torch.distributed.tensor' in sys.modules)"
    )
    actual = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert actual == "False\n"


class Diagonals(Mask):
    """A mask of a caller's own that has row ranges."""

    def block(self, rows, keys):
        return (keys >= rows[:, None]) & (keys < rows[:, None] + 3)

    def span(self, first, stop, keys):
        return first, stop + 2

    def row_ranges(self, queries, keys, device):
        rows = torch.arange(queries, device=device)
        return rows, rows + 3


class CustomCausal(overt.Causal):
    """A subclass with another formula inherits nothing of what is said of the old one."""

    def block(self, rows, keys):
        return keys > rows[:, None]


IDS = torch.tensor([[0, 0, 0, 1, 1, -1, 2, 2, 2], [3, 1, 3, 1, 0, 0, -1, 0, 3]])
DENSE = torch.tensor(np.random.default_rng(0).random((2, 1, 9, 9)) < 0.4)
MASKS = [
    overt.Causal(), overt.Causal(offset=torch.tensor([1, -4])), overt.Window(2, 1), overt.Window(None, 3, offset=2),
    overt.Lengths(torch.tensor([9, 4])), overt.Lengths(5, torch.tensor([7, 2])), overt.Documents(IDS), overt.masks.Dense(DENSE),
    overt.masks.Dense(DENSE[..., :1]), overt.masks.Dense(DENSE[..., :1, :]), overt.masks.Keys(DENSE[:, 0, 0]),
    overt.masks.Ranges(torch.arange(9) // 2, torch.arange(9) // 2 + 3), overt.Causal() & overt.Documents(IDS),
    ~overt.Causal() | overt.masks.Dense(DENSE), Diagonals(), Diagonals() & overt.Causal(), CustomCausal(),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
@pytest.mark.parametrize(("rows", "keys"), [((0, 9), (0, 9)), ((2, 7), (3, 9)), ((6, 7), (0, 2))])
def test_a_block_of_a_mask_is_its_part_of_the_whole(mask, rows, keys):
    bound = mask.bind(2, 9, 9)
    part = bound.of_block(slice(*rows), slice(*keys), (9, 9))
    count, width = rows[1] - rows[0], keys[1] - keys[0]
    whole = bound.block(torch.arange(9), torch.arange(9)).expand(2, 1, 9, 9)[..., slice(*rows), slice(*keys)]
    assert torch.equal(part.block(torch.arange(count), torch.arange(width)).expand_as(whole), whole)
    low, high = part.span(0, count, width)
    outside = (torch.arange(width) < low) | (torch.arange(width) >= high)
    assert not whole[..., outside].any()
    if part.has_row_ranges:
        first, stop = (torch.as_tensor(edge) for edge in part.row_ranges(count, width, torch.device("cpu")))
        ranges = (first[..., None] <= torch.arange(width)) & (torch.arange(width) < stop[..., None])
        assert torch.equal(ranges.expand_as(whole), whole)


@dataclass(frozen=True, eq=False)
class Products(Bias):
    """A bias of a caller's own."""

    def bind(self, leading, queries, keys):
        return self

    def block(self, rows, keys):
        return rows[:, None] * keys.double()

    leading, source = (), torch.zeros(())


TABLE = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
BIASES = [
    overt.ALiBi(torch.tensor([0.5, 2.0])), overt.ALiBi(torch.tensor([0.5, 2.0]), offset=torch.tensor([3, -2, 0])),
    overt.RelativePositionBias(TABLE), overt.RelativePositionBias(TABLE, buckets="log", offset=1), Products(),
    sum_of(overt.ALiBi(torch.tensor([0.5, 2.0])), torch.arange(81.0).reshape(9, 9)), sum_of(Products(), torch.arange(9.0)),
]  # fmt: skip


@pytest.mark.parametrize("bias", BIASES, ids=lambda bias: type(bias).__name__)
def test_a_block_of_a_bias_is_its_part_of_the_whole(bias):
    bound = bias.bind(4, 9, 9)
    whole = bound.block(torch.arange(9), torch.arange(9))[..., 2:7, 3:9]
    part = bound.of_block(slice(2, 7), slice(3, 9))
    assert torch.equal(part.block(torch.arange(5), torch.arange(6)).expand_as(whole), whole)
    assert (part.by_distance, part.leading) == (bound.by_distance, bound.leading)
