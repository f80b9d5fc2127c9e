"""Dot-product attention by the native kernels gives the oracle's output and gradients: every score, dtype, mask, bias and shape."""

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies

import overt
from compare import OUTPUT, check, close, inputs
from many_masks import MASKS, K, Q


def tensors(*shapes, seed=0, dtype=torch.float64):
    return [torch.tensor(array, dtype=dtype) for array in inputs(*shapes, seed=seed)]


def against_oracle(arrays, **options):
    """The check of every path, by the native kernels alone."""
    with overt.use_path("native"):
        check(arrays, **options)


def attended(leaves, path="native", **options):
    """The output of one path."""
    with overt.use_path(path):
        return overt.attend(*leaves, **options)


def parameters(score):
    random = np.random.default_rng(9)
    return {
        "dot": {},
        "capped": {"softcap": 1.5},
        "bilinear": {"weight": torch.tensor(random.normal(size=(9, 9)) / 3)},
        "cosine": {"scale": 3.0},
        "gaussian": {"bandwidth": 1.7},
    }[score]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", ["dot", "capped", "bilinear", "cosine", "gaussian"])
@pytest.mark.each_pair
def test_every_score_in_every_dtype_gives_the_oracles_numbers(level, score, dtype):
    arrays = inputs((2, 33, 9), (2, 70, 9), (2, 70, 5))
    against_oracle(arrays, score="dot" if score == "capped" else score, params=parameters(score), dtype=dtype)


# One query to eight are taken as rows, more as lanes of tiles of 64 queries and as many keys.
@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [1, 2, 8, 9, 63, 65, 129])
@pytest.mark.parametrize("keys", [1, 63, 65, 257])
def test_lengths_round_the_edges_of_tiles_give_the_oracles_numbers(level, queries, keys):
    for dtype in (torch.float64, torch.float32):
        against_oracle(inputs((queries, 3), (keys, 3), (keys, 17)), dtype=dtype)


@pytest.mark.parametrize("features", [1, 2, 7, 8, 15, 16, 17, 33, 130])
@pytest.mark.parametrize("width", [1, 16, 40])
@pytest.mark.each_pair
def test_widths_round_those_of_vectors_give_the_oracles_numbers(level, features, width):
    for queries in (5, 20):
        for dtype in (torch.float64, torch.float32):
            against_oracle(inputs((queries, features), (21, features), (21, width)), dtype=dtype)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.few_cases(16)
def test_attention_under_each_mask_gives_the_oracles_numbers(level, name):
    mask = MASKS[name]
    allowed = mask.bind(2, Q, K).block(torch.arange(Q), torch.arange(K)).expand(2, 3, Q, K)
    against_oracle(inputs((2, 3, Q, 4), (2, 3, K, 4), (2, 3, K, 3)), mask=mask, allowed=allowed)


@pytest.mark.parametrize("mask", [overt.Causal(), overt.Window(70, 0), overt.Window(3, 90), overt.Causal(offset=60)])
@pytest.mark.parametrize("sizes", [(130, 130), (200, 140), (70, 300), (4, 300)])
@pytest.mark.each_pair
def test_ranges_across_many_tiles_give_the_oracles_numbers(level, mask, sizes):
    queries, keys = sizes
    allowed = mask.bind(0, queries, keys).block(torch.arange(queries), torch.arange(keys))
    against_oracle(inputs((queries, 5), (keys, 5), (keys, 4)), mask=mask, allowed=allowed, dtype=torch.float32)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(strategies.data())
def test_any_ranges_give_the_oracles_numbers(data):
    queries, keys = (data.draw(strategies.integers(1, 150)) for _ in range(2))
    seed = data.draw(strategies.integers(0, 99))
    bounds = torch.randint(-3, keys + 3, (2, queries), generator=torch.Generator().manual_seed(seed))
    index = torch.arange(keys)
    allowed = (bounds[0, :, None] <= index) & (index < bounds[1, :, None])

    class Ranges(overt.masks.Mask):
        def row_ranges(self, queries, keys, device):
            return bounds[0], bounds[1]

        def block(self, rows, keys):
            return allowed[rows][:, keys]

    against_oracle(inputs((queries, 3), (keys, 3), (keys, 2), seed=seed), mask=Ranges(), allowed=allowed)


@pytest.mark.parametrize(
    "shape", [(70, 75), (70, 1), (1, 75), (1, 1), (75,), (), (3, 70, 75), (3, 1, 1), (2, 1, 70, 75), (2, 3, 1, 75)]
)
def test_a_bias_that_broadcasts_gives_the_oracles_numbers_and_gradient(shape):
    arrays = inputs((2, 3, 70, 5), (2, 3, 75, 5), (2, 3, 75, 4))
    against_oracle(arrays, bias=np.random.default_rng(3).normal(size=shape))


@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("offset", [None, 2, torch.tensor([0, 3])])
def test_learned_slopes_and_tables_over_distances_get_their_gradients(queries, offset):
    leaves = tensors((2, 3, queries, 5), (2, 3, 75, 5), (2, 3, 75, 4))
    slopes, table = torch.rand(3, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    made = {
        "slopes": (slopes, lambda tensor: overt.ALiBi(tensor, offset=offset)),
        "clipped": (table, lambda tensor: overt.RelativePositionBias(tensor, offset=offset)),
    }
    for name, (tensor, make) in made.items():
        tensor = tensor.requires_grad_()
        result, wanted = (attended(leaves, path, bias=make(tensor)) for path in ("native", "blocked"))
        close(result.detach(), wanted.detach(), 1e-12, name)
        gradients = [torch.autograd.grad(output.square().sum(), tensor)[0] for output in (result, wanted)]
        close(*gradients, 1e-10, f"gradient of {name}")


@pytest.mark.parametrize("layout", ["transposed", "expanded", "every other"])
def test_a_bias_in_any_layout_gives_the_same_numbers_and_gradient(layout):
    leaves = tensors((3, 70, 5), (3, 11, 5), (3, 11, 4))
    wide = torch.randn(11, 140, dtype=torch.float64)
    bias = {"transposed": wide[:, :70].T, "expanded": wide[:, :1].T.expand(3, 70, 11), "every other": wide[:, ::2].T}[layout]
    bias = bias.requires_grad_()
    result, wanted = (attended(leaves, path, bias=bias) for path in ("native", "blocked"))
    close(result.detach(), wanted.detach(), 1e-12, "output")
    gradients = [torch.autograd.grad(output.square().sum(), bias)[0] for output in (result, wanted)]
    close(*gradients, 1e-10, "gradient")


@pytest.mark.parametrize("queries", [2, 9])
@pytest.mark.parametrize("sink", [torch.tensor(0.4), torch.tensor([0.4, -2.0, 30.0])])
@pytest.mark.parametrize("temperature", [1.0, 1.7, torch.tensor(0.6), torch.tensor([0.5, 1.0, 3.0]).reshape(3, 1, 1)])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_sinks_temperatures_and_caps_give_the_blocks_numbers_and_gradients(queries, sink, temperature, softcap):
    leaves = [x.requires_grad_() for x in tensors((2, 3, queries, 5), (2, 3, 70, 5), (2, 3, 70, 4))]
    sink, bias = sink.double().requires_grad_(), torch.randn(queries, 70, dtype=torch.float64).requires_grad_()
    options = {"score": overt.Dot(softcap=softcap), "bias": bias, "mask": overt.Causal()}
    result, wanted = (
        attended(leaves, path, normalizer=overt.Softmax(temperature, sink), **options) for path in ("native", "blocked")
    )
    close(result.detach(), wanted.detach(), 1e-12, "output")
    both = [torch.autograd.grad(output.square().sum(), [*leaves, sink, bias]) for output in (result, wanted)]
    for one, other in zip(*both, strict=True):
        close(one, other, 1e-10, "gradient")


def test_a_learned_temperature_and_scale_get_their_gradients():
    leaves = tensors((2, 3, 20, 5), (2, 3, 70, 5), (2, 3, 70, 4))
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    scale = torch.rand(3, 1, 1, dtype=torch.float64, requires_grad=True)
    for score in (overt.Dot(scale), overt.Cosine(scale), overt.Gaussian(1 + scale)):
        outputs = [attended(leaves, path, score=score, normalizer=overt.Softmax(temperature)) for path in ("native", "blocked")]
        close(outputs[0].detach(), outputs[1].detach(), 1e-12, "output")
        both = [torch.autograd.grad(output.square().sum(), [temperature, scale], retain_graph=True) for output in outputs]
        for one, other in zip(*both, strict=True):
            close(one, other, 1e-10, "gradient")


@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("heads", [(6, 2), (6, 1), (6, 6)])
def test_grouped_heads_give_the_numbers_of_repeated_ones(level, queries, heads):
    per_head, shared = heads
    query, key, value = (
        x.requires_grad_() for x in tensors((2, per_head, queries, 5), (2, shared, 700, 5), (2, shared, 700, 4))
    )
    repeated = [x.repeat_interleave(per_head // shared, dim=1) for x in (key, value)]
    result, wanted = attended((query, key, value)), attended((query, *repeated), "blocked")
    close(result.detach(), wanted.detach(), 1e-12, "output")
    both = [torch.autograd.grad(output.square().sum(), (query, key, value)) for output in (result, wanted)]
    for one, other in zip(*both, strict=True):
        close(one, other, 1e-10, "gradient")


@pytest.mark.parametrize("queries", [1, 5, 40])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_keys_split_among_threads_give_the_numbers_of_one(queries, threads):
    before = torch.get_num_threads()
    leaves = [x.requires_grad_() for x in tensors((1, queries, 5), (1, 2000, 5), (1, 2000, 4))]
    wanted = attended(leaves, "blocked", mask=overt.Causal())
    try:
        torch.set_num_threads(threads)
        result = attended(leaves, mask=overt.Causal())
        gradients = torch.autograd.grad(result.square().sum(), leaves)
    finally:
        torch.set_num_threads(before)
    close(result.detach(), wanted.detach(), 1e-12, "output")
    for one, other in zip(gradients, torch.autograd.grad(wanted.square().sum(), leaves), strict=True):
        close(one, other, 1e-10, "gradient")


@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("nasty", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("spoiled", ["query", "key", "value", "upstream"])
def test_nan_and_infinity_reach_who_may_see_them_and_no_others(level, queries, nasty, spoiled):
    shapes = {"query": (queries, 5), "key": (70, 5), "value": (70, 4), "upstream": (queries, 4)}
    tensor = dict(zip(shapes, tensors(*shapes.values()), strict=True))

    def run():
        leaves = [tensor[name].clone().requires_grad_() for name in ("query", "key", "value")]
        output = attended(leaves, mask=overt.Causal(offset=0))
        return [output.detach(), *torch.autograd.grad(output, leaves, tensor["upstream"])]

    clean = run()
    tensor[spoiled][1] = nasty
    output, d_query, d_key, d_value = run()
    # Query i sees the keys up to i: key 1 is seen from query 1 on, and query 1 sees the keys 0 and 1.
    rows = torch.arange(queries) < 1 if spoiled in ("key", "value") else torch.arange(queries) != 1
    keys = torch.arange(70) >= (queries if spoiled in ("key", "value") else 2)
    torch.testing.assert_close(output[rows], clean[0][rows])
    torch.testing.assert_close(d_query[rows], clean[1][rows])
    torch.testing.assert_close(d_key[keys], clean[2][keys])
    torch.testing.assert_close(d_value[keys], clean[3][keys])
    if np.isnan(nasty):  # an infinite key gives scores of −inf as well, which bar it
        assert output[~rows].isnan().all() == (spoiled != "upstream")
        assert d_query[~rows].isnan().all()


def test_huge_scores_keep_the_largest_and_their_gradients():
    for size in (1e2, 1e4, 1e18):
        query = torch.eye(4).repeat(20, 1)[:70].requires_grad_()
        key = (torch.eye(4) * size).requires_grad_()
        value = torch.randn(4, 3).requires_grad_()
        output = attended((query, key, value), score=overt.Dot(scale=1.0))
        torch.testing.assert_close(output, value[torch.arange(70) % 4])
        (gradient,) = torch.autograd.grad(output.sum(), value)
        torch.testing.assert_close(gradient.sum(), torch.tensor(210.0))


def test_dropout_keeps_the_weights_that_its_hash_keeps_in_both_passes():
    # Values that are unit vectors show the weights themselves.
    for queries in (4, 70):
        query, key = tensors((2, queries, 5), (2, 90, 5))
        value = torch.eye(90, dtype=torch.float64).expand(2, 90, 90)
        weights = attended((query, key, value))
        torch.manual_seed(5)
        dropped = attended((query, key, value), dropout=0.4)
        survived = dropped != 0
        assert abs(float(survived.double().mean()) - 0.6) < 0.05
        close(dropped[survived], weights[survived] / 0.6, 1e-12, "weights that are kept")
        leaves = [x.clone().requires_grad_() for x in (query, key, torch.randn(2, 90, 3, dtype=torch.float64))]
        torch.manual_seed(5)
        result = attended(leaves, dropout=0.4)
        mask = survived.double() / 0.6
        scores = leaves[0] @ leaves[1].mT / 5**0.5
        wanted = (torch.softmax(scores, -1) * mask) @ leaves[2]
        close(result.detach(), wanted.detach(), 1e-12, "output")
        both = [torch.autograd.grad(output.square().sum(), leaves) for output in (result, wanted)]
        for one, other in zip(*both, strict=True):
            close(one, other, 1e-10, "gradient")


def test_empty_dimensions_give_zeros():
    for queries, keys, features, width in ((0, 3, 2, 2), (3, 0, 2, 2), (3, 3, 0, 2), (3, 3, 2, 0), (30, 0, 2, 2)):
        leaves = [x.requires_grad_() for x in tensors((2, queries, features), (2, keys, features), (2, keys, width))]
        result, wanted = attended(leaves), attended(leaves, "blocked")
        torch.testing.assert_close(result, wanted)
        both = [torch.autograd.grad(output.sum(), leaves) for output in (result, wanted)]
        for one, other in zip(*both, strict=True):
            torch.testing.assert_close(one, other)


def test_broadcast_and_strided_inputs_are_read_where_they_lie():
    query = torch.randn(2, 30, 3, 8, dtype=torch.float64).transpose(1, 2).requires_grad_()
    key, value = torch.randn(2, 1, 50, 8, dtype=torch.float64), torch.randn(1, 3, 50, 16, dtype=torch.float64)[..., ::2]
    leaves = [query, key.requires_grad_(), value.requires_grad_()]
    result, wanted = attended(leaves), attended(leaves, "blocked")
    close(result.detach(), wanted.detach(), 1e-12, "output")
    both = [torch.autograd.grad(output.square().sum(), leaves) for output in (result, wanted)]
    for one, other in zip(*both, strict=True):
        close(one, other, 1e-10, "gradient")


def test_gaussian_scores_of_close_vectors_far_from_the_origin_lose_no_digits():
    random = torch.Generator().manual_seed(0)
    x = 1e5 + torch.randn(40, 3, generator=random)
    result, wanted = (attended((x, x, x - 1e5), path, score=overt.Gaussian(1.0)) for path in ("native", "blocked"))
    close(result, wanted, 1e-5, "output")


def test_the_same_call_gives_the_same_bits():
    leaves = [torch.randn(2, 3, 130, 24, requires_grad=True) for _ in range(3)]
    first, second = (attended(leaves, mask=overt.Causal()) for _ in range(2))
    assert torch.equal(first, second)
    both = [torch.autograd.grad(output.square().sum(), leaves) for output in (first, second)]
    assert all(torch.equal(one, other) for one, other in zip(*both, strict=True))


@pytest.mark.parametrize("queries", [1, 20])
def test_every_number_of_half_precision_is_read_as_what_it_is(level, queries):
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16).reshape(64, 1, 1024)
    one = torch.ones(64, 1, 3, dtype=torch.float16)
    with overt.use_path("native"):
        read = overt.attend(one.expand(-1, queries, -1), one, numbers)  # the one key has all the weight
    assert torch.equal(read.nan_to_num(7), numbers.expand(-1, queries, -1).nan_to_num(7))


# Rows of whole vectors are read where they lie, in each dtype with its own loop; 20 features are copied.
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("heads", "queries"), [(1, 1), (4, 1), (5, 2), (16, 1)])
@pytest.mark.each_pair
def test_decoding_reads_rows_of_every_width_and_dtype(level, dtype, heads, queries):
    for width, keys in [(20, 70), (64, 3), (96, 65), (160, 130), (64, 2200)]:
        query, key, value = tensors((2, heads, queries, width), (2, 1, keys, width), (2, 1, keys, width), dtype=dtype)
        expected = torch.softmax(query.double() @ key.double().mT / width**0.5, dim=-1) @ value.double()
        output = attended((query, key, value))
        close(output.double(), expected, OUTPUT[dtype], f"{width} features, {keys} keys")
        sliced = attended((query, key, key[..., : width // 2]))
        whole = attended((query, key, key))
        close(sliced.double(), whole[..., : width // 2].double(), OUTPUT[dtype], "values that are a slice of the keys")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 64, 100])
def test_decoding_does_not_see_what_lies_behind_a_length(level, dtype, length):
    query, key, value = tensors((4, 1, 64), (130, 64), (130, 64), dtype=dtype)
    expected = attended((query, key[:length], value[:length]))
    key[length:], value[length:] = torch.nan, torch.inf
    output = attended((query, key, value), mask=overt.Lengths(length))
    close(output.double(), expected.double(), OUTPUT[dtype], "output")


# From three blocks of queries on, rows of half precision are converted once for all of them, some heads at a time.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_in_half_precision_are_converted_once_for_many_queries(level, dtype, monkeypatch):
    query, key, value = tensors((2, 6, 200, 24), (1, 3, 1500, 24), (2, 3, 1500, 41), dtype=dtype)
    value = value[..., 1:]  # 128,000 numbers a head: more than the heads that are in memory at once
    expected = torch.softmax((query.double() @ key.double().repeat_interleave(2, 1).mT / 24**0.5)[..., :1499], dim=-1)
    expected = expected @ value.double()[:, :, :1499].repeat_interleave(2, 1)
    key[..., 1499, :], value[..., 1499, :] = torch.nan, torch.inf
    for threads in (1, 3):
        monkeypatch.setattr(overt.native, "threads", lambda threads=threads: threads)
        output = attended((query, key.expand(2, -1, -1, -1), value), mask=overt.Lengths(torch.tensor([1499, 1499])))
        close(output.double(), expected, OUTPUT[dtype], f"{threads} threads")
