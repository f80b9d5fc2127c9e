"""Every path gives the oracle's output, weights and gradients."""

import numpy as np
import pytest
import torch

import overt
from compare import check, inputs, parameters
from overt.attention.kernels import blocked
from overt.errors import InputError

SCORES = ["dot", "bilinear", "additive", "cosine", "gaussian"]
NORMALIZERS = ["softmax", "sparsemax", "entmax", "sigmoid"]


def causal(queries, keys):
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 rows, so that short sequences have many edges."""
    monkeypatch.setattr(blocked, "BLOCK", 1)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", SCORES)
def test_every_score_under_every_normalizer_gives_the_oracles_numbers(score, normalizer, small_blocks):
    params = parameters(score, normalizer, 5, np.random.default_rng(1))
    with overt.use_path("torch", "blocked"):
        check(inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4)), score=score, normalizer=normalizer, params=params)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", SCORES)
def test_masks_and_learned_biases_leave_the_oracles_numbers(score, normalizer, small_blocks):
    params = parameters(score, normalizer, 5, np.random.default_rng(1))
    allowed = np.random.default_rng(2).random((2, 1, 9, 11)) < 0.6
    allowed[0, 0, 3] = False
    bias = np.random.default_rng(3).normal(size=(3, 9, 1))
    check(
        inputs((2, 3, 9, 5), (2, 3, 11, 5), (2, 3, 11, 4)),
        score=score,
        normalizer=normalizer,
        params=params,
        allowed=allowed,
        bias=bias,
    )


def test_the_plain_sum_gives_the_oracles_numbers():
    positive = [np.abs(x) for x in inputs((7, 5), (9, 5), (9, 4))]
    check(positive, normalizer="sum", params={"scale": torch.tensor(0.7)})


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "leaky_relu"])
def test_every_activation_of_the_additive_score_gives_the_oracles_numbers(activation):
    params = {"weight": torch.randn(5, dtype=torch.float64), "activation": activation}
    with overt.use_path("blocked"):
        check(inputs((7, 5), (9, 5), (9, 4)), score="additive", params=params)


def test_a_softcap_gives_the_oracles_numbers():
    check(inputs((7, 5), (9, 5), (9, 4)), params={"scale": torch.tensor(2.0), "softcap": torch.tensor(1.5)})


@pytest.mark.parametrize("alpha", [1.1, 1.3, 1.5, 2.0, 2.6])
def test_entmax_of_any_alpha_gives_the_oracles_numbers(alpha):
    check(inputs((7, 5), (9, 5), (9, 4)), normalizer="entmax", params={"alpha": alpha})


@pytest.mark.parametrize("path", ["torch", "blocked"])
@pytest.mark.parametrize("length", [1, 63, 65, 257])
@pytest.mark.parametrize("is_causal", [False, True])
def test_both_paths_give_the_oracles_numbers_at_odd_lengths(path, length, is_causal):
    mask, allowed = (overt.Causal(), causal(length, length)) if is_causal else (None, None)
    with overt.use_path(path):
        check(inputs((2, length, 8), (2, length, 8), (2, length, 8)), mask=mask, allowed=allowed)


@pytest.mark.parametrize("queries", [7, 8, 9, 15, 16, 17])
def test_lengths_round_the_edges_of_blocks_give_the_oracles_numbers(queries, small_blocks):
    allowed = causal(queries, queries + 3)
    with overt.use_path("blocked"):
        check(inputs((queries, 4), (queries + 3, 4), (queries + 3, 6)), mask=overt.Causal(), allowed=allowed)


@pytest.mark.parametrize("path", ["torch", "blocked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_is_within_its_tolerance_on_both_paths(path, dtype):
    with overt.use_path(path):
        check(inputs((2, 3, 65, 16), (2, 3, 65, 16), (2, 3, 65, 16)), dtype=dtype, mask=overt.Causal(), allowed=causal(65, 65))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_additive_scores_in_every_dtype_are_within_its_tolerance(dtype):
    params = parameters("additive", "sigmoid", 8, np.random.default_rng(1))
    with overt.use_path("blocked"):
        check(inputs((2, 33, 8), (2, 33, 8), (2, 33, 8)), score="additive", params=params, dtype=dtype)


@pytest.mark.parametrize("path", ["torch", "blocked"])
def test_grouped_query_heads_read_the_key_head_of_their_group(path):
    with overt.use_path(path):
        check(inputs((2, 6, 9, 4), (2, 2, 11, 4), (2, 2, 11, 4)))


@pytest.mark.parametrize("path", ["torch", "blocked"])
@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 4), (7, 4), (7, 4)],
        [(2, 1, 5, 4), (3, 7, 4), (2, 3, 7, 4)],
        [(1, 3, 5, 4), (2, 1, 7, 4), (1, 1, 7, 4)],
        [(2, 1, 3, 5, 4), (1, 2, 3, 7, 4), (7, 4)],
        [(2, 5, 4), (1, 7, 4), (2, 7, 4)],
    ],
)
def test_leading_dimensions_broadcast(path, shapes):
    with overt.use_path(path):
        check(inputs(*shapes))


@pytest.mark.parametrize("path", ["torch", "blocked"])
def test_lengths_bar_keys_and_a_sequence_without_keys_gives_zeros(path):
    allowed = (np.arange(7) < np.array([0, 4, 7])[:, None])[:, None, None, :]
    with overt.use_path(path):
        check(inputs((3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 7, 4)), mask=overt.Lengths(torch.tensor([0, 4, 7])), allowed=allowed)


@pytest.mark.parametrize("path", ["torch", "blocked"])
def test_inputs_need_not_be_contiguous(path):
    query, key, value = (np.swapaxes(x, -1, -2) for x in inputs((2, 4, 9), (2, 4, 11), (2, 4, 11)))
    with overt.use_path(path):
        check([torch.as_tensor(x) for x in (query, key, value)])


def test_key_and_value_may_differ_in_width():
    check(inputs((2, 5, 4), (2, 7, 4), (2, 7, 9)))


@pytest.mark.each_pair
@pytest.mark.parametrize("size", [1e-30, 1e4, 1e15])
@pytest.mark.parametrize("score", ["dot", "additive", "cosine", "gaussian"])
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_tiny_and_huge_values_give_the_oracles_weights(size, score, normalizer):
    query, key, value = inputs((5, 4), (7, 4), (7, 3))
    params = parameters(score, "entmax", 4, np.random.default_rng(1))
    if score == "gaussian":
        params = {"bandwidth": size}
    import oracle
    from compare import MAKE_NORMALIZER, MAKE_SCORE, close

    options = {"score": MAKE_SCORE[score](params), "normalizer": MAKE_NORMALIZER[normalizer]({})}
    with np.errstate(over="ignore"):
        wanted = oracle.attention(query * size, key * size, value, score=score, params=params, normalizer=normalizer)
    result = overt.steps(torch.tensor(query * size), torch.tensor(key * size), torch.tensor(value), **options)
    close(result.weights, wanted.weights, 1e-12, "weights")
    close(result.output, wanted.output, 1e-12, "output")


@pytest.mark.parametrize(("queries", "keys", "features", "values"), [(0, 3, 4, 4), (3, 0, 4, 4), (3, 3, 0, 4), (3, 3, 4, 0)])
@pytest.mark.parametrize(
    "normalizer", [overt.Softmax(), overt.Sparsemax(), overt.Entmax(), overt.Entmax(1.3), overt.normalizers.Sum()]
)
def test_empty_dimensions_give_empty_or_zero_outputs_and_gradients(queries, keys, features, values, normalizer):
    leaves = [torch.ones(2, *shape, requires_grad=True) for shape in ((queries, features), (keys, features), (keys, values))]
    output = overt.attend(*leaves, normalizer=normalizer, mask=overt.Causal())
    assert output.shape == (2, queries, values)
    assert torch.isfinite(output).all() or normalizer.__class__ is overt.normalizers.Sum
    assert all(
        gradient.isfinite().all()
        for gradient in torch.autograd.grad(output.sum(), leaves)
        if normalizer.__class__ is not overt.normalizers.Sum
    )


def test_a_callable_is_a_score():
    query, key, value = (torch.as_tensor(x) for x in inputs((5, 4), (7, 4), (7, 3)))
    result = overt.attend(query, key, value, score=lambda q, k: -torch.cdist(q, k, p=1))
    wanted = torch.softmax(-(query[:, None] - key).abs().sum(-1), -1) @ value
    torch.testing.assert_close(result, wanted)


def test_a_callable_is_a_normalizer():
    query, key, value = (torch.as_tensor(x) for x in inputs((5, 4), (7, 4), (7, 3)))
    allowed = torch.rand(5, 7) < 0.7
    result = overt.steps(query, key, value, mask=allowed, normalizer=lambda scores, allowed: torch.relu(scores) ** 2).weights
    wanted = torch.where(allowed, torch.relu(query @ key.T / 2) ** 2, 0)
    torch.testing.assert_close(result, wanted)


def test_dropout_drops_the_same_weights_in_both_passes_and_obeys_the_seed(small_blocks):
    query, key = torch.randn(33, 4), torch.randn(33, 4)
    value = torch.eye(33, requires_grad=True)  # the output is then the dropped weights themselves
    torch.manual_seed(7)
    remaining = overt.attend(query, key, value, dropout=0.5)
    (gradient,) = torch.autograd.grad(remaining.sum(), value)  # column sums of the dropped weights
    torch.testing.assert_close(gradient, remaining.detach().sum(0)[:, None].expand(33, 33))
    torch.manual_seed(7)
    torch.testing.assert_close(overt.attend(query, key, value, dropout=0.5), remaining, rtol=0, atol=0)
    weights = overt.steps(query, key, value).weights
    assert 0.3 < float((remaining == 0).float().mean()) < 0.7
    torch.testing.assert_close(remaining[remaining != 0], 2 * weights[remaining != 0])


@pytest.mark.parametrize("mask", [None, overt.Causal(), overt.Lengths(torch.tensor([4, 9]))])
@pytest.mark.parametrize("path", ["torch", "blocked"])
def test_the_weight_of_a_bilinear_score_gets_its_gradient_on_both_paths(path, mask):
    allowed = {
        type(None): None,
        overt.Causal: causal(9, 9),
        overt.Lengths: (np.arange(9) < np.array([4, 9])[:, None])[:, None, None],
    }
    params = parameters("bilinear", "entmax", 5, np.random.default_rng(1))
    with overt.use_path(path):
        shapes = (2, 3, 9, 5), (2, 3, 9, 5), (2, 3, 9, 5)
        check(inputs(*shapes), score="bilinear", params=params, mask=mask, allowed=allowed[type(mask)])


@pytest.mark.parametrize("bias", [torch.ones(9, 9).double(), overt.ALiBi(torch.ones(3).double())], ids=["pairs", "distances"])
@pytest.mark.parametrize("path", ["native", "blocked"])
def test_a_bias_of_wider_numbers_than_the_inputs_leaves_their_dtype(path, bias):
    x = torch.randn(2, 3, 9, 4)
    score = overt.Additive(torch.ones(4))
    with overt.use_path(path):
        result = overt.attend(x, x, x, score=score, bias=bias)
        wanted = overt.attend(*[x.double()] * 3, score=score, bias=bias)
    torch.testing.assert_close(result, wanted.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.each_pair
@pytest.mark.parametrize("mask", [None, overt.Causal(), overt.Window(5, 0)], ids=["no mask", "causal", "window"])
@pytest.mark.parametrize("shape", [(30, 1), (1, 40), (30, 40), (2, 1, 40), (40,), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("field", ["scale", "softcap", "cosine", "bandwidth"])
def test_a_scale_for_each_query_or_key_is_that_of_its_block(field, shape, mask, monkeypatch):
    monkeypatch.setattr("overt.attention.kernels.blocked.BLOCK", 1000)
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, length, 4, dtype=torch.float64) for length in (30, 40, 40))
    numbers = torch.rand(shape, dtype=torch.float64).add(0.5).requires_grad_()
    dot = query @ key.mT
    score, expected = {
        "scale": (overt.Dot(numbers), dot * numbers),
        "softcap": (overt.Dot(1.0, numbers), numbers * torch.tanh(dot / numbers)),
        "cosine": (
            overt.Cosine(numbers),
            numbers * torch.nn.functional.cosine_similarity(query[:, :, None], key[:, None], dim=-1),
        ),
        "bandwidth": (overt.Gaussian(numbers), -torch.cdist(query, key).square() / (2 * numbers**2)),
    }[field]
    allowed = (
        torch.ones(30, 40, dtype=torch.bool) if mask is None else mask.bind(1, 30, 40).block(torch.arange(30), torch.arange(40))
    )
    expected = torch.softmax(torch.where(allowed, expected, -torch.inf), -1) @ value
    direction = torch.randn_like(expected)
    output = overt.attend(query, key, value, score=score, mask=mask)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (torch.autograd.grad((each * direction).sum(), numbers)[0] for each in (output, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


def test_a_scale_of_other_lengths_is_refused():
    x = torch.randn(2, 9, 4)
    with pytest.raises(InputError, match=r"scale of overt.Dot to broadcast, aligned right, against .* got .* shape \(7, 1\)"):
        overt.attend(x, x, x, score=overt.Dot(torch.ones(7, 1)))
