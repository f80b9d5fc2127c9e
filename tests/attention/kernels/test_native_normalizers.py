"""Sigmoid, sum, sparsemax and entmax by the native kernels give the oracle's output and gradients: every score, dtype, mask, bias, shape."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import overt
from compare import check, close, inputs
from everyday import DIRECTIONS
from many_masks import MASKS, K, Q
from overt.attention.normalizers import Entmax, Sigmoid, Softmax, Sparsemax, Sum
from overt.errors import InputError

ALPHAS = [1.05, 1.3, 1.5, 1.75, 2.0]
NORMALIZERS = {"sigmoid": Sigmoid(), "sum": Sum(), "sparsemax": Sparsemax()} | {
    f"entmax {alpha}": Entmax(alpha) for alpha in ALPHAS
}
FEW = ["sigmoid", "sum", "sparsemax", "entmax 1.3", "entmax 1.5"]


def tensors(*shapes, seed=0, dtype=torch.float64):
    return [torch.tensor(array, dtype=dtype) for array in inputs(*shapes, seed=seed)]


def against_oracle(arrays, name, score="dot", params=None, **options):
    """The check of every path, by the native kernels alone. Under a sum, scores are positive, so that no sum is near 0."""
    params = dict(params or {})
    if name.startswith("entmax"):
        params["alpha"] = float(name.split()[1])
    if name == "sum":
        arrays = [np.abs(arrays[0]) + 0.2, np.abs(arrays[1]) + 0.2, arrays[2]]
        params = {key: value.abs() if isinstance(value, torch.Tensor) else value for key, value in params.items()}
    with overt.use_path("native"):
        check(arrays, score=score, normalizer=name.split()[0], params=params, **options)


def attended(leaves, path="native", **options):
    """The output of one path."""
    with overt.use_path(path):
        return overt.attend(*leaves, **options)


def equal_on_both_paths(leaves, others=(), upstream=None, tolerances=(1e-12, 1e-10), **options):
    """Compare output and gradients of the native core with those of the blocks."""
    leaves = [leaf.requires_grad_() for leaf in leaves]
    result, wanted = (attended(leaves, path, **options) for path in ("native", "blocked"))
    close(result.detach(), wanted.detach(), tolerances[0], "output")
    upstream = torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(5))
    both = [torch.autograd.grad(output, [*leaves, *others], upstream) for output in (result, wanted)]
    for index, (one, other) in enumerate(zip(*both, strict=True)):
        close(one, other, tolerances[1], f"gradient {index}")


def parameters(score):
    weight = torch.tensor(np.random.default_rng(9).normal(size=9))
    additive = {
        f"additive {name}": {"weight": weight, "activation": name} for name in ("tanh", "sigmoid", "relu", "leaky_relu")
    }
    return {"dot": {}, "capped": {"softcap": 1.5}, "cosine": {"scale": 3.0}, "gaussian": {"bandwidth": 1.7}} | additive


SCORES = ["dot", "capped", "cosine", "gaussian", "additive tanh", "additive sigmoid", "additive relu", "additive leaky_relu"]


@pytest.mark.each_pair
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", FEW)
def test_every_score_in_every_dtype_gives_the_oracles_numbers(level, name, score, dtype):
    if name == "sum" and score in ("gaussian", "additive tanh"):
        return  # sums of scores of both signs may be near 0
    if dtype.itemsize == 2 and name == "sparsemax" and score == "cosine":
        return  # scores of normalized half numbers are rounded: another support
    arrays = inputs((2, 33, 9), (2, 70, 9), (2, 70, 5))
    form = "dot" if score == "capped" else score.split()[0]
    against_oracle(arrays, name, score=form, params=parameters(score)[score], dtype=dtype)


@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [1, 2, 8, 9, 63, 65, 129])
@pytest.mark.parametrize("keys", [1, 63, 65, 257])
@pytest.mark.parametrize("name", FEW)
def test_lengths_round_the_edges_of_tiles_give_the_oracles_numbers(level, name, queries, keys):
    for dtype in (torch.float64, torch.float32):
        against_oracle(inputs((queries, 3), (keys, 3), (keys, 17)), name, dtype=dtype)


@pytest.mark.each_pair
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(("features", "width"), [(1, 1), (7, 16), (16, 40), (33, 8), (130, 15), (64, 64)])
def test_widths_round_those_of_vectors_give_the_oracles_numbers(level, name, features, width):
    for queries in (5, 20):
        for dtype in (torch.float64, torch.float32):
            against_oracle(inputs((queries, features), (21, features), (21, width)), name, dtype=dtype)


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.few_cases(24)
def test_attention_under_each_mask_gives_the_oracles_numbers(level, name, mask):
    mask = MASKS[mask]
    allowed = mask.bind(2, Q, K).block(torch.arange(Q), torch.arange(K)).expand(2, 3, Q, K)
    against_oracle(inputs((2, 3, Q, 4), (2, 3, K, 4), (2, 3, K, 3)), name, mask=mask, allowed=allowed)


@pytest.mark.each_pair
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("sizes", [(130, 130), (200, 140), (70, 300), (4, 300)])
def test_ranges_across_many_tiles_give_the_oracles_numbers(level, name, sizes):
    queries, keys = sizes
    for mask in (overt.Causal(), overt.Window(70, 0), overt.Window(3, 90), overt.Causal(offset=60)):
        allowed = mask.bind(0, queries, keys).block(torch.arange(queries), torch.arange(keys))
        against_oracle(inputs((queries, 5), (keys, 5), (keys, 4)), name, mask=mask, allowed=allowed, dtype=torch.float32)


@pytest.mark.parametrize("name", ["sigmoid", "sparsemax", "entmax 1.3"])
@pytest.mark.parametrize("shape", [(70, 75), (70, 1), (1, 75), (1, 1), (), (3, 70, 75), (3, 1, 1), (2, 3, 1, 75)])
@pytest.mark.each_value
def test_a_bias_that_broadcasts_gives_the_oracles_numbers_and_gradient(name, shape):
    arrays = inputs((2, 3, 70, 5), (2, 3, 75, 5), (2, 3, 75, 4))
    against_oracle(arrays, name, bias=np.random.default_rng(3).normal(size=shape))


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.each_value
def test_learned_slopes_get_their_gradients(name, queries):
    leaves = tensors((2, 3, queries, 5), (2, 3, 75, 5), (2, 3, 75, 4))
    if name == "sum":
        leaves[:2] = leaves[0].abs(), leaves[1].abs() + 1
    slopes = torch.rand(3, dtype=torch.float64).mul(-0.01 if name == "sum" else 1).requires_grad_()
    equal_on_both_paths(leaves, [slopes], bias=overt.ALiBi(slopes), normalizer=NORMALIZERS[name], mask=overt.Causal())


@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [1, 3, 40])
@pytest.mark.parametrize("heads", [(6, 2), (6, 1)])
@pytest.mark.parametrize("name", FEW)
def test_grouped_heads_give_the_blocks_numbers(level, name, queries, heads):
    leaves = tensors((2, heads[0], queries, 5), (2, heads[1], 300, 5), (2, heads[1], 300, 4))
    if name == "sum":
        leaves[:2] = leaves[0].abs(), leaves[1].abs()
    equal_on_both_paths(leaves, normalizer=NORMALIZERS[name])


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_tensors_in_any_layout_give_the_blocks_numbers(name, score):
    base = tensors((2, 70, 3, 5), (2, 90, 3, 5), (2, 90, 3, 8))
    if name == "sum":
        base[:2] = base[0].abs(), base[1].abs()
    leaves = [base[0].transpose(1, 2), base[1].transpose(1, 2), base[2][..., ::2].transpose(1, 2)]
    weight = torch.rand(5, dtype=torch.float64)
    options = {"score": overt.Additive(weight, "sigmoid")} if score == "additive" else {}
    equal_on_both_paths([leaf.detach() for leaf in leaves], normalizer=NORMALIZERS[name], **options)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("queries", [1, 5, 200])
@pytest.mark.parametrize("name", FEW)
@pytest.mark.each_pair
def test_work_split_among_threads_gives_the_blocks_numbers(name, queries, threads):
    before = torch.get_num_threads()
    leaves = tensors((1, queries, 5), (1, 1000, 5), (1, 1000, 4))
    if name == "sum":
        leaves[:2] = leaves[0].abs(), leaves[1].abs()
    bias = torch.rand(1, 1000, dtype=torch.float64).requires_grad_()
    try:
        torch.set_num_threads(threads)
        equal_on_both_paths(leaves, [bias], normalizer=NORMALIZERS[name], bias=bias, mask=overt.Causal())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 2.0])
@pytest.mark.parametrize("queries", [3, 70])
def test_alpha_is_learned_for_each_head(score, alpha, queries):
    leaves, width = tensors((2, 3, queries, 5), (2, 3, 75, 5), (2, 3, 75, 4)), 5
    # At alpha = 2 exactly, the blocks take another formula only for numbers; a tensor takes the general one.
    alphas = (
        torch.tensor([alpha, min(alpha + 0.1, 2), max(alpha - 0.02, 1.02)], dtype=torch.float64)
        .reshape(3, 1, 1)
        .requires_grad_()
    )
    options = {"score": overt.Additive(torch.rand(width, dtype=torch.float64))} if score == "additive" else {}
    equal_on_both_paths(leaves, [alphas], tolerances=(1e-11, 1e-8), normalizer=Entmax(alphas), mask=overt.Causal(), **options)


@pytest.mark.parametrize("name", NORMALIZERS)
@DIRECTIONS
def test_gradients_are_exact_once_and_twice(name, fast):
    leaves = [leaf.requires_grad_() for leaf in tensors((2, 3, 2), (2, 5, 2), (2, 5, 2))]
    if name == "sum":
        leaves = [leaf.detach().abs().requires_grad_() for leaf in leaves]

    def run(*leaves):
        return attended(leaves, normalizer=NORMALIZERS[name], mask=overt.Causal())

    assert gradcheck(run, leaves, fast_mode=fast)
    assert gradgradcheck(run, leaves, fast_mode=fast)


def test_alpha_passes_gradcheck():
    leaves = [leaf.requires_grad_() for leaf in tensors((2, 5, 3), (2, 7, 3), (2, 7, 2))]
    alpha = torch.tensor([1.3, 1.8], dtype=torch.float64).reshape(2, 1, 1).requires_grad_()
    assert gradcheck(lambda alpha, *leaves: attended(leaves, normalizer=Entmax(alpha)), [alpha, *leaves])


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("queries", [3, 70])
def test_dropout_keeps_the_same_weights_in_both_passes(name, queries):
    query, key = (tensor.abs() for tensor in tensors((2, queries, 5), (2, 90, 5)))
    weights = overt.steps(query, key, key, normalizer=NORMALIZERS[name]).weights
    eye = torch.eye(90, dtype=torch.float64).expand(2, 90, 90).contiguous().requires_grad_()
    torch.manual_seed(4)
    shown = attended((query, key, eye), normalizer=NORMALIZERS[name], dropout=0.4)
    retained = (shown != 0) | (weights == 0)
    close(shown.detach(), torch.where(retained, weights / 0.6, 0), 1e-12, "weights")
    upstream = torch.randn(shown.shape, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(shown, eye, upstream)
    close(gradient, torch.where(retained, weights / 0.6, 0).mT @ upstream, 1e-10, "gradient of values")


@pytest.mark.parametrize("name", FEW)
def test_dropout_gives_the_formulas_gradients(name):
    """A second derivative goes by the formula, whose dropout is the kernel's hash."""
    leaves = [leaf.abs().requires_grad_() for leaf in tensors((2, 20, 5), (2, 30, 5), (2, 30, 4))]
    gradients = []
    for create in (False, True):
        torch.manual_seed(7)
        output = attended(leaves, normalizer=NORMALIZERS[name], dropout=0.3)
        gradients.append(torch.autograd.grad(output.square().sum(), leaves, create_graph=create))
    for one, other in zip(*gradients, strict=True):
        close(one, other.detach(), 1e-10, "gradient")


@pytest.mark.each_pair
@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_queries_without_keys_get_zeros_and_zero_gradients(level, name, queries, score):
    leaves = [leaf.requires_grad_() for leaf in tensors((2, queries, 5), (2, 70, 5), (2, 70, 4))]
    allowed = torch.rand(queries, 70, generator=torch.Generator().manual_seed(1)) < 0.3
    allowed[1] = False
    options = {"score": overt.Additive(torch.ones(5, dtype=torch.float64))} if score == "additive" else {}
    output = attended(leaves, normalizer=NORMALIZERS[name], mask=allowed, **options)
    gradients = torch.autograd.grad(output.sum(), leaves)
    assert (output[:, 1] == 0).all()
    assert (gradients[0][:, 1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.each_pair
@pytest.mark.parametrize("queries", [3, 70])
@pytest.mark.parametrize("nasty", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("spoiled", ["key", "value"])
@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("name", FEW)
def test_a_masked_key_is_as_good_as_deleted_whatever_it_holds(level, name, score, spoiled, nasty, queries):
    leaves = dict(zip(("query", "key", "value"), tensors((queries, 5), (70, 5), (70, 4)), strict=True))
    leaves = {name: tensor.abs() for name, tensor in leaves.items()}
    upstream = torch.randn(queries, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    options = {"score": overt.Additive(torch.ones(5, dtype=torch.float64))} if score == "additive" else {}

    def run():
        copies = [tensor.clone().requires_grad_() for tensor in leaves.values()]
        output = attended(copies, normalizer=NORMALIZERS[name], mask=overt.Causal(offset=0), **options)
        return [output.detach(), *torch.autograd.grad(output, copies, upstream)]

    clean = run()
    leaves[spoiled][queries - 1] = nasty  # only the last query may attend to it
    output, d_query, d_key, d_value = run()
    torch.testing.assert_close(output[:-1], clean[0][:-1])
    torch.testing.assert_close(d_query[:-1], clean[1][:-1])
    torch.testing.assert_close(d_key[queries:], clean[2][queries:])
    torch.testing.assert_close(d_value[queries:], clean[3][queries:])
    if math.isnan(nasty):
        assert output[-1].isnan().all()


@pytest.mark.parametrize("name", ["sparsemax", "entmax 1.3", "entmax 1.5"])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e18])
def test_huge_scores_keep_the_largest_and_their_gradients(level, name, size):
    query = torch.eye(4).repeat(20, 1)[:70].requires_grad_()
    key, value = (torch.eye(4) * size).requires_grad_(), torch.randn(4, 3).requires_grad_()
    output = attended((query, key, value), score=overt.Dot(scale=1.0), normalizer=NORMALIZERS[name])
    torch.testing.assert_close(output, value[torch.arange(70) % 4])
    (gradient,) = torch.autograd.grad(output.sum(), value)
    torch.testing.assert_close(gradient.sum(), torch.tensor(210.0))


@pytest.mark.each_pair
@pytest.mark.parametrize("name", ["sparsemax", "entmax 1.05", "entmax 1.3", "entmax 1.5", "entmax 1.75"])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("keys", [257, 3000])
def test_equal_near_equal_and_peaked_scores_give_the_oracles_numbers(level, name, spread, keys):
    query, key, value = inputs((20, 8), (keys, 8), (keys, 5))
    for dtype in (torch.float64, torch.float32):
        against_oracle([query * spread, key, value], name, dtype=dtype)


@pytest.mark.parametrize("name", ["sparsemax", "entmax 1.3", "entmax 1.5"])
def test_ties_share_their_weight(level, name):
    key = torch.randn(6, 5).repeat(12, 1)  # each key twelve times
    weights = attended((torch.randn(40, 5) * 3, key, torch.eye(72)), normalizer=NORMALIZERS[name])
    torch.testing.assert_close(weights.sum(-1), torch.ones(40))
    torch.testing.assert_close(weights, weights[:, :6].repeat(1, 12), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["sparsemax", "entmax 1.5"])
def test_a_key_of_ever_larger_score_replaces_all_before(level, name):
    """The largest score comes last, so every bound that was found before is lowered."""
    query, key = torch.ones(20, 1), torch.arange(900.0)[:, None] * 0.75
    weights = attended((query, key, torch.eye(900)), score=overt.Dot(1.0), normalizer=NORMALIZERS[name])
    wanted = overt.steps(
        query.double(), key.double(), torch.eye(900).double(), score=overt.Dot(1.0), normalizer=NORMALIZERS[name]
    )
    close(weights, wanted.weights, 1e-5, "weights")


def test_the_plan_names_the_normalizer():
    x = torch.randn(1, 4, 16, 8)
    reasons = {
        "a dot product under sparsemax": Sparsemax(),
        "a dot product under entmax 1.5": Entmax(),
        "a dot product under entmax 1.25": Entmax(1.25),
        "a dot product under a sigmoid": Sigmoid(),
        "a dot product under a sum": Sum(),
        "a dot product under a softmax": Softmax(),
    }
    for reason, normalizer in reasons.items():
        assert overt.plan(x, x, x, normalizer=normalizer).reason.startswith(reason)
    weight = torch.ones(8)
    assert overt.plan(x, x, x, score=overt.Additive(weight), normalizer=Sum()).reason.startswith(
        "additive attention under a sum"
    )


@pytest.mark.parametrize(
    ("normalizer", "reason"),
    [
        (Entmax(2.5), "the alpha is above 2"),
        (Entmax(torch.tensor(2.5)), "the alpha is not above 1 and at most 2"),
        (Entmax(torch.full((4, 16, 1), 1.5)), "the alpha differs between queries or keys"),
        (lambda scores, allowed: torch.softmax(scores, -1), "the normalizer cannot be traced: amax over queries or keys"),
    ],
)
def test_the_plan_says_why_blocks_compute_other_normalizers(normalizer, reason):
    x = torch.randn(1, 4, 16, 8)
    assert overt.plan(x, x, x, normalizer=normalizer).refused["native"] == reason
    with overt.use_path("native"), pytest.raises(InputError, match=reason.split(" ")[1]):
        overt.attend(x, x, x, normalizer=normalizer)


@pytest.mark.parametrize("name", FEW)
def test_compiled_and_mapped_calls_give_the_same_numbers(name):
    leaves = [leaf.abs() for leaf in tensors((3, 20, 5), (3, 30, 5), (3, 30, 4))]
    wanted = attended(leaves, normalizer=NORMALIZERS[name])
    mapped = torch.func.vmap(lambda *each: attended(each, normalizer=NORMALIZERS[name]))(*leaves)
    close(mapped, wanted, 1e-12, "vmap")
    torch.library.opcheck(
        torch.ops.overt.dot.default, operator_inputs(leaves, NORMALIZERS[name]), test_utils=("test_schema", "test_faketensor")
    )


def operator_inputs(leaves, normalizer):
    from overt.attention.kernels.call import Call
    from overt.attention.kernels.flat.call import flattened

    return tuple(flattened(Call.checked(*leaves, normalizer=normalizer))[1])
