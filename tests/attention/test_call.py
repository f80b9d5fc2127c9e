"""A call of attention, checked: which keys its blocks read, how heads are repeated, and when its values may be read."""

import pytest
import torch

import overt
from compare import check, inputs
from overt.attention.kernels import blocked
from overt.attention.kernels.call import Call

X = torch.randn(2, 9, 4)


@pytest.mark.parametrize("leading", [(2,), (1, 3)])
def test_grouped_heads_of_any_width_read_the_key_head_of_their_group(leading):
    with overt.use_path("blocked"):
        check(inputs((*leading, 6, 9, 1), (*leading, 2, 7, 1), (*leading, 2, 7, 1)))


@pytest.mark.parametrize(
    ("mask", "spans"),
    [
        (None, [(0, 9), (0, 9), (0, 9)]),
        (overt.Causal(), [(0, 1), (0, 5), (0, 9)]),
        (overt.Window(2, 1), [(0, 2), (2, 6), (6, 9)]),
        (overt.Window(0, 0), [(0, 1), (4, 5), (8, 9)]),
        (overt.Causal(offset=-5), [(0, 1), (0, 1), (0, 4)]),
        (overt.Window(0, 0, offset=20), [(8, 9), (8, 9), (8, 9)]),
    ],
)
def test_a_block_reads_the_keys_that_its_rows_may_see_and_at_least_one(mask, spans):
    call = Call.checked(X, X, X, mask=mask)
    for row, (low, high) in zip((0, 4, 8), spans, strict=True):
        block = blocked.query_block(call, blocked.query_rows(call, row, row + 1), every_key=False, careful=False)
        assert torch.equal(block.key, X[:, low:high])


def test_values_are_read_of_tensors_that_have_them_and_not_under_a_transform():
    inspectable = []

    def call(x):
        inspectable.append(Call.checked(x, x, x).inspectable)
        return x.sum()

    call(X)
    call(X.to("meta"))
    torch.func.vmap(call)(X)
    torch.func.grad(call)(X)
    assert inspectable == [True, False, False, False]


@pytest.mark.parametrize("shape", [(), (9,), (1, 9), (9, 1), (9, 9), (2, 1, 9), (2, 9, 1)])
def test_a_bias_broadcasts_over_the_rows_and_keys_of_every_block(shape, monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", 1)  # blocks of 8 rows
    bias = torch.randn(shape)
    with overt.use_path("blocked"):
        output = overt.attend(X, X, X, mask=overt.Window(1, 1), bias=bias)
    near = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 1
    scores = (X @ X.mT / 2 + bias).masked_fill(~near, -torch.inf)
    torch.testing.assert_close(output, scores.softmax(-1) @ X)


def test_a_call_that_fails_leaves_the_gradients_of_later_ones_alone():
    x = torch.randn(2, 5, 4, requires_grad=True)

    def failing(query, key):
        raise ValueError("there is no score")

    # Its traceback lives as long as `failed`, and with it what the call had begun.
    with pytest.raises(ValueError, match="there is no score") as failed:
        overt.attend(x, x, x, score=failing)
    (gradient,) = torch.autograd.grad((x * x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x)
    assert failed.traceback
