"""overt.masks.Blocks: each block of queries attends to the listed blocks of keys, and nothing else."""

import pytest
import torch

import overt
from compare import GRADIENT, KERNELS, OUTPUT, close
from overt.attention.masks import Blocks
from overt.errors import InputError, KindError

LENGTHS = [
    (1, 1, 1),
    (15, 33, (4, 8)),
    (65, 65, 16),
    (130, 257, (64, 32)),
    (200, 190, (48, 100)),
    (193, 321, 32),
    (70, 130, 33),
]


def drawn(queries, keys, size, seed=0):
    """Indices for 3 heads, some of them −1 or repeated, and the pairs (3, Q, K) that they allow."""
    of_queries, of_keys = size if isinstance(size, tuple) else (size, size)
    rows, columns = -(-queries // of_queries), -(-keys // of_keys)
    indices = torch.randint(-1, columns, (3, rows, 2), generator=torch.Generator().manual_seed(seed))
    allowed = torch.zeros(3, queries, keys, dtype=torch.bool)
    for head in range(3):
        for query in range(queries):
            for column in indices[head, query // of_queries].tolist():
                if column >= 0:
                    allowed[head, query, column * of_keys : (column + 1) * of_keys] = True
    return indices, allowed


@pytest.mark.parametrize("path", [KERNELS, "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys", "size"), LENGTHS)
@pytest.mark.each_pair
def test_attention_under_blocks_is_that_under_their_pairs(path, dtype, queries, keys, size):
    indices, allowed = drawn(queries, keys, size)
    generator = torch.Generator().manual_seed(1)
    shapes = (2, 3, queries, 24), (2, 3, keys, 24), (2, 3, keys, 17)
    inputs = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    with overt.use_path(path):
        output = overt.attend(*inputs, mask=Blocks(indices, size))
    query, key, value = exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    scores = (query @ key.mT / 24**0.5).masked_fill(~allowed, -torch.inf)
    weights = torch.softmax(torch.where(allowed.any(-1, keepdim=True), scores, 0), dim=-1)
    wanted = torch.where(allowed, weights, 0) @ value
    close(output.detach().double(), wanted.detach(), OUTPUT[dtype], "output")
    upstream = torch.randn(output.shape, generator=generator).to(dtype)
    gradients = torch.autograd.grad(output, inputs, upstream), torch.autograd.grad(wanted, exact, upstream.double())
    for name, one, other in zip(("query", "key", "value"), *gradients, strict=True):
        close(one.double(), other, GRADIENT[dtype], f"gradient of {name}")


def test_keys_of_no_listed_block_are_as_good_as_deleted():
    query, key, value = (torch.randn(1, 2, 96, 8) for _ in range(3))
    mask = Blocks(torch.tensor([[0], [2], [0]]), size=32)
    expected = overt.attend(query, key, value, mask=mask)
    broken_key, broken_value = key.clone(), value.clone()
    broken_key[:, :, 32:64], broken_value[:, :, 32:64] = torch.nan, torch.inf
    inputs = [tensor.requires_grad_() for tensor in (query, broken_key, broken_value)]
    output = overt.attend(*inputs, mask=mask)
    torch.testing.assert_close(output, expected)
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(output.sum(), inputs))


def test_the_native_core_reads_one_bool_for_each_pair_of_blocks():
    x = torch.randn(1, 2, 640, 8)
    mask = Blocks.from_topk(torch.randn(10, 10), 3, size=64) & overt.Causal()
    assert overt.plan(x, x, x, mask=mask).path == KERNELS
    table, sizes = Blocks.from_topk(torch.randn(10, 10), 3, size=64).bind(2, 640, 640).block_table()
    assert (table.shape, sizes.tolist()) == ((10, 10), [64, 64])


def test_repeated_and_unsorted_indices_count_once():
    one, other = Blocks(torch.tensor([[2, 0, 2, -1]]), 4), Blocks(torch.tensor([[0, 2]]), 4)
    rows, keys = torch.arange(4), torch.arange(12)
    assert torch.equal(one.bind(0, 4, 12).block(rows, keys), other.bind(0, 4, 12).block(rows, keys))


def test_the_largest_scores_are_listed():
    scores = torch.tensor([[0.0, 3.0, -torch.inf], [2.0, 1.0, 5.0]])
    mask = Blocks.from_topk(scores, 2, size=(1, 2)).bind(0, 2, 6)
    assert mask.block(torch.arange(2), torch.arange(6)).int().tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1]]
    assert Blocks.from_topk(scores, 99, size=1).indices.shape == (2, 3)


def test_a_table_says_the_same_as_its_indices():
    table = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.4
    table[0, 0] = False
    bound = Blocks.from_table(table, size=(2, 3)).bind(1, 10, 21)
    assert torch.equal(bound.block_table()[0], table)
    assert torch.equal(bound.block(torch.arange(10), torch.arange(21)), table.repeat_interleave(2, 1).repeat_interleave(3, 2))


def test_a_summary_and_a_recording_know_blocks(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return overt.attend(x, x, x, mask=Blocks(torch.tensor([[0], [0]]), 4) & overt.Causal())

    model, x = Model(), torch.randn(1, 2, 8, 4)
    with overt.lens.record(model, key_tokens=list("abcdefgh")) as recording:
        model(x)
    positions = torch.arange(8)
    wanted = overt.steps(x, x, x, mask=(positions < 4) & (positions <= positions[:, None])).weights
    torch.testing.assert_close(recording[0, 1].weights()[0], wanted[0, 1])
    recording.save(tmp_path / "blocks.safetensors")
    torch.testing.assert_close(overt.lens.load(tmp_path / "blocks.safetensors")[0, 1].weights()[0], wanted[0, 1])
    torch.testing.assert_close(recording[0, 1].received(padding=True)[0], wanted[0, 1].mean(-2))
    assert recording.page(tmp_path / "page.html")


X = torch.randn(8, 4)
BAD = {
    "indices of overt.masks.Blocks to be an integer tensor": lambda: Blocks(torch.ones(2, 2), 4),
    "indices of overt.masks.Blocks of at least -1, got -2": lambda: Blocks(torch.tensor([[-2]]), 4),
    r"indices of overt.masks.Blocks \(..., blocks of queries, n\), got \(1,\)": lambda: Blocks(torch.tensor([0]), 4),
    "size of overt.masks.Blocks to be a whole number of at least 1, got 0": lambda: Blocks(torch.tensor([[0]]), 0),
    r"the length of a block, or \(queries, keys\)": lambda: Blocks(torch.tensor([[0]]), (1, 2, 3)),
    r"\(..., 2, n\) from 0 to 1, or −1, for Q = 8, K = 8 .* got \(2, 1\) with indices up to 2": lambda: overt.attend(
        X, X, X, mask=Blocks(torch.tensor([[0], [2]]), 4)
    ),
    r"\(..., 2, n\) .* got \(3, 1\) with": lambda: overt.attend(X, X, X, mask=Blocks(torch.tensor([[0], [1], [0]]), 4)),
    "none of them NaN, got NaN in": lambda: Blocks.from_topk(torch.tensor([[torch.nan]]), 1, 4),
    "top of overt.masks.Blocks.from_topk to be a whole number": lambda: Blocks.from_topk(torch.ones(1, 1), 0, 4),
    "a bool table of overt.masks.Blocks": lambda: Blocks.from_table(torch.ones(1, 1), 4),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_is_refused_in_a_sentence(sentence):
    with pytest.raises((InputError, KindError), match=sentence):
        BAD[sentence]()
