"""The laws of attention, as properties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import overt
from overt.attention import trace
from overt.attention.kernels import blocked

sizes = some.integers(1, 9)
seeds = some.integers(0, 2**31)
few = settings(max_examples=40, deadline=None)


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@few
@given(sizes, sizes, seeds)
def test_permuting_the_inputs_of_self_attention_permutes_its_outputs(length, features, seed):
    x = normal(seed, length, features)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(overt.attend(x[order], x[order], x[order]), overt.attend(x, x, x)[order])


@few
@given(some.integers(3, 9), sizes, seeds)
def test_equal_vectors_get_equal_weights_wherever_they_stand(length, features, seed):
    x = normal(seed, length, features)
    x[-1] = x[0]
    weights = overt.steps(x, x, x).weights
    torch.testing.assert_close(weights[:, 0], weights[:, -1])


@few
@given(some.integers(2, 9), sizes, seeds)
def test_priority_is_added_by_a_bias_of_log_p_for_each_key(length, features, seed):
    x = normal(seed, length, features)
    priority = normal(seed + 1, length).exp()
    plain = overt.steps(x, x, x).weights * priority
    result = overt.steps(x, x, x, bias=priority.log()).weights
    torch.testing.assert_close(result, plain / plain.sum(-1, keepdim=True))


@few
@given(sizes, some.integers(1, 9), sizes, seeds)
def test_masked_is_deleted(queries, keys, features, seed):
    query, key, value = normal(seed, queries, features), normal(seed + 1, keys, features), normal(seed + 2, keys, 3)
    remaining = normal(seed + 3, keys) > 0
    torch.testing.assert_close(
        overt.attend(query, key, value, mask=remaining), overt.attend(query, key[remaining], value[remaining])
    )


@few
@given(sizes, sizes, sizes, some.integers(1, 40), seeds)
def test_blocked_is_whole_is_the_loop(queries, keys, features, block, seed):
    query, key, value = normal(seed, queries, features), normal(seed + 1, keys, features), normal(seed + 2, keys, 3)
    whole = overt.steps(query, key, value, mask=overt.Causal()).output
    before, blocked.BLOCK = blocked.BLOCK, block
    try:
        with overt.use_path("blocked"):
            in_blocks = overt.attend(query, key, value, mask=overt.Causal())
    finally:
        blocked.BLOCK = before
    torch.testing.assert_close(in_blocks, whole)
    torch.testing.assert_close(trace.loop(query, key, value, mask=overt.Causal()), whole)


@few
@given(
    some.integers(1, 6),
    some.integers(1, 6),
    some.sampled_from([overt.Cosine(2.0), overt.Gaussian(1.5), overt.Dot(0.3, softcap=1.0)]),
    seeds,
)
def test_the_loop_takes_any_score(queries, keys, score, seed):
    query, key, value = normal(seed, queries, 4), normal(seed + 1, keys, 4), normal(seed + 2, keys, 3)
    torch.testing.assert_close(trace.loop(query, key, value, score=score), overt.attend(query, key, value, score=score))


@few
@given(sizes, sizes, some.floats(0.3, 3), seeds)
def test_the_gaussian_score_is_a_dot_product_when_norms_are_equal(length, features, bandwidth, seed):
    x = torch.nn.functional.normalize(normal(seed, length, features), dim=-1)
    gaussian = overt.attend(x, x, x, score=overt.Gaussian(bandwidth))
    torch.testing.assert_close(gaussian, overt.attend(x, x, x, score=overt.Dot(scale=1 / bandwidth**2)))


@few
@given(sizes, some.integers(1, 5), seeds)
def test_parameter_free_self_attention_is_attend_of_x_x_x_with_the_plain_dot_product(length, features, seed):
    from overt import smoothing

    x = normal(seed, length, features)
    by_hand = torch.softmax(x @ x.T, dim=-1) @ x
    torch.testing.assert_close(overt.attend(x, x, x, score=overt.Dot(scale=1.0)), by_hand)
    torch.testing.assert_close(torch.as_tensor(smoothing.reweight(x.numpy()).output), by_hand)


@pytest.mark.filterwarnings("ignore:A bandwidth of")  # below half a step nearly nothing changes, and the law holds all the same
@few
@given(some.integers(2, 60), some.floats(0.2, 2), seeds)
def test_the_gaussian_and_dot_scores_on_a_scalar_series_give_the_smoother(length, bandwidth, seed):
    series = normal(seed, length)
    x, times = series[:, None], torch.arange(length, dtype=torch.float64)[:, None]
    by_value = overt.attend(x, x, x, score=overt.Gaussian(bandwidth))[:, 0]
    by_time = overt.attend(times, times, x, score=overt.Gaussian(bandwidth))[:, 0]
    by_dot = overt.attend(x, x, x, score=overt.Dot(scale=1.0))[:, 0]
    series = series.numpy()
    torch.testing.assert_close(torch.as_tensor(overt.smooth(series, keys="value", bandwidth=bandwidth)), by_value)
    torch.testing.assert_close(torch.as_tensor(overt.smooth(series, keys="time", bandwidth=bandwidth, degree=0)), by_time)
    torch.testing.assert_close(torch.as_tensor(overt.smooth(series, keys="value", score="dot")), by_dot)


@few
@given(some.integers(1, 6), some.integers(1, 6), sizes, seeds)
def test_cached_steps_equal_the_whole_sequence(cached, new, features, seed):
    x = normal(seed, cached + new, features)
    whole = overt.attend(x, x, x, mask=overt.Causal() & overt.Window(3, 0))
    torch.testing.assert_close(overt.attend(x[cached:], x, x, mask=overt.Causal() & overt.Window(3, 0)), whole[cached:])
